"""Which packs of a session are worth writing anew: many that are small, and those of which most is wanted no more.

Packs never change. So what is left in such a pack is saved once more, as if the pack were gone, and the new checkpoint
names it no more: it is collected with the last checkpoint that does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bide.core import limits
from bide.snapshots.lineage import Lineage
from bide.snapshots.manifest import Unreadable, pieces_of
from bide.snapshots.statcache import Remembered


def worn(remembered: Sequence[Remembered], lineage: Lineage, n: int) -> list[str]:
    """The names of those packs, for the `n`-th checkpoint of a session, by what the one before it needs of them.

    Packs of the project's base stay: other sessions have them too.
    """
    numbers, family = lineage.numbers, lineage.family
    used = {numbers[use] for tree in remembered for kept in tree.segments for use in kept.uses if use in numbers}
    own = {use for use in used if lineage.packs[use].family == family}
    found = {use for use in own if lineage.packs[use].size < limits.PACK_BYTES_SMALL}
    if len(found) < limits.PACKS_SMALL_MAX:
        found = set()
    if n % limits.TIDY_EVERY == 0:
        found |= _mostly_dead(remembered, lineage, own)
    return [lineage.packs[use].id.hex() for use in sorted(found)]


def _mostly_dead(remembered: Sequence[Remembered], lineage: Lineage, own: set[int]) -> set[int]:
    try:
        live = lineage.known().sums(_wanted(remembered))
    except Unreadable:  # what a damaged memory cannot tell stays as it is
        return set()
    dead = {use: 1 - live[use] / lineage.packs[use].raw for use in own if lineage.packs[use].raw}
    found = {use for use, share in dead.items() if share > limits.PACK_DEAD_MAX}
    waste = sum(lineage.packs[use].size * dead[use] for use in found)
    return found if waste >= limits.TIDY_BYTES else set()


def _wanted(remembered: Iterable[Remembered]) -> Iterator[tuple[bytes, int]]:
    """All chunks that these trees are made of, with their lengths; those of a list with about that."""
    for tree in remembered:
        for n, kept in enumerate(tree.segments):
            ids = kept.ref.ids
            yield from ((ident, kept.length // len(ids)) for ident in ids)
            for folder in tree.folders(n):
                for entry in folder.entries:
                    if entry.ids:
                        yield from ((ident, length) for length, ident in pieces_of(entry) if ident)
