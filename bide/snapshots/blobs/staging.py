"""How a file becomes an object: written beside its place, durable, and only then visible under its key."""

from __future__ import annotations

import fcntl
import io
import os
import secrets
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from bide.core.limits import BLOB_FOLDER_TRIES_MAX
from bide.core.refusals import Unavailable

NO_DISK = "its disk seems not to be there"
STAGING = ".staging"  # never a key: a segment cannot begin with a dot


class Staged:
    """A file below `root` that is no object yet; leaving the `with` removes it, published or not.

    It is locked while it is open. Who finds one without a lock knows that its writer died: see `sweep`.
    """

    def __init__(self, root: Path) -> None:
        while True:
            self._path = root / STAGING / secrets.token_hex(16)
            self._file = io.FileIO(self._path, "x", opener=lambda path, flags: os.open(path, flags, 0o600))
            fcntl.flock(self._file, fcntl.LOCK_EX)
            if os.fstat(self._file.fileno()).st_nlink:
                return
            self._file.close()  # another process opened the folder before the lock, and took it for a dead one's

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._path.unlink(missing_ok=True)
        self._file.close()

    def write(self, part: bytes) -> None:
        """Appends the part."""
        left = memoryview(part)
        while left:  # a disk that fills up takes a part of it first, and fails at the next
            left = left[self._file.write(left) :]

    def sync(self) -> None:
        """Returns once what was written is on the disk."""
        os.fsync(self._file.fileno())

    def publish(self, path: Path) -> bool:
        """Makes it the object at `path`, durably; False when that name is taken, also by another process.

        Durable first, then visible: a reader never sees half an object.
        """
        self.sync()
        for tries_left in reversed(range(BLOB_FOLDER_TRIES_MAX)):
            try:
                os.link(self._path, path)
                break
            except FileExistsError:
                return False
            except FileNotFoundError:  # no object was there before, or the last one was deleted, and its folder with it
                if not tries_left or not self._path.exists():
                    raise
                _make_folders(path.parent)
        depth = len(path.relative_to(self._path.parents[1]).parts)
        for folder in path.parents[:depth]:  # to the root: another may have made them, and not be done with that yet
            _sync(folder)
        return True


def make_staging(root: Path) -> None:
    """Makes `root` ready for `Staged` when it is absent, and removes what a crash left there. Raises OSError."""
    folder = root / STAGING
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in folder.iterdir():
        _sweep(path)


def outage(path: Path, error: OSError) -> Unavailable:
    """A disk that fails."""
    return Unavailable("the blob folder", f"{error.strerror or error} at {path}", plain=error.strerror or "")


def _sweep(path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # its writer is done with it
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        pass  # another process writes it
    finally:
        os.close(fd)


def _make_folders(folder: Path) -> None:
    """Whoever needs them looks whether they are there: they may be removed again at any time while they are empty."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return
    except FileNotFoundError:
        _make_folders(folder.parent)
        with suppress(FileNotFoundError, FileExistsError):
            folder.mkdir(mode=0o700)


def _sync(folder: Path) -> None:
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # what was in it was deleted at once
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
