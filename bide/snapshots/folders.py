"""Folders by handle: every step is `openat` without following links, so no path is too long and none leads out."""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from pathlib import Path
from types import TracebackType
from typing import Self

from bide.core import limits

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HANDLE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Folders:
    """Handles of the folders below one root, opened step by step and kept while they are near.

    A handle from `at` is good until the next call of `at`.
    """

    def __init__(self, root_fd: int) -> None:
        """Takes over `root_fd` and closes it in the end."""
        self._root_fd = root_fd
        self._near: OrderedDict[bytes, int] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for fd in self._near.values():
            os.close(fd)
        os.close(self._root_fd)
        self._near.clear()

    def at(self, path: bytes) -> int:
        """The handle of the folder at `path` (b'' is the root). OSError when a step is no folder or a link."""
        if not path:
            return self._root_fd
        if path in self._near:
            self._near.move_to_end(path)
            return self._near[path]
        start, fd = self._nearest(path)
        done = len(start) + 1 if start else 0
        for name in path[done:].split(b"/"):
            fd = open_quietly(name, _OPEN, fd)
            done += len(name) + 1
            self._keep(path[: done - 1], fd)
        return fd

    def _nearest(self, path: bytes) -> tuple[bytes, int]:
        while path:
            path = path.rpartition(b"/")[0]
            if path in self._near:
                self._near.move_to_end(path)
                return path, self._near[path]
        return b"", self._root_fd

    def _keep(self, path: bytes, fd: int) -> None:
        self._near[path] = fd
        if len(self._near) > limits.FOLDERS_OPEN_MAX:
            _, oldest = self._near.popitem(last=False)
            os.close(oldest)


def open_quietly(path: bytes | Path, flags: int, parent_fd: int | None = None) -> int:
    """Opens for reading without a trace in the access time, where that is allowed: for its owner."""
    try:
        return os.open(path, flags | os.O_NOATIME, dir_fd=parent_fd)
    except PermissionError:
        return os.open(path, flags, dir_fd=parent_fd)


def join(folder: bytes, name: bytes) -> bytes:
    """The path of `name` in `folder`, both relative to the tree."""
    return folder + b"/" + name if folder else name


def names_in(fd: int) -> list[bytes]:
    """Every name in an open folder, sorted."""
    with os.scandir(fd) as items:
        return sorted(os.fsencode(item.name) for item in items)


def remove(parent_fd: int, name: bytes) -> None:
    """Removes whatever is at `name`, a whole folder if it is one, however deep and whatever its modes; absent is fine.

    Links are removed, never followed.
    """
    try:
        mode = os.lstat(name, dir_fd=parent_fd).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        os.unlink(name, dir_fd=parent_fd)
        return
    _unlock(name, parent_fd)
    with Folders(os.open(name, _OPEN, dir_fd=parent_fd)) as folders:
        for path in reversed(_emptied(folders)):
            folder, _, last = path.rpartition(b"/")
            os.rmdir(last, dir_fd=folders.at(folder))
    os.rmdir(name, dir_fd=parent_fd)


def _emptied(folders: Folders) -> list[bytes]:
    """Removes all but folders; gives the folders found, parents before children."""
    found: list[bytes] = []
    waiting = [b""]
    while waiting:
        path = waiting.pop()
        fd = folders.at(path)
        for name in names_in(fd):
            if stat.S_ISDIR(os.lstat(name, dir_fd=fd).st_mode):
                _unlock(name, fd)
                found.append(join(path, name))
                waiting.append(join(path, name))
            else:
                os.unlink(name, dir_fd=fd)
    return found


def _unlock(name: bytes, parent_fd: int) -> None:
    """Makes a folder of ours enterable and writable; by handle, since changing modes by name would follow a link."""
    fd = os.open(name, _HANDLE, dir_fd=parent_fd)
    try:
        if os.fstat(fd).st_mode & 0o700 != 0o700:
            Path(f"/proc/self/fd/{fd}").chmod(0o700)
    finally:
        os.close(fd)
