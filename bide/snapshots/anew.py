"""Writes trees into folders beside their targets, and moves them into place when all of it is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from bide.snapshots.dress import dress
from bide.snapshots.fill import Filler
from bide.snapshots.folders import Folders
from bide.snapshots.losses import Damaged
from bide.snapshots.plan import Outline, check_apart, jobs_of, outline
from bide.snapshots.root import Root, itemised
from bide.snapshots.staged import Staged
from bide.snapshots.verify import bad_chunks, damage
from bide.snapshots.write import Remarks, Writer


class Task(Struct, frozen=True):
    """What is to be restored: `places` are the targets with the names of their trees, in the order of the checkpoint.
    For the rest see `bide.snapshots.restore`.
    """

    opened: Root
    places: Mapping[Path, list[str]]
    owner: tuple[int, int] | None
    remarks: Remarks
    workers: int
    stop: Callable[[], bool] | None

    @property
    def targets(self) -> dict[str, Path]:
        """Where each tree goes."""
        return {tree: target for target, trees in self.places.items() for tree in trees}


def write_anew(task: Task) -> None:
    """Each target is either as before or complete, and so is all of it unless a move fails."""
    outlines = _outlines(task)
    with ExitStack() as stack:
        staged = [(Staged(target, stack), trees) for target, trees in task.places.items()]
        _write(task, {stack.enter_context(folder.open()): trees for folder, trees in staged}, outlines)
        for folder, _ in staged:
            folder.move_into_place()


def _outlines(task: Task) -> dict[str, Outline]:
    """All lists, read and checked: nothing is written before. When some are lost, so much is said in full."""
    opened, trees = task.opened, list(task.targets)
    if opened.index.bad:
        items = damage(opened, trees, bad_chunks(opened))
        if items:
            raise Damaged(items)
    try:
        outlines = {tree: outline(opened, tree) for tree in trees}
    except Damaged:
        raise Damaged(damage(opened, trees, bad_chunks(opened))) from None
    for names in task.places.values():
        check_apart(opened, names)
    return outlines


def _write(task: Task, rooms: Mapping[Folders, list[str]], outlines: Mapping[str, Outline]) -> None:
    opened = task.opened
    at = {tree: folders for folders, trees in rooms.items() for tree in trees}

    def hands(remarks: Remarks) -> dict[str, Writer]:
        return {tree: Writer(at[tree], opened.trees[tree], task.owner, remarks, fresh=True) for tree in at}

    writers = hands(task.remarks)
    for tree in at:
        for folder in outlines[tree].folders:
            if folder.path:
                parent, _, name = folder.path.rpartition(b"/")
                writers[tree].make_folder(parent, name)
    filler = Filler(opened, hands, task.remarks, task.workers, task.stop)
    filler.fill(jobs_of(opened, at))
    if filler.reasons:
        raise Damaged(itemised(opened, at, filler.reasons))
    for tree in at:
        for path, entry in outlines[tree].hard:
            writers[tree].hard_link(path, entry)
    for trees in rooms.values():
        latest = {folder.path: (tree, folder) for tree in trees for folder in outlines[tree].folders}
        dress(latest, hands, task.remarks, task.workers)
