"""Turns one folder into a tree record and segments, handing new content to a sink on the way."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable, Iterator

from bide.core.limits import SEGMENT_ENTRIES_MAX
from bide.snapshots.content import read_file
from bide.snapshots.folders import Folders, join
from bide.snapshots.losses import Notes, shown
from bide.snapshots.manifest import (
    FILE,
    FOLDER,
    HARD,
    LINK,
    Entry,
    Folder,
    Piece,
    SegmentRef,
    TreeRecord,
    Xattr,
    chunk_id,
    encode_segment,
)
from bide.snapshots.packs import Sink
from bide.snapshots.scan import Seen, SeenFolder, Tree, note_left, open_tree, scan
from bide.snapshots.statcache import StatCache

_CUT_MASK = 15  # a segment ends at about every 16th folder: a change in one writes few others again


def take(
    tree: Tree, sink: Sink, cache: StatCache, notes: Notes, proceed: Callable[[], None]
) -> tuple[TreeRecord, dict[bytes, bytes]]:
    """Reads the tree; gives its record and its segments by id. `proceed` is called often and may raise to stop."""
    with Folders(open_tree(tree)) as folders:
        return _Taking(tree, folders, sink, cache, notes, proceed).run()


class _Taking:
    def __init__(
        self,
        tree: Tree,
        folders: Folders,
        sink: Sink,
        cache: StatCache,
        notes: Notes,
        proceed: Callable[[], None],
    ) -> None:
        self._tree, self._folders, self._sink = tree, folders, sink
        self._cache, self._notes, self._proceed = cache, notes, proceed
        self._top = os.fstat(folders.at(b""))
        self._first_names: dict[tuple[int, int], bytes] = {}
        self._folder_xattrs: dict[bytes, tuple[Xattr, ...]] = {}
        self._files = self._bytes = 0

    def run(self) -> tuple[TreeRecord, dict[bytes, bytes]]:
        seen = scan(self._tree, self._folders, self._notes)
        self._folder_xattrs = {folder.path: folder.xattrs for folder in seen}
        refs, segments = [], {}
        for group in _grouped(seen):
            content = encode_segment([self._folder(folder) for folder in group])
            ident = chunk_id(content)
            refs.append(SegmentRef(first=group[0].path, id=ident))
            segments[ident] = content
        record = TreeRecord(
            name=self._tree.name,
            path=os.fsencode(self._tree.path.absolute()),
            only=tuple(map(os.fsencode, self._tree.only)),
            skip=tuple(map(os.fsencode, self._tree.skip)),
            uid=self._top.st_uid,
            gid=self._top.st_gid,
            top=self._entry(b"", b"", FOLDER, self._top, xattrs=self._folder_xattrs.get(b"", ())),
            files=self._files,
            size=self._bytes,
            segments=tuple(refs),
        )
        return record, segments

    def _folder(self, folder: SeenFolder) -> Folder:
        self._proceed()
        found = (self._one(folder.path, seen) for seen in folder.entries)
        return Folder(path=folder.path, entries=tuple(entry for entry in found if entry))

    def _one(self, folder: bytes, seen: Seen) -> Entry | None:
        path = join(folder, seen.name)
        kind = stat.S_IFMT(seen.stat.st_mode)
        if kind == stat.S_IFDIR:
            return self._entry(seen.name, path, FOLDER, seen.stat, xattrs=self._folder_xattrs.get(path, ()))
        self._files += 1
        if kind == stat.S_IFLNK:
            entry = self._link(folder, seen, path)
        else:
            earlier = self._first_names.get((seen.stat.st_dev, seen.stat.st_ino)) if seen.stat.st_nlink > 1 else None
            if earlier is not None:
                return Entry(name=seen.name, kind=HARD, target=earlier)
            entry = self._file(folder, seen, path)
        if entry is None:
            self._files -= 1
        return entry

    def _link(self, folder: bytes, seen: Seen, path: bytes) -> Entry | None:
        try:
            target = os.readlink(seen.name, dir_fd=self._folders.at(folder))
        except OSError:
            self._notes.warn(f"{shown(self._tree.name, path)} vanished while it was being captured")
            return None
        return self._entry(seen.name, path, LINK, seen.stat, target=target)

    def _file(self, folder: bytes, seen: Seen, path: bytes) -> Entry | None:
        name, tree = seen.name, self._tree.name
        found = self._cache.find(tree, folder, name, seen.stat)
        if found and all(self._sink.knows(piece.id) for piece in found.pieces if piece.id):
            self._cache.keep(tree, folder, name, found)
            note_left(tree, path, found.left, self._notes)
            now, size, pieces, xattrs = seen.stat, found.size, found.pieces, found.xattrs
        else:
            self._proceed()
            try:
                folder_fd = self._folders.at(folder)
            except OSError:
                self._notes.warn(f"{shown(tree, path)} vanished while it was being captured")
                return None
            content = read_file(folder_fd, name, tree, path, self._sink, self._notes)
            if content is None:
                return None
            self._cache.learn(tree, folder, name, content)
            note_left(tree, path, content.left, self._notes)
            now, size, pieces, xattrs = content.stat, content.size, content.pieces, content.xattrs
        if now.st_nlink > 1:
            self._first_names[now.st_dev, now.st_ino] = path
        self._bytes += size
        return self._entry(name, path, FILE, now, size=size, pieces=pieces, xattrs=xattrs)

    def _entry(
        self,
        name: bytes,
        path: bytes,
        kind: str,
        seen: os.stat_result,
        size: int = 0,
        pieces: tuple[Piece, ...] = (),
        target: bytes = b"",
        xattrs: tuple[Xattr, ...] = (),
    ) -> Entry:
        return Entry(
            name=name,
            kind=kind,
            mode=0 if kind == LINK else stat.S_IMODE(seen.st_mode),
            mtime_ns=seen.st_mtime_ns,
            size=size,
            uid=None if seen.st_uid == self._top.st_uid else seen.st_uid,
            gid=None if seen.st_gid == self._top.st_gid else seen.st_gid,
            pieces=pieces,
            target=target,
            xattrs=xattrs,
        )


def _grouped(seen: list[SeenFolder]) -> Iterator[list[SeenFolder]]:
    """Cuts where the folders' own names say so, so that the cuts stay where they are when other folders come and go."""
    group: list[SeenFolder] = []
    entries = 0
    for folder in seen:
        if group and (zlib.crc32(folder.path) & _CUT_MASK == 0 or entries > SEGMENT_ENTRIES_MAX):
            yield group
            group, entries = [], 0
        group.append(folder)
        entries += len(folder.entries)
    if group:
        yield group
