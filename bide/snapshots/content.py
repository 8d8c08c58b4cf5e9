"""Reads one file into chunks and holes, exactly, while others may be writing to it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from functools import partial

from msgspec import Struct
from pyfastcdc import FastCDC

from bide.core import limits
from bide.snapshots.folders import open_quietly
from bide.snapshots.manifest import Xattr

# Not blocking and not following: the name may have become a FIFO or a link since the walk.
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# Written by the system for its own use on nearly every file; leaving them out loses nothing of the user's.
_OF_THE_SYSTEM = ("security.selinux", "security.ima", "security.evm", "system.nfs4_acl", "trusted.")
_BLOCK = 512  # the unit of st_blocks, whatever the file system's own is

Add = Callable[[bytes | memoryview], bytes]  # takes a chunk, gives its id


class Content(Struct, frozen=True):
    """What was read: `ids` and `lengths` as an entry holds them. `stat` fits them unless `torn`: then the file changed
    under every try, and this is the last. `left` are attributes that are not kept.
    """

    stat: os.stat_result
    size: int
    ids: bytes
    lengths: tuple[int, ...]
    xattrs: tuple[Xattr, ...]
    left: tuple[str, ...]
    torn: bool


class Elsewise(Exception):
    """The name leads to something that is no regular file any more."""


def read_file(folder_fd: int, name: bytes, add: Add, proceed: Callable[[], None]) -> Content:
    """The file's content. Raises OSError when it cannot be read or is gone, and `Elsewise`.

    `proceed` is called now and then in a long file, and may raise to stop.
    """
    tries = 0
    while True:
        fd = open_quietly(name, _OPEN, folder_fd)
        try:
            found = _read_once(fd, add, proceed)
        finally:
            os.close(fd)
        tries += 1
        if not found.torn or tries >= limits.READ_TRIES_MAX:
            return found


def holes_of(folder_fd: int, name: bytes) -> int:
    """How many bytes of a file are holes; 0 of one that cannot be looked at."""
    try:
        fd = open_quietly(name, _OPEN, folder_fd)
    except OSError:
        return 0
    try:
        seen, at, found = os.fstat(fd), 0, 0
        size = seen.st_size if stat.S_ISREG(seen.st_mode) else 0
        while at < size:
            start = min(_seek(fd, at, os.SEEK_DATA, size), size)
            found += start - at
            at = max(_seek(fd, start, os.SEEK_HOLE, size), start + 1) if start < size else size
        return found
    except OSError:
        return 0
    finally:
        os.close(fd)


def xattrs_of(fd: int) -> tuple[tuple[Xattr, ...], tuple[str, ...]]:
    """The `user.*` attributes of an open file or folder, and the names of others that a person may have set."""
    try:
        names = os.listxattr(fd)
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.EPERM, errno.EACCES):
            raise
        return (), ()
    if not names:
        return (), ()
    kept = []
    for name in sorted(names):
        if name.startswith("user."):
            try:
                kept.append(Xattr(os.fsencode(name), os.getxattr(fd, name)))
            except OSError as error:
                if error.errno != errno.ENODATA:  # it was removed since the list was read
                    raise
    return tuple(kept), tuple(name for name in sorted(names) if not name.startswith(("user.", *_OF_THE_SYSTEM)))


def _read_once(fd: int, add: Add, proceed: Callable[[], None]) -> Content:
    before = os.fstat(fd)
    if not stat.S_ISREG(before.st_mode):
        raise Elsewise
    size = before.st_size
    pieces: tuple[bytes, tuple[int, ...], int]
    if size <= limits.CHUNK_BYTES and before.st_blocks * _BLOCK >= size:
        content = os.read(fd, size + 1) if size else b""
        if 0 < len(content) < size:
            content = _whole(partial(os.read, fd), size + 1, content)
        pieces = add(content) if content else b"", (), len(content)
    else:
        pieces = _pieces(fd, size, add, proceed)
    ids, lengths, read = pieces
    xattrs, left = xattrs_of(fd)
    after = os.fstat(fd)
    return Content(after, read, ids, lengths, xattrs, left, read != after.st_size or _moved(before, after))


def cut_list(content: bytes) -> list[memoryview]:
    """A list of files in the parts that it is stored in: a change in it makes few of them new."""
    if len(content) <= limits.LIST_CUT_BYTES_MAX:
        return [memoryview(content)]
    cutter = FastCDC(
        avg_size=limits.LIST_CUT_BYTES, min_size=limits.LIST_CUT_BYTES_MIN, max_size=limits.LIST_CUT_BYTES_MAX
    )
    view = memoryview(content)
    return [view[chunk.offset : chunk.offset + chunk.length] for chunk in cutter.cut_buf(content)]


def _moved(before: os.stat_result, after: os.stat_result) -> bool:
    return (before.st_ctime_ns, before.st_mtime_ns, before.st_size) != (
        after.st_ctime_ns,
        after.st_mtime_ns,
        after.st_size,
    )


def _pieces(fd: int, size: int, add: Add, proceed: Callable[[], None]) -> tuple[bytes, tuple[int, ...], int]:
    """Ids, lengths and how much there was of a file that is long, or has holes."""
    ids: list[bytes] = []
    lengths: list[int] = []

    def take(chunk: bytes | memoryview) -> None:
        ids.append(add(chunk))
        lengths.append(len(chunk))

    at = 0
    while at < size:
        start = min(_seek(fd, at, os.SEEK_DATA, size), size)
        if start > at:
            lengths.append(at - start)
        if start == size:
            at = size
            break
        at = start
        end = min(_seek(fd, start, os.SEEK_HOLE, size), size)
        os.lseek(fd, start, os.SEEK_SET)
        at += _run(fd, end - start, take, proceed)
        if at < end:
            break  # it was cut shorter meanwhile
    if len(lengths) == 1 and lengths[0] > 0:
        return ids[0], (), at
    return b"".join(ids), tuple(lengths), at


def _run(fd: int, length: int, take: Callable[[bytes | memoryview], None], proceed: Callable[[], None]) -> int:
    def read(count: int) -> bytes:
        proceed()
        return _whole(partial(os.read, fd), count)

    if length <= limits.CHUNK_BYTES:
        content = read(length)
        if content:
            take(content)
        return len(content)
    return _cut(read, length, take)


def _cut(read: Callable[[int], bytes], length: int, take: Callable[[bytes | memoryview], None]) -> int:
    """Cuts a run of data where its content says so, and gives how long it was. Where the cuts are does not depend on
    how much is read at a time: what the last one of a read would be is only known with what follows.
    """
    cutter = FastCDC(avg_size=limits.CUT_BYTES, min_size=limits.CUT_BYTES_MIN, max_size=limits.CUT_BYTES_MAX)
    carry: bytes | memoryview = b""
    done = 0
    while True:
        content = read(min(length - done, limits.READ_FILE_BYTES)) if done < length else b""
        done += len(content)
        last = done >= length or not content
        whole = b"".join((carry, content)) if carry else content
        view = memoryview(whole)
        chunks = [(chunk.offset, chunk.length) for chunk in cutter.cut_buf(whole)] if whole else []
        carry = b""
        if not last:
            carry = view[chunks.pop()[0] :]
        for start, size in chunks:
            take(view[start : start + size])
        if last:
            return done


def _whole(read: Callable[[int], bytes], length: int, begun: bytes = b"") -> bytes:
    """Reads on until there is so much, or no more."""
    parts, left = [begun], length - len(begun)
    while left > 0:
        part = read(left)
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return parts[1] if len(parts) == 2 and not begun else b"".join(parts)


def _seek(fd: int, at: int, whence: int, size: int) -> int:
    try:
        return os.lseek(fd, at, whence)
    except OSError as error:
        if error.errno == errno.ENXIO:  # no data after here: a hole up to the end
            return size
        if error.errno == errno.EINVAL:  # this file system does not know holes: all of it is data
            return at if whence == os.SEEK_DATA else size
        raise
