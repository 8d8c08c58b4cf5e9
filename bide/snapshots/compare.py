"""Describes a folder bit for bit: the witness of what capture and restore do."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from blake3 import blake3
from msgspec import Struct
from msgspec.structs import replace

from bide.core import limits
from bide.snapshots.folders import Folders, join, names_in

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Described(Struct, frozen=True, kw_only=True):
    """One entry, in all that must survive. `group` is every path of the inode, `runs` the (offset, length) of data
    between holes, `content` the BLAKE3 of that data, `owner` is (uid, gid)."""

    type: str
    mode: int
    mtime_ns: int
    owner: tuple[int, int]
    size: int = 0
    content: str = ""
    target: bytes = b""
    group: tuple[bytes, ...] = ()
    xattrs: tuple[tuple[str, bytes], ...] = ()
    runs: tuple[tuple[int, int], ...] = ()


def manifest_of(path: Path) -> dict[bytes, Described]:
    """Every entry below `path`, by its path within it; b'' is the folder itself.

    Shares no code with capture but the opening of folders, so that it can be its witness. Sockets, FIFOs and device
    nodes are left out. Raises OSError for what cannot be read.
    """
    found: dict[bytes, Described] = {}
    inodes: dict[tuple[int, int], list[bytes]] = {}
    waiting = [b""]
    with Folders(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as folders:
        while waiting:
            folder = waiting.pop()
            fd = folders.at(folder)
            found[folder] = replace(_described("folder", os.fstat(fd)), xattrs=_xattrs(fd))
            for name in names_in(fd):
                seen, full = os.lstat(name, dir_fd=fd), join(folder, name)
                if stat.S_ISDIR(seen.st_mode):
                    waiting.append(full)
                elif stat.S_ISLNK(seen.st_mode):
                    found[full] = replace(_described("link", seen), target=os.readlink(name, dir_fd=fd))
                elif stat.S_ISREG(seen.st_mode):
                    found[full] = _file(fd, name)
                    inodes.setdefault((seen.st_dev, seen.st_ino), []).append(full)
    for group in inodes.values():
        for full in group:
            found[full] = replace(found[full], group=tuple(sorted(group)))
    return found


def _described(type: str, seen: os.stat_result) -> Described:
    mode = 0 if type == "link" else stat.S_IMODE(seen.st_mode)
    return Described(type=type, mode=mode, mtime_ns=seen.st_mtime_ns, owner=(seen.st_uid, seen.st_gid))


def _file(folder_fd: int, name: bytes) -> Described:
    fd = os.open(name, _READ, dir_fd=folder_fd)
    try:
        seen, hasher = os.fstat(fd), blake3()
        runs = _runs(fd, seen.st_size)
        for start, length in runs:  # what lies between is zero by definition, and may be terabytes
            for at in range(start, start + length, limits.CHUNK_BYTES):
                hasher.update(os.pread(fd, min(limits.CHUNK_BYTES, start + length - at), at))
        return replace(
            _described("file", seen),
            size=seen.st_size,
            content=hasher.hexdigest(),
            xattrs=_xattrs(fd),
            runs=runs,
        )
    finally:
        os.close(fd)


def _xattrs(fd: int) -> tuple[tuple[str, bytes], ...]:
    try:
        return tuple((name, os.getxattr(fd, name)) for name in sorted(os.listxattr(fd)) if name.startswith("user."))
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        return ()


def _runs(fd: int, size: int) -> tuple[tuple[int, int], ...]:
    runs, at = [], 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break
            raise
        at = os.lseek(fd, start, os.SEEK_HOLE)
        runs.append((start, at - start))
    return tuple(runs)
