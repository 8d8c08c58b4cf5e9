"""Writes one tree into an empty folder of ours, entry by entry, never through a name it did not make itself."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator

from msgspec import Struct

from bide.snapshots.folders import Folders, join
from bide.snapshots.losses import Notes, shown
from bide.snapshots.manifest import FILE, FOLDER, HARD, LINK, Entry, Folder, TreeRecord

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_AGAIN = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Slot(Struct, frozen=True):
    """A place in a file that wants one chunk."""

    folder: bytes
    entry: Entry
    offset: int


class Writer:
    """One tree in the making, below a folder that nobody else writes to.

    The order is: `lay_out`, then `fill` for each slot of `slots`, then `finish`. Folders stay private and writable
    until the end; links come last, so nothing is ever written through one.
    """

    def __init__(
        self,
        folders: Folders,
        record: TreeRecord,
        content: list[Folder],
        owner: tuple[int, int] | None,
        notes: Notes,
    ) -> None:
        self._folders, self._record, self._content, self._notes = folders, record, content, notes
        self._uid, self._gid = owner or (-1, -1)
        self._is_root = os.geteuid() == 0
        self._now_ns = time.time_ns()
        self._not_owned = 0

    def slots(self) -> Iterator[tuple[bytes, Slot]]:
        """Every place that wants a chunk, with the chunk's id."""
        for folder, entry in self._entries(FILE):
            offset = 0
            for piece in entry.pieces:
                if piece.id:
                    yield piece.id, Slot(folder, entry, offset)
                offset += piece.length

    def lay_out(self) -> None:
        """Makes all folders, and the files that are not written in one go, at their full length."""
        for folder, entry in self._entries(FOLDER):
            os.mkdir(entry.name, 0o700, dir_fd=self._folders.at(folder))
        for folder, entry in self._entries(FILE):
            if not _in_one_go(entry):
                fd = os.open(entry.name, _NEW, 0o600, dir_fd=self._folders.at(folder))
                try:
                    os.ftruncate(fd, entry.size)
                finally:
                    os.close(fd)

    def fill(self, slot: Slot, content: memoryview) -> None:
        """Writes a chunk into its place."""
        whole = _in_one_go(slot.entry)
        fd = os.open(slot.entry.name, _NEW if whole else _AGAIN, 0o600, dir_fd=self._folders.at(slot.folder))
        try:
            at = slot.offset
            while content:
                done = os.pwrite(fd, content, at)
                content, at = content[done:], at + done
            if whole:
                self._dress(fd, slot.folder, slot.entry)
        finally:
            os.close(fd)

    def finish(self) -> None:
        """Gives everything its owner, attributes, mode and time; makes the links."""
        for folder, entry in self._entries(FILE):
            if not _in_one_go(entry):
                fd = os.open(entry.name, _AGAIN, dir_fd=self._folders.at(folder))
                try:
                    self._dress(fd, folder, entry)
                finally:
                    os.close(fd)
        for folder, entry in self._entries(HARD):
            target_folder, _, target = entry.target.rpartition(b"/")
            self._hard_link(target_folder, target, folder, entry.name)
        for folder, entry in self._entries(LINK):
            self._link(self._folders.at(folder), entry)
        for folder, entry in reversed(list(self._entries(FOLDER))):
            self._dress(self._folders.at(join(folder, entry.name)), folder, entry)
        self._dress(self._folders.at(b""), b"", self._record.top)
        if self._not_owned:
            self._notes.warn(
                f"{self._not_owned} entries of {self._record.name} belonged to other users and belong to this one now"
            )

    def _entries(self, kind: str) -> Iterator[tuple[bytes, Entry]]:
        for folder in self._content:
            for entry in folder.entries:
                if entry.kind == kind:
                    yield folder.path, entry

    def _hard_link(self, target_folder: bytes, target: bytes, folder: bytes, name: bytes) -> None:
        # A second handle, since looking up one folder may close the handle of the other.
        there = os.dup(self._folders.at(target_folder))
        try:
            here = self._folders.at(folder)
            os.link(target, name, src_dir_fd=there, dst_dir_fd=here, follow_symlinks=False)
        finally:
            os.close(there)

    def _link(self, folder_fd: int, entry: Entry) -> None:
        os.symlink(entry.target, entry.name, dir_fd=folder_fd)
        if self._is_root:
            uid, gid = self._owner(entry)
            try:
                os.chown(entry.name, uid, gid, dir_fd=folder_fd, follow_symlinks=False)
            except OSError:
                self._not_owned += 1
        os.utime(entry.name, ns=(self._now_ns, entry.mtime_ns), dir_fd=folder_fd, follow_symlinks=False)

    def _dress(self, fd: int, folder: bytes, entry: Entry) -> None:
        owned = self._own(fd, entry)
        for xattr in entry.xattrs:
            try:
                os.setxattr(fd, xattr.name, xattr.value)
            except OSError as error:
                name = xattr.name.decode("utf-8", "backslashreplace")
                self._notes.warn(f"{self._shown(folder, entry)} is without its {name}: {error.strerror}")
        mode = entry.mode
        if entry.kind == FILE and not owned and mode & (stat.S_ISUID | stat.S_ISGID):
            mode &= ~(stat.S_ISUID | stat.S_ISGID)
            self._notes.warn(f"{self._shown(folder, entry)} does not run as its owner any more, who is another user")
        os.utime(fd, ns=(self._now_ns, entry.mtime_ns))
        os.fchmod(fd, mode)

    def _own(self, fd: int, entry: Entry) -> bool:
        """Gives an entry its owner; whether that is the tree's own, so that set-id bits grant nobody else's rights."""
        of_the_tree = entry.uid is None and entry.gid is None
        if self._is_root:
            try:
                os.fchown(fd, *self._owner(entry))
            except OSError:  # this runner's range of ids does not hold it
                self._not_owned += 1
        elif not of_the_tree:
            self._not_owned += 1
        return of_the_tree

    def _owner(self, entry: Entry) -> tuple[int, int]:
        return (self._uid if entry.uid is None else entry.uid, self._gid if entry.gid is None else entry.gid)

    def _shown(self, folder: bytes, entry: Entry) -> str:
        return shown(self._record.name, join(folder, entry.name))


def _in_one_go(entry: Entry) -> bool:
    return len(entry.pieces) == 1 and bool(entry.pieces[0].id)
