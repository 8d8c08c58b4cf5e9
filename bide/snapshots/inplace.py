"""Makes folders that hold an older or newer state what a checkpoint says, touching only what differs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from bide.core import limits
from bide.snapshots.amend import Amendment, told
from bide.snapshots.anew import Task
from bide.snapshots.dress import dress
from bide.snapshots.fill import Filler
from bide.snapshots.folders import Folders, remove
from bide.snapshots.held import hold
from bide.snapshots.losses import Changed, Damaged, Stopped
from bide.snapshots.plan import check_apart, unlisted_jobs
from bide.snapshots.proof import Proof
from bide.snapshots.root import itemised
from bide.snapshots.standing import Difference, after, difference, standing
from bide.snapshots.statcache import Memory, forget
from bide.snapshots.write import Remarks, Writer


class Amended(Struct, frozen=True):
    """What was done: as in `bide.snapshots.restore.Restored`."""

    source: str
    written: int
    healed: int


def amend(task: Task, memory: Memory, cache_dir: Path | None, stack: ExitStack, *, heal: bool) -> Amended | None:
    """Changes the targets in place; None, with nothing touched, when they must be made anew.

    Raises `Damaged` before anything is touched for contents that lie nowhere, and later for damaged ones. Once anything
    was touched nothing is remembered of the targets until all is done.
    """
    places = _differences(task, memory, stack)
    if places is None:
        return None
    todo = _amendments(places, task.opened.keys.chunks)
    if sum(one.written for one in todo.values()) > limits.RESTORE_IN_PLACE_MAX:
        return None
    by_tree = {it.standing.record.name: it for trees in places for it in trees}
    healed = [path for one in todo.values() for path in one.healed]
    if healed and not heal:
        raise Changed(healed)
    if all(one.nothing for one in todo.values()):
        if memory.held != task.opened.name:
            hold(cache_dir, task.opened, task.targets, memory, by_tree, task.workers)
        return Amended("same", 0, len(healed))
    missing = unlisted_jobs(task.opened, [job for one in todo.values() for job in one.jobs])
    if missing:
        raise Damaged(itemised(task.opened, todo, missing))
    for trees in task.places.values():
        check_apart(task.opened, trees)
    forget(cache_dir)
    _apply(task, places, todo)
    by_tree = {tree: after(it, todo[tree].touched) for tree, it in by_tree.items()}
    hold(cache_dir, task.opened, task.targets, memory, by_tree, task.workers)
    if sentence := told(healed):
        task.remarks.warn(sentence)
    return Amended("changed", sum(one.written for one in todo.values()), len(healed))


def _differences(task: Task, memory: Memory, stack: ExitStack) -> list[list[Difference]] | None:
    def proceed() -> None:
        if task.stop and task.stop():
            raise Stopped

    owner = task.owner if task.owner and os.geteuid() == 0 else (os.geteuid(), os.getegid())
    found: list[list[Difference]] = []
    for target, trees in task.places.items():
        found.append([])
        for tree in trees:
            stands = standing(task.opened.trees[tree], target, memory, owner, proceed, task.stop, task.workers, stack)
            if stands is None:
                return None
            found[-1].append(difference(task.opened, stands))
    return found


def _amendments(places: Iterable[Sequence[Difference]], chunks: bytes) -> dict[str, Amendment]:
    """What is to be done, by tree; the trees of each place share a folder."""
    found: dict[str, Amendment] = {}
    for trees in places:
        for it in trees:
            others = frozenset[bytes]().union(*(other.paths for other in trees if other is not it))
            found[it.standing.record.name] = Amendment(it, others, Proof(it.standing.folders, chunks))
    return found


def _apply(task: Task, places: Iterable[Sequence[Difference]], todo: Mapping[str, Amendment]) -> None:
    standing = {it.standing.record.name: it.standing for trees in places for it in trees}

    def hands(remarks: Remarks) -> dict[str, Writer]:
        return {tree: Writer(it.folders, it.record, task.owner, remarks, fresh=False) for tree, it in standing.items()}

    writers = hands(task.remarks)
    for tree, one in todo.items():
        _clear_way(standing[tree].folders, one)
    for tree, one in todo.items():
        for path in one.make:
            parent, _, name = path.rpartition(b"/")
            writers[tree].make_folder(parent, name)
    filler = Filler(task.opened, hands, task.remarks, task.workers, task.stop)
    filler.fill(job for one in todo.values() for job in one.jobs)
    if filler.reasons:
        raise Damaged(itemised(task.opened, todo, filler.reasons))
    for tree, one in todo.items():
        for folder, entry in one.redress:
            writers[tree].dress_file(folder, entry, bare=True)
        for folder, entry in one.hard:
            writers[tree].hard_link(folder, entry)
    for trees in places:
        names = [it.standing.record.name for it in trees]
        latest = {path: (name, folder) for name in names for path, folder in todo[name].dress.items()}
        dress(latest, hands, task.remarks, task.workers, bare=True)


def _clear_way(folders: Folders, one: Amendment) -> None:
    """Opens folders that are to be changed for us, and removes what is in the way."""
    for path in one.dress:
        if path not in one.make:
            fd = folders.at(path)
            if os.fstat(fd).st_mode & 0o700 != 0o700:
                os.fchmod(fd, 0o700)
    for folder, name in one.remove:
        try:
            parent = folders.at(folder)
        except FileNotFoundError:  # another tree of this place had no use for it either
            continue
        remove(parent, name)
