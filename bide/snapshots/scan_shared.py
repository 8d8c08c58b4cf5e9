"""Walks a tree in several processes, each of which only tells what is not as it was remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from bide.core import limits
from bide.snapshots import crew
from bide.snapshots.folders import Folders
from bide.snapshots.losses import Notes, shown
from bide.snapshots.scan import Tree, Walked, entries_in, open_tree, scan, scan_until, seen_of, split

_FOLDER_COST = 3  # as much as so many entries: opening and listing it


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
    """Like `scan`, by children of this process where that pays: for a large tree that is wanted as a whole."""
    if workers < 2 or not tree.scope.plain_throughout:
        return scan(tree, folders, notes, remembered, proceed)

    def walk(starts: Sequence[bytes], beyond: frozenset[bytes], paths: Sequence[bytes]) -> _Seen:
        own = Notes()
        with Folders(open_tree(tree)) as handles:
            found = scan(tree, handles, own, remembered, lambda: None, starts, beyond)
        gone = [path for path in paths if path not in found.folders]
        changed = {path: found.folders[path] for path in found.changed}
        not_kept = [(item.path, item.reason) for item in own.not_kept]
        return _Seen(changed, gone, [*found.doubtful], [*found.linked], not_kept, list(own.warnings))

    cuts: list[bytes] = []
    counts = {path: entries_in(content) + _FOLDER_COST for path, content in remembered.items()}
    if sum(counts.values()) >= limits.SCAN_FORK_ENTRIES:
        together = Walked(folders=dict(remembered), changed=set(), doubtful=set(), linked=set())
        areas = _areas(counts, workers)
        cuts = [start for area in areas for start in area.starts if start]
        done = crew.each(lambda area: walk(area.starts, area.beyond, area.paths), areas, _Seen, stop)
    else:
        together, left = scan_until(tree, folders, notes, remembered, proceed, limits.SCAN_FORK_FOLDERS)
        batches = workers * limits.CAPTURE_BATCHES
        piles = [left[n::batches] for n in range(batches)] if left else []

        def draw(drawn: Iterator[int]) -> list[_Seen]:
            return [walk(piles[n], frozenset(), ()) for n in drawn]

        shares = crew.drawing(draw, len(piles), workers, list[_Seen], stop)
        done = [seen for share in shares for seen in share]
    for seen in done:
        for path in seen.gone:
            del together.folders[path]
        together.folders.update(seen.changed)
        together.changed.update(seen.changed)
        together.doubtful.update(seen.doubtful)
        together.linked.update(seen.linked)
        notes.take(seen.not_kept, seen.warnings)
    _drop_unnamed(tree, together, cuts, notes)
    return together


def _drop_unnamed(tree: Tree, walked: Walked, cuts: Sequence[bytes], notes: Notes) -> None:
    """A folder may be back when its process looks, which was not there when another one listed where it stands: no
    reader takes a list of what no other list names.
    """
    for start in cuts:
        above, _, name = start.rpartition(b"/")
        listed = walked.folders.get(above)
        if start not in walked.folders or (listed is not None and name in split(seen_of(listed).folders)):
            continue
        below = start + b"/"
        for path in [path for path in walked.folders if path == start or path.startswith(below)]:
            del walked.folders[path]
            for paths in (walked.changed, walked.doubtful, walked.linked):
                paths.discard(path)
        notes.warn(f"the folder {shown(tree.name, start)} came while it was being captured; it is not kept")


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
