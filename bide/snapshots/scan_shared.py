"""Walks a tree in several processes, each of which only tells what is not as it was remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from bide.core import limits
from bide.snapshots import crew
from bide.snapshots.folders import Folders
from bide.snapshots.losses import Notes
from bide.snapshots.scan import Tree, Walked, entries_in, open_tree, scan


class _Area(Struct, frozen=True):
    """What one process walks: from `starts` on, all but what is `beyond`. `paths` are the folders remembered there."""

    starts: list[bytes]
    beyond: frozenset[bytes]
    paths: list[bytes]


class _Seen(Struct, frozen=True, array_like=True):
    changed: dict[bytes, bytes]
    gone: list[bytes]
    doubtful: list[bytes]
    linked: list[bytes]
    not_kept: list[tuple[str, str]]
    warnings: list[str]


def scan_shared(
    tree: Tree,
    folders: Folders,
    notes: Notes,
    remembered: Mapping[bytes, bytes],
    proceed: Callable[[], None],
    stop: Callable[[], bool] | None,
    workers: int,
) -> Walked:
    """Like `scan`, by children of this process where that pays: for a large tree that is remembered, wanted as a whole."""
    counts = {path: entries_in(content) for path, content in remembered.items()} if workers > 1 else {}
    if sum(counts.values()) < limits.SCAN_FORK_ENTRIES or not tree.scope.plain_throughout:
        return scan(tree, folders, notes, remembered, proceed)

    def walk(area: _Area) -> _Seen:
        own = Notes()
        with Folders(open_tree(tree)) as handles:
            found = scan(tree, handles, own, remembered, lambda: None, area.starts, area.beyond)
        gone = [path for path in area.paths if path not in found.folders]
        changed = {path: found.folders[path] for path in found.changed}
        not_kept = [(item.path, item.reason) for item in own.not_kept]
        return _Seen(changed, gone, [*found.doubtful], [*found.linked], not_kept, list(own.warnings))

    together = Walked(folders=dict(remembered), changed=set(), doubtful=set(), linked=set())
    for seen in crew.each(walk, _areas(counts, workers), _Seen, stop):
        for path in seen.gone:
            del together.folders[path]
        together.folders.update(seen.changed)
        together.changed.update(seen.changed)
        together.doubtful.update(seen.doubtful)
        together.linked.update(seen.linked)
        notes.take(seen.not_kept, seen.warnings)
    return together


def _areas(counts: Mapping[bytes, int], workers: int) -> Sequence[_Area]:
    """Cuts off the topmost folders with no more below them than a part of a process's share, and deals them out."""
    below = dict(counts)
    for path in sorted(counts, reverse=True):  # what is below a folder comes after it
        if path:
            above = path.rpartition(b"/")[0]
            below[above] = below.get(above, 0) + below[path]
    most = below[b""] // (workers * limits.CAPTURE_BATCHES)
    owner: dict[bytes, bytes] = {b"": b""}
    for path in sorted(counts):
        above = owner.get(path.rpartition(b"/")[0], b"")
        owner[path] = above or (path if path and below[path] <= most else b"")
    cut = sorted({start for start in owner.values() if start}, key=lambda start: -below[start])
    loads = [below[b""] - sum(below[start] for start in cut), *[0] * (workers - 1)]
    dealt: list[list[bytes]] = [[b""], *([] for _ in range(workers - 1))]
    for start in cut:
        least = loads.index(min(loads))
        dealt[least].append(start)
        loads[least] += below[start]
    which = {start: n for n, starts in enumerate(dealt) for start in starts}
    paths: list[list[bytes]] = [[] for _ in dealt]
    for path in counts:
        paths[which[owner[path]]].append(path)
    return [_Area(starts, frozenset(cut), found) for starts, found in zip(dealt, paths, strict=True) if starts]
