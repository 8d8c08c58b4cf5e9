"""Reads single folders and files out of an opened checkpoint, without restoring it."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import accumulate

from bide.core import limits
from bide.snapshots.blobs.base import Missing
from bide.snapshots.hostile import Checker
from bide.snapshots.index import NO_OBJECT, Index
from bide.snapshots.losses import Damaged, Hostile, Lost, shown
from bide.snapshots.manifest import (
    FILE,
    FOLDER,
    HARD,
    HASH_SIZE,
    Entry,
    Folder,
    TreeRecord,
    Unreadable,
    chunk_id,
    decode_segment,
    pieces_of,
)
from bide.snapshots.root import Root

_Frame = tuple[int, int]  # pack, frame in it


class NotThere(Exception):
    """The checkpoint has no such tree, or at this path nothing, or (`instead`) something else."""

    def __init__(self, tree: str, path: bytes, instead: str = "") -> None:
        self.tree, self.path = tree, path
        super().__init__(instead or f"there is no {shown(tree, path)}")


class Reader:
    """One checkpoint. Threads may share it; what was read last is kept, within bounds.

    Every method may raise `Damaged`, `Hostile` and `Unavailable`; nothing is given out that was not checked against
    its name.
    """

    def __init__(self, root: Root) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._places: _Places | None = None
        self._frames: OrderedDict[_Frame, dict[bytes, bytes]] = OrderedDict()
        self._frames_bytes = 0
        self._lists: OrderedDict[bytes, tuple[int, list[Folder]]] = OrderedDict()
        self._lists_bytes = 0
        self._ahead: tuple[int, int, bytes] = (-1, 0, b"")  # pack, offset, what was read there
        self._proved: set[str] = set()

    def tree(self, name: str) -> TreeRecord:
        """The record of a tree, or `NotThere`."""
        if name not in self.root.trees:
            raise NotThere(name, b"", f"there is no {name}, only {' and '.join(sorted(self.root.trees)) or 'nothing'}")
        return self.root.trees[name]

    def prove(self, tree: str) -> None:
        """Passes a tree whose lists are all there and lead nowhere outside; looks through them once."""
        record = self.tree(tree)
        if tree not in self._proved:
            for _ in self.root.segments(record.name):
                pass
            self._proved.add(tree)

    def folder(self, tree: str, path: bytes) -> Folder:
        """The folder at `path` (b'' is the tree's own), or `NotThere`."""
        record = self.tree(tree)
        at = bisect_right(record.segments, path, key=lambda ref: ref.first) - 1
        found = self.segment(tree, at) if at >= 0 else []
        place = bisect_left(found, path, key=lambda folder: folder.path)
        if place == len(found) or found[place].path != path:
            raise NotThere(tree, path)
        return found[place]

    def entry(self, tree: str, path: bytes) -> Entry:
        """What stands at `path` in its folder; of one with several names the one that has the content."""
        above, _, name = path.rpartition(b"/")
        try:
            found = _named(self.folder(tree, above).entries, name)
        except NotThere:
            raise NotThere(tree, path) from None
        if found is not None and found.kind == HARD:
            above, _, name = found.target.rpartition(b"/")
            found = _named(self.folder(tree, above).entries, name)
            if found is None or found.kind != FILE:
                raise Hostile(shown(tree, path), "it is a hard link to something that is not an earlier file")
        if found is None:
            raise NotThere(tree, path)
        return found

    def has(self, tree: str, path: bytes) -> bool:
        """Whether anything stands at `path`. `NotThere` for a tree."""
        self.tree(tree)
        try:
            return not path or bool(self.entry(tree, path).name)
        except NotThere:
            return False

    def file(self, tree: str, path: bytes) -> Entry:
        """The file at `path`, or `NotThere`."""
        found = self.entry(tree, path) if path else None
        if found is None or found.kind != FILE:
            kind = "folder" if found is None or found.kind == FOLDER else "link"
            raise NotThere(tree, path, f"there is no file {shown(tree, path)}: it is a {kind}")
        return found

    def walk(self, tree: str, under: bytes, lost: list[Lost] | None = None) -> Iterator[Folder]:
        """The folder at `under` and those below it, by path. For a tree that was proved; with `lost` for one that need not
        be: lists that cannot be had are passed over and added to it.
        """
        checker = Checker(self.tree(tree))
        refs = self.tree(tree).segments
        first = max(bisect_right(refs, under, key=lambda ref: ref.first) - 1, 0)
        below, end = under + b"/" if under else b"", under + b"0"  # the character after the slash
        for at in range(first, len(refs)):
            if under and refs[at].first >= end:
                return
            try:
                found = self.segment(tree, at)
            except Damaged as damaged:
                if lost is None:
                    raise
                lost += damaged.items
                continue
            if lost is not None:
                checker.take_alone(found)
            yield from (one for one in found if one.path == under or one.path.startswith(below))

    def segment(self, tree: str, at: int) -> list[Folder]:
        """The folders of one list of a tree."""
        ref = self.tree(tree).segments[at]
        with self._lock:
            if ref.id in self._lists:
                self._lists.move_to_end(ref.id)
                return self._lists[ref.id][1]
        what = f"the list of the folders from {shown(tree, ref.first)} on"
        try:
            content = ref.joined((self.chunk(ident, what) for ident in ref.ids), self.root.keys.chunks)
            found = decode_segment(content)
        except Unreadable as error:
            raise Damaged([Lost(what=what, bytes=0, reason=str(error))]) from error
        with self._lock:
            if ref.id not in self._lists:
                self._lists[ref.id] = len(content), found
                self._lists_bytes += len(content)
            while self._lists_bytes > limits.READER_LISTS_BYTES and len(self._lists) > 1:
                self._lists_bytes -= self._lists.popitem(last=False)[1][0]
        return found

    def content(self, tree: str, path: bytes, entry: Entry, start: int, stop: int) -> Iterator[bytes]:
        """The bytes of a file from `start` to before `stop`, in parts; holes are zeros."""
        at = 0
        for length, ident in self.pieces(tree, path, entry):
            begin, end = max(start - at, 0), min(stop - at, length)
            at += length
            if begin < end:
                yield from _zeros(end - begin) if not ident else _cut(self._whole(tree, path, ident, length)[begin:end])

    def pieces(self, tree: str, path: bytes, entry: Entry) -> list[tuple[int, bytes]]:
        """A file as (length, chunk) in order; a hole has the chunk b''."""
        try:
            found = pieces_of(entry)
        except Unreadable as error:
            raise Hostile(shown(tree, path), str(error)) from error
        if sum(length for length, _ in found) != entry.size:
            raise Hostile(shown(tree, path), "its chunks do not fit its size")
        return found

    def chunk(self, ident: bytes, what: str, size: int = 0) -> bytes:
        """One content, checked. `Damaged` says that `what` is lost with it."""
        with self._lock:
            reasons = []
            if self._places is None:
                self._places = _Places(self.root.index)
            for frame in self._places.of(ident):
                try:
                    content = self._frame(frame).get(ident)
                except Missing:
                    reasons.append(NO_OBJECT)
                    continue
                except Unreadable as error:
                    reasons.append(str(error))
                    continue
                if content is not None and chunk_id(content, self.root.keys.chunks) == ident:
                    return content
                reasons.append("its content is not what its name says")
        reason = reasons[0] if reasons else self.root.index.reason()
        raise Damaged([Lost(what=what, bytes=size, reason=reason)])

    def _whole(self, tree: str, path: bytes, ident: bytes, length: int) -> bytes:
        content = self.chunk(ident, shown(tree, path), length)
        if len(content) != length:
            raise Hostile(shown(tree, path), "a chunk of it is not as long as the list says")
        return content

    def _frame(self, frame: _Frame) -> dict[bytes, bytes]:
        """The chunks of a frame by their names."""
        if frame in self._frames:
            self._frames.move_to_end(frame)
            return self._frames[frame]
        assert self._places is not None
        pack = self.root.index.packs[frame[0]]
        row = pack.footer.frames[frame[1]]
        raw = pack.opener.frame(frame[1], row, self._stored(frame[0], row.offset, row.stored))
        found = {ident: raw[at : at + length] for ident, at, length in self._places.within(frame)}
        self._frames[frame] = found
        self._frames_bytes += len(raw)
        while self._frames_bytes > limits.READER_FRAMES_BYTES and len(self._frames) > 1:
            gone = self._frames.popitem(last=False)[1]
            self._frames_bytes -= sum(map(len, gone.values()))
        return found

    def _stored(self, pack: int, offset: int, length: int) -> bytes:
        """A run of a pack. Who reads the one after the last will go on: more is read at once."""
        before, start, held = self._ahead
        end = start + len(held)
        if before == pack and start <= offset and offset + length <= end:
            return held[offset - start : offset - start + length]
        goes_on = before == pack and 0 <= offset - end <= limits.READ_GAP_BYTES
        ref = self.root.index.packs[pack].ref
        wanted = max(length, min(limits.READ_BYTES, ref.size - offset)) if goes_on else length
        held = self.root.blobs.read(ref.key, offset, wanted)
        if len(held) < length:
            raise Unreadable("its object is cut short")
        self._ahead = pack, offset, held
        return held[:length]


class _Places:
    """Where each chunk is: 16 bytes of memory for one, so that a million of them can be kept."""

    def __init__(self, index: Index) -> None:
        self._index = index
        heads, frames = array("Q"), array("Q")
        self._firsts: list[list[int]] = []  # of each pack: the number of the first chunk of each frame
        for n, pack in enumerate(index.packs):
            ids, at = pack.footer.ids, 0
            self._firsts.append(list(accumulate((row.chunks for row in pack.footer.frames), initial=0)))
            for m, row in enumerate(pack.footer.frames):
                end = at + row.chunks * HASH_SIZE
                heads.extend(int.from_bytes(ids[k : k + 8], "big") for k in range(at, end, HASH_SIZE))
                frames.extend([n << 32 | m] * row.chunks)
                at = end
        order = sorted(range(len(heads)), key=heads.__getitem__)
        self._heads = array("Q", (heads[k] for k in order))
        self._frames = array("Q", (frames[k] for k in order))

    def of(self, ident: bytes) -> Iterator[_Frame]:
        """The frames that may hold it."""
        head = int.from_bytes(ident[:8], "big")
        at = bisect_left(self._heads, head)
        while at < len(self._heads) and self._heads[at] == head:
            yield self._frames[at] >> 32, self._frames[at] & 0xFFFFFFFF
            at += 1

    def within(self, frame: _Frame) -> Iterator[tuple[bytes, int, int]]:
        """The chunks of a frame: name, start, length."""
        footer = self._index.packs[frame[0]].footer
        first, end = self._firsts[frame[0]][frame[1] : frame[1] + 2]
        lengths = footer.length_list()[first:end]
        for k, start, length in zip(range(first, end), accumulate(lengths, initial=0), lengths, strict=False):
            yield footer.ids[k * HASH_SIZE : (k + 1) * HASH_SIZE], start, length


def _zeros(length: int) -> Iterator[bytes]:
    part = bytes(min(length, limits.READER_PART_BYTES))
    while length > 0:
        yield part if length >= len(part) else part[:length]
        length -= len(part)


def _cut(content: bytes) -> Iterator[bytes]:
    for at in range(0, len(content), limits.READER_PART_BYTES):
        yield content[at : at + limits.READER_PART_BYTES]


def _named(entries: Sequence[Entry], name: bytes) -> Entry | None:
    place = bisect_left(entries, name, key=lambda entry: entry.name)
    return entries[place] if place < len(entries) and entries[place].name == name else None
