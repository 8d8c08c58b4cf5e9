"""Which folders make up a segment, and which of a file's names comes first."""

from __future__ import annotations

import stat
import zlib
from collections.abc import Iterable, Mapping

from bide.core.limits import SEGMENT_BYTES, SEGMENT_ENTRIES_MAX
from bide.snapshots.folders import join
from bide.snapshots.scan import entries_in, seen_of

_CUT_MASK = 15  # a segment ends at about every 16th folder: a change in one writes few others again


def grouped(folders: Mapping[bytes, bytes]) -> list[list[bytes]]:
    """The paths in order, cut where the folders' own names say so: the cuts stay where they are when others come and go."""
    groups: list[list[bytes]] = []
    entries = size = 0
    for path in sorted(folders):
        full = entries >= SEGMENT_ENTRIES_MAX or size >= SEGMENT_BYTES
        if not groups or full or zlib.crc32(path) & _CUT_MASK == 0:
            groups.append([])
            entries = size = 0
        groups[-1].append(path)
        entries += 1 + entries_in(folders[path])
        size += len(path) + len(folders[path])
    return groups


def later_names(
    folders: Mapping[bytes, bytes], linked: Iterable[bytes], without: frozenset[bytes]
) -> dict[bytes, bytes]:
    """For each further name of a file in these folders the one that comes first, in the order that a segment lists
    them. Names in `without` do not count.
    """
    first: dict[int, bytes] = {}
    found: dict[bytes, bytes] = {}
    for path in sorted(linked):
        for name, row in sorted(seen_of(folders[path]).by_name().items()):
            if row.nlink < 2 or not stat.S_ISREG(row.mode):
                continue
            full = join(path, name)
            if full in without:
                continue
            one = first.setdefault(row.ino << 64 | row.dev & (2**64 - 1), full)
            if one is not full:
                found[full] = one
    return found
