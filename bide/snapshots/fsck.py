"""Looks a checkpoint through and says what of it is lost: the one way in which saved state is checked, whoever asks."""

from __future__ import annotations

import time
from typing import Literal

from msgspec import Struct

from bide.snapshots.blobs.base import Missing
from bide.snapshots.depot import Depot
from bide.snapshots.losses import Damaged, Hostile, Lost
from bide.snapshots.root import open_root
from bide.snapshots.verify import damage, verify

# What is read: the lists of files, and whether each content that they name lies in a pack that is there; all bytes,
# compared with the checksum of what was written; or each content unpacked, too, and compared with its name.
Depth = Literal["lists", "written", "deep"]


class Looked(Struct, frozen=True, kw_only=True):
    """What came of it: whole when nothing is `lost`. `bytes` of packs were read, in `seconds`."""

    lost: tuple[Lost, ...] = ()
    bytes: int = 0
    seconds: float = 0.0


def look(root: str, depot: Depot, depth: Depth, good: set[str] | None = None) -> Looked:
    """Looks one checkpoint through; packs in `good` are not read again, and those found whole are added to it.

    Raises `KeyMissing`, and `Unavailable`: a store that is away has lost nothing.
    """
    started = time.monotonic()
    try:
        size = _lists(root, depot) if depth == "lists" else verify(root, depot, depth == "deep", good).bytes
    except Damaged as damaged:
        return Looked(lost=damaged.items)
    except Hostile as hostile:
        return Looked(lost=(Lost(what=hostile.path, bytes=0, reason=hostile.reason),))
    except Missing as missing:
        return Looked(lost=(Lost(what="the whole checkpoint", bytes=0, reason=f"its object {missing.key} is missing"),))
    return Looked(bytes=size, seconds=time.monotonic() - started)


def _lists(root: str, depot: Depot) -> int:
    opened = open_root(root, depot)
    if items := damage(opened, opened.trees, {}):
        raise Damaged(items)
    return 0
