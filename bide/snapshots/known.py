"""The chunks that a capture may build upon, and the pack each lies in; 36 bytes a chunk where they are very many."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate

from bide.core.limits import CHUNKS_LAID_OUT_MAX
from bide.snapshots.manifest import HASH_SIZE, ids_in

_NUMBER = "I"
_ASKED_OFTEN = 1000  # from here on it pays to lay them out for it


class Known:
    """Ids in order, side by side, and beside them the numbers of their packs in a table that the caller keeps."""

    def __init__(self, ids: bytes = b"", packs: bytes = b"") -> None:
        """ValueError when the two do not fit."""
        self.ids = ids
        self._packs = array(_NUMBER)
        self._packs.frombytes(packs)
        self._count = len(self._packs)
        self._laid_out: dict[bytes, int] | None = None
        self._starts: array[int] | None = None
        self._asked = 0
        if len(ids) != self._count * HASH_SIZE:
            raise ValueError("ids and packs do not fit")

    @property
    def packs(self) -> bytes:
        """The numbers as bytes of this machine."""
        return self._packs.tobytes()

    def pack_of(self, ident: bytes) -> int | None:
        """The number of the pack that holds this chunk; None when nothing is known of it."""
        return self.packs_of(ident)[0] if self._count else None

    def packs_of(self, ids: bytes) -> list[int | None]:
        """The same for several, one after another."""
        if not self._count:
            return [None] * (len(ids) // HASH_SIZE)
        wanted = ids_in(ids)
        self._asked += len(wanted)
        if self._asked < _ASKED_OFTEN:
            return list(map(self._found, wanted))
        if self._count <= CHUNKS_LAID_OUT_MAX:
            if self._laid_out is None:
                self._laid_out = dict(zip(ids_in(self.ids), self._packs, strict=True))
            return list(map(self._laid_out.get, wanted))
        if self._starts is None:
            self._starts = self._begin()
        return list(map(self._found_in_bucket, wanted))

    def _found(self, ident: bytes) -> int | None:
        at = self._place(ident)
        found = at < self._count and self.ids[at * HASH_SIZE : (at + 1) * HASH_SIZE] == ident
        return self._packs[at] if found else None

    def _found_in_bucket(self, ident: bytes) -> int | None:
        assert self._starts is not None
        bucket = ident[0] << 8 | ident[1]
        ids = self.ids
        for at in range(self._starts[bucket], self._starts[bucket + 1]):
            if ids[at * HASH_SIZE : (at + 1) * HASH_SIZE] == ident:
                return self._packs[at]
        return None

    def with_more(self, packs: Iterable[tuple[int, bytes]]) -> Known:
        """These, and what lies in other packs: the number of each, and the ids in it one after another. Where both know
        a chunk, what was known stays.
        """
        more = sorted(
            ids[at : at + HASH_SIZE] + number.to_bytes(4, "big")
            for number, ids in packs
            for at in range(0, len(ids), HASH_SIZE)
        )
        ids: list[bytes] = []
        numbers = array(_NUMBER)
        done, before = 0, b""
        for row in more:
            ident = row[:HASH_SIZE]
            at = self._place(ident) if self._count else 0
            if ident == before or self.ids[at * HASH_SIZE : (at + 1) * HASH_SIZE] == ident:
                continue
            if at > done:
                ids.append(self.ids[done * HASH_SIZE : at * HASH_SIZE])
                numbers += self._packs[done:at]
                done = at
            ids.append(ident)
            numbers.append(int.from_bytes(row[HASH_SIZE:], "big"))
            before = ident
        return Known(b"".join((*ids, self.ids[done * HASH_SIZE :])), (numbers + self._packs[done:]).tobytes())

    def sums(self, wanted: Iterable[tuple[bytes, int]]) -> Counter[int]:
        """For each pack the sum of what is told of those of its chunks that are wanted, each counted once."""
        found, done = Counter[int](), bytearray(self._count)
        for ident, size in wanted if self._count else ():
            at = self._place(ident)
            if self.ids[at * HASH_SIZE : (at + 1) * HASH_SIZE] == ident and not done[at]:
                done[at] = 1
                found[self._packs[at]] += size
        return found

    def numbered(self, numbers: Mapping[int, int]) -> Known:
        """The same with other numbers for the packs, without what lies in packs that have none."""
        packs = set(self._packs)
        if all(numbers.get(pack) == pack for pack in packs):
            return self
        if all(pack in numbers for pack in packs):
            return Known(self.ids, array(_NUMBER, map(numbers.__getitem__, self._packs)).tobytes())
        gone = [n for n, pack in enumerate(self._packs) if pack not in numbers]
        ids, places = [], array(_NUMBER)
        for start, end in zip([0, *(n + 1 for n in gone)], [*gone, self._count], strict=True):
            ids.append(self.ids[start * HASH_SIZE : end * HASH_SIZE])
            places += self._packs[start:end]
        return Known(b"".join(ids), array(_NUMBER, map(numbers.__getitem__, places)).tobytes())

    def _begin(self) -> array[int]:
        """Where the ids with each first two bytes begin, and the end."""
        counts = Counter(zip(self.ids[::HASH_SIZE], self.ids[1::HASH_SIZE], strict=True))
        each = (counts.get((one, two), 0) for one in range(256) for two in range(256))
        return array(_NUMBER, accumulate(each, initial=0))

    def _place(self, ident: bytes) -> int:
        ids = self.ids
        return bisect_left(range(self._count), ident, key=lambda n: ids[n * HASH_SIZE : (n + 1) * HASH_SIZE])
