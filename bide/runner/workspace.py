"""A session's folders on this runner: cloned, brought back, saved, kept warm, put aside. Blocking; run in a thread."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import structlog
from msgspec.structs import replace

from bide.core import effects as e
from bide.core import facts as f
from bide.core.bounds import value_of
from bide.core.keeping import quota
from bide.core.limits import LOST_ITEMS_MAX, RACY_NS, TOOLCHAIN_S
from bide.core.refusals import Refused, Unavailable
from bide.drivers.base import Carried, Driver
from bide.runner import git, stale_locks, toolchain
from bide.runner.layout import Layout
from bide.runner.loss import not_restored
from bide.runner.sandbox import Choice
from bide.runner.shelf import Mark, Shelf
from bide.runner.snapshots import Snapshots
from bide.runner.spool import kernel
from bide.snapshots.blobs.base import Missing
from bide.snapshots.depot import KeyMissing, RootTaken
from bide.snapshots.engine import Closed, Waits
from bide.snapshots.failures import ReadBackFailed, Unforeseen
from bide.snapshots.losses import BadFolder, Changed, Damaged, Hostile, TooLarge
from bide.snapshots.project_base import Cloned, is_worthwhile
from bide.snapshots.scan import Tree, walked
from bide.snapshots.scope import ignored

LOG = structlog.get_logger()
KEPT = ("workspace", "home", "conversation")
WANTED = threading.Event()  # for who never calls it off
NOT_KEPT = ("processes and ports", "temporary files", "tokens and settings of the lease")


class Workspaces:
    """All sessions' folders under one root. Each method works on one session, and on one at a time for each."""

    def __init__(
        self,
        root: Path,
        snapshots: Snapshots,
        choice: Choice,
        clock: Callable[[], float] = time.time,
        warm_bytes: int = 0,
    ) -> None:
        self._root, self._snapshots, self._choice, self._clock = root, snapshots, choice, clock
        self.shelf = Shelf(root, warm_bytes)
        self._known_good: dict[str, tuple[str, ...]] = {}
        self._toolchain: tuple[float, dict[str, str]] = (0.0, {})
        self._sizes: dict[str, int] = {}  # bytes of the newest checkpoint of each
        self._cloned: dict[str, Cloned] = {}  # until the first checkpoint of each
        self._kernel = kernel()
        self._alone: set[str] = set()  # what these save builds upon no base

    @property
    def root(self) -> Path:
        """Where all of it lies."""
        return self._root

    def layout(self, session: str) -> Layout:
        """The session's folders."""
        return Layout(self._root, session)

    # -- bringing it here ---------------------------------------------------------------------------------------------

    def make(self, effect: e.Restore, driver: Driver, unwanted: threading.Event = WANTED) -> e.Restored | e.NotRestored:
        """Clones the repository until it is `unwanted`, or brings back the checkpoint.

        Raises `Unavailable` while the blobs are out of reach.
        """
        began, job, layout = time.monotonic(), effect.job, self.layout(effect.session)
        try:
            if job.checkpoint is None:
                self._aside(effect.session, effect.epoch)
                done = self._anew(layout, lambda: self._fresh(effect, layout, unwanted))
            else:
                most = min(int(value_of(job.limits, "workspace_bytes")), job.checkpoint.bytes)
                back = self._back(effect, job.checkpoint, layout, most)
                if isinstance(back, e.NotRestored):
                    return back
                done = back
        except Refused as refused:
            return e.NotRestored(lost=False, code=refused.code, sentence=refused.sentence, hint=refused.hint)
        except git.Unwanted:
            return e.NotRestored(lost=False, code="stopped", sentence="It was stopped before its workspace was made.")
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
        self.shelf.claim(effect.session)  # nobody drops it as a cache that it may have been
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
        saved, layout = effect.job.checkpoint, self.layout(effect.session)
        locks = stale_locks.clear(layout.workspace) if saved or effect.adopt else ()
        workspace = self._look(layout, effect.job.repository)
        moved, tools = _moved(saved, workspace), toolchain.changed(saved.toolchain if saved else {}, self._tools())
        return replace(
            done, workspace=workspace, seconds=round(time.monotonic() - began, 3), kept=KEPT,
            not_kept=(*NOT_KEPT, *not_kept), stopped=stopped, memory=memory, moved=moved, toolchain=tools,
            notes=(*_told(stopped, moved), *toolchain.told(tools)), found=(*stale_locks.told(locks), *done.found),
            isolation=self._choice.isolation,
        )  # fmt: skip

    def _fresh(self, effect: e.Restore, layout: Layout, unwanted: threading.Event) -> e.Restored:
        layout.create(os.getuid())
        shutil.rmtree(layout.workspace)
        with self._git_config(effect.session) as config:
            git.clone(effect.job.repository, effect.job.branch, layout.workspace, config, unwanted)
        layout.workspace.chmod(0o755)
        (layout.home / ".gitconfig").write_text(git.IDENTITY)
        layout.create(self._choice.uid_outside)
        layout.hand_over(self._choice.uid_outside)
        if not effect.job.branch:  # all sessions of the project begin with the default one
            self._note_clone(_workspace(layout, effect.job.care), effect.session)
        return e.Restored(source="fresh", workspace=f.Workspace())

    def _note_clone(self, tree: Tree, session: str) -> None:
        """What the clone left there, for its project's base; every change from now on shows."""
        time.sleep(RACY_NS / 1e9)  # a tick of the file system's clock
        try:
            cloned = Cloned(tree=tree, stood=walked(tree))
        except (OSError, BadFolder) as error:
            LOG.warning("clone_not_noted", session=session, why=str(error))
            return
        if is_worthwhile(cloned):
            self._cloned[session] = cloned

    def _back(
        self, effect: e.Restore, saved: f.Checkpoint, layout: Layout, bytes_max: int
    ) -> e.Restored | e.NotRestored:
        mark, aside = self.shelf.claim(layout.session), None
        try:
            if mark is not None and (done := self._warm(saved, layout, mark, bytes_max)) is not None:
                return done
            aside = self._aside(layout.session, effect.epoch)  # it is not this checkpoint, and may be all there is
            wanted = saved.bytes + saved.files * os.statvfs(self._root).f_bsize
            return self._anew(layout, lambda: self._brought(saved, layout, bytes_max, warm=False), wanted)
        except (Damaged, Missing, KeyMissing, Hostile) as gone:  # what stands here may be all that is left of it
            aside = aside or self._aside(layout.session, effect.epoch)
            return not_restored(saved, gone, aside, mark.root if mark else "")

    def _warm(self, saved: f.Checkpoint, layout: Layout, mark: Mark, bytes_max: int) -> e.Restored | None:
        """Where it stands; None where it is of no use as a cache, and may all the same be all there is of something.

        Whatever says nothing about the folder costs it nothing, half changed or not: it is trusted as far as it is
        remembered, and nothing is once it is touched.
        """
        if mark.kernel != self._kernel or not mark.kernel:  # after a power cut rows may be of later bytes than those
            LOG.warning("warm_folder_unproved", session=layout.session, why="this machine was started anew since")
            return None
        while True:
            try:
                return self._brought(saved, layout, bytes_max, warm=True)
            except Exception as error:
                if isinstance(error, (Damaged, Missing, KeyMissing, Hostile)):
                    raise
                if not isinstance(error, (Changed, OSError, BadFolder, Unforeseen)) or isinstance(error, Closed):
                    self.shelf.keep(layout.session, mark)
                    raise
                LOG.warning("warm_folder_of_no_use", session=layout.session, why=str(error))
                if not _is_full(error):
                    return None
                if not self.shelf.make_room():
                    self.shelf.drop(layout.session)  # the last of the caches
                    return None

    def _anew(self, layout: Layout, write: Callable[[], e.Restored], wanted: int = 0) -> e.Restored:
        """Into no folder yet; it may take `wanted` bytes. Half of what was to come is no salvage, and would only take
        room from it.
        """
        while True:
            try:
                return write()
            except Exception as error:
                self.shelf.drop(layout.session)
                if not _is_full(error) or not self.shelf.make_room(wanted, layout.session):
                    raise

    def _brought(self, saved: f.Checkpoint, layout: Layout, bytes_max: int, *, warm: bool) -> e.Restored:
        uid = self._choice.uid_outside
        layout.create(uid)
        targets = {"workspace": layout.workspace, "home": layout.home, "runtime": layout.home}
        done = self._snapshots.restore(
            layout.session, saved.root, targets, owner=(uid, uid), cache_dir=self.shelf.cache(layout.session),
            warm=warm, bytes_max=bytes_max,
        )  # fmt: skip
        source: Literal["warm", "checkpoint"] = "warm" if done.source == "same" else "checkpoint"
        return e.Restored(
            source=source, workspace=f.Workspace(), files=done.files, bytes=done.bytes, found=_cut(done.warnings)
        )

    # -- saving it ----------------------------------------------------------------------------------------------------

    def save(
        self,
        effect: e.Capture,
        carried: Carried,
        repository: str,
        parent: str,
        stopped: tuple[str, ...],
        care: f.Care = f.Care(),  # noqa: B008 - frozen
        limits: Mapping[str, float] = MappingProxyType({}),
        waits: Waits = lambda why: None,
    ) -> e.Captured | e.NotCaptured:
        """Writes a checkpoint, reads it back, and says what it is; `waits` is told why it takes long, in this thread.
        Nothing local is touched.
        """
        began, layout = time.monotonic(), self.layout(effect.session)
        root = f"{effect.session}/{effect.epoch}-{effect.n}"
        trees = (
            Tree("runtime", layout.home, carried.keep),
            _workspace(layout, care),
            Tree("home", layout.home, (), carried.private),
        )
        try:
            saved = self._snapshots.capture(
                effect.session, root, trees, parent or None, self.shelf.cache(effect.session),
                self._known_good.get(effect.session, ()), int(value_of(limits, "workspace_bytes")),
                self._cloned.pop(effect.session, None), effect.session not in self._alone, waits,
            )  # fmt: skip
        except Unavailable as away:
            return e.NotCaptured(code="blobs_unavailable", reason=f"{away.what}: {away.why}")
        except TooLarge as large:
            return e.NotCaptured(code="over_quota", reason=quota(limits, large.size).sentence)
        except ReadBackFailed as failed:
            self._known_good.pop(effect.session, None)
            self._alone.add(effect.session)  # it may be the base that is damaged
            return e.NotCaptured(code="read_back_failed", reason=f"What was written does not read back: {failed}.")
        except (RootTaken, BadFolder, Refused, OSError, Unforeseen) as error:
            if isinstance(error, Unforeseen):
                self._alone.add(effect.session)  # it may be the base that the process died of
            return e.NotCaptured(code="capture_failed", reason=f"The workspace could not be saved: {error}")
        self._known_good[effect.session], self._sizes[effect.session] = saved.good, saved.captured.bytes
        done = saved.captured
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
            toolchain=self._tools(),
        )

    # -- letting it go ------------------------------------------------------------------------------------------------

    def keep_warm(self, session: str, root: str) -> None:
        """The folder stays as a cache of that checkpoint, trusted until the machine is started anew."""
        layout = self.layout(session)
        if not layout.folder.is_dir():
            return
        layout.forget()
        mark = Mark(root=root, bytes=self._sizes.get(session, 0), kernel=self._kernel)
        self._forget(session)
        self.shelf.keep(session, mark)

    def put_aside(self, session: str, epoch: int) -> None:
        """What that lease left here is kept as salvage, never current. A cache that it could not use stays one."""
        if session not in self.shelf.warm():
            self._aside(session, epoch)

    def _aside(self, session: str, epoch: int) -> Path | None:
        self._forget(session)
        return self.shelf.put_aside(session, epoch)

    def _forget(self, session: str) -> None:
        """What only its lease needed to know."""
        for known in (self._known_good, self._sizes, self._cloned):
            known.pop(session, None)
        self._alone.discard(session)

    # -- the parts ----------------------------------------------------------------------------------------------------

    def _tools(self) -> dict[str, str]:
        """What this machine has; looked at again when it may have been upgraded meanwhile."""
        at, found = self._toolchain
        if not found or time.monotonic() > at + TOOLCHAIN_S:
            found = toolchain.fingerprint()
            self._toolchain = (time.monotonic(), found)
        return found

    def _look(self, layout: Layout, repository: str) -> f.Workspace:
        inside = layout.places(self._choice.stable_paths).workspace
        return git.look(layout.workspace, inside, repository)

    @contextlib.contextmanager
    def _git_config(self, session: str) -> Iterator[Path]:
        folder = self._root / ".git"
        folder.mkdir(mode=0o700, exist_ok=True)
        config = folder / session
        try:
            yield config
        finally:
            config.unlink(missing_ok=True)


def _is_full(error: Exception) -> bool:
    """Whether it failed for want of room: whatever else fails is not helped by any."""
    return isinstance(error, OSError | BadFolder) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _workspace(layout: Layout, care: f.Care) -> Tree:
    """As its owner wants it saved."""
    return Tree("workspace", layout.workspace, skip=ignored(care.exclude), keep=ignored(care.include))


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
