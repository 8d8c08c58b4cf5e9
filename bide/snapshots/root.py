"""Opens a checkpoint: its root, its ledgers and its lists of files, checked as far as they were read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from bide.snapshots.blobs.base import BlobStore, Missing, check_key
from bide.snapshots.folders import join
from bide.snapshots.hostile import check_tree
from bide.snapshots.losses import Damaged, Hostile, Lost, shown
from bide.snapshots.manifest import (
    FILE,
    Entry,
    Folder,
    Frame,
    Ledger,
    ObjectRef,
    PackRow,
    RootRecord,
    TreeRecord,
    Unreadable,
    chunk_id,
    decode_segment,
    root_key,
    unpack,
)
from bide.snapshots.packs import ids_of


class Place(Struct, frozen=True):
    """Where a chunk lies."""

    pack: PackRow
    frame: Frame
    length: int


class Root:
    """An opened checkpoint: `record`, `trees` by name, and `places` of all chunks its ledgers know.

    `faults` are ledgers that could not be read; what they listed is missing from `places` and `segments`.
    """

    def __init__(self, record: RootRecord, ledgers: Iterable[Ledger], faults: Iterable[Lost]) -> None:
        self.record = record
        self.faults = tuple(faults)
        self.trees: dict[str, TreeRecord] = {tree.name: tree for tree in record.trees}
        self.packs: dict[str, PackRow] = {}
        self.places: dict[bytes, Place] = {}
        self.segments: dict[bytes, bytes] = {}
        for ledger in ledgers:
            self.segments |= {chunk_id(content): content for content in ledger.segments}
            for pack in ledger.packs:
                check_key(pack.key)
                self.packs[pack.key] = pack
                for frame in pack.frames:
                    self.places |= {
                        ident: Place(pack, frame, length)
                        for ident, length in zip(ids_of(frame), frame.lengths, strict=True)
                    }

    @property
    def name(self) -> str:
        """`<session>/<epoch>-<n>`."""
        return self.record.root

    def folders(self, tree: str) -> list[Folder]:
        """Every folder of the tree, parents first. `Damaged` when a list is missing, `Hostile` when it lies."""
        record = self.trees[tree]
        found: list[Folder] = []
        lost: list[Lost] = []
        for ref in record.segments:
            try:
                found += decode_segment(self.segments[ref.id])
            except (KeyError, Unreadable):
                what = f"the folders from {shown(tree, ref.first)} on"
                lost.append(Lost(what=what, bytes=0, reason="the list of what was in them is missing or damaged"))
        if lost:
            raise Damaged(lost)
        check_tree(record, found)
        self._check_lengths(record, found)
        return found

    def _check_lengths(self, record: TreeRecord, folders: Iterable[Folder]) -> None:
        for path, entry in files_of(folders):
            for piece in entry.pieces:
                place = self.places.get(piece.id) if piece.id else None
                if place and place.length != piece.length:
                    raise Hostile(shown(record.name, path), "a chunk of it is not as long as the list says")


def open_root(root: str, blobs: BlobStore) -> Root:
    """The checkpoint named `<session>/<epoch>-<n>`.

    `Missing` when there is no such root, `Damaged` when it cannot be read, `Hostile` when it names objects that
    cannot exist. Ledgers that cannot be read are the opened root's `faults`.
    """
    content = blobs.get(root_key(root))
    try:
        record = unpack("root", content, RootRecord)
    except Unreadable as error:
        raise Damaged([Lost(what=f"the whole checkpoint {root}", bytes=len(content), reason=str(error))]) from error
    if record.root != root:
        raise Hostile(root, f"it says it is {record.root[:80]}")
    if len({tree.name for tree in record.trees}) != len(record.trees):
        raise Hostile(root, "two of its trees have one name")
    ledgers, faults = [], []
    try:
        for ref in record.ledgers:
            try:
                ledgers.append(_ledger(ref, blobs))
            except Missing:
                faults.append(Lost(what=f"the ledger {ref.key}", bytes=ref.size, reason="it is missing"))
            except Unreadable as error:
                faults.append(Lost(what=f"the ledger {ref.key}", bytes=ref.size, reason=str(error)))
        return Root(record, ledgers, faults)
    except ValueError as error:
        raise Hostile(root, str(error)) from error


def list_files(root: str, blobs: BlobStore, tree: str) -> Iterator[tuple[bytes, Entry]]:
    """Every entry of a tree as (path within the tree, entry), folders before what is in them; KeyError for no tree."""
    for folder in open_root(root, blobs).folders(tree):
        for entry in folder.entries:
            yield join(folder.path, entry.name), entry


def files_of(folders: Iterable[Folder]) -> Iterator[tuple[bytes, Entry]]:
    """The regular files, with their paths."""
    for folder in folders:
        for entry in folder.entries:
            if entry.kind == FILE:
                yield join(folder.path, entry.name), entry


def _ledger(ref: ObjectRef, blobs: BlobStore) -> Ledger:
    content = blobs.get(check_key(ref.key))
    if len(content) != ref.size or chunk_id(content) != ref.hash:
        raise Unreadable("it is damaged")
    return unpack("ledger", content, Ledger)
