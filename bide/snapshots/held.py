"""Writes down what restored folders look like, so that the next capture or restore need not read them."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from bide.core import limits
from bide.snapshots import crew
from bide.snapshots.folders import Folders
from bide.snapshots.known import Known
from bide.snapshots.manifest import (
    FILE,
    FOLDER,
    HARD,
    LINK,
    Entry,
    Folder,
    SegmentRef,
    Unreadable,
    data_bytes,
    decode_segment,
)
from bide.snapshots.root import Root
from bide.snapshots.scan import Row, Seen, bytes_of, open_tree, row_of, seen_of, unsure
from bide.snapshots.standing import Difference, tree_of
from bide.snapshots.statcache import Keeping, Kept, Memory, forget, head_of, keep, young


class _Part(Struct, frozen=True, array_like=True):
    """A segment: what is kept of it, and the rows of its folders."""

    kept: Kept
    rows: dict[bytes, bytes]


class _Moved(Struct, frozen=True):
    """What is remembered already: where trees differ from it, by name, and the numbers that its packs have now."""

    differences: Mapping[str, Difference]
    numbers: Mapping[int, int]


def hold(
    cache_dir: Path | None,
    opened: Root,
    targets: Mapping[str, Path],
    memory: Memory,
    differences: Mapping[str, Difference],
    workers: int,
) -> None:
    """Remembers that these folders hold the checkpoint. They must stand at their places for good, and nobody else may
    have written to them. A row is trusted where it looks as the checkpoint says, and where it is old enough: a file
    could change again without its ctime moving. `differences` from what `memory` holds spare looking at what was calm.

    Where something is in the way nothing is remembered: that costs time later, no content. Raises `Unavailable`.
    """
    if cache_dir is not None:
        try:
            _hold(cache_dir, opened, targets, memory, differences, workers)
        except (OSError, Unreadable):
            forget(cache_dir)


def _hold(
    cache_dir: Path,
    opened: Root,
    targets: Mapping[str, Path],
    memory: Memory,
    differences: Mapping[str, Difference],
    workers: int,
) -> None:
    numbers = {ref.id: n for n, ref in enumerate(opened.record.packs)}
    moved = _Moved(differences, {n: numbers[ref.id] for n, ref in enumerate(memory.packs) if ref.id in numbers})
    known = memory.known().numbered(moved.numbers) if differences else Known()
    had = set(moved.numbers.values()) if known.ids else set[int]()
    if had != set(numbers.values()):
        read = ((numbers[pack.ref.id], pack.footer.ids) for pack in opened.index.packs)
        known = known.with_more((number, ids) for number, ids in read if number not in had)
    trees = [
        _tree(opened, tree, targets[tree], known, moved, workers)
        for tree in opened.trees  # in the order in which they are captured
        if tree in targets
    ]
    keep(cache_dir, opened.keys.chunks, opened.name, "", opened.record.packs, known, trees)


def _tree(opened: Root, tree: str, path: Path, known: Known, moved: _Moved, workers: int) -> Keeping:
    record, difference = opened.trees[tree], moved.differences.get(tree)
    asked = tree_of(record, path)
    parts = _calm(difference, moved.numbers) if difference else {}
    left = [n for n in range(len(record.segments)) if n not in parts]
    with Folders(open_tree(asked)) as folders:
        top = os.fstat(folders.at(b""))
        read = _reader(opened, record.segments, difference)
        there = _Beforehand(difference, known)

        def work(share: Sequence[int]) -> list[_Part]:
            return [_look_at(folders, record.segments[n], content, there) for n, content in read(share)]

        count = workers if len(left) * limits.SEGMENT_FOLDERS >= limits.RESTORE_FORK_MIN else 1
        shares = crew.shared(left, lambda _: 1, count)
        for share, found in zip(shares, crew.each(work, shares, list[_Part]), strict=True):
            parts |= zip(share, found, strict=True)
    ordered = [parts[n] for n in range(len(record.segments))]
    contents = read(range(len(ordered)))
    return Keeping(
        head=head_of(asked, top),
        rows={path: row for part in ordered for path, row in part.rows.items()},
        segments=[part.kept for part in ordered],
        content=lambda _: next(contents)[1],  # they are asked for one after another
    )


def _calm(difference: Difference, numbers: Mapping[int, int]) -> dict[int, _Part]:
    """Segments that need not be looked at: they are as they were."""
    memory, there = difference.standing.memory, difference.standing.walked.folders
    return {
        n: _Part(
            replace(memory.segments[old], uses=tuple(sorted(numbers[use] for use in memory.segments[old].uses))),
            {path: there[path] for path in memory.paths_of(old)},
        )
        for n, old in difference.calm.items()
        if all(use in numbers for use in memory.segments[old].uses)
    }


def _reader(
    opened: Root, refs: Sequence[SegmentRef], difference: Difference | None
) -> Callable[[Sequence[int]], Iterator[tuple[int, bytes]]]:
    """Gives the bytes of segments by their numbers: from here where they are here."""
    here = difference.contents if difference else {}
    calm = difference.calm if difference else {}

    def read(numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        away = opened.contents(tuple(refs[n] for n in numbers if n not in here and n not in calm))
        for n in numbers:
            content: bytes | None = here.get(n)
            if difference and n in calm:
                content = difference.standing.memory.content(calm[n])
            elif content is None:
                _, content, reason = next(away)
                if content is None:
                    raise Unreadable(reason)
            yield n, content

    return read


class _Beforehand:
    """What is known before looking: `chunks`, the `same` rows of whole folders, and rows of single names."""

    def __init__(self, difference: Difference | None, chunks: Known) -> None:
        self.chunks = chunks
        self.same: dict[bytes, bytes] = {}
        self._touched: dict[bytes, set[bytes]] = {}
        for full in difference.touched if difference else ():
            folder, _, name = full.rpartition(b"/")
            self._touched.setdefault(folder, set()).add(name)
        self._calm: dict[bytes, bytes] = {}
        if difference:
            walked = difference.standing.walked
            restless = walked.changed | walked.linked
            self._calm = {path: row for path, row in walked.folders.items() if path not in restless}
            self.same = {path: walked.folders[path] for path in difference.same}

    def rows(self, path: bytes) -> dict[bytes, Row]:
        """Those names in a folder whose rows cannot have changed."""
        content = self._calm.get(path)
        if content is None:
            return {}
        rows = seen_of(content).by_name()
        for name in self._touched.get(path, ()):
            rows.pop(name, None)
        return rows


def _look_at(folders: Folders, ref: SegmentRef, content: bytes, known: _Beforehand) -> _Part:
    """Looks at the folders of a segment, as far as nothing is known of them."""
    listed = decode_segment(content)
    entries = [entry for folder in listed for entry in folder.entries if entry.kind != FOLDER]
    uses = set(known.chunks.packs_of(b"".join((*ref.ids, *(entry.ids for entry in entries)))))
    kept = Kept(
        ref.first, ref.id, len(content), len(listed), len(entries), data_bytes(entries),
        tuple(sorted(use for use in uses if use is not None)), chunks=ref.chunks,
    )  # fmt: skip
    top_dev = os.fstat(folders.at(b"")).st_dev
    rows = {
        folder.path: known.same.get(folder.path)
        or _seen(folders.at(folder.path), folder, known.rows(folder.path), top_dev)
        for folder in listed
    }
    return _Part(kept, rows)


def _seen(fd: int, folder: Folder, known: Mapping[bytes, Row], top_dev: int) -> bytes:
    """A folder as a scan sees it."""
    before_ns = time.time_ns() - limits.RACY_NS
    own = row_of(os.fstat(fd), top_dev)
    if (stat.S_IMODE(own.mode), own.mtime_ns) != (folder.mode, folder.mtime_ns) or young(own, before_ns):
        own = unsure(own)
    wanted = {entry.name: entry for entry in folder.entries}
    rows: list[Row] = []
    names: list[bytes] = []
    below: list[bytes] = []
    with os.scandir(fd) as items:
        for item in items:
            name = item.name.encode("utf-8", "surrogateescape")
            entry = wanted.get(name)
            if entry is None:  # another tree's; or it was just put there, and will be seen as new
                continue
            row = known.get(name)
            if row is None:
                if item.is_dir(follow_symlinks=False):
                    below.append(name)
                    continue
                row = row_of(item.stat(follow_symlinks=False), top_dev)
                row = row if not young(row, before_ns) and _fits(row, entry) else unsure(row)
            rows.append(row)
            names.append(name)
    return bytes_of(Seen(own, tuple(rows), b"\0".join(names), b"\0".join(below)))


def _fits(row: Row, entry: Entry) -> bool:
    if entry.kind == FILE:
        fits = stat.S_ISREG(row.mode) and (stat.S_IMODE(row.mode), row.size) == (entry.mode, entry.size)
        return fits and row.mtime_ns == entry.mtime_ns
    if entry.kind == LINK:
        return stat.S_ISLNK(row.mode) and row.mtime_ns == entry.mtime_ns
    return entry.kind == HARD and stat.S_ISREG(row.mode)
