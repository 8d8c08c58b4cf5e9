"""A disposable local memory of what a folder looked like and which segments it became, so that the next capture or
restore touches only what changed since. Losing it costs time, never content; a damaged one counts as none.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import msgspec
from blake3 import blake3
from msgspec import Struct

from bide.core import limits
from bide.snapshots.known import Known
from bide.snapshots.manifest import FOLDERS, HASH_SIZE, Folder, PackRef, SegmentRef, Unreadable, chunk_id, decoded
from bide.snapshots.scan import Row, Seen, Tree, bytes_of, split, unsure

FORMAT = 2
_INDEX, _BODY = "index", "body."


class Kept(Struct, frozen=True, array_like=True):
    """A segment: its first folder, id and length, how many folders are in it, the files and bytes those hold, the
    numbers of the packs that it and its files lie in, what of its folders is not kept, as (path, reason), and the ids
    of its chunks where it has several.
    """

    first: bytes
    id: bytes
    length: int
    folders: int
    files: int
    size: int
    uses: tuple[int, ...]
    notes: tuple[tuple[bytes, str], ...] = ()
    chunks: bytes = b""

    @property
    def ref(self) -> SegmentRef:
        """As it stands in the root."""
        return SegmentRef(self.first, self.id, self.chunks)


class Head(Struct, frozen=True, array_like=True):
    """Which tree is remembered, and whom its top belongs to; all of it must fit."""

    name: str
    path: bytes
    only: tuple[str, ...]
    skip: tuple[str, ...]
    keep: tuple[str, ...]
    uid: int
    gid: int


class _Part(Struct, frozen=True, array_like=True):
    at: int
    length: int
    hash: bytes


class _TreeRow(Struct, frozen=True, array_like=True):
    head: Head
    segments: tuple[Kept, ...]
    contents_at: int
    rows: _Part


class _Index(Struct, frozen=True, array_like=True):
    format: int
    held: str
    base: str
    body: str
    packs: tuple[PackRef, ...]
    ids: _Part
    numbers: _Part
    trees: tuple[_TreeRow, ...]


class Remembered:
    """One tree: `segments` in order, and `rows`, the bytes of a `Seen` for each folder."""

    def __init__(self, row: _TreeRow, body: int, key: bytes) -> None:
        """Raises `Unreadable`, MsgspecError."""
        self._body, self._key = body, key
        self.head, self.segments = row.head, row.segments
        self.rows: dict[bytes, bytes] = msgspec.msgpack.decode(_read(body, row.rows), type=dict[bytes, bytes])
        self.paths = list(self.rows)
        self.first_folders = list(accumulate((kept.folders for kept in self.segments), initial=0))
        self._at = list(accumulate((kept.length for kept in self.segments), initial=row.contents_at))
        if self.first_folders[-1] != len(self.paths):
            raise Unreadable("it does not fit together")

    def paths_of(self, n: int) -> list[bytes]:
        """The folders of segment `n`, in order."""
        return self.paths[self.first_folders[n] : self.first_folders[n + 1]]

    def content(self, n: int) -> bytes:
        """The bytes of segment `n`, or `Unreadable`."""
        kept = self.segments[n]
        content = os.pread(self._body, kept.length, self._at[n])
        if chunk_id(content, self._key) != kept.id:
            raise Unreadable("it is damaged")
        return content

    def folders(self, n: int) -> list[Folder]:
        """The folders of segment `n`, or `Unreadable`. Its name was checked, and this runner gave it: nothing is counted."""
        return decoded(self.content(n), FOLDERS, "it")


class Memory:
    """All that is remembered: the folders held the root `held`; `packs` is its table, with those of the root `base`."""

    def __init__(self, index: _Index | None = None, body: int = -1, key: bytes = b"") -> None:
        self._index, self._body, self._key = index, body, key
        self.held, self.base = (index.held, index.base) if index else ("", "")
        self.packs: tuple[PackRef, ...] = index.packs if index else ()

    def close(self) -> None:
        """Nothing can be read from it afterwards."""
        if self._body >= 0:
            os.close(self._body)
        self._body = -1

    def known(self) -> Known:
        """The chunks in `packs`, numbered as they stand there; nothing when it is damaged."""
        if self._index is None:
            return Known()
        try:
            return Known(_read(self._body, self._index.ids), _read(self._body, self._index.numbers))
        except (Unreadable, ValueError):
            return Known()

    def has(self, heads: Iterable[Head]) -> bool:
        """Whether exactly these trees are remembered."""
        return self._index is not None and [row.head for row in self._index.trees] == list(heads)

    def held_on(self, held: str) -> bytes:
        """As it is written once the same folders hold another root, of the same segments and packs."""
        assert self._index is not None
        return _sealed(msgspec.structs.replace(self._index, held=held), self._key)

    def tree(self, head: Head) -> Remembered | None:
        """The tree, unless another one is remembered under its name, or this one is damaged."""
        for row in self._index.trees if self._index else ():
            if row.head == head:
                try:
                    return Remembered(row, self._body, self._key)
                except (Unreadable, msgspec.MsgspecError):
                    return None
        return None


class Keeping(Struct, frozen=True, kw_only=True):
    """A tree to be remembered: `rows` in the order of its segments, `content` gives the bytes of the n-th of them."""

    head: Head
    rows: Mapping[bytes, bytes]
    segments: Sequence[Kept]
    content: Callable[[int], bytes]


def head_of(tree: Tree, top: os.stat_result) -> Head:
    """What is remembered of which tree it was."""
    path = os.fsencode(tree.path.absolute())
    return Head(tree.name, path, tree.only, tree.skip, tree.keep, top.st_uid, top.st_gid)


def recall(folder: Path | None, key: bytes) -> Memory:
    """What is remembered in this folder, made with this key of chunks; an empty memory for anything else.

    Close it after use.
    """
    if folder is None:
        return Memory()
    try:
        content = (folder / _INDEX).read_bytes()
        if chunk_id(content[HASH_SIZE:], key) != content[:HASH_SIZE]:
            return Memory()
        index = msgspec.msgpack.decode(content[HASH_SIZE:], type=_Index)
        if index.format != FORMAT:
            return Memory()
        return Memory(index, os.open(folder / index.body, os.O_RDONLY | os.O_CLOEXEC), key)
    except (OSError, msgspec.MsgspecError, ValueError):
        return Memory()


def forget(folder: Path | None) -> None:
    """Removes what is remembered: before the folders change in a way that nobody could follow."""
    if folder is not None:
        (folder / _INDEX).unlink(missing_ok=True)
        _clear(folder)


def keep(
    folder: Path | None,
    key: bytes,
    held: str,
    base: str,
    packs: Sequence[PackRef],
    known: Known,
    trees: Sequence[Keeping],
) -> None:
    """Replaces what is remembered, whole or not at all. A disk that refuses only costs time at the next capture."""
    if folder is None:
        return
    name = _BODY + secrets.token_hex(8)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (folder / name).open("xb") as body:
            ids, numbers = _write(body.write, 0, known.ids), _write(body.write, len(known.ids), known.packs)
            at = numbers.at + numbers.length
            rows = []
            for tree in trees:
                part = _write(body.write, at, msgspec.msgpack.encode(tree.rows))
                rows.append(_TreeRow(tree.head, tuple(tree.segments), at + part.length, part))
                at += part.length
                for n in range(len(tree.segments)):
                    at += body.write(tree.content(n))
        index = _Index(FORMAT, held, base, name, tuple(packs), ids, numbers, tuple(rows))
        _put_index(folder, _sealed(index, key))
        _clear(folder, but=name)
    except (OSError, Unreadable):
        forget(folder)


def keep_on(folder: Path | None, memory: Memory, held: str) -> None:
    """Remembers that the folders hold another root now, though they are the same."""
    if folder is not None:
        try:
            _put_index(folder, memory.held_on(held))
        except OSError:
            forget(folder)


def certain(
    content: bytes, seen: Seen, before_ns: int, doubtful: frozenset[bytes] = frozenset(), whole: bool = True
) -> bytes:
    """The bytes of a `Seen` as they may be remembered: rows so young that the file could change again without its
    ctime moving, and `doubtful` ones by name, are marked so that they never equal what is seen. Not `whole`: the
    folder itself is.
    """
    doubt = not whole or young(seen.own, before_ns)
    newest = max((row.ctime_ns for row in seen.rows), default=0)
    if not doubt and not doubtful and newest < before_ns - limits.RACY_WHOLE_NS:
        return content
    names = split(seen.names)
    unsafe = [young(row, before_ns) for row in seen.rows]
    if doubtful:
        unsafe = [now or name in doubtful for now, name in zip(unsafe, names, strict=True)]
    if not doubt and not any(unsafe):
        return content
    rows = tuple(unsure(row) if now else row for row, now in zip(seen.rows, unsafe, strict=True))
    if doubtful:  # nor do they lead other names
        rows = tuple(
            msgspec.structs.replace(row, nlink=0) if name in doubtful else row
            for row, name in zip(rows, names, strict=True)
        )
    own = unsure(seen.own) if doubt else seen.own
    return bytes_of(Seen(own, rows, seen.names, seen.folders))


def young(row: Row, before_ns: int) -> bool:
    """Whether the entry may have changed once more without its ctime moving, at a look that began at `before_ns`, less
    what a clock's tick takes.
    """
    whole = row.ctime_ns % 1_000_000_000 == 0
    return row.ctime_ns >= before_ns - (limits.RACY_WHOLE_NS if whole else 0)


def _write(write: Callable[[bytes], int], at: int, content: bytes) -> _Part:
    write(content)
    return _Part(at, len(content), blake3(content).digest())


def _read(body: int, part: _Part) -> bytes:
    content = os.pread(body, part.length, part.at)
    if blake3(content).digest() != part.hash:
        raise Unreadable("it is damaged")
    return content


def _sealed(index: _Index, key: bytes) -> bytes:
    content = msgspec.msgpack.encode(index)
    return chunk_id(content, key) + content


def _put_index(folder: Path, content: bytes) -> None:
    staged = folder / f"{_INDEX}.{secrets.token_hex(8)}"
    staged.write_bytes(content)
    staged.replace(folder / _INDEX)


def _clear(folder: Path, but: str = "") -> None:
    """Removes what earlier ones left, also those that died half-way."""
    for path in folder.glob("*.*"):
        if path.name.startswith((_INDEX, _BODY)) and path.name != but:
            path.unlink(missing_ok=True)
