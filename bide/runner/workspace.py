"""A session's folders on this runner: cloned, brought back, saved, kept warm, put aside. Blocking; run in a thread."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from msgspec.structs import replace

from bide.core import effects as e
from bide.core import facts as f
from bide.core import ids
from bide.core.limits import LOST_ITEMS_MAX, WARM_FOLDERS_MAX
from bide.core.refusals import Refused, Unavailable
from bide.drivers.base import Carried, Driver
from bide.runner import git
from bide.runner.layout import Layout
from bide.runner.sandbox import Choice
from bide.snapshots.blobs.base import BlobStore, Missing
from bide.snapshots.capture import capture
from bide.snapshots.compare import same_as
from bide.snapshots.folders import remove
from bide.snapshots.losses import BadFolder, Damaged, Hostile, RootTaken
from bide.snapshots.restore import restore
from bide.snapshots.scan import Tree
from bide.snapshots.verify import verify

KEPT = ("workspace", "home", "conversation")
NOT_KEPT = ("processes and ports", "temporary files", "tokens and settings of the lease")


class Workspaces:
    """All sessions' folders under one root. Each method works on one session, and on one at a time for each."""

    def __init__(self, root: Path, blobs: BlobStore, choice: Choice, clock: Callable[[], float] = time.time) -> None:
        self._root, self._blobs, self._choice, self._clock = root, blobs, choice, clock
        self._known_good: dict[str, set[str]] = {}
        self._marks = threading.Lock()

    def layout(self, session: str) -> Layout:
        """The session's folders."""
        return Layout(self._root, session)

    # -- bringing it here ---------------------------------------------------------------------------------------------

    def make(self, effect: e.Restore, driver: Driver) -> e.Restored | e.NotRestored:
        """Clones the repository, or brings back the checkpoint. Raises `Unavailable` while the blobs are out of reach."""
        began, job, layout = time.monotonic(), effect.job, self.layout(effect.session)
        try:
            if job.checkpoint is None:
                self.put_aside(effect.session, effect.epoch)
                done = self._fresh(effect, layout)
            else:
                done = self._back(job.checkpoint, layout, effect.epoch)
        except Refused as refused:
            return e.NotRestored(lost=False, code=refused.code, sentence=refused.sentence, hint=refused.hint)
        except (Damaged, Missing) as gone:
            return _lost(effect, gone)
        except Hostile as hostile:
            item = f.Lost(what=hostile.path, reason=hostile.reason)
            return e.NotRestored(lost=True, code="checkpoint_hostile", sentence=str(hostile), items=(item,))
        return self._described(
            effect, done, began, memory=driver.memory(layout.home, job.runtime_session_id).inputs,
            not_kept=job.checkpoint.not_kept if job.checkpoint else (),
            stopped=job.checkpoint.stopped if job.checkpoint else (),
        )  # fmt: skip

    def take_up(self, effect: e.Restore, driver: Driver) -> e.Restored | e.NotRestored:
        """The folder as an earlier process left it, trusted as it is: nothing else ever worked on it."""
        began, job, layout = time.monotonic(), effect.job, self.layout(effect.session)
        if not (layout.workspace.is_dir() and layout.home.is_dir()):
            item = f.Lost(what="the workspace", reason="its folder is gone from the runner")
            return e.NotRestored(
                lost=True, code="workspace_gone", sentence="the folder that was left is gone", items=(item,)
            )
        layout.create(self._choice.uid_outside)
        memory = driver.memory(layout.home, job.runtime_session_id)
        done = e.Restored(source="warm", workspace=f.Workspace())
        return self._described(effect, done, began, memory=None if memory.problem else memory.inputs)

    def _described(
        self,
        effect: e.Restore,
        done: e.Restored,
        began: float,
        *,
        memory: frozenset[str] | None,
        not_kept: tuple[str, ...] = (),
        stopped: tuple[str, ...] = (),
    ) -> e.Restored:
        saved, workspace = effect.job.checkpoint, self._look(self.layout(effect.session), effect.job.repository)
        moved = _moved(saved, workspace)
        return replace(
            done, workspace=workspace, seconds=round(time.monotonic() - began, 3), kept=KEPT,
            not_kept=(*NOT_KEPT, *not_kept), stopped=stopped, memory=memory, moved=moved,
            notes=_told(stopped, moved), isolation=self._choice.isolation,
        )  # fmt: skip

    def _fresh(self, effect: e.Restore, layout: Layout) -> e.Restored:
        layout.create(os.getuid())
        shutil.rmtree(layout.workspace)
        with self._git_config(effect.session) as config:
            git.clone(effect.job.repository, effect.job.branch, layout.workspace, config)
        layout.workspace.chmod(0o755)
        (layout.home / ".gitconfig").write_text(git.IDENTITY)
        layout.create(self._choice.uid_outside)
        layout.hand_over(self._choice.uid_outside)
        return e.Restored(source="fresh", workspace=f.Workspace())

    def _back(self, saved: f.Checkpoint, layout: Layout, epoch: int) -> e.Restored:
        if self._claimed(layout.session) == saved.root and self._still(saved.root, layout):
            return e.Restored(source="warm", workspace=f.Workspace(), files=saved.files, bytes=saved.bytes)
        self.put_aside(layout.session, epoch)  # whatever it holds is not this checkpoint, and may be all there is
        uid = self._choice.uid_outside
        layout.create(uid)
        state = layout.folder / ".runtime"
        targets = {"workspace": layout.workspace, "home": layout.home, "runtime": state}
        done = restore(saved.root, self._blobs, targets, owner=(uid, uid))
        _merge(state, layout.home)
        return e.Restored(source="checkpoint", workspace=f.Workspace(), files=done.files, bytes=done.bytes)

    def _claimed(self, session: str) -> str:
        """The checkpoint that the folder was kept for; nobody else may drop it from now on."""
        mark = self._mark(session)
        with self._marks, contextlib.suppress(FileNotFoundError):
            root = mark.read_text()
            mark.unlink()
            return root
        return ""

    def _still(self, root: str, layout: Layout) -> bool:
        """As `_unchanged`; an outage says nothing about the folder, which stays claimable for the next try."""
        try:
            return self._unchanged(root, layout)
        except Unavailable:
            self._mark(layout.session).write_text(root)
            raise

    def _unchanged(self, root: str, layout: Layout) -> bool:
        """A warm folder is a cache: it is checked against the checkpoint before it is trusted."""
        places = {"workspace": layout.workspace, "home": layout.home, "runtime": layout.home}
        with contextlib.suppress(KeyError, OSError, Missing, Damaged, Hostile):
            return all(same_as(root, self._blobs, tree, at, self._cache(layout.session)) for tree, at in places.items())
        return False

    # -- saving it ----------------------------------------------------------------------------------------------------

    def save(
        self, effect: e.Capture, carried: Carried, repository: str, parent: str, stopped: tuple[str, ...]
    ) -> e.Captured | e.NotCaptured:
        """Writes a checkpoint, reads it back, and says what it is. Nothing local is touched."""
        began, layout = time.monotonic(), self.layout(effect.session)
        root = f"{effect.session}/{effect.epoch}-{effect.n}"
        trees = (
            Tree("runtime", layout.home, carried.keep),
            Tree("workspace", layout.workspace),
            Tree("home", layout.home, (), carried.private),
        )
        good = self._known_good.setdefault(effect.session, set())
        try:
            done = capture(trees, self._blobs, root, parent or None, self._cache(effect.session))
            verify(root, self._blobs, known_good=good)
        except Unavailable as away:
            return e.NotCaptured(code="blobs_unavailable", reason=f"{away.what}: {away.why}")
        except Damaged as damaged:
            good.clear()
            why = damaged.items[0].reason if damaged.items else "unknown"
            return e.NotCaptured(code="read_back_failed", reason=f"What was written does not read back: {why}.")
        except (RootTaken, BadFolder, Refused, OSError) as error:
            return e.NotCaptured(code="capture_failed", reason=f"The workspace could not be saved: {error}")
        return e.Captured(
            root=root,
            files=done.files,
            bytes=done.bytes,
            new_bytes=done.new_bytes,
            seconds=round(time.monotonic() - began, 3),
            verified_at=self._clock(),
            kept=KEPT,
            not_kept=_cut((*(f"{item.path}: {item.reason}" for item in done.not_kept), *done.warnings)),
            stopped=stopped,
            workspace=self._look(layout, repository),
        )

    # -- letting it go ------------------------------------------------------------------------------------------------

    def keep_warm(self, session: str, root: str) -> None:
        """The folder stays as a cache of that checkpoint; the oldest beyond the budget go."""
        layout = self.layout(session)
        if not layout.folder.is_dir():
            return
        layout.forget()
        mark = self._mark(session)
        mark.parent.mkdir(mode=0o700, exist_ok=True)
        mark.write_text(root)
        self._known_good.pop(session, None)
        for old in _beyond_budget(mark.parent):
            self._evict(old.name)

    def _evict(self, session: str) -> None:
        """Drops a warm folder, unless its session is coming back at this moment: whoever takes the mark owns it."""
        trash = self._root / ".trash" / f"{session}-{secrets.token_hex(8)}"
        trash.parent.mkdir(mode=0o700, exist_ok=True)
        with self._marks, contextlib.suppress(FileNotFoundError):
            self._mark(session).unlink()
            self.layout(session).folder.rename(trash)
        _remove(trash)
        _remove(self._cache(session))

    def put_aside(self, session: str, epoch: int) -> None:
        """What another epoch left here is kept as salvage, never current; the oldest beyond the budget go."""
        layout = self.layout(session)
        with self._marks:  # from now on nobody drops it as an old cache
            self._mark(session).unlink(missing_ok=True)
        self._known_good.pop(session, None)
        if not layout.folder.exists():
            return
        layout.forget()
        salvage = self._root / ".salvage"
        salvage.mkdir(mode=0o700, exist_ok=True)
        target = salvage / f"{session}-{epoch}"
        while target.exists():  # one lease may find something here and leave something here
            target = target.with_name(f"{target.name}-again")
        layout.folder.rename(target)
        _remove(self._root / ".cache" / session)  # it knows the files that were here
        os.utime(target)  # its age as salvage, not as a folder
        for old in _beyond_budget(salvage):
            _remove(old)

    def tidy(self, taken_up: Collection[str]) -> None:
        """At the start of a runner: folders that nobody comes back for are salvage, as long as the budget has room."""
        stay = {*self.warm(), *taken_up}
        for entry in sorted(self._root.iterdir()):
            if ids.is_id(entry.name) and entry.is_dir() and entry.name not in stay:  # others are not ours
                self.put_aside(entry.name, 0)

    def warm(self) -> tuple[str, ...]:
        """Sessions whose folder is kept here."""
        marks = self._root / ".warm"
        return tuple(sorted(p.name for p in marks.iterdir())) if marks.exists() else ()

    # -- the parts ----------------------------------------------------------------------------------------------------

    def _look(self, layout: Layout, repository: str) -> f.Workspace:
        inside = layout.places(self._choice.stable_paths).workspace
        with self._git_config(layout.session) as config:
            return git.look(layout.workspace, inside, repository, config)

    @contextlib.contextmanager
    def _git_config(self, session: str) -> Iterator[Path]:
        folder = self._root / ".git"
        folder.mkdir(mode=0o700, exist_ok=True)
        config = folder / session
        try:
            yield config
        finally:
            config.unlink(missing_ok=True)

    def _mark(self, session: str) -> Path:
        return self._root / ".warm" / session

    def _cache(self, session: str) -> Path:
        cache = self._root / ".cache" / session
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cache


def _merge(state: Path, home: Path) -> None:
    """Puts the runtime's own state where it belongs in the home, which was saved without it."""
    seen = home.stat()
    for entry in list(state.iterdir()):
        entry.rename(home / entry.name)
    os.utime(home, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    state.rmdir()


def _lost(effect: e.Restore, gone: Damaged | Missing) -> e.NotRestored:
    """What cannot be brought back, itemised, and where something of it may still lie."""
    n = effect.job.checkpoint.n if effect.job.checkpoint else 0
    if isinstance(gone, Damaged) and gone.items:
        items = tuple(f.Lost(what=i.what, bytes=i.bytes, reason=i.reason) for i in gone.items[:LOST_ITEMS_MAX])
    else:
        size = effect.job.checkpoint.bytes if effect.job.checkpoint else 0
        items = (f.Lost(what=f"the whole checkpoint {n}", bytes=size, reason="its root is missing"),)
    sentence = f"checkpoint {n} cannot be restored: {items[0].reason}"
    return e.NotRestored(lost=True, code="checkpoint_damaged", sentence=sentence, items=items)


def _beyond_budget(folder: Path) -> list[Path]:
    """The oldest entries, past those that may stay; others may go through the same folder at the same time."""
    ages: dict[Path, int] = {}
    for entry in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            ages[entry] = entry.stat().st_mtime_ns
    return sorted(ages, key=ages.__getitem__, reverse=True)[WARM_FOLDERS_MAX:]


def _remove(folder: Path) -> None:
    """A session chose the modes in it; what cannot be removed stays and costs disk, nothing else."""
    with contextlib.suppress(OSError):
        at = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            remove(at, os.fsencode(folder.name))
        finally:
            os.close(at)


def _cut(lines: tuple[str, ...]) -> tuple[str, ...]:
    """The first of many: they stand in the session's state and in each report."""
    rest = len(lines) - LOST_ITEMS_MAX
    return lines if rest <= 0 else (*lines[:LOST_ITEMS_MAX], f"and {rest} more")


def _moved(saved: f.Checkpoint | None, now: f.Workspace) -> tuple[str, str] | None:
    """Without a sandbox the path of the workspace depends on the runner's root."""
    before = saved.workspace.cwd if saved else ""
    return (before, now.cwd) if before and before != now.cwd else None


def _told(stopped: tuple[str, ...], moved: tuple[str, str] | None) -> tuple[str, ...]:
    """What the coding agent is told about a workspace that came back, beyond what the server has to say."""
    told: list[str] = []
    if stopped:
        told.append("This session was parked in between. Not running any more: " + "; ".join(stopped) + ".")
    if moved:
        told.append(
            f"The workspace is now at {moved[1]}; it was at {moved[0]}. Absolute paths in environments may be stale."
        )
    return tuple(told)
