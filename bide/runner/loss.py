"""What people are told of a checkpoint that cannot be brought back, and where something of it may still lie."""

from __future__ import annotations

from pathlib import Path

from bide.core import effects as e
from bide.core import facts as f
from bide.core.limits import DAY, LOST_ITEMS_MAX, SALVAGE_KEEP_S
from bide.snapshots.blobs.base import Missing
from bide.snapshots.depot import KeyMissing
from bide.snapshots.losses import Damaged, Hostile

Gone = Damaged | Missing | KeyMissing | Hostile


def not_restored(saved: f.Checkpoint, gone: Gone, aside: Path | None, kept_for: str) -> e.NotRestored:
    """What is lost, itemised. `aside` is the salvage that stood here, `kept_for` the root it was kept warm for."""
    items, code = _items(saved, gone), "checkpoint_damaged"
    sentence = f"checkpoint {saved.n} cannot be restored: {items[0].reason}"
    if isinstance(gone, Hostile):
        code, sentence = "checkpoint_hostile", str(gone)
    if aside is None:
        return e.NotRestored(lost=True, code=code, sentence=sentence, items=items)
    where = f"the folder {aside} on this runner"
    holds = {saved.root: f"what checkpoint {saved.n} saved", "": "what an earlier lease left"}.get(
        kept_for, "an earlier state of the session, some of it perhaps brought up to this one"
    )
    return e.NotRestored(
        lost=True,
        code=code,
        sentence=f"{sentence}. {where[0].upper()}{where[1:]} holds {holds}; nobody has compared it. "
        f"Copy what you need from there within {SALVAGE_KEEP_S / DAY:g} days: then it may be removed",
        hint=f"Copy what you need from {where}.",
        items=tuple(f.Lost(what=it.what, bytes=it.bytes, reason=it.reason, recovery=where) for it in items),
    )


def _items(saved: f.Checkpoint, gone: Gone) -> tuple[f.Lost, ...]:
    if isinstance(gone, Hostile):
        return (f.Lost(what=gone.path, reason=gone.reason),)
    if isinstance(gone, Damaged) and gone.items:
        return tuple(f.Lost(what=it.what, bytes=it.bytes, reason=it.reason) for it in gone.items[:LOST_ITEMS_MAX])
    reason = "its key is gone: it was erased" if isinstance(gone, KeyMissing) else "its root is missing"
    return (f.Lost(what=f"the whole checkpoint {saved.n}", bytes=saved.bytes, reason=reason),)
