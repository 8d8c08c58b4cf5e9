"""Saves folders as one checkpoint: content first, then what was added, and the root last of all."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from bide.core import limits
from bide.snapshots.blobs.base import BlobStore, Missing
from bide.snapshots.losses import Damaged, Hostile, Notes, NotKept, RootTaken, Stopped
from bide.snapshots.manifest import (
    FILE,
    Ledger,
    ObjectRef,
    PackRow,
    RootRecord,
    chunk_id,
    decode_segment,
    pack,
    root_key,
)
from bide.snapshots.packs import Packer, ids_of, put_new
from bide.snapshots.root import Root, open_root
from bide.snapshots.scan import Tree
from bide.snapshots.statcache import StatCache
from bide.snapshots.take import take


class Counted(Struct, frozen=True, kw_only=True):
    """What one tree holds: everything but folders, and the bytes of its files."""

    files: int
    bytes: int


class Captured(Struct, frozen=True, kw_only=True):
    """A checkpoint that was written. `new_bytes` is what was uploaded for it."""

    root: str
    files: int
    bytes: int
    new_bytes: int
    seconds: float
    not_kept: tuple[NotKept, ...]
    warnings: tuple[str, ...]
    trees: dict[str, Counted]


def capture(
    trees: Sequence[Tree],
    blobs: BlobStore,
    root: str,
    parent: str | None = None,
    cache_dir: Path | None = None,
    stop: Callable[[], bool] | None = None,
) -> Captured:
    """Saves the trees, in this order, as the checkpoint `root` (`<session>/<epoch>-<n>`).

    What `parent`, an earlier checkpoint, holds already is not uploaded again; one that cannot be read costs a full
    upload and a warning. `cache_dir` is a folder of ours that makes the next capture fast and may vanish at any
    time. `stop` is asked often, also from another thread.

    Raises `RootTaken`, `Stopped` when `stop()` turns true, `BadFolder` for a tree that is no folder, `Unavailable`
    on an outage, ValueError for a name. The root is written last: nothing half-written can ever be restored.
    """
    started, start_ns = time.monotonic(), time.time_ns()
    key, session = root_key(root), root.partition("/")[0]
    if len({tree.name for tree in trees}) != len(trees):
        raise ValueError("two trees have one name")

    def proceed() -> None:
        if stop and stop():
            raise Stopped

    notes, cache = Notes(), StatCache(cache_dir, start_ns)
    before = _parent(parent, blobs, notes)
    with Packer(blobs, session, before.places if before else (), proceed) as packer:
        taken = [take(tree, packer, cache, notes, proceed) for tree in trees]
        packs = packer.finish()
    records = tuple(record for record, _ in taken)
    segments = {ident: content for _, found in taken for ident, content in found.items()}
    ledgers, ledger_bytes = _ledgers(before, packs, segments, blobs, session)
    proceed()
    record = RootRecord(
        root=root,
        parent=parent,
        created_ns=start_ns,
        trees=records,
        ledgers=ledgers,
        not_kept=tuple((item.path, item.reason) for item in notes.not_kept),
        warnings=notes.warnings,
    )
    content = pack("root", record)
    if not blobs.put(key, content) and blobs.get(key) != content:
        raise RootTaken(root)
    cache.save()
    return Captured(
        root=root,
        files=sum(tree.files for tree in records),
        bytes=sum(tree.size for tree in records),
        new_bytes=packer.bytes_put + ledger_bytes + len(content),
        seconds=time.monotonic() - started,
        not_kept=notes.not_kept,
        warnings=notes.warnings,
        trees={tree.name: Counted(files=tree.files, bytes=tree.size) for tree in records},
    )


def _parent(parent: str | None, blobs: BlobStore, notes: Notes) -> Root | None:
    if parent is None:
        return None
    try:
        return open_root(parent, blobs)
    except (Missing, Damaged, Hostile) as error:
        notes.warn(f"the checkpoint before, {parent}, cannot be built upon ({error}); everything was saved anew")
        return None


def _ledgers(
    before: Root | None, packs: tuple[PackRow, ...], segments: dict[bytes, bytes], blobs: BlobStore, session: str
) -> tuple[tuple[ObjectRef, ...], int]:
    """The ledgers the new root needs, and how many bytes of them are new."""
    gone = {fault.what for fault in before.faults} if before else set[str]()
    refs = tuple(ref for ref in before.record.ledgers if f"the ledger {ref.key}" not in gone) if before else ()
    if before and len(refs) >= limits.LEDGERS_MAX:
        ledger = Ledger(packs=_still_used(before, segments) + packs, segments=tuple(segments.values()))
        refs = ()
    else:
        known = before.segments if before else {}
        added = tuple(content for ident, content in segments.items() if ident not in known)
        ledger = Ledger(packs=packs, segments=added)
    if not ledger.packs and not ledger.segments:
        return refs, 0
    content = pack("ledger", ledger)
    key = f"ledgers/{session}/{secrets.token_hex(16)}"
    put_new(blobs, key, content)
    return (*refs, ObjectRef(key=key, size=len(content), hash=chunk_id(content))), len(content)


def _still_used(before: Root, segments: dict[bytes, bytes]) -> tuple[PackRow, ...]:
    used = {
        piece.id
        for content in segments.values()
        for folder in decode_segment(content)
        for entry in folder.entries
        if entry.kind == FILE
        for piece in entry.pieces
    }
    return tuple(
        row for row in before.packs.values() if any(ident in used for frame in row.frames for ident in ids_of(frame))
    )
