"""Refuses a list of files that would write outside its folder or make what bide never makes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bide.core.limits import (
    CHUNK_LENGTH_MAX,
    INT64_MAX,
    LINK_BYTES_MAX,
    MTIME_NS_MAX,
    MTIME_NS_MIN,
    NAME_BYTES_MAX,
    OWNER_ID_MAX,
    XATTR_BYTES_MAX,
    XATTRS_MAX,
)
from bide.snapshots.folders import join
from bide.snapshots.losses import Hostile, shown
from bide.snapshots.manifest import FILE, FOLDER, HARD, HASH_SIZE, LINK, Entry, Folder, TreeRecord, Xattr, data_bytes

_NO_NAMES = (b"", b".", b"..")


class Checker:
    """Passes a tree that capture could have written, segment by segment in order; `Hostile` for any other.

    Each folder must be named as a folder by an entry before it, each hard link must name a file before it, so a path
    that climbs out, is absolute, or goes through a link cannot be expressed.
    """

    def __init__(self, record: TreeRecord) -> None:
        self._record = record
        self._expected = {b""}  # named by an entry, not listed yet
        self._last: bytes | None = None
        self._files = self._bytes = 0
        self._links: dict[bytes, dict[bytes, bytes]] = {}  # folder -> name -> the first link that names it

    def take(self, folders: Iterable[Folder]) -> None:
        """The next segment."""
        for folder in folders:
            path = folder.path
            self._next(path)
            if reason := _wrong_dress(folder.mode, folder.mtime_ns, folder.uid, folder.gid, folder.xattrs):
                self._refuse(path, reason)
            self._take_entries(folder)

    def pass_by(self, paths: Iterable[bytes], below: Mapping[bytes, Iterable[bytes]], files: int, size: int) -> None:
        """The next segment, one that was taken before: its folders, those right below each, and what it holds."""
        for path in paths:
            self._next(path)
            self._expected.update(below.get(path, ()))
        self._files += files
        self._bytes += size
        self._check_sum(b"")

    def _next(self, path: bytes) -> None:
        if path not in self._expected:
            self._refuse(path, "it is listed twice, or in a folder that is not in the checkpoint")
        self._expected.remove(path)
        if self._last is not None and path <= self._last:
            self._refuse(path, "the folders are not in order")
        self._last = path

    def take_alone(self, folders: Iterable[Folder]) -> None:
        """Passes folders by what stands in them only: of their tree others are lost, and may have named them."""
        for folder in folders:
            parts = folder.path.split(b"/") if folder.path else []
            if any(part in _NO_NAMES or b"\0" in part for part in parts):
                self._refuse(folder.path, "its name is no plain name")
            if self._last is not None and folder.path <= self._last:
                self._refuse(folder.path, "the folders are not in order")
            self._last = folder.path
            if reason := _wrong_dress(folder.mode, folder.mtime_ns, folder.uid, folder.gid, folder.xattrs):
                self._refuse(folder.path, reason)
            self._take_entries(folder)

    def _take_entries(self, folder: Folder) -> None:
        last = b""
        for entry in folder.entries:
            name, kind = entry.name, entry.kind
            if name <= last or name in _NO_NAMES or b"/" in name or b"\0" in name or len(name) > NAME_BYTES_MAX:
                twice = "this name stands twice in its folder, or out of order"
                plain = name and name not in _NO_NAMES and not {47, 0} & set(name) and len(name) <= NAME_BYTES_MAX
                self._refuse(join(folder.path, name), twice if plain else "its name is no plain name")
            last = name
            if reason := _wrong(entry):
                self._refuse(join(folder.path, name), reason)
            if kind == FOLDER:
                self._expected.add(join(folder.path, name))
                continue
            self._files += 1
            self._bytes += data_bytes((entry,)) if entry.lengths else entry.size
            if kind == HARD:
                self._link(join(folder.path, name), folder.path, entry)
        self._check_sum(folder.path)

    def _check_sum(self, path: bytes) -> None:
        if self._files > self._record.files or self._bytes > self._record.size:
            self._refuse(path, "the tree holds more than it says")

    def _link(self, path: bytes, folder: bytes, entry: Entry) -> None:
        there, _, target = entry.target.rpartition(b"/")
        if (there, target) >= (folder, entry.name):
            self._refuse(path, "it is a hard link to something that is not an earlier file")
        self._links.setdefault(there, {}).setdefault(target, path)

    def link_folders(self) -> frozenset[bytes]:
        """After the last segment: where the files should be that hard links name. Give each of these folders to
        `take_link_folder`, then call `finish`.
        """
        for path in self._expected:
            self._refuse(path, "what this folder is like and what is in it is not in the checkpoint")
        return frozenset(self._links)

    def take_link_folder(self, folder: Folder) -> None:
        """Looks for the files that hard links name."""
        if names := self._links.get(folder.path):
            for entry in folder.entries:
                if entry.kind == FILE:
                    names.pop(entry.name, None)

    def finish(self) -> None:
        """All that hard links name must have been found."""
        for names in self._links.values():
            for path in names.values():
                self._refuse(path, "it is a hard link to something that is not an earlier file")

    def _refuse(self, path: bytes, reason: str) -> None:
        raise Hostile(shown(self._record.name, path), reason)


def _wrong(entry: Entry) -> str:
    kind = entry.kind
    if kind == FILE:
        if entry.target:
            return "it is a file that names another"
        wrong = _wrong_dress(entry.mode, entry.mtime_ns, entry.uid, entry.gid, entry.xattrs)
        return wrong or _wrong_content(entry)
    if kind not in (FOLDER, LINK, HARD):
        return "it is a device node or another kind that is never restored"
    if entry.ids or entry.size or entry.lengths:
        return "it has content without being a file"
    if entry.xattrs:
        return "it has attributes that do not belong there"
    if kind == LINK:
        if not 0 < len(entry.target) <= LINK_BYTES_MAX or b"\0" in entry.target:
            return "it is no possible symbolic link"
        return _wrong_dress(0, entry.mtime_ns, entry.uid, entry.gid, ())
    return ""


def _wrong_dress(mode: int, mtime_ns: int, uid: int | None, gid: int | None, xattrs: tuple[Xattr, ...]) -> str:
    if not 0 <= mode <= 0o7777 or not MTIME_NS_MIN <= mtime_ns <= MTIME_NS_MAX:
        return "its mode or time is out of range"
    if (uid is not None and not 0 <= uid <= OWNER_ID_MAX) or (gid is not None and not 0 <= gid <= OWNER_ID_MAX):
        return "its owner is out of range"
    return _wrong_xattrs(xattrs) if xattrs else ""


def _wrong_content(entry: Entry) -> str:
    size, lengths = entry.size, entry.lengths
    if not 0 <= size <= INT64_MAX:
        return "its size is impossible"
    if not lengths:
        fine = len(entry.ids) == (HASH_SIZE if size else 0) and size <= CHUNK_LENGTH_MAX
        return "" if fine else "its chunks do not fit its size"
    chunks = sum(length > 0 for length in lengths)
    if len(entry.ids) != chunks * HASH_SIZE or 0 in lengths or max(lengths) > CHUNK_LENGTH_MAX:
        return "its chunks do not fit its size"
    return "" if sum(map(abs, lengths)) == size else "its chunks do not fit its size"


def _wrong_xattrs(xattrs: tuple[Xattr, ...]) -> str:
    names = {xattr.name for xattr in xattrs}
    if len(names) != len(xattrs) or len(xattrs) > XATTRS_MAX:
        return "it has too many extended attributes, or one twice"
    for xattr in xattrs:
        if not xattr.name.startswith(b"user.") or b"\0" in xattr.name:
            return "it has an extended attribute that is not user.*"
        if not len(b"user.") < len(xattr.name) <= NAME_BYTES_MAX or len(xattr.value) > XATTR_BYTES_MAX:
            return "it has an extended attribute that no system holds"
    return ""
