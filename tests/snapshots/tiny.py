"""A writer of checkpoints in a few lines, from the format alone: plain, slow, and ready to write what no capture would."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from bide.core.keyring import Seal
from bide.snapshots.depot import Depot
from bide.snapshots.folders import Folders, join, names_in
from bide.snapshots.manifest import (
    Entry,
    Folder,
    RootRecord,
    SegmentRef,
    TreeRecord,
    Xattr,
    chunk_id,
    encode_segment,
    root_key,
    seal_root,
)
from bide.snapshots.packs import Packer, Written

CHUNK = 300_000
SEGMENT_FOLDERS = 3


class Writing(Packer):
    """A packer that names what it is given."""

    def __init__(self, depot: Depot) -> None:
        opening = depot.keyring.opening()
        super().__init__(depot.blobs, opening.family, lambda: None)
        self._chunks = opening.chunks

    def add(self, content: bytes | memoryview) -> bytes:
        """Takes a chunk, gives its id."""
        ident = chunk_id(content, self._chunks)
        self.put(ident, content)
        return ident


def save(depot: Depot, root: str, paths: dict[str, Path]) -> RootRecord:
    """Saves folders, by tree names, all contents anew: packs overlap."""
    with Writing(depot) as packer:
        trees = []
        for name, path in paths.items():
            folders = list(read(path, packer))
            top = path.stat()
            trees.append(tree_of(name, path, (top.st_uid, top.st_gid), folders, packer))
        packs = packer.finish()
    return seal(depot, root, trees, packs)


def seal(
    depot: Depot,
    root: str,
    trees: Sequence[TreeRecord],
    written: Sequence[Written],
    more: dict[str, object] | None = None,
) -> RootRecord:
    """Writes the root of these trees and of what a packer wrote; `more` replaces fields of the record."""
    record = RootRecord(
        root=root, parent=None, base="", created_ns=1, trees=tuple(trees), packs=tuple(pack.ref for pack in written)
    )
    record = replace(record, **more or {})
    key = secrets.token_bytes(32)
    assert not depot.keyring.seal(Seal(root=root, key=key, new=tuple(pack.sealed for pack in written)))
    assert depot.blobs.put(root_key(root), seal_root(record, key))
    return record


def tree_of(
    name: str, path: Path, ids: tuple[int, int], folders: list[Folder], packer: Writing, **more: object
) -> TreeRecord:
    """A tree of these folders, as they are; `more` replaces fields."""
    refs = []
    for at in range(0, len(folders), SEGMENT_FOLDERS):
        group = folders[at : at + SEGMENT_FOLDERS]
        refs.append(SegmentRef(group[0].path, packer.add(encode_segment(group))))
    entries = [entry for folder in folders for entry in folder.entries if entry.kind != "d"]
    record = TreeRecord(
        name=name, path=os.fsencode(path), only=(), skip=(), uid=ids[0], gid=ids[1], files=len(entries),
        size=sum(max(entry.size, 0) for entry in entries), segments=tuple(refs),
    )  # fmt: skip
    return replace(record, **more)


def read(path: Path, packer: Writing) -> list[Folder]:
    """Every folder below a path, with the contents of its files handed to the packer."""
    top, found, waiting = path.stat(), [], [b""]
    first_names: dict[tuple[int, int], bytes] = {}
    with Folders(os.open(path, os.O_RDONLY | os.O_DIRECTORY)) as folders:
        paths = []
        while waiting:
            at = waiting.pop()
            paths.append(at)
            fd = folders.at(at)
            waiting += [join(at, n) for n in names_in(fd) if stat.S_ISDIR(os.lstat(n, dir_fd=fd).st_mode)]
        for at in sorted(paths):
            fd = folders.at(at)
            seen = os.fstat(fd)
            entries = [_entry(folders.at(at), at, name, top, packer, first_names) for name in names_in(fd)]
            uid, gid = _ids(seen, top)
            found.append(
                Folder(
                    at,
                    stat.S_IMODE(seen.st_mode),
                    seen.st_mtime_ns,
                    tuple(filter(None, entries)),
                    _xattrs(fd),
                    uid,
                    gid,
                )
            )
    return found


def _entry(
    fd: int, folder: bytes, name: bytes, top: os.stat_result, packer: Writing, first_names: dict[tuple[int, int], bytes]
) -> Entry | None:
    seen = os.lstat(name, dir_fd=fd)
    uid, gid = _ids(seen, top)
    if stat.S_ISDIR(seen.st_mode):
        return Entry(name, "d")
    if stat.S_ISLNK(seen.st_mode):
        return Entry(name, "l", 0, seen.st_mtime_ns, target=os.readlink(name, dir_fd=fd), uid=uid, gid=gid)
    if not stat.S_ISREG(seen.st_mode):
        return None
    earlier = first_names.setdefault((seen.st_dev, seen.st_ino), join(folder, name))
    if earlier != join(folder, name):
        return Entry(name, "h", target=earlier)
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=fd)
    try:
        ids, lengths = _content(file, seen.st_size, packer)
        xattrs = _xattrs(file)
    finally:
        os.close(file)
    mode = stat.S_IMODE(seen.st_mode)
    return Entry(name, "f", mode, seen.st_mtime_ns, seen.st_size, ids, b"", lengths, xattrs, uid, gid)


def _content(fd: int, size: int, packer: Writing) -> tuple[bytes, tuple[int, ...]]:
    ids, lengths, at = b"", [], 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            start = size
        if start > at:
            lengths.append(at - start)
        at = start
        end = os.lseek(fd, at, os.SEEK_HOLE) if at < size else at
        while at < end:
            chunk = os.pread(fd, min(CHUNK, end - at), at)
            ids += packer.add(chunk)
            lengths.append(len(chunk))
            at += len(chunk)
    return ids, () if lengths == [size] else tuple(lengths)


def _ids(seen: os.stat_result, top: os.stat_result) -> tuple[int | None, int | None]:
    return (None if seen.st_uid == top.st_uid else seen.st_uid, None if seen.st_gid == top.st_gid else seen.st_gid)


def _xattrs(fd: int) -> tuple[Xattr, ...]:
    names = sorted(name for name in os.listxattr(fd) if name.startswith("user."))
    return tuple(Xattr(os.fsencode(name), os.getxattr(fd, name)) for name in names)
