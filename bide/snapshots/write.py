"""Writes entries of one tree into a folder of ours, never through a name that is not what it should be."""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from pathlib import Path

from msgspec import Struct

from bide.snapshots.folders import Folders, join
from bide.snapshots.losses import BadFolder, Notes, shown
from bide.snapshots.manifest import Entry, Folder, TreeRecord, Xattr

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_AGAIN = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_SET_ID = stat.S_ISUID | stat.S_ISGID


class Told(Struct, frozen=True):
    """What writers of another process have to say: `foreign` as in `Remarks`."""

    warnings: tuple[str, ...]
    foreign: dict[str, int]


class Remarks:
    """What people must be told about what was written. `foreign` counts, by tree, entries of others that are ours now."""

    def __init__(self) -> None:
        self._notes = Notes()
        self._foreign: Counter[str] = Counter()

    def warn(self, sentence: str) -> None:
        """Something that is not quite as it was."""
        self._notes.warn(sentence)

    def count_foreign(self, tree: str) -> None:
        """One more entry that could not be given to its owner."""
        self._foreign[tree] += 1

    def told(self) -> Told:
        """All of it, to be taken by another's `take`."""
        return Told(self._notes.warnings, dict(self._foreign))

    def take(self, told: Told) -> None:
        """Adds what another process had to say."""
        for sentence in told.warnings:
            self.warn(sentence)
        self._foreign.update(told.foreign)

    @property
    def warnings(self) -> tuple[str, ...]:
        """As sentences."""
        whose = "belonged to other users and belong to this one now"
        return (
            *self._notes.warnings,
            *(f"{count} entries of {tree} {whose}" for tree, count in sorted(self._foreign.items())),
        )


class Writer:
    """One tree in the making. Folders stay private and writable until each is dressed, children before parents."""

    def __init__(
        self, folders: Folders, record: TreeRecord, owner: tuple[int, int] | None, remarks: Remarks, fresh: bool
    ) -> None:
        """`fresh`: all folders were made by us, so that new files have our ids by themselves."""
        self._folders, self._record, self._remarks = folders, record, remarks
        self._is_root = os.geteuid() == 0
        ours = (os.geteuid(), os.getegid())
        self._uid, self._gid = owner or ours
        self._born_right = not self._is_root or (fresh and (self._uid, self._gid) == ours)
        self._umask = _umask()
        self._now_ns = time.time_ns()

    def make_folder(self, parent: bytes, name: bytes) -> None:
        """A folder, private until it is dressed; one that another tree made here is as good."""
        try:
            os.mkdir(name, 0o700, dir_fd=self._folders.at(parent))
        except FileExistsError:
            self._folders.at(join(parent, name))

    def whole(self, folder: bytes, entry: Entry, content: bytes | memoryview) -> None:
        """A new file with all of its content."""
        mode = entry.mode
        plain = not mode & (0o7000 | self._umask) and not entry.xattrs
        fd = self._new(folder, entry, mode if plain else 0o600)
        try:
            _write(fd, content, 0)
            if plain and self._born_right and entry.uid is None and entry.gid is None:
                os.utime(fd, ns=(self._now_ns, entry.mtime_ns))
            else:
                self._dress(fd, entry, folder, entry.name)
        finally:
            os.close(fd)

    def blank(self, folder: bytes, entry: Entry) -> None:
        """A new file of its full length, all of it a hole."""
        fd = self._new(folder, entry, 0o600)
        try:
            os.ftruncate(fd, entry.size)
        finally:
            os.close(fd)

    def piece(self, folder: bytes, entry: Entry, offset: int, content: memoryview) -> None:
        """A part of a blank file."""
        fd = os.open(entry.name, _AGAIN, dir_fd=self._folders.at(folder))
        try:
            _write(fd, content, offset)
        finally:
            os.close(fd)

    def dress_file(self, folder: bytes, entry: Entry, bare: bool = False) -> None:
        """Gives a file that stands its owner, attributes, mode and time; `bare`: others it had are taken away."""
        fd = os.open(entry.name, _LOOK, dir_fd=self._folders.at(folder))
        try:
            if bare:
                _undress(fd, entry.xattrs)
            self._dress(fd, entry, folder, entry.name)
        finally:
            os.close(fd)

    def dress_folder(self, folder: Folder, bare: bool = False) -> None:
        """The same for a folder; nothing may be made in it afterwards."""
        fd = self._folders.at(folder.path)
        if bare:
            _undress(fd, folder.xattrs)
        self._dress(fd, folder, folder.path, b"")

    def link(self, folder: bytes, entry: Entry) -> None:
        """A symbolic link."""
        fd = self._folders.at(folder)
        os.symlink(entry.target, entry.name, dir_fd=fd)
        if self._is_root and not (self._born_right and entry.uid is None and entry.gid is None):
            try:
                os.chown(entry.name, *self._owner(entry), dir_fd=fd, follow_symlinks=False)
            except OSError:
                self._remarks.count_foreign(self._record.name)
        os.utime(entry.name, ns=(self._now_ns, entry.mtime_ns), dir_fd=fd, follow_symlinks=False)

    def hard_link(self, folder: bytes, entry: Entry) -> None:
        """Another name of a file that stands."""
        target_folder, _, target = entry.target.rpartition(b"/")
        # A second handle, since looking up one folder may close the handle of the other.
        there = os.dup(self._folders.at(target_folder))
        try:
            here = self._folders.at(folder)
            os.link(target, entry.name, src_dir_fd=there, dst_dir_fd=here, follow_symlinks=False)
        finally:
            os.close(there)

    def _new(self, folder: bytes, entry: Entry, mode: int) -> int:
        try:
            return os.open(entry.name, _NEW, mode, dir_fd=self._folders.at(folder))
        except FileExistsError as error:
            raise BadFolder(self._shown(folder, entry.name), "something else was put there meanwhile") from error

    def _dress(self, fd: int, entry: Entry | Folder, folder: bytes, name: bytes) -> None:
        owned = self._own(fd, entry)
        for xattr in entry.xattrs:
            try:
                os.setxattr(fd, xattr.name, xattr.value)
            except OSError as error:
                of = xattr.name.decode("utf-8", "backslashreplace")
                self._remarks.warn(f"{self._shown(folder, name)} is without its {of}: {error.strerror}")
        mode = entry.mode
        if isinstance(entry, Entry) and not owned and mode & _SET_ID:
            mode &= ~_SET_ID
            self._remarks.warn(f"{self._shown(folder, name)} does not run as its owner any more, who is another user")
        os.utime(fd, ns=(self._now_ns, entry.mtime_ns))
        os.fchmod(fd, mode)

    def _own(self, fd: int, entry: Entry | Folder) -> bool:
        """Gives an entry its owner; whether that is the tree's own, so that set-id bits grant nobody else's rights."""
        of_the_tree = entry.uid is None and entry.gid is None
        if self._is_root:
            try:
                os.fchown(fd, *self._owner(entry))
            except OSError:  # this runner's range of ids does not hold it
                self._remarks.count_foreign(self._record.name)
        elif not of_the_tree:
            self._remarks.count_foreign(self._record.name)
        return of_the_tree

    def _owner(self, entry: Entry | Folder) -> tuple[int, int]:
        return (self._uid if entry.uid is None else entry.uid, self._gid if entry.gid is None else entry.gid)

    def _shown(self, folder: bytes, name: bytes) -> str:
        return shown(self._record.name, join(folder, name) if name else folder)


def _write(fd: int, content: bytes | memoryview, at: int) -> None:
    done = os.pwrite(fd, content, at)
    while done < len(content):
        done += os.pwrite(fd, content[done:], at + done)


def _undress(fd: int, wanted: tuple[Xattr, ...]) -> None:
    try:
        names = os.listxattr(fd)
    except OSError:  # this file system has none
        return
    kept = {xattr.name for xattr in wanted}
    for name in names:
        if name.startswith("user.") and os.fsencode(name) not in kept:
            os.removexattr(fd, name)


def _umask() -> int:
    """That of this process, which can otherwise only be read by setting it, in all threads at once."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.partition(":")[2], 8) for line in lines if line.startswith("Umask:"))
    except (OSError, StopIteration, ValueError):
        return 0o777  # unknown: each mode is set after the file is made
