"""Opens a checkpoint: its root, its lists of files, and single contents of it; all checked as far as they were read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from bide.core import limits
from bide.core.keyring import Keys
from bide.snapshots.blobs.base import BlobStore, check_key
from bide.snapshots.depot import Depot
from bide.snapshots.fetch import chunks_in, fetch
from bide.snapshots.folders import join
from bide.snapshots.hostile import Checker
from bide.snapshots.index import Index, Load, read_index
from bide.snapshots.losses import Damaged, Hostile, Lost, shown
from bide.snapshots.manifest import (
    FILE,
    Entry,
    Folder,
    RootRecord,
    SegmentRef,
    TreeRecord,
    Unreadable,
    decode_segment,
    ids_in,
    root_key,
)
from bide.snapshots.manifest import open_root as record_in


class Root:
    """An opened checkpoint: its `record`, and `trees` by name. What lies in its packs is read when it is asked for."""

    def __init__(self, record: RootRecord, keys: Keys, blobs: BlobStore) -> None:
        self.record, self.keys, self.blobs = record, keys, blobs
        self.trees: dict[str, TreeRecord] = {tree.name: tree for tree in record.trees}

    @property
    def name(self) -> str:
        """`<session>/<epoch>-<n>`."""
        return self.record.root

    @cached_property
    def index(self) -> Index:
        """Where its chunks lie. Reads the end of every pack, the first time."""
        return read_index(self.record.packs, self.keys.packs, self.blobs)

    @property
    def faults(self) -> tuple[Lost, ...]:
        """The packs that cannot be used, whether or not that costs anything."""
        sizes = {ref.id.hex(): ref.size for ref in self.record.packs}
        return tuple(Lost(what=f"the pack {one}", bytes=sizes[one], reason=why) for one, why in self.index.bad.items())

    def folders(self, tree: str) -> list[Folder]:
        """Every folder of the tree, by path. `Damaged` when a list is missing, `Hostile` when it lies; KeyError."""
        return [folder for segment in self.segments(tree) for folder in segment]

    def segments(self, tree: str, checked: bool = True) -> Iterator[list[Folder]]:
        """The same segment by segment, so that not all of a large tree is held. Without `checked` nothing is refused:
        for lists that were checked before. All that is lost is said at the end.
        """
        record = self.trees[tree]
        checker = Checker(record) if checked else None
        lost: list[Lost] = []
        for ref, content, reason in self.contents(record.segments):
            try:
                if content is None:
                    raise Unreadable(reason)
                found = decode_segment(content)
            except Unreadable as error:
                lost.append(lost_list(record, ref, str(error)))
                checker = None  # what follows may be in folders that stood there
                continue
            if checker:
                if not found or found[0].path != ref.first:
                    raise Hostile(shown(tree, ref.first), "its list of files is another one")
                checker.take(found)
            yield found
        if lost:
            raise Damaged(lost)
        if checker:
            self._check_hard_links(record, checker)

    def chunks(self, wanted: Iterable[bytes]) -> dict[bytes, bytes]:
        """Some contents at once, by their names. `Damaged` (of which no path is known here) when one cannot be had."""
        left, found = set(wanted), dict[bytes, bytes]()
        reason = ""
        for got in fetch(self.index.loads(left), self.blobs):
            for ident, content, why in chunks_in(got, self.keys.chunks):
                reason = why or reason
                if content is not None and ident in left:
                    left.discard(ident)
                    found[ident] = bytes(content)
        if left:
            raise Damaged([Lost(what="a content", bytes=0, reason=reason or self.index.reason()) for _ in left])
        return found

    def contents(self, refs: tuple[SegmentRef, ...]) -> Iterator[tuple[SegmentRef, bytes | None, str]]:
        """Lists of files as (which, its bytes, "") in order, or (which, None, reason); only their ids are checked."""
        for group in self._together(refs):
            left, held, reasons = (
                {ident for ref in group if self._can_be(ref) for ident in ref.ids},
                dict[bytes, bytes](),
                dict[bytes, str](),
            )
            for got in fetch(self._list_loads(left), self.blobs):
                for ident, content, why in chunks_in(got, self.keys.chunks):
                    if content is None:
                        reasons[ident] = why
                    elif ident in left:
                        left.discard(ident)
                        held[ident] = bytes(content)
            for ref in group:
                if not self._can_be(ref):
                    yield ref, None, f"it is longer than {limits.SEGMENT_BYTES_MAX} bytes"
                    continue
                lost = [ident for ident in ref.ids if ident not in held]
                if lost:
                    yield ref, None, reasons.get(lost[0], "") or self.index.reason()
                    continue
                try:
                    yield ref, ref.joined(map(held.__getitem__, ref.ids), self.keys.chunks), ""
                except Unreadable as error:
                    yield ref, None, str(error)

    def _list_loads(self, wanted: set[bytes]) -> Iterator[Load]:
        for load in self._lists:
            parts = [part for part in load.parts if part.id in wanted]
            if parts:
                yield Load(load.pack, load.n, parts)

    @cached_property
    def _lists(self) -> list[Load]:
        """Where all lists of files lie; looked for once, since the packs hold far more contents than lists."""
        return list(
            self.index.loads({ident for tree in self.record.trees for ref in tree.segments for ident in ref.ids})
        )

    @cached_property
    def _lengths(self) -> dict[bytes, int]:
        """Of the chunks of all lists of files, as the packs say."""
        return {part.id: part.length for load in self._lists for part in load.parts}

    def _length(self, ref: SegmentRef) -> int:
        return sum(self._lengths.get(ident, 0) for ident in ref.ids)

    def _can_be(self, ref: SegmentRef) -> bool:
        return self._length(ref) <= limits.SEGMENT_BYTES_MAX

    def _together(self, refs: tuple[SegmentRef, ...]) -> Iterator[list[SegmentRef]]:
        """Neighbours that are read in one go."""
        group: list[SegmentRef] = []
        chunks = size = 0
        for ref in refs:
            length = self._length(ref)
            if group and (chunks >= limits.LISTS_AT_ONCE or size + length > limits.LISTS_AT_ONCE_BYTES):
                yield group
                group, chunks, size = [], 0, 0
            group.append(ref)
            chunks += len(ref.ids)
            size += length
        if group:
            yield group

    def _check_hard_links(self, record: TreeRecord, checker: Checker) -> None:
        """A hard link must name an earlier file; the lists that should hold them are looked at again, and no others."""
        starts = [ref.first for ref in record.segments]
        places = {bisect_right(starts, path) - 1 for path in checker.link_folders()}
        refs = tuple(record.segments[n] for n in sorted(places) if n >= 0)
        for _, content, _ in self.contents(refs):
            for folder in decode_segment(content or b"\x90"):
                checker.take_link_folder(folder)
        checker.finish()


def open_root(root: str, depot: Depot) -> Root:
    """The checkpoint named `<session>/<epoch>-<n>`.

    `KeyMissing` when its key is gone, `Missing` when there is no such root, `Damaged` when it cannot be read, `Hostile`
    when it names what cannot be.
    """
    root_key(root)
    return open_with(depot.keyring.keys(root), root, depot.blobs)


def open_with(keys: Keys, root: str, blobs: BlobStore) -> Root:
    """The same with keys that are at hand."""
    content = blobs.read(root_key(root), 0, limits.ROOT_BYTES_MAX)  # whatever lies there may be of any length
    try:
        record = record_in(root, content, keys.root)
    except Unreadable as error:
        raise Damaged([Lost(what=f"the whole checkpoint {root}", bytes=len(content), reason=str(error))]) from error
    if record.root != root:
        raise Hostile(root, f"it says it is {record.root[:80]}")
    if len({tree.name for tree in record.trees}) != len(record.trees):
        raise Hostile(root, "two of its trees have one name")
    for ref in record.packs:
        try:
            check_key(ref.key)
        except ValueError as error:
            raise Hostile(root, str(error)) from error
    return Root(record, keys, blobs)


def list_files(root: str, depot: Depot, tree: str) -> Iterator[tuple[bytes, Entry]]:
    """Every entry of a tree as (path within the tree, entry), folder by folder; KeyError for no tree."""
    for segment in open_root(root, depot).segments(tree):
        for folder in segment:
            for entry in folder.entries:
                yield join(folder.path, entry.name), entry


def files_of(folders: Iterable[Folder]) -> Iterator[tuple[bytes, Entry]]:
    """The regular files, with their paths."""
    for folder in folders:
        for entry in folder.entries:
            if entry.kind == FILE:
                yield join(folder.path, entry.name), entry


def itemised(opened: Root, trees: Iterable[str], reasons: Mapping[bytes, str]) -> list[Lost]:
    """The files of these trees that chunks which cannot be had cost, each once, with its whole size.

    Lists that are lost themselves are named too.
    """
    found: list[Lost] = []
    more = size = 0
    for tree in trees:
        try:
            for segment in opened.segments(tree, checked=False):
                for path, entry in files_of(segment):
                    reason = next((reasons[ident] for ident in ids_in(entry.ids) if ident in reasons), "")
                    if reason and len(found) < limits.LOST_NAMED_MAX:
                        found.append(Lost(what=shown(tree, path), bytes=entry.size, reason=reason))
                    elif reason:
                        more, size = more + 1, size + entry.size
        except Damaged as damaged:
            found.extend(damaged.items)
    if more:
        found.append(Lost(what=f"{more} more files", bytes=size, reason="not named one by one"))
    return found


def lost_list(record: TreeRecord, ref: SegmentRef, reason: str) -> Lost:
    """What a list of files that cannot be had costs."""
    return Lost(what=f"the list of the folders from {shown(record.name, ref.first)} on", bytes=0, reason=reason)
