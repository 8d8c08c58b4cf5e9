"""Walks a folder and lists what stands in it, with what cannot be kept named; nothing is read yet."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from msgspec import Struct

from bide.snapshots.folders import Folders, join
from bide.snapshots.losses import BadFolder, Notes, shown
from bide.snapshots.manifest import Xattr

_NEVER_KEPT = {
    stat.S_IFIFO: "a FIFO only lives while processes use it",
    stat.S_IFSOCK: "a socket only lives while its process does",
    stat.S_IFCHR: "device nodes are not kept",
    stat.S_IFBLK: "device nodes are not kept",
}
# Written by the system for its own use on nearly every file; leaving them out loses nothing of the user's.
_OF_THE_SYSTEM = ("security.selinux", "security.ima", "security.evm", "system.nfs4_acl", "trusted.")


class Tree(Struct, frozen=True):
    """A folder to capture under `name`. `only` keeps just these relative paths, `skip` leaves these out."""

    name: str
    path: Path
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()


class Seen(Struct, frozen=True):
    """One name as the walk saw it."""

    name: bytes
    stat: os.stat_result


class SeenFolder(Struct, frozen=True):
    """A folder the walk could enter: its extended attributes and the entries in it, sorted by name."""

    path: bytes
    xattrs: tuple[Xattr, ...]
    entries: tuple[Seen, ...]


def open_tree(tree: Tree) -> int:
    """A handle of the tree's own folder; `BadFolder` when there is none, since nothing is not an empty tree."""
    try:
        return os.open(tree.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise BadFolder(str(tree.path), f"it cannot be captured: {error.strerror}") from error


def scan(tree: Tree, folders: Folders, notes: Notes) -> list[SeenFolder]:
    """Every folder of the tree that is wanted, parents before their children, in an order that names alone decide."""
    wanted = _Wanted(tree)
    found: list[SeenFolder] = []
    waiting = [b""]
    while waiting:
        path = waiting.pop()
        try:
            fd = folders.at(path)
            entries = _entries(tree.name, path, fd, wanted, notes)
            xattrs, left = xattrs_of(fd)
        except OSError as error:
            _cannot_enter(tree.name, path, error, notes)
            continue
        kept = _kept(tree.name, path, entries, wanted, notes)
        note_left(tree.name, path, left, notes)
        found.append(SeenFolder(path, xattrs, tuple(kept)))
        waiting += [join(path, seen.name) for seen in reversed(kept) if stat.S_ISDIR(seen.stat.st_mode)]
    return found


def xattrs_of(fd: int) -> tuple[tuple[Xattr, ...], tuple[str, ...]]:
    """The `user.*` attributes of an open file or folder, and the names of others that a person may have set."""
    try:
        names = os.listxattr(fd)
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.EPERM, errno.EACCES):
            raise
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


def note_left(tree: str, path: bytes, left: tuple[str, ...], notes: Notes) -> None:
    """Says which attributes of a kept entry are left out."""
    for name in left:
        notes.leave(tree, path, f"its {name} is not kept, the rest of it is")


class _Wanted:
    """Which relative paths `only` and `skip` ask for."""

    def __init__(self, tree: Tree) -> None:
        self._only = tuple(os.fsencode(path).strip(b"/") for path in tree.only)
        self._skip = frozenset(os.fsencode(path).strip(b"/") for path in tree.skip)
        self._on_the_way = frozenset(
            b"/".join(parts[:count])
            for parts in (path.split(b"/") for path in self._only)
            for count in range(1, len(parts))
        )

    def has(self, path: bytes) -> bool:
        if path in self._skip:
            return False
        return not self._only or any(path == top or path.startswith(top + b"/") for top in self._only)

    def leads_on(self, path: bytes) -> bool:
        return path in self._on_the_way and path not in self._skip


def _entries(tree: str, path: bytes, fd: int, wanted: _Wanted, notes: Notes) -> list[Seen]:
    found = []
    with os.scandir(fd) as names:
        for item in names:
            name = os.fsencode(item.name)
            full = join(path, name)
            if not wanted.has(full) and not wanted.leads_on(full):
                continue
            try:
                found.append(Seen(name, os.stat(name, dir_fd=fd, follow_symlinks=False)))
            except FileNotFoundError:
                notes.warn(f"{shown(tree, full)} vanished while it was being captured")
            except OSError as error:
                notes.leave(tree, full, f"it cannot be looked at: {error.strerror}")
    found.sort(key=lambda seen: seen.name)
    return found


def _kept(tree: str, path: bytes, entries: list[Seen], wanted: _Wanted, notes: Notes) -> list[Seen]:
    kept = []
    for seen in entries:
        full = join(path, seen.name)
        kind = stat.S_IFMT(seen.stat.st_mode)
        if kind != stat.S_IFDIR and not wanted.has(full):
            notes.leave(tree, full, "it is no folder, so what was to be kept below it is not there")
        elif kind in _NEVER_KEPT:
            notes.leave(tree, full, _NEVER_KEPT[kind])
        else:
            kept.append(seen)
    return kept


def _cannot_enter(tree: str, path: bytes, error: OSError, notes: Notes) -> None:
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
        notes.warn(f"the folder {shown(tree, path)} vanished while it was being captured")
    else:
        notes.leave(tree, path, f"what is in it is not kept: {error.strerror}")
