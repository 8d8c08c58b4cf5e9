"""Turns folders into segments, handing new content to a packer on the way and reading only what changed."""

from __future__ import annotations

import errno
import os
import stat
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from msgspec import Struct

from bide.core import limits
from bide.snapshots.content import Elsewise, read_file, xattrs_of
from bide.snapshots.folders import Folders, join
from bide.snapshots.known import Known
from bide.snapshots.losses import Changed, shown
from bide.snapshots.manifest import (
    FILE,
    FOLDER,
    HARD,
    LINK,
    Entry,
    Folder,
    Unreadable,
    Xattr,
    chunk_id,
    data_bytes,
    encode_segment,
)
from bide.snapshots.packs import Packer
from bide.snapshots.scan import Row, Seen, Tree, Walked, entries_in, row_of, split
from bide.snapshots.statcache import Remembered, certain

_NEVER_KEPT = {
    stat.S_IFIFO: "a FIFO only lives while processes use it",
    stat.S_IFSOCK: "a socket only lives while its process does",
    stat.S_IFCHR: "device nodes are not kept",
    stat.S_IFBLK: "device nodes are not kept",
}
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class Subject(Struct, frozen=True, kw_only=True):
    """A tree as it was found: `later_names` are further names of files, `memory` is what it was like before, `look` gives a folder
    now and before. `past`: it
    was found a while ago, and what was changed since is left out.
    """

    tree: Tree
    folders: Folders
    top: os.stat_result
    walked: Walked
    memory: Remembered | None
    later_names: dict[bytes, bytes]
    look: Callable[[bytes], tuple[Seen, Seen | None]]
    past: bool = False


class Made(Struct, frozen=True, array_like=True):
    """A segment that was made: `uses` are numbers of packs known before, `fresh` the new ones its chunks lie in, counted
    from the first that its packer wrote. `rows` are its folders as they may be remembered, where that is not as they
    were seen. `lost` names could not be read although others were to lead to them.
    """

    tree: int
    group: int
    first: bytes
    content: bytes
    files: int
    size: int
    uses: tuple[int, ...]
    fresh: tuple[int, ...]
    notes: tuple[tuple[bytes, str], ...]
    warnings: tuple[str, ...]
    rows: dict[bytes, bytes]
    lost: tuple[bytes, ...]


class Sink:
    """Sends new chunks to a packer and remembers, until `begin` is called, where all others lie."""

    def __init__(self, packer: Packer, known: Known, key: bytes) -> None:
        self._packer, self._known, self._key = packer, known, key
        self.begin()

    def begin(self) -> None:
        """From here on it is another segment's."""
        self.uses: set[int] = set()
        self.fresh: list[bytes] = []

    def add(self, content: bytes | memoryview) -> bytes:
        """Takes a chunk, gives its id."""
        ident = chunk_id(content, self._key)
        number = self._known.pack_of(ident)
        if number is None:
            self._packer.put(ident, content)
            self.fresh.append(ident)
        else:
            self.uses.add(number)
        return ident

    def reuse(self, ids: bytes) -> bool:
        """Whether all of these chunks can be built upon; they are, then."""
        found = set(self._known.packs_of(ids))
        if None in found:
            return False
        self.uses.update(number for number in found if number is not None)
        return True


class Taker:
    """Makes segments of one tree, one at a time."""

    def __init__(
        self, n: int, subject: Subject, sink: Sink, trusted_before_ns: int, proceed: Callable[[], None]
    ) -> None:
        self._n, self._subject, self._sink, self._proceed = n, subject, sink, proceed
        self._name, self._folders, self._walked = subject.tree.name, subject.folders, subject.walked
        self._trusted_before_ns = trusted_before_ns
        self._firsts = frozenset(subject.later_names.values())
        self._old = Old(subject.memory)

    def make(self, group: int, paths: list[bytes]) -> tuple[Made, list[bytes]]:
        """The segment of these folders, and its new chunks. `Made.fresh` is empty: only the packer's end tells."""
        self._sink.begin()
        self._files = self._size = 0
        self._notes: list[tuple[bytes, str]] = []
        self._warnings: list[str] = []
        self._rows: dict[bytes, bytes] = {}
        self._lost: list[bytes] = []
        content = encode_segment([self._folder(path) for path in paths])
        made = Made(
            self._n, group, paths[0], content, self._files, self._size, tuple(sorted(self._sink.uses)), (),
            tuple(self._notes), tuple(self._warnings), self._rows, tuple(self._lost),
        )  # fmt: skip
        return made, self._sink.fresh

    def _folder(self, path: bytes) -> Folder:
        self._proceed()
        content, old = self._walked.folders[path], self._old.folder(path)
        if old is not None and self._stands(path, content, old):
            return old
        seen, was = self._subject.look(path)
        self._doubtful: set[bytes] = set()
        trusted_before_ns = self._trusted_before_ns
        if seen.own.dev or any(row.dev for row in seen.rows):
            trusted_before_ns = 0  # on a file system that is mounted here: nobody has written it out
        whole = path not in self._walked.doubtful
        if old is None or path in self._walked.changed:
            uid, gid, xattrs, found = self._dress(path, seen.own)
            whole = whole and found
        else:
            uid, gid, xattrs = old.uid, old.gid, old.xattrs
            self._note_again(path)
        entries = self._entries(path, seen, old, was)
        if path in self._walked.changed:
            known = certain(content, seen, trusted_before_ns, frozenset(self._doubtful), whole)
            if known is not content:
                self._rows[path] = known
        elif self._doubtful:
            self._rows[path] = certain(content, seen, trusted_before_ns, frozenset(self._doubtful), whole)
        return Folder(path, stat.S_IMODE(seen.own.mode), seen.own.mtime_ns, tuple(entries), xattrs, uid, gid)

    def _stands(self, path: bytes, content: bytes, old: Folder) -> bool:
        """Whether the folder is as it was, with nothing in it that would have to be looked at one by one."""
        if path in self._walked.changed or path in self._walked.linked or self._old.notes:
            return False
        if len(old.entries) != entries_in(content) or not self._sink.reuse(b"".join(e.ids for e in old.entries)):
            return False
        self._files += sum(entry.kind != FOLDER for entry in old.entries)
        self._size += data_bytes(old.entries)
        return True

    def _entries(self, path: bytes, seen: Seen, old: Folder | None, was: Seen | None) -> list[Entry]:
        """What is in a folder, by name. What has to be read is read in this order too: neighbours are alike."""
        found, rest = self._calm(path, seen, old, was)
        entries = {entry.name: entry for entry in old.entries} if old and not found else {}
        rows = was.by_name() if was and entries else {}
        calm = (entries[name] for name, row in rest.items() if name in entries and rows.get(name) == row)
        same = (entry for entry in calm if entry.xattrs and self._sink.reuse(entry.ids))
        taken = sum(_xattr_bytes(entry.xattrs) for entry in (*found, *same) if entry.xattrs)
        self._xattrs_left = limits.LIST_XATTR_BYTES_MAX - taken
        for name in split(seen.folders):
            if join(path, name) in self._walked.folders:
                found.append(Entry(name, FOLDER))
        for name, row in sorted(rest.items()):
            before = entries.get(name) if rows.get(name) == row else None
            entry = self._entry(path, name, join(path, name), row, before)
            if entry is not None:
                found.append(entry)
        return sorted(found, key=lambda entry: entry.name)

    def _calm(
        self, path: bytes, seen: Seen, old: Folder | None, was: Seen | None
    ) -> tuple[list[Entry], dict[bytes, Row]]:
        """Files and links that are as they were, where nothing in their folder has to be looked at one by one; and the
        rest.
        """
        if old is None or was is None or path in self._walked.linked or self._old.notes:
            return [], seen.by_name()
        names = split(seen.names)
        if seen.names == was.names:
            rest = {name: row for name, row, before in zip(names, seen.rows, was.rows, strict=True) if row != before}
            found = [entry for entry in old.entries if entry.kind != FOLDER and entry.name not in rest]
        else:
            rows, there = was.by_name(), seen.by_name()
            rest = {name: row for name, row in there.items() if row != rows.get(name)}
            found = [entry for entry in old.entries if entry.name in there and entry.name not in rest]
        if not self._sink.reuse(b"".join(entry.ids for entry in found)):
            return [], seen.by_name()
        self._files += len(found)
        self._size += data_bytes(found)
        return found, rest

    def _dress(self, path: bytes, row: Row) -> tuple[int | None, int | None, tuple[Xattr, ...], bool]:
        """Owner and attributes of a folder, and whether they could be read."""
        try:
            fd = self._folders.at(path)
            (xattrs, left), now = xattrs_of(fd), os.fstat(fd)
            if not self._meant(now, row):
                return None, None, (), False
            self._leave(path, left)
            return *self._owner(now), xattrs, True
        except OSError as error:
            if error.errno in _GONE:
                self._warnings.append(
                    f"the folder {shown(self._name, path)} vanished while it was being captured; it is kept as an empty one"
                )
                return None, None, (), False
        folder, _, name = path.rpartition(b"/")
        try:
            return *self._owner(os.lstat(name, dir_fd=self._folders.at(folder))), (), False
        except OSError:
            return None, None, (), False

    def _entry(self, folder: bytes, name: bytes, full: bytes, row: Row, before: Entry | None) -> Entry | None:
        kind = stat.S_IFMT(row.mode)
        if kind in _NEVER_KEPT:
            self._notes.append((full, _NEVER_KEPT[kind]))
            return None
        if row.nlink > 1 and (first := self._subject.later_names.get(full)) is not None:
            self._files += 1
            return Entry(name, HARD, target=first)
        if (
            before is not None
            and before.kind == (LINK if kind == stat.S_IFLNK else FILE)
            and self._sink.reuse(before.ids)
        ):
            self._note_again(full)
            self._files += 1
            self._size += data_bytes((before,))
            return before
        try:
            take = self._link if kind == stat.S_IFLNK else self._file
            found = take(folder, name, full, row)
        except Elsewise:
            self._warnings.append(f"{shown(self._name, full)} turned into something else while it was being captured")
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                self._warnings.append(f"{shown(self._name, full)} vanished while it was being captured")
            elif error.errno in (errno.ELOOP, errno.EINVAL, errno.ENXIO):
                self._warnings.append(
                    f"{shown(self._name, full)} turned into something else while it was being captured"
                )
            else:
                self._notes.append((full, f"it cannot be read: {error.strerror}"))
        else:
            self._files += 1
            self._size += data_bytes((found,))
            return found
        self._doubtful.add(name)
        if full in self._firsts:
            self._lost.append(full)
        return None

    def _link(self, folder: bytes, name: bytes, _: bytes, row: Row) -> Entry:
        fd = self._folders.at(folder)
        target, now = os.readlink(name, dir_fd=fd), os.lstat(name, dir_fd=fd)
        if not self._meant(now, row):
            raise Elsewise
        uid, gid = self._owner(now)
        return Entry(name, LINK, mtime_ns=now.st_mtime_ns, target=target, uid=uid, gid=gid)

    def _file(self, folder: bytes, name: bytes, full: bytes, row: Row) -> Entry:
        self._proceed()
        fd = self._folders.at(folder)
        if self._subject.past and not self._meant(os.lstat(name, dir_fd=fd), row):
            raise Elsewise
        found = read_file(fd, name, self._sink.add, self._proceed)
        now = found.stat
        if full in self._firsts and (now.st_ino, now.st_dev - self._subject.top.st_dev) != (row.ino, row.dev):
            self._doubtful.add(name)
            self._lost.append(full)  # another file has this name now: those that were to lead to it are not this one's
        if not self._meant(now, row):  # what was read of it is on its way
            raise Changed([shown(self._name, full)])
        if found.torn:
            self._doubtful.add(name)
            self._warnings.append(f"{shown(self._name, full)} changed while it was being captured")
        self._leave(full, found.left)
        uid, gid = self._owner(now)
        return Entry(
            name, FILE, stat.S_IMODE(now.st_mode), now.st_mtime_ns, found.size, found.ids, b"", found.lengths,
            self._afforded(full, found.xattrs), uid, gid,
        )  # fmt: skip

    def _meant(self, now: os.stat_result, row: Row) -> bool:
        """Whether this is what was found there, where nothing else is wanted. It is asked after the reading: a change
        before would show.
        """
        return not self._subject.past or row_of(now, self._subject.top.st_dev) == row

    def _owner(self, seen: os.stat_result) -> tuple[int | None, int | None]:
        top = self._subject.top
        return (
            None if seen.st_uid == top.st_uid else seen.st_uid,
            None if seen.st_gid == top.st_gid else seen.st_gid,
        )

    def _afforded(self, full: bytes, xattrs: tuple[Xattr, ...]) -> tuple[Xattr, ...]:
        """The attributes of a file, or none where the list of its folder would grow too long by them."""
        size = _xattr_bytes(xattrs) if xattrs else 0
        if size > self._xattrs_left:
            reason = "its attributes are not kept, the rest of it is: those of its folder are too many"
            self._notes.append((full, reason))
            return ()
        self._xattrs_left -= size
        return xattrs

    def _leave(self, full: bytes, left: tuple[str, ...]) -> None:
        for name in left:
            self._notes.append((full, f"its {name} is not kept, the rest of it is"))

    def _note_again(self, full: bytes) -> None:
        for reason in self._old.notes.get(full, ()):
            self._notes.append((full, reason))


def _xattr_bytes(xattrs: tuple[Xattr, ...]) -> int:
    return sum(len(xattr.name) + len(xattr.value) + limits.XATTR_COST_BYTES for xattr in xattrs)


class Old:
    """What folders were like before; nothing for those that are not remembered, or whose list is damaged."""

    def __init__(self, memory: Remembered | None) -> None:
        self._memory = memory
        self._open: dict[bytes, Folder] = {}
        self._n = -1
        self.notes: dict[bytes, list[str]] = {}

    def segment_of(self, path: bytes) -> int:
        """Which of the remembered segments it stands in, or -1."""
        memory = self._memory
        if memory is None or path not in memory.rows:
            return -1
        return bisect_right(memory.first_folders, bisect_left(memory.paths, path)) - 1

    def folder(self, path: bytes) -> Folder | None:
        """Its list of entries."""
        memory, n = self._memory, self.segment_of(path)
        if memory is None or n < 0:
            return None
        if n != self._n:
            try:
                folders = memory.folders(n)
            except Unreadable:
                folders = []
            self._n, self._open = n, {folder.path: folder for folder in folders}
            self.notes = {}
            for full, reason in memory.segments[n].notes:
                self.notes.setdefault(full, []).append(reason)
        return self._open.get(path)
