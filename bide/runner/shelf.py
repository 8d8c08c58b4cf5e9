"""What stays on a runner's disk after a lease: folders kept warm as a cache, and salvage. Blocking; run in a thread."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Collection
from pathlib import Path

import msgspec
import structlog
from msgspec import Struct

from bide.core import ids
from bide.core.limits import (
    FULL_BYTES,
    SALVAGE_FOLDERS_MAX,
    SALVAGE_KEEP_S,
    WARM_DISK_SHARE,
    WARM_FLOOR_SHARE,
    WARM_FOLDERS_MAX,
)
from bide.runner.layout import FOLDER, Layout
from bide.snapshots.folders import Folders, join, remove

LOG = structlog.get_logger()


class Mark(Struct, frozen=True, kw_only=True):
    """The checkpoint that a folder was kept for, empty for salvage, and how many bytes it has. `kernel`: the start of the
    machine at which that was so. Nothing is written out then, so after a power cut it may not be.
    """

    root: str = ""
    bytes: int = 0
    kernel: str = ""


class Shelf:
    """All of one runner's. A warm folder is a cache: it may go at any time but while it is claimed. Salvage may be all
    there is of somebody's work: while it is young it goes only where the disk is full.
    """

    def __init__(self, root: Path, warm_bytes: int = 0) -> None:
        """`warm_bytes`: what warm folders and salvage may take together; 0: a share of the disk."""
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
        self._trim()

    def make_room(self, wanted: int = 0, session: str = "") -> bool:
        """The disk is full: every warm folder goes, and salvage that nobody came for; then, where `wanted` bytes are still
        not free and would be, the young too, the oldest first, but for the session's own. Whether anything went.
        """
        warm = self.warm()
        for each in warm:
            self.evict(each)
        stale = [self._give_up(path) for path in _stale(self._salvaged())]
        young = self._free_of_salvage(max(wanted, FULL_BYTES), session)
        return bool(warm) or any(stale) or young

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

    def put_aside(self, session: str, epoch: int) -> Path | None:
        """What another epoch left here is kept as salvage, never current: where, if there was anything. The oldest beyond
        the budget go.
        """
        layout = Layout(self._root, session)
        with self._marks:  # from now on nobody drops it as an old cache
            self._mark(session).unlink(missing_ok=True)
        if not layout.folder.exists():
            return None
        layout.forget()
        salvage = self._root / ".salvage"
        salvage.mkdir(mode=0o700, exist_ok=True)
        target = salvage / f"{session}-{epoch}"
        while target.exists():  # one lease may find something here and leave something here
            target = target.with_name(f"{target.name}-again")
        layout.folder.rename(target)
        _remove(self.cache(session))  # it knows the files that were here
        os.utime(target)  # its age as salvage, not as a folder
        self._trim(session)
        return target

    def forget(self, session: str) -> None:
        """Removes whatever lies here of a session that was deleted."""
        self.claim(session)
        self.drop(session)
        for path in self._salvaged():
            if path.name.startswith(f"{session}-"):
                self._remove_salvage(path)

    def tidy(self, taken_up: Collection[str]) -> None:
        """At the start of a runner: folders that nobody comes back for are salvage, as long as the budget has room."""
        stay = {*self.warm(), *taken_up}
        for entry in sorted(self._root.iterdir()):
            if ids.is_id(entry.name) and entry.is_dir() and entry.name not in stay:  # others are not ours
                self.put_aside(entry.name, 0)
        _remove(self._root / ".trash")
        for path in _entries(self._root / ".salvaged"):
            if not (self._root / ".salvage" / path.name).exists():
                path.unlink(missing_ok=True)

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
        """All salvage, newest first."""
        return _by_age(self._root / ".salvage")

    def _trim(self, session: str = "") -> None:
        """What is beyond the budget goes: salvage that nobody came for, the oldest first, then what was warm longest. The
        newest warm folder stays, young salvage as long as the disk is not full, and the session's own even then.
        """
        disk = shutil.disk_usage(self._root)
        marks, salvaged = _by_age(self._root / ".warm"), self._salvaged()
        warm = {path: _noted(path).bytes for path in marks}
        salvage = {path: self._bytes(path) for path in salvaged}
        budget = self._warm_bytes or int(disk.total * WARM_DISK_SHARE)
        lacking = int(disk.total * WARM_FLOOR_SHARE) - disk.free
        beyond = max(sum(warm.values()) + sum(salvage.values()) - budget, lacking)
        many, stale = len(salvaged), _stale(salvaged)
        while stale and (beyond > 0 or many > SALVAGE_FOLDERS_MAX):
            beyond, many = beyond - salvage[stale[-1]], many - 1
            self._give_up(stale.pop())
        while len(marks) > 1 and (beyond > 0 or len(marks) > WARM_FOLDERS_MAX):
            beyond -= warm[marks[-1]]
            self.evict(marks.pop().name)
        self._free_of_salvage(FULL_BYTES, session)

    def _free_of_salvage(self, wanted: int, session: str = "") -> bool:
        """Salvage goes, the oldest first, until so many bytes are free: none where all of it would not do. Whether any
        went; never the session's own.
        """
        lacking = wanted - shutil.disk_usage(self._root).free
        others = [path for path in self._salvaged() if not path.name.startswith(f"{session}-")] if lacking > 0 else []
        if not others or sum(map(self._bytes, others)) < lacking:
            return False
        gone = []
        while others and shutil.disk_usage(self._root).free < wanted:
            gone.append(self._give_up(others.pop()))
        return any(gone)

    def _give_up(self, path: Path) -> bool:
        """Somebody may look for it: the log says where it went. Whether it could be removed."""
        size = self._bytes(path)
        self._remove_salvage(path)
        gone = not path.exists()
        LOG.warning("salvage_removed", folder=str(path), bytes=size, whole=gone, why="its disk has no room for it")
        return gone

    def _remove_salvage(self, path: Path) -> None:
        _remove(path)
        (self._root / ".salvaged" / path.name).unlink(missing_ok=True)

    def _bytes(self, path: Path) -> int:
        """What salvage takes on the disk: looked at once, for nobody works there."""
        mark = self._root / ".salvaged" / path.name
        if size := _noted(mark).bytes:
            return size
        size = _taken(path)
        with contextlib.suppress(OSError):  # on a full disk it is looked at again
            mark.parent.mkdir(mode=0o700, exist_ok=True)
            mark.write_bytes(msgspec.json.encode(Mark(bytes=size)))
        return size

    def _mark(self, session: str) -> Path:
        return self._root / ".warm" / session


def _read(body: bytes) -> Mark:
    """A mark that cannot be read was kept for a checkpoint that nobody asks for."""
    try:
        return msgspec.json.decode(body, type=Mark)
    except msgspec.DecodeError:
        return Mark()


def _noted(path: Path) -> Mark:
    """What is noted there; nothing where there is no note."""
    with contextlib.suppress(FileNotFoundError):
        return _read(path.read_bytes())
    return Mark()


def _taken(folder: Path) -> int:
    """Bytes of the disk that are taken by all below it, whatever a session made there; as far as it can be looked at."""
    total, several, waiting = 0, set[tuple[int, int]](), [b""]
    with contextlib.suppress(OSError), Folders(os.open(folder, FOLDER)) as folders:
        while waiting:
            path = waiting.pop()
            with contextlib.suppress(OSError), os.scandir(folders.at(path)) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(join(path, os.fsencode(entry.name)))
                    elif found.st_nlink > 1:  # a file with several names counts once
                        if (found.st_dev, found.st_ino) in several:
                            continue
                        several.add((found.st_dev, found.st_ino))
                    total += found.st_blocks * 512
    return total


def _stale(salvaged: Collection[Path]) -> list[Path]:
    """Of salvage, newest first, what lay there long enough for somebody to come for it."""
    since, found = time.time() - SALVAGE_KEEP_S, list[Path]()
    for path in salvaged:
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < since:
                found.append(path)
    return found


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
