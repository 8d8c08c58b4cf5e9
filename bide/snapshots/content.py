"""Reads one file into chunks and holes, exactly, while others may be writing to it."""

from __future__ import annotations

import errno
import os
import stat

from msgspec import Struct

from bide.core import limits
from bide.snapshots.losses import Notes, shown
from bide.snapshots.manifest import Piece, Xattr
from bide.snapshots.packs import Sink
from bide.snapshots.scan import xattrs_of

# Not blocking and not following: the name may have become a FIFO or a link since the walk.
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Content(Struct, frozen=True):
    """What was read: `stat` fits the pieces unless `torn`, then the file changed under every try."""

    stat: os.stat_result
    size: int
    pieces: tuple[Piece, ...]
    xattrs: tuple[Xattr, ...]
    left: tuple[str, ...]
    torn: bool


def read_file(folder_fd: int, name: bytes, tree: str, path: bytes, sink: Sink, notes: Notes) -> Content | None:
    """The file's content, or None when it vanished or cannot be read, which is noted."""
    found: Content | None = None
    for _ in range(limits.READ_TRIES_MAX):
        try:
            found = _read_once(folder_fd, name, sink)
        except FileNotFoundError:
            notes.warn(f"{shown(tree, path)} vanished while it was being captured")
            return None
        except OSError as error:
            notes.leave(tree, path, f"it cannot be read: {error.strerror}")
            return None
        if found is None:
            notes.warn(f"{shown(tree, path)} turned into something else while it was being captured")
            return None
        if not found.torn:
            break
    if found and found.torn:
        notes.warn(f"{shown(tree, path)} changed while it was being captured")
    return found


def _read_once(folder_fd: int, name: bytes, sink: Sink) -> Content | None:
    fd = os.open(name, _OPEN, dir_fd=folder_fd)
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            return None
        pieces = _pieces(fd, before.st_size, sink)
        xattrs, left = xattrs_of(fd)
        after = os.fstat(fd)
    finally:
        os.close(fd)
    size = sum(piece.length for piece in pieces)
    return Content(after, size, pieces, xattrs, left, _moved(before, after) or size != after.st_size)


def _moved(before: os.stat_result, after: os.stat_result) -> bool:
    return (before.st_size, before.st_mtime_ns, before.st_ctime_ns) != (
        after.st_size,
        after.st_mtime_ns,
        after.st_ctime_ns,
    )


def _pieces(fd: int, size: int, sink: Sink) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    at = 0
    while at < size:
        data_from = min(_seek(fd, at, os.SEEK_DATA, size), size)
        if data_from > at:
            pieces.append(Piece(data_from - at, b""))
        data_to = min(_seek(fd, data_from, os.SEEK_HOLE, size), size) if data_from < size else size
        at = data_from
        while at < data_to:
            content = _read(fd, at, min(data_to, at - at % limits.CHUNK_BYTES + limits.CHUNK_BYTES) - at)
            if not content:
                return tuple(pieces)  # it was cut shorter meanwhile
            pieces.append(Piece(len(content), sink.add(content)))
            at += len(content)
    return tuple(pieces)


def _read(fd: int, at: int, length: int) -> bytes:
    content = os.pread(fd, length, at)
    if len(content) == length or not content:
        return content
    parts = [content]
    while length > (done := sum(map(len, parts))):
        part = os.pread(fd, length - done, at + done)
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def _seek(fd: int, at: int, whence: int, size: int) -> int:
    try:
        return os.lseek(fd, at, whence)
    except OSError as error:
        if error.errno == errno.ENXIO:  # no data after here: a hole up to the end
            return size
        if error.errno == errno.EINVAL:  # this file system does not know holes: all of it is data
            return at if whence == os.SEEK_DATA else size
        raise
