"""Walks a folder and lists what stands in it, with what cannot be kept named; no file is read."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from bide.core import limits
from bide.snapshots.folders import Folders, join, open_quietly
from bide.snapshots.losses import BadFolder, Notes, shown
from bide.snapshots.scope import WHOLE, Left, Scope, Wanted

_COUNT_SIZE = 4
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class Tree(Struct, frozen=True):
    """A folder to capture under `name`. `only` keeps just these relative paths; `skip` leaves paths and patterns out,
    but for what `keep` holds on to: see `bide.snapshots.scope`.
    """

    name: str
    path: Path
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    @property
    def scope(self) -> Scope:
        """What of it is wanted."""
        return Scope(self.only, self.skip, self.keep)


UNSURE_NS = 0  # the ctime of no file that stands


class Row(Struct, frozen=True, array_like=True, gc=False):
    """What the system says of one file or folder: any change of it moves its ctime, which no program can set back.

    `dev` is relative to the device of the tree's top, which gets another number at each start of the machine.
    """

    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    ino: int
    nlink: int
    dev: int


class Seen(Struct, frozen=True, array_like=True):
    """A folder as it was seen: itself, and in the order of the system all that stands in it and is wanted.

    `names` are those of the rows, `folders` those of the folders in it, each joined by NUL. Two of these are compared
    by their bytes.
    """

    own: Row
    rows: tuple[Row, ...]
    names: bytes
    folders: bytes

    def by_name(self) -> dict[bytes, Row]:
        """The rows by their names."""
        return dict(zip(split(self.names), self.rows, strict=True))


class Walked(Struct, frozen=True, kw_only=True):
    """All folders of a tree that are wanted, each as the bytes of a `Seen`; `changed` are not as they were remembered.

    Those in `doubtful` could not be seen whole, and must not be remembered as they are. In `linked` ones there is a file
    that has other names as well.
    """

    folders: dict[bytes, bytes]
    changed: set[bytes]
    doubtful: set[bytes]
    linked: set[bytes]


def seen_of(content: bytes) -> Seen:
    """The folder in these bytes; `msgspec.MsgspecError` for others."""
    return msgspec.msgpack.decode(memoryview(content)[_COUNT_SIZE:], type=Seen)


def bytes_of(seen: Seen) -> bytes:
    """As bytes; how many entries there are stands before all else."""
    count = len(seen.rows) + len(split(seen.folders))
    return count.to_bytes(_COUNT_SIZE, "big") + msgspec.msgpack.encode(seen)


def entries_in(content: bytes) -> int:
    """How many entries these bytes tell of."""
    return int.from_bytes(content[:_COUNT_SIZE], "big")


def split(names: bytes) -> list[bytes]:
    """The names in a joined list."""
    return names.split(b"\0") if names else []


def open_tree(tree: Tree) -> int:
    """A handle of the tree's own folder; `BadFolder` when there is none, since nothing is not an empty tree."""
    try:
        return open_quietly(tree.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise BadFolder(str(tree.path), f"it cannot be captured: {error.strerror}", error.errno or 0) from error


def walked(tree: Tree) -> Walked:
    """All that stands in a tree at this moment. Raises `BadFolder`, and OSError where its top cannot be listed."""
    with Folders(open_tree(tree)) as folders:
        return scan(tree, folders, Notes(), {}, lambda: None)


def unsure(row: Row) -> Row:
    """The same as it is remembered where it may not be trusted: it never equals what is seen."""
    return msgspec.structs.replace(row, ctime_ns=UNSURE_NS)


def row_of(seen: os.stat_result, top_dev: int) -> Row:
    """The row of one stat."""
    return Row(*_row(seen, top_dev))


def scan(
    tree: Tree,
    folders: Folders,
    notes: Notes,
    remembered: Mapping[bytes, bytes],
    proceed: Callable[[], None],
    starts: Sequence[bytes] = (b"",),
    beyond: frozenset[bytes] = frozenset(),
) -> Walked:
    """Looks at every folder that is wanted. `proceed` is called often and may raise to stop.

    `starts` are the folders to begin at, remembered ones that are not there are passed over; `beyond` are not entered.
    """
    return _Scan(tree, folders, notes, remembered, proceed).run(starts, beyond)[0]


def scan_until(
    tree: Tree,
    folders: Folders,
    notes: Notes,
    remembered: Mapping[bytes, bytes],
    proceed: Callable[[], None],
    waiting_max: int,
) -> tuple[Walked, list[bytes]]:
    """The same, given up once so many folders are known that were not looked at yet: they are given as well."""
    return _Scan(tree, folders, notes, remembered, proceed).run((b"",), frozenset(), waiting_max)


class _Scan:
    def __init__(
        self,
        tree: Tree,
        folders: Folders,
        notes: Notes,
        remembered: Mapping[bytes, bytes],
        proceed: Callable[[], None],
    ) -> None:
        self._tree, self._folders, self._notes, self._proceed = tree.name, folders, notes, proceed
        self._scope, self._remembered = tree.scope, remembered
        self._top_dev = os.fstat(folders.at(b"")).st_dev
        self._encode = msgspec.msgpack.Encoder().encode
        self._found = Walked(folders={}, changed=set(), doubtful=set(), linked=set())
        self._judged: dict[bytes, Wanted] = {}  # of folders on the way only
        self._whole = True

    def run(
        self, starts: Sequence[bytes], beyond: frozenset[bytes], waiting_max: float = math.inf
    ) -> tuple[Walked, list[bytes]]:
        waiting = list(starts)
        if not self._scope.top.whole:
            self._judged[b""] = self._scope.top
        while 0 < len(waiting) < waiting_max:
            self._proceed()
            path = waiting.pop()
            if len(path) > limits.PATH_BYTES_MAX:
                self._notes.leave(self._tree, path, f"its path is longer than {limits.PATH_BYTES_MAX} bytes")
                continue
            self._whole = True
            try:
                content, below = self._look(path)
            except OSError as error:
                if path and error.errno in _GONE:
                    if path in starts and path in self._remembered:
                        continue
                    self._notes.warn(f"the folder {shown(self._tree, path)} vanished while it was being captured")
                    continue
                shut = self._shut(path, error, path in starts and path in self._remembered)
                if shut is None:
                    continue
                content, below = shut, b""
            if not self._whole:
                self._found.doubtful.add(path)
            before = self._remembered.get(path)
            if before is not None and content == before and self._whole:
                self._found.folders[path] = before  # the same bytes twice would be memory for nothing
            else:
                self._found.folders[path] = content
                self._found.changed.add(path)
            waiting += [full for full in (join(path, name) for name in split(below)) if full not in beyond]
        return self._found, waiting

    def _look(self, path: bytes) -> tuple[bytes, bytes]:
        fd = self._folders.at(path)
        own = os.fstat(fd)
        wanted = self._judged.pop(path, WHOLE)
        folder = os.fsdecode(path)
        plain = self._scope.plain(folder, wanted)
        rows: list[tuple[int, ...]] = []
        names: list[str] = []
        below: list[str] = []
        top_dev, linked = self._top_dev, False
        add_row, add_name = rows.append, names.append
        with os.scandir(fd) as items:
            for item in items:
                is_folder = item.is_dir(follow_symlinks=False)
                if not plain and not self._asked(folder, item.name, wanted, is_folder):
                    continue
                if is_folder:
                    below.append(item.name)
                    continue
                try:
                    seen = item.stat(follow_symlinks=False)
                except OSError as error:
                    self._unseen(path, item.name, error)
                    continue
                add_row(
                    (
                        seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns,
                        seen.st_ino, seen.st_nlink, seen.st_dev - top_dev,
                    )
                )  # fmt: skip
                add_name(item.name)
                if seen.st_nlink > 1:
                    linked = True
        if linked:
            self._found.linked.add(path)
        folders = os.fsencode("\0".join(below))
        content = self._encode((_row(own, top_dev), rows, os.fsencode("\0".join(names)), folders))
        return (len(rows) + len(below)).to_bytes(_COUNT_SIZE, "big") + content, folders

    def _asked(self, folder: str, name: str, above: Wanted, is_folder: bool) -> bool:
        full = f"{folder}/{name}" if folder else name
        found = self._scope.judge(full, above, is_folder)
        if isinstance(found, Left):
            if found.because:
                self._notes.exclude(self._tree, os.fsencode(full), found.because)
            return False
        if not found.whole and is_folder:
            self._judged[os.fsencode(full)] = found
        elif not found.whole:
            self._notes.leave(
                self._tree, os.fsencode(full), "it is no folder, so what was to be kept below it is not there"
            )
        return found.whole or is_folder

    def _unseen(self, path: bytes, name: str, error: OSError) -> None:
        full = join(path, os.fsencode(name))
        if error.errno in _GONE:
            self._notes.warn(f"{shown(self._tree, full)} vanished while it was being captured")
        else:
            self._whole = False
            self._notes.leave(self._tree, full, f"it cannot be looked at: {error.strerror}")

    def _shut(self, path: bytes, error: OSError, again: bool) -> bytes | None:
        """A folder that cannot be entered is kept as an empty one, and named. None where the one that it stands in cannot
        be entered either: one that is looked at `again` is gone with it.
        """
        folder, _, name = path.rpartition(b"/")
        try:
            own = os.lstat(name, dir_fd=self._folders.at(folder)) if path else os.fstat(self._folders.at(b""))
        except OSError:
            if not again:
                self._notes.leave(self._tree, path, f"it is not kept: {error.strerror}")
            return None
        self._whole = False
        self._notes.leave(self._tree, path, f"what is in it is not kept: {error.strerror}")
        return bytes_of(Seen(row_of(own, self._top_dev), (), b"", b""))


def _row(seen: os.stat_result, top_dev: int) -> tuple[int, ...]:
    return (
        seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns,
        seen.st_ino, seen.st_nlink, seen.st_dev - top_dev,
    )  # fmt: skip
