"""What a capture may build upon: the packs of the checkpoint before it and of the project's base, and no others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bide.core import limits
from bide.core.keyring import Opening
from bide.snapshots.blobs.base import Missing
from bide.snapshots.depot import Depot, KeyMissing
from bide.snapshots.index import read_index
from bide.snapshots.known import Known
from bide.snapshots.losses import Notes
from bide.snapshots.manifest import PackRef, RootRecord, Unreadable, open_root, root_key
from bide.snapshots.packs import Written
from bide.snapshots.statcache import Memory

_Read = tuple[RootRecord, dict[str, bytes]]  # a root, and the keys of its packs


class Lineage:
    """A growing table of packs, which are told of by their numbers in it; what lies in them is only read when asked for.

    `holds` says whether the memory is one of these checkpoints'. `numbers` leads from its table to this one.
    """

    def __init__(self, depot: Depot, opening: Opening, parent: str | None, memory: Memory, notes: Notes) -> None:
        """Raises `Unavailable`."""
        self._depot, self._opening, self._memory, self._notes = depot, opening, memory, notes
        self._families = {opening.family, opening.base.partition("/")[0]} - {""}
        self.family = opening.family
        self.packs: list[PackRef] = []
        self._by_id: dict[bytes, int] = {}
        self._known: Known | None = None
        self._gone: set[int] = set()
        self._read: list[_Read] = []
        self.holds = bool(memory.held) and memory.held in (parent, opening.base)
        if self.holds:
            self._enter(memory.packs)
        else:
            self._read_root(parent, "the checkpoint before")
        self._base_known = opening.base == "" or (self.holds and opening.base in (memory.base, memory.held))
        if not self._base_known and not self.holds:
            self._read_base()
        self.numbers = {old: self._by_id[ref.id] for old, ref in enumerate(memory.packs) if ref.id in self._by_id}

    def known(self) -> Known:
        """The chunks in all these packs."""
        if self._known is None:
            self._known = self._memory.known().numbered(self.numbers) if self.holds else Known()
            if not self._base_known:
                self._read_base()
            self._known = self._known.with_more(
                chunks for record, keys in self._read for chunks in self._chunks(record, keys)
            )
        return self._known

    def add(self, written: Sequence[Written]) -> int:
        """Enters packs that were just written; gives the number of the first of them."""
        first = len(self.packs)
        self._known = self.known().with_more((first + n, pack.footer.ids) for n, pack in enumerate(written))
        self._enter(pack.ref for pack in written)
        return first

    def drop(self, gone: Iterable[str]) -> set[int]:
        """Builds no more upon packs by these names; gives the numbers of all that were dropped."""
        more = {self._by_id[ident] for ident in map(bytes.fromhex, gone) if ident in self._by_id}
        if not more:
            return self._gone
        self._gone |= more
        stay = {n: n for n in range(len(self.packs)) if n not in self._gone}
        self._known = self.known().numbered(stay)
        return self._gone

    def _enter(self, refs: Iterable[PackRef]) -> None:
        for ref in refs:
            if ref.family in self._families and ref.id not in self._by_id:
                self._by_id[ref.id] = len(self.packs)
                self.packs.append(ref)

    def _read_base(self) -> None:
        self._base_known = True
        self._read_root(self._opening.base, "the base of the project")

    def _read_root(self, root: str | None, what: str) -> None:
        if not root:
            return
        try:
            keys = self._depot.keyring.keys(root)
            record = open_root(root, self._depot.blobs.read(root_key(root), 0, limits.ROOT_BYTES_MAX), keys.root)
        except (KeyMissing, Missing, Unreadable) as error:
            self._notes.warn(f"{what}, {root}, cannot be built upon ({error}); what it held is saved anew")
            return
        self._enter(record.packs)
        self._read.append((record, keys.packs))

    def _chunks(self, record: RootRecord, keys: dict[str, bytes]) -> list[tuple[int, bytes]]:
        refs = [ref for ref in record.packs if ref.id in self._by_id]
        index = read_index(refs, keys, self._depot.blobs)
        if index.bad:
            why = next(iter(index.bad.values()))
            self._notes.warn(f"{len(index.bad)} packs of {record.root} cannot be built upon ({why}); "
                             "what they held is saved anew")  # fmt: skip
        return [(self._by_id[pack.ref.id], pack.footer.ids) for pack in index.packs]
