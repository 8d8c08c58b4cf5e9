"""What stays on a runner's disk after a lease: folders kept warm as a cache, and salvage. Blocking; run in a thread."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from bide.core import ids
from bide.core.limits import SALVAGE_FOLDERS_MAX, WARM_DISK_SHARE, WARM_FLOOR_SHARE, WARM_FOLDERS_MAX
from bide.runner.layout import Layout
from bide.snapshots.folders import remove


class Mark(Struct, frozen=True, kw_only=True):
    """The checkpoint that a warm folder was kept for, and how many bytes it has."""

    root: str
    bytes: int = 0


class Shelf:
    """All of one runner's. A warm folder is a cache: it may go at any time but while it is claimed."""

    def __init__(self, root: Path, warm_bytes: int = 0) -> None:
        """`warm_bytes`: what warm folders may take together; 0: a share of the disk."""
        self._root = root
        self._warm_bytes = warm_bytes
        self._marks = threading.Lock()

    def claim(self, session: str) -> Mark | None:
        """What the session's folder was kept for; nobody else may drop it from now on."""
        mark = self._mark(session)
        with self._marks, contextlib.suppress(FileNotFoundError):
            body = mark.read_bytes()
            mark.unlink()
            return _read(body)
        return None

    def keep(self, session: str, mark: Mark) -> None:
        """The folder stays as a cache; the oldest beyond the budget go. Where not even a word more fits, it goes itself."""
        path = self._mark(session)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.write_bytes(msgspec.json.encode(mark))
        except OSError:
            path.unlink(missing_ok=True)
            self.drop(session)
        for old in self._beyond_budget():
            self.evict(old)

    def make_room(self) -> bool:
        """Drops every warm folder: the disk is full. Whether there was one."""
        warm = self.warm()
        for session in warm:
            self.evict(session)
        return bool(warm)

    def evict(self, session: str) -> None:
        """Drops a warm folder, unless its session is coming back at this moment: whoever takes the mark owns it."""
        if self.claim(session) is not None:
            self.drop(session)

    def drop(self, session: str) -> None:
        """Removes the folder and what is remembered of it."""
        folder = Layout(self._root, session).folder
        trash = self._root / ".trash" / f"{session}-{secrets.token_hex(8)}"
        try:
            trash.parent.mkdir(mode=0o700, exist_ok=True)
            folder.rename(trash)
        except FileNotFoundError:
            pass
        except OSError:  # a full disk may have no room for one more name
            trash = folder
        _remove(trash)
        _remove(self.cache(session))

    def put_aside(self, session: str, epoch: int) -> None:
        """What another epoch left here is kept as salvage, never current; the oldest beyond the budget go."""
        layout = Layout(self._root, session)
        with self._marks:  # from now on nobody drops it as an old cache
            self._mark(session).unlink(missing_ok=True)
        if not layout.folder.exists():
            return
        layout.forget()
        salvage = self._root / ".salvage"
        salvage.mkdir(mode=0o700, exist_ok=True)
        target = salvage / f"{session}-{epoch}"
        while target.exists():  # one lease may find something here and leave something here
            target = target.with_name(f"{target.name}-again")
        layout.folder.rename(target)
        _remove(self.cache(session))  # it knows the files that were here
        os.utime(target)  # its age as salvage, not as a folder
        for old in _by_age(salvage)[SALVAGE_FOLDERS_MAX:]:
            _remove(old)

    def forget(self, session: str) -> None:
        """Removes whatever lies here of a session that was deleted."""
        self.claim(session)
        self.drop(session)
        for path in self._salvaged():
            if path.name.startswith(f"{session}-"):
                _remove(path)

    def tidy(self, taken_up: Collection[str]) -> None:
        """At the start of a runner: folders that nobody comes back for are salvage, as long as the budget has room."""
        stay = {*self.warm(), *taken_up}
        for entry in sorted(self._root.iterdir()):
            if ids.is_id(entry.name) and entry.is_dir() and entry.name not in stay:  # others are not ours
                self.put_aside(entry.name, 0)
        _remove(self._root / ".trash")

    def warm(self) -> tuple[str, ...]:
        """Sessions whose folder is kept here."""
        marks = self._root / ".warm"
        return tuple(sorted(p.name for p in marks.iterdir())) if marks.exists() else ()

    def keeps(self) -> tuple[str, ...]:
        """Sessions of which anything lies here, but for those at work."""
        salvaged = {path.name[:36] for path in self._salvaged()}
        cached = {path.name for path in _entries(self._root / ".cache")}
        return tuple(sorted(name for name in {*self.warm(), *salvaged, *cached} if ids.is_id(name)))

    def cache(self, session: str) -> Path:
        """The folder of ours for what is remembered of the session's files."""
        cache = self._root / ".cache" / session
        with contextlib.suppress(OSError):  # a full disk: then nothing is remembered
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cache

    def _salvaged(self) -> list[Path]:
        return list(_entries(self._root / ".salvage"))

    def _beyond_budget(self) -> Iterator[str]:
        """Warm sessions that have to go, those unused longest first: the newest one stays, if the disk is not full."""
        disk = shutil.disk_usage(self._root)
        budget = self._warm_bytes or int(disk.total * WARM_DISK_SHARE)
        lacking = max(0, int(disk.total * WARM_FLOOR_SHARE) - disk.free)
        marks = _by_age(self._root / ".warm")
        sizes = {path: _size(path) for path in marks}
        total = sum(sizes.values())
        for nth in range(len(marks) - 1, 0, -1):
            if total <= budget and lacking <= 0 and nth < WARM_FOLDERS_MAX:
                return
            total, lacking = total - sizes[marks[nth]], lacking - sizes[marks[nth]]
            yield marks[nth].name

    def _mark(self, session: str) -> Path:
        return self._root / ".warm" / session


def _read(body: bytes) -> Mark:
    """A mark that cannot be read was kept for a checkpoint that nobody asks for."""
    try:
        return msgspec.json.decode(body, type=Mark)
    except msgspec.DecodeError:
        return Mark(root="")


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return _read(path.read_bytes()).bytes
    return 0


def _entries(folder: Path) -> list[Path]:
    with contextlib.suppress(FileNotFoundError):
        return list(folder.iterdir())
    return []


def _by_age(folder: Path) -> list[Path]:
    """The entries, newest first; others may go through the same folder at the same time."""
    ages: dict[Path, int] = {}
    for entry in _entries(folder):
        with contextlib.suppress(FileNotFoundError):
            ages[entry] = entry.stat().st_mtime_ns
    return sorted(ages, key=ages.__getitem__, reverse=True)


def _remove(folder: Path) -> None:
    """A session chose the modes in it; what cannot be removed stays and costs disk, nothing else."""
    with contextlib.suppress(OSError):
        at = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            remove(at, os.fsencode(folder.name))
        finally:
            os.close(at)
