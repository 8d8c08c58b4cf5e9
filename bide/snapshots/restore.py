"""Brings a checkpoint's folders back: whole or not at all, or in place where an older state of them stands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from bide.snapshots.anew import Task, write_anew
from bide.snapshots.depot import Depot
from bide.snapshots.held import hold
from bide.snapshots.inplace import amend
from bide.snapshots.losses import BadFolder, Damaged, Hostile, Lost
from bide.snapshots.root import Root, open_root
from bide.snapshots.staged import check_target
from bide.snapshots.statcache import Memory, forget, recall
from bide.snapshots.write import Remarks


class Restored(Struct, frozen=True, kw_only=True):
    """What was brought back. `warnings` names what this machine or file system could not take.

    `source`: `whole` (everything was written), `changed` (what differed was), `same` (nothing had to be). `written`
    counts the entries, other than folders, that were made or made anew; `healed` those of them, and those removed,
    that somebody had changed since the folder was last saved or restored.
    """

    files: int
    bytes: int
    seconds: float
    warnings: tuple[str, ...]
    source: str = "whole"
    written: int = 0
    healed: int = 0


def restore(
    root: str,
    depot: Depot,
    targets: Mapping[str, Path],
    owner: tuple[int, int] | None = None,
    cache_dir: Path | None = None,
    warm: bool = False,
    workers: int = 1,
    stop: Callable[[], bool] | None = None,
    heal: bool = True,
    bytes_max: int | None = None,
) -> Restored:
    """Restores the named trees of a checkpoint, each to its target folder; several may share one.

    Everything is written to a folder beside the target and moved into place when all of it is right, so a target is
    either as before or complete. A target with something in it is replaced as a whole. What the targets hold then is
    remembered in `cache_dir`, where there is one.

    `warm`: targets that hold what `cache_dir` remembers, be it the same checkpoint, an older or a newer one, are changed
    in place, and only where they differ. Whatever was changed since it was remembered is written anew; without
    `heal` it raises `Changed` instead, with nothing touched. Nothing is remembered of them until all of it is right: when this raises, they may be neither the one nor the other.

    `bytes_max`: a checkpoint whose trees hold more is `Hostile`, and nothing of it is written.

    As root, entries of the tree's owner are given to `owner` (uid, gid), or to root when None; entries of other users
    keep their ids. As another user everything belongs to that user. `workers` above 1: children of this process share
    the work, which must have no other threads then.

    Raises `KeyMissing`, `Missing` (no such root), `Damaged` (itemised), `Hostile`, `BadFolder`, `Unavailable` or
    `Stopped`.
    """
    started = time.monotonic()
    opened = _opened(root, depot, targets, bytes_max)
    places = _by_place(opened, targets)
    for target in places:
        check_target(target)
    task = Task(opened, places, owner, Remarks(), workers, stop)
    with ExitStack() as stack:
        memory = recall(cache_dir, opened.keys.chunks)
        stack.callback(memory.close)
        try:
            amended = amend(task, memory, cache_dir, stack, heal=heal) if warm else None
            if amended is None:
                forget(cache_dir)
                write_anew(task)
                hold(cache_dir, opened, task.targets, Memory(), {}, workers)
        except OSError as error:
            reason = f"writing failed: {error.strerror or error}"
            raise BadFolder(", ".join(map(str, places)), reason, error.errno or 0) from error
    records = [opened.trees[tree] for tree in targets]
    files = sum(record.files for record in records)
    return Restored(
        files=files,
        bytes=sum(record.size for record in records),
        seconds=time.monotonic() - started,
        warnings=task.remarks.warnings,
        source=amended.source if amended else "whole",
        written=amended.written if amended else files,
        healed=amended.healed if amended else 0,
    )


def _opened(root: str, depot: Depot, targets: Iterable[str], bytes_max: int | None) -> Root:
    opened = open_root(root, depot)
    absent = [tree for tree in targets if tree not in opened.trees]
    if absent:
        raise Damaged(Lost(what=tree, bytes=0, reason="the checkpoint has nothing of this name") for tree in absent)
    size = sum(max(0, opened.trees[tree].size) for tree in targets)
    if bytes_max is not None and size > bytes_max:
        raise Hostile(root, f"it holds {size} bytes where {bytes_max} are the most that it can have been saved with")
    return opened


def _by_place(opened: Root, targets: Mapping[str, Path]) -> dict[Path, list[str]]:
    """The trees of each target, in the order of the checkpoint."""
    places: dict[Path, list[str]] = {}
    for tree in opened.trees:
        if tree in targets:
            places.setdefault(targets[tree].absolute(), []).append(tree)
    return places
