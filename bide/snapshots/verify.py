"""Reads a checkpoint back, object by object, and says exactly what is lost when one is missing or damaged."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from blake3 import blake3
from msgspec import Struct

from bide.core import limits
from bide.snapshots import crew
from bide.snapshots.blobs.base import Missing
from bide.snapshots.depot import Depot
from bide.snapshots.fetch import chunks_in, fetch, unpacked
from bide.snapshots.index import NO_KEY, NO_OBJECT, Load, Pack, Part
from bide.snapshots.losses import Damaged, Lost
from bide.snapshots.manifest import HASH_SIZE, PackRef, ids_in
from bide.snapshots.root import Root, itemised, open_root


class Verified(Struct, frozen=True, kw_only=True):
    """A checkpoint that can be restored: how many objects were looked at, and how many bytes of packs were read."""

    objects: int
    bytes: int
    seconds: float


class _Looked(Struct, frozen=True):
    """What was found in some packs: the keys of whole ones, why others are not, and the chunks that cannot be had."""

    whole: list[str]
    faults: dict[str, str]
    bad: dict[bytes, str]
    read: int


def verify(
    root: str, depot: Depot, deep: bool = True, known_good: set[str] | None = None, workers: int = 1
) -> Verified:
    """Passes a checkpoint whose every needed byte is there and right.

    Always proved: the root and all lists of files can be read, and each content they name lies in a pack. `deep` also
    unpacks every frame and compares every chunk with its name: what is there is what was captured. Without it each
    pack is compared, byte for byte, with the checksum that the root has of it: what is there is what was written.

    Raises `Damaged` with the paths it costs, `Hostile`, `KeyMissing`, `Missing` when there is no such root. Keys in
    `known_good` are not read again, and packs found whole are added to it. `workers`: as for `restore`.
    """
    opened, started = open_root(root, depot), time.monotonic()
    good = known_good if known_good is not None else set[str]()
    looked = _look(opened, [ref for ref in opened.record.packs if ref.key not in good], deep, workers)
    good.update(looked.whole)
    items = damage(opened, opened.trees, looked.bad) or _faulty(opened, looked.faults)
    if items:
        raise Damaged(items)
    objects = 1 + len(opened.record.packs)
    return Verified(objects=objects, bytes=looked.read, seconds=time.monotonic() - started)


def damage(opened: Root, trees: Iterable[str], bad: Mapping[bytes, str]) -> list[Lost]:
    """All that is lost of these trees when these chunks are `bad`: lists that cannot be read and contents that lie in no
    pack that can be opened included. `Hostile` for a list that lies.
    """
    wanted = list(trees)
    reasons = _elsewhere(opened, bad)
    for tree in wanted:
        reasons |= _unlisted(opened, tree)
    return itemised(opened, wanted, reasons)


def bad_chunks(opened: Root) -> dict[bytes, str]:
    """Reads everything, and gives what cannot be had, with the reason."""
    return _look(opened, opened.record.packs, deep=True, workers=1).bad


def _look(opened: Root, refs: Iterable[PackRef], deep: bool, workers: int) -> _Looked:
    packs = {pack.ref.key: pack for pack in opened.index.packs}

    def work(share: Iterable[PackRef]) -> _Looked:
        found = _Looked([], {}, {}, 0)
        size = 0
        for ref in share:
            size += _look_at(opened, ref, packs.get(ref.key), deep, found)
        return _Looked(found.whole, found.faults, found.bad, size)

    everything = list(refs)
    count = workers if sum(ref.size for ref in everything) >= limits.RESTORE_FORK_MIN << 14 else 1
    done = crew.each(work, crew.shared(everything, lambda ref: ref.size, count), _Looked)
    return _Looked(
        [key for one in done for key in one.whole],
        {key: why for one in done for key, why in one.faults.items()},
        {ident: why for one in done for ident, why in one.bad.items()},
        sum(one.read for one in done),
    )


def _look_at(opened: Root, ref: PackRef, pack: Pack | None, deep: bool, found: _Looked) -> int:
    """Adds what is found out about a pack; how many bytes that took."""
    if pack is None:
        found.faults[ref.key] = opened.index.bad.get(ref.id.hex(), NO_KEY)
        return 0
    try:
        content = opened.blobs.read(ref.key, 0, ref.size + 1)  # whatever lies there may be of any length
    except Missing:
        found.faults[ref.key] = NO_OBJECT
        found.bad.update(dict.fromkeys(pack.footer.id_list(), NO_OBJECT))
        return 0
    right = len(content) == ref.size and blake3(content).digest() == ref.hash
    if not right:
        found.faults[ref.key] = "its object is not what was written"
    if deep or not right:
        bad = _unpacked(opened, pack, content)
        found.bad.update(bad)
        if bad and right:
            found.faults[ref.key] = next(iter(bad.values()))
    if ref.key not in found.faults:
        found.whole.append(ref.key)
    return len(content)


def _unpacked(opened: Root, pack: Pack, content: bytes) -> dict[bytes, str]:
    """The chunks of a pack that are not what their names say."""
    view, bad = memoryview(content), dict[bytes, str]()
    for load in _all_of(pack):
        got = unpacked(load, view[load.row.offset : load.row.offset + load.row.stored])
        bad |= {ident: reason for ident, chunk, reason in chunks_in(got, opened.keys.chunks) if chunk is None}
    return bad


def _faulty(opened: Root, faults: Mapping[str, str]) -> list[Lost]:
    """Packs that cost nothing now, but would once later checkpoints build on them."""
    return [
        Lost(what=f"the pack {ref.id.hex()}", bytes=ref.size, reason=faults[ref.key])
        for ref in opened.record.packs
        if ref.key in faults
    ]


def _all_of(pack: Pack) -> Iterable[Load]:
    ids, lengths, at = pack.footer.id_list(), pack.footer.length_list(), 0
    for n, row in enumerate(pack.footer.frames):
        parts, start = [], 0
        for k in range(at, at + row.chunks):
            parts.append(Part(start, lengths[k], ids[k]))
            start += lengths[k]
        at += row.chunks
        yield Load(pack, n, parts)


def _elsewhere(opened: Root, bad: Mapping[bytes, str]) -> dict[bytes, str]:
    """Those of the bad chunks that no other pack holds."""
    left = dict(bad)
    if left:
        for got in fetch(opened.index.loads(left), opened.blobs):
            for ident, content, _ in chunks_in(got, opened.keys.chunks):
                if content is not None:
                    left.pop(ident, None)
    return left


def _unlisted(opened: Root, tree: str) -> dict[bytes, str]:
    """The chunks of a tree that no readable pack lists. A part at a time: the tree may have millions."""
    missing: set[bytes] = set()
    waiting: set[bytes] = set()

    def settle() -> None:
        for load in opened.index.loads(waiting):
            waiting.difference_update(part.id for part in load.parts)
        missing.update(waiting)
        waiting.clear()

    try:
        for segment in opened.segments(tree):
            for folder in segment:
                for entry in folder.entries:
                    ids = entry.ids
                    if len(ids) == HASH_SIZE:
                        waiting.add(ids)
                    elif ids:
                        waiting.update(ids_in(ids))
            if len(waiting) >= limits.VERIFY_WINDOW:
                settle()
    except Damaged:  # the lists that are lost are named where all is itemised
        pass
    settle()
    return dict.fromkeys(missing, opened.index.reason())
