"""What a fresh clone holds becomes the base of its project: the sessions then upload only what is theirs."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from bide.core.collection import place_of
from bide.core.limits import BASE_BYTES_MIN, BASE_LINE_MAX
from bide.snapshots.capture import capture
from bide.snapshots.depot import Depot
from bide.snapshots.scan import Tree, Walked, seen_of
from bide.snapshots.verify import verify


class Cloned(Struct, frozen=True, kw_only=True):
    """A tree, and what stood in it after the clone, before anybody worked there."""

    tree: Tree
    stood: Walked


def is_worthwhile(cloned: Cloned) -> bool:
    """Whether the clone is large enough for a base to save anything."""
    size = 0
    for folder in cloned.stood.folders.values():
        size += sum(row.size for row in seen_of(folder).rows)
        if size >= BASE_BYTES_MIN:
            return True
    return False


def capture_base(
    cloned: Cloned,
    depot: Depot,
    known_good: set[str] | None = None,
    cache_dir: Path | None = None,
    stop: Callable[[], bool] | None = None,
    workers: int = 1,
    bytes_max: int = 0,
) -> str:
    """Captures the clone into the depot of the project's base and reads it back; gives the root's name, to be published.

    A session may work in the tree meanwhile: what it makes, changes or renames gets in under no name, and what it
    takes away is missing. Raises what `capture` and `verify` raise; what was uploaded is collected then, as it is when
    nobody publishes it. `known_good`, `cache_dir`, `stop`, `workers`, `bytes_max`: as there. The session's own capture of
    the tree finds in that `cache_dir` all that stands still.
    """
    opening = depot.keyring.opening()
    line = place_of(opening.base)[0] + 1
    upon_base = 0 < line < BASE_LINE_MAX
    # Whoever else makes one at this moment has another name for it.
    root = f"{opening.family}/{line if upon_base else 0}-{secrets.randbits(64)}"
    capture(
        (cloned.tree,),
        depot,
        root,
        None,
        cache_dir,
        stop,
        workers,
        bytes_max,
        upon_base,
        {cloned.tree.name: cloned.stood},
    )
    verify(root, depot, deep=False, known_good=known_good, workers=workers)
    return root
