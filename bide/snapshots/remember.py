"""Remembers folders that were just brought back, so that saving them again, or changing them, touches only what moved."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from bide.core import limits
from bide.snapshots.folders import Folders
from bide.snapshots.known import Known
from bide.snapshots.losses import BadFolder, Notes
from bide.snapshots.manifest import (
    FILE,
    FOLDER,
    HARD,
    HASH_SIZE,
    LINK,
    Entry,
    Folder,
    PackRef,
    RootRecord,
    SegmentRef,
    Unreadable,
    decode_segment,
)
from bide.snapshots.scan import Row, Tree, open_tree, scan, seen_of
from bide.snapshots.statcache import Keeping, Kept, Memory, Remembered, certain, forget, head_of, keep

_KINDS = {FILE: stat.S_IFREG, HARD: stat.S_IFREG, LINK: stat.S_IFLNK}


class Brought(Struct, frozen=True):
    """A tree where it stands now, with the scope that the checkpoint says; `content` gives the bytes of the n-th of its
    segments.
    """

    tree: Tree
    content: Callable[[int], bytes]


def remember(
    cache_dir: Path | None,
    key: bytes,
    record: RootRecord,
    chunks: Iterable[tuple[PackRef, bytes]],
    trees: Sequence[Brought],
    before: Memory | None = None,
) -> None:
    """Remembers that these folders hold the checkpoint `record`: with what the system says of every file now, as far as
    that fits what the checkpoint says of it.

    `chunks` are the packs of the checkpoint, each with the ids in it one after another; `before` saves looking again at
    what it holds too. Nothing is remembered where something is in the way: that costs time later, no content.
    """
    if cache_dir is None:
        return
    numbers = {ref.id: n for n, ref in enumerate(record.packs)}
    known = Known().with_more((numbers[ref.id], ids) for ref, ids in chunks if ref.id in numbers)
    now_ns = time.time_ns()
    refs = {tree.name: tree.segments for tree in record.trees}
    try:
        with ExitStack() as stack:
            kept = [_Remembering(brought, known, numbers, before, now_ns, stack) for brought in trees]
            found = [tree.keeping(refs[tree.name]) for tree in kept]
            keep(cache_dir, key, record.root, record.base, record.packs, known, found)
    except (OSError, BadFolder, Unreadable):
        forget(cache_dir)


class _Remembering:
    def __init__(
        self, brought: Brought, known: Known, numbers: Mapping[bytes, int], before: Memory | None, now_ns: int,
        stack: ExitStack,
    ) -> None:  # fmt: skip
        self.name, self._content, self._known = brought.tree.name, brought.content, known
        folders = stack.enter_context(Folders(open_tree(brought.tree)))
        self._head = head_of(brought.tree, os.fstat(folders.at(b"")))
        self._old: Remembered | None = before.tree(self._head) if before else None
        self._walked = scan(brought.tree, folders, Notes(), self._old.rows if self._old else {}, lambda: None)
        self._places = {kept.id: n for n, kept in enumerate(self._old.segments)} if self._old else {}
        self._numbers = {
            n: numbers[ref.id] for n, ref in enumerate(before.packs if before else ()) if ref.id in numbers
        }
        self._trusted_before_ns = now_ns - limits.RACY_NS

    def keeping(self, refs: Sequence[SegmentRef]) -> Keeping:
        """The tree as these segments. Raises `Unreadable` when they are not what stands there."""
        rows: dict[bytes, bytes] = {}
        segments = [self._same(ref, rows) or self._made(n, ref, rows) for n, ref in enumerate(refs)]
        if rows.keys() != self._walked.folders.keys():
            raise Unreadable("other folders stand there")
        return Keeping(head=self._head, rows=rows, segments=segments, content=self._content)

    def _same(self, ref: SegmentRef, rows: dict[bytes, bytes]) -> Kept | None:
        """The segment as it was remembered before, if nothing of it has changed."""
        old = self._old
        n = self._places.get(ref.id, -1)
        if old is None or n < 0 or not self._walked.changed.isdisjoint(old.paths_of(n)):
            return None
        kept = old.segments[n]
        if not all(path in self._walked.folders for path in old.paths_of(n)):
            return None
        if not all(use in self._numbers for use in kept.uses):
            return None
        rows |= {path: self._walked.folders[path] for path in old.paths_of(n)}
        return replace(kept, uses=tuple(sorted({self._numbers[use] for use in kept.uses})))

    def _made(self, n: int, ref: SegmentRef, rows: dict[bytes, bytes]) -> Kept:
        content = self._content(n)
        folders = decode_segment(content)
        uses = {self._pack_of(ref.id)}
        files = size = 0
        for folder in folders:
            rows[folder.path] = self._row(folder)
            for entry in folder.entries:
                files += entry.kind != FOLDER
                size += entry.size
                uses |= {self._pack_of(entry.ids[at : at + HASH_SIZE]) for at in range(0, len(entry.ids), HASH_SIZE)}
        return Kept(ref.first, ref.id, len(content), len(folders), files, size, tuple(sorted(uses)))

    def _pack_of(self, ident: bytes) -> int:
        number = self._known.pack_of(ident)
        if number is None:
            raise Unreadable("a chunk of it lies nowhere")
        return number

    def _row(self, folder: Folder) -> bytes:
        content = self._walked.folders.get(folder.path)
        if content is None:
            raise Unreadable("a folder is not there")
        seen, entries = seen_of(content), {entry.name: entry for entry in folder.entries}
        strange = frozenset(name for name, row in seen.by_name().items() if not _fits(row, entries.get(name)))
        own = (stat.S_IMODE(seen.own.mode), seen.own.mtime_ns) == (folder.mode, folder.mtime_ns)
        whole = own and folder.path not in self._walked.doubtful
        return certain(content, self._trusted_before_ns, strange, whole)


def _fits(row: Row, entry: Entry | None) -> bool:
    if entry is None or stat.S_IFMT(row.mode) != _KINDS.get(entry.kind):
        return False
    if entry.kind == HARD:  # what it is stands with its first name
        return True
    mode = entry.kind == LINK or stat.S_IMODE(row.mode) == entry.mode
    return mode and row.mtime_ns == entry.mtime_ns and (entry.kind == LINK or row.size == entry.size)
