"""Folders as they stand on this machine, compared with what is remembered of them and with a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from bide.snapshots.folders import Folders
from bide.snapshots.hostile import Checker
from bide.snapshots.losses import BadFolder, Damaged, Hostile, Notes, shown
from bide.snapshots.manifest import Folder, SegmentRef, TreeRecord, Unreadable, decode_segment
from bide.snapshots.root import Root, lost_list
from bide.snapshots.scan import Tree, Walked, open_tree
from bide.snapshots.scan_shared import scan_shared
from bide.snapshots.statcache import Memory, Remembered, head_of


class Standing(Struct, frozen=True):
    """A tree as it stands, what is remembered of it, and what it is to be."""

    record: TreeRecord
    tree: Tree
    folders: Folders
    memory: Remembered
    walked: Walked


class Difference(Struct, frozen=True):
    """Where a tree may differ from a checkpoint. `calm` are segments of the checkpoint that stand as they should, with
    their numbers in the memory; `contents` are the bytes of the others, and `wanted` the folders in them. `old` are the
    folders that are remembered elsewhere than in calm segments; `paths` all folders that are to be, and `same` those of
    the wanted ones that stand as they should nevertheless. `touched` are files that were changed since the look.
    """

    standing: Standing
    calm: dict[int, int]
    contents: dict[int, bytes]
    wanted: dict[bytes, Folder]
    old: dict[bytes, Folder]
    paths: frozenset[bytes]
    same: frozenset[bytes]
    touched: frozenset[bytes] = frozenset()


def after(it: Difference, touched: frozenset[bytes]) -> Difference:
    """The same once these files were made or changed, which moves the folders that they are in."""
    folders = frozenset(path.rpartition(b"/")[0] for path in touched)
    calm = {n: old for n, old in it.calm.items() if folders.isdisjoint(it.standing.memory.paths_of(old))}
    return replace(it, calm=calm, same=it.same - folders, touched=touched)


def tree_of(record: TreeRecord, path: Path) -> Tree:
    """A tree of a checkpoint as it is asked for at this path."""
    only, skip, keep = (tuple(map(os.fsdecode, paths)) for paths in (record.only, record.skip, record.keep))
    return Tree(record.name, path, only, skip, keep)


def standing(
    record: TreeRecord,
    path: Path,
    memory: Memory,
    owner: tuple[int, int],
    proceed: Callable[[], None],
    stop: Callable[[], bool] | None,
    workers: int,
    stack: ExitStack,
) -> Standing | None:
    """Looks at every folder of a tree, with children of this process for a large one; None where nothing is remembered of it, it belongs to somebody else, or it cannot
    all be looked at.
    """
    tree = tree_of(record, path)
    try:
        folders = stack.enter_context(Folders(open_tree(tree)))
    except BadFolder:
        return None
    top = os.fstat(folders.at(b""))
    remembered = memory.tree(head_of(tree, top))
    if remembered is None or (top.st_uid, top.st_gid) != owner:
        return None
    walked = scan_shared(tree, folders, Notes(), remembered.rows, proceed, stop, workers)
    return None if walked.doubtful else Standing(record, tree, folders, remembered, walked)


def difference(opened: Root, it: Standing) -> Difference:
    """Reads the lists that differ, and checks that they and those that do not make up a tree that may be written.

    Raises `Damaged`, `Hostile`.
    """
    calm = _calm(it)
    below: dict[bytes, list[bytes]] = {}
    for path in filter(None, it.memory.paths):
        below.setdefault(path.rpartition(b"/")[0], []).append(path)
    checker, contents, wanted = Checker(it.record), dict[int, bytes](), dict[bytes, Folder]()
    paths: set[bytes] = set()
    read = _contents(opened, it, calm)
    for n in range(len(it.record.segments)):
        if n in calm:
            kept, there = it.memory.segments[calm[n]], it.memory.paths_of(calm[n])
            checker.pass_by(there, below, kept.files, kept.size)
            paths.update(there)
            continue
        contents[n] = next(read)
        folders = _decoded(it.record, it.record.segments[n], contents[n])
        checker.take(folders)
        wanted |= {folder.path: folder for folder in folders}
        paths.update(folder.path for folder in folders)
    _check_links(it, checker, wanted)
    quiet = frozenset(calm.values())
    old = {
        folder.path: folder
        for n in range(len(it.memory.segments))
        if n not in quiet
        for folder in _remembered(it.memory, n)
    }
    restless = it.walked.changed | it.walked.linked
    same = frozenset(path for path, folder in wanted.items() if path not in restless and old.get(path) == folder)
    return Difference(it, calm, contents, wanted, old, frozenset(paths), same & it.walked.folders.keys())


def _calm(it: Standing) -> dict[int, int]:
    """Segments that are the same in the checkpoint and in the memory, of folders that look as they are remembered.

    Those with files that have several names are not among them: their other names may be elsewhere.
    """
    by_first = {kept.first: n for n, kept in enumerate(it.memory.segments)}
    there, restless = it.walked.folders, it.walked.changed | it.walked.linked
    found: dict[int, int] = {}
    for n, ref in enumerate(it.record.segments):
        old = by_first.get(ref.first, -1)
        if old >= 0 and it.memory.segments[old].id == ref.id:
            paths = it.memory.paths_of(old)
            if restless.isdisjoint(paths) and all(path in there for path in paths):
                found[n] = old
    return found


def _contents(opened: Root, it: Standing, calm: Mapping[int, int]) -> Iterator[bytes]:
    """The lists that are not calm, in order."""
    by_id = {kept.id: n for n, kept in enumerate(it.memory.segments)}
    refs = [ref for n, ref in enumerate(it.record.segments) if n not in calm]
    held: dict[bytes, bytes] = {}
    for ref in refs:
        if ref.id in by_id:
            try:
                held[ref.id] = it.memory.content(by_id[ref.id])
            except Unreadable:
                continue
    read = opened.contents(tuple(ref for ref in refs if ref.id not in held))
    lost = []
    for ref in refs:
        content: bytes | None = held.pop(ref.id, None)
        if content is None:
            _, content, reason = next(read)
            if content is None:
                lost.append(lost_list(it.record, ref, reason))
                continue
        if not lost:
            yield content
    if lost:
        raise Damaged(lost)


def _decoded(record: TreeRecord, ref: SegmentRef, content: bytes) -> list[Folder]:
    try:
        found = decode_segment(content)
    except Unreadable as error:
        raise Damaged([lost_list(record, ref, str(error))]) from error
    if not found or found[0].path != ref.first:
        raise Hostile(shown(record.name, ref.first), "its list of files is another one")
    return found


def _check_links(it: Standing, checker: Checker, wanted: Mapping[bytes, Folder]) -> None:
    places = checker.link_folders()
    for path in places & wanted.keys():
        checker.take_link_folder(wanted[path])
    if places - wanted.keys():
        for n in range(len(it.memory.segments)):
            if not places.isdisjoint(it.memory.paths_of(n)):
                for folder in _remembered(it.memory, n):
                    if folder.path not in wanted:
                        checker.take_link_folder(folder)
    checker.finish()


def _remembered(memory: Remembered, n: int) -> list[Folder]:
    """The folders of a remembered segment; none where the memory is damaged: nothing of them is trusted then."""
    try:
        return memory.folders(n)
    except Unreadable:
        return []
