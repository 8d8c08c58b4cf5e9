"""Refuses a list of files that would write outside its folder or make what bide never makes."""

from __future__ import annotations

from collections.abc import Iterable

from bide.core.limits import (
    CHUNK_LENGTH_MAX,
    INT64_MAX,
    LINK_BYTES_MAX,
    MTIME_NS_MAX,
    MTIME_NS_MIN,
    NAME_BYTES_MAX,
    OWNER_ID_MAX,
)
from bide.snapshots.folders import join
from bide.snapshots.losses import Hostile, shown
from bide.snapshots.manifest import FILE, FOLDER, HARD, HASH_SIZE, LINK, Entry, Folder, TreeRecord


def check_tree(record: TreeRecord, folders: Iterable[Folder]) -> None:
    """Passes a tree that capture could have written; `Hostile` for any other.

    Each folder must be named as a folder by an entry before it, each hard link must name a file before it, so a
    path that climbs out, is absolute, or goes through a link cannot be expressed.
    """
    known_folders, listed, files = {b""}, set[bytes](), set[bytes]()
    _check_entry(record.name, b"", record.top)
    if record.top.kind != FOLDER:
        raise Hostile(shown(record.name, b""), "the tree itself is not a folder")
    for folder in folders:
        if folder.path not in known_folders:
            raise Hostile(shown(record.name, folder.path), "it is in a folder that is not in the checkpoint")
        if folder.path in listed:
            raise Hostile(shown(record.name, folder.path), "this folder is listed twice")
        listed.add(folder.path)
        names = set[bytes]()
        for entry in folder.entries:
            path = join(folder.path, entry.name)
            _check_name(record.name, path, entry.name)
            if entry.name in names:
                raise Hostile(shown(record.name, path), "this name stands twice in its folder")
            names.add(entry.name)
            _check_entry(record.name, path, entry)
            if entry.kind == FOLDER:
                known_folders.add(path)
            elif entry.kind == FILE:
                files.add(path)
            elif entry.kind == HARD and entry.target not in files:
                raise Hostile(shown(record.name, path), "it is a hard link to something outside the checkpoint")


def _check_name(tree: str, path: bytes, name: bytes) -> None:
    if name in (b"", b".", b"..") or b"/" in name or b"\0" in name or len(name) > NAME_BYTES_MAX:
        raise Hostile(shown(tree, path), "its name is no plain name")


def _check_entry(tree: str, path: bytes, entry: Entry) -> None:
    reason = _wrong(entry)
    if reason:
        raise Hostile(shown(tree, path), reason)


def _wrong(entry: Entry) -> str:
    if entry.kind not in (FILE, FOLDER, LINK, HARD):
        return "it is a device node or another kind that is never restored"
    if not 0 <= entry.mode <= 0o7777 or not MTIME_NS_MIN <= entry.mtime_ns <= MTIME_NS_MAX:
        return "its mode or time is out of range"
    if any(owner is not None and not 0 <= owner <= OWNER_ID_MAX for owner in (entry.uid, entry.gid)):
        return "its owner is out of range"
    if entry.kind == FILE:
        return _wrong_pieces(entry) or _wrong_xattrs(entry)
    if entry.pieces or entry.size:
        return "it has content without being a file"
    if entry.kind == LINK:
        target = entry.target
        fine = 0 < len(target) <= LINK_BYTES_MAX and b"\0" not in target and not entry.xattrs
        return "" if fine else "it is no possible symbolic link"
    return _wrong_xattrs(entry)


def _wrong_pieces(entry: Entry) -> str:
    for piece in entry.pieces:
        if len(piece.id) not in (0, HASH_SIZE):
            return "a chunk of it has no proper id"
        if piece.length <= 0 or (piece.id and piece.length > CHUNK_LENGTH_MAX):
            return "a chunk of it has an impossible length"
    if not 0 <= entry.size <= INT64_MAX or sum(piece.length for piece in entry.pieces) != entry.size:
        return "its chunks are not as long as it"
    return ""


def _wrong_xattrs(entry: Entry) -> str:
    fine = all(x.name.startswith(b"user.") and b"\0" not in x.name for x in entry.xattrs)
    return "" if fine else "it has an extended attribute that is not user.*"
