"""Reads a checkpoint back, object by object, and says exactly what is lost when one is missing or damaged."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from msgspec import Struct

from bide.snapshots.blobs.base import BlobStore, Missing
from bide.snapshots.losses import Damaged, Lost, shown
from bide.snapshots.manifest import Folder, PackRow
from bide.snapshots.packs import chunks_of, ids_of
from bide.snapshots.root import Root, files_of, open_root


class Needs(Struct, frozen=True):
    """What trees of a checkpoint need: their folders, the chunks with (tree, path, file size) of who holds them, and
    the lists of files that are lost."""

    folders: dict[str, list[Folder]]
    wanted: dict[bytes, list[tuple[str, bytes, int]]]
    lost: list[Lost]


class Verified(Struct, frozen=True, kw_only=True):
    """A checkpoint that can be restored: how many objects were looked at, and how many bytes of packs were read."""

    objects: int
    bytes: int
    seconds: float


def verify(root: str, blobs: BlobStore, deep: bool = True, known_good: set[str] | None = None) -> Verified:
    """Passes a checkpoint whose every needed byte is there and right.

    Raises `Damaged` with the paths it costs, `Missing` when there is no such root. Not `deep` only asks whether packs
    exist. Keys in `known_good` are not read again, and packs found whole are added to it.
    """
    started = time.monotonic()
    opened = open_root(root, blobs)
    good = known_good if known_good is not None else set[str]()
    needs = needs_of(opened, opened.trees)
    wanted = needs.wanted
    reasons = unlisted(opened, wanted)
    objects, size = 1 + len(opened.record.ledgers), 0
    for row in needed_packs(opened, wanted):
        objects += 1
        if row.key in good:
            continue
        if deep:
            bad, read = _read_pack(row, blobs)
            size += read
        else:
            bad = {} if blobs.has(row.key) else _all_bad(row, "its object is missing")
        reasons |= {ident: reason for ident, reason in bad.items() if ident in wanted}
        if deep and not bad:
            good.add(row.key)
    items = [*opened.faults, *needs.lost, *itemised(needs, reasons)]
    if items:
        raise Damaged(items)
    return Verified(objects=objects, bytes=size, seconds=time.monotonic() - started)


def needs_of(opened: Root, trees: Iterable[str]) -> Needs:
    """What restoring these trees takes. `Hostile` when a list of files lies; KeyError for a tree that is not there."""
    needs = Needs({}, {}, [])
    for tree in trees:
        try:
            folders = needs.folders[tree] = opened.folders(tree)
        except Damaged as error:
            needs.lost.extend(error.items)
            continue
        for path, entry in files_of(folders):
            for piece in entry.pieces:
                if piece.id:
                    needs.wanted.setdefault(piece.id, []).append((tree, path, entry.size))
    return needs


def unlisted(opened: Root, wanted: Iterable[bytes]) -> dict[bytes, str]:
    """The wanted chunks no readable ledger knows, with the reason."""
    reason = "the list of where its content lies is missing or damaged"
    return {ident: reason for ident in wanted if ident not in opened.places}


def needed_packs(opened: Root, wanted: Iterable[bytes]) -> list[PackRow]:
    """The packs that hold the wanted chunks, in the order they were written."""
    keys = {opened.places[ident].pack.key for ident in wanted if ident in opened.places}
    return [row for key, row in opened.packs.items() if key in keys]


def itemised(needs: Needs, reasons: Mapping[bytes, str]) -> list[Lost]:
    """The files that damaged chunks cost, each once, with its whole size."""
    found: dict[tuple[str, bytes], Lost] = {}
    for ident, reason in reasons.items():
        for tree, path, size in needs.wanted[ident]:
            found.setdefault((tree, path), Lost(what=shown(tree, path), bytes=size, reason=reason))
    return [found[place] for place in sorted(found)]


def _read_pack(row: PackRow, blobs: BlobStore) -> tuple[dict[bytes, str], int]:
    try:
        content = blobs.get(row.key)
    except Missing:
        return _all_bad(row, "its object is missing"), 0
    bad = {
        ident: reason
        for frame in row.frames
        for ident, chunk, reason in chunks_of(content, frame, set(ids_of(frame)))
        if chunk is None
    }
    if len(content) != row.size and not bad:
        bad = _all_bad(row, "its object has another length")
    return bad, len(content)


def _all_bad(row: PackRow, reason: str) -> dict[bytes, str]:
    return {ident: reason for frame in row.frames for ident in ids_of(frame)}
