"""What stands in a folder of a checkpoint, page by page."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from bide.snapshots.folders import join
from bide.snapshots.manifest import FILE, FOLDER, HARD, Entry, Folder
from bide.snapshots.reader import NotThere, Reader

Kind = Literal["file", "folder", "link"]


class Listed(Struct, frozen=True, kw_only=True):
    """One entry by its path within the tree. `target` is a link's; `twin_of` is the other path of a file with several
    names.
    """

    path: bytes
    kind: Kind
    mode: int
    mtime_ns: int
    size: int = 0
    target: bytes = b""
    twin_of: bytes = b""


class Page(Struct, frozen=True, kw_only=True):
    """What is at a path: its kind, for a folder what stands in it, else itself. `next`: more comes after this name."""

    kind: Kind
    entries: tuple[Listed, ...]
    next: bytes = b""


def listed(reader: Reader, tree: str, path: bytes, after: bytes, limit: int) -> Page:
    """What is at `path`, of a folder's entries those after the name `after`; `NotThere` when nothing is."""
    try:
        folder = reader.folder(tree, path)
    except NotThere:
        if not path:
            raise
        above, _, name = path.rpartition(b"/")
        try:
            one = next((one for one in reader.folder(tree, above).entries if one.name == name), None)
        except NotThere:
            one = None
        if one is None:
            raise
        found = _entry(reader, tree, above, one)
        return Page(kind=found.kind, entries=(found,))
    rest = [entry for entry in folder.entries if entry.name > after]
    shown = tuple(_entry(reader, tree, path, entry) for entry in rest[:limit])
    return Page(kind="folder", entries=shown, next=rest[limit - 1].name if len(rest) > limit else b"")


def _entry(reader: Reader, tree: str, folder: bytes, entry: Entry) -> Listed:
    path = join(folder, entry.name)
    if entry.kind == FOLDER:
        return _folder(reader.folder(tree, path))
    if entry.kind in (FILE, HARD):
        content = reader.entry(tree, path)
        return Listed(
            path=path, kind="file", mode=content.mode, mtime_ns=content.mtime_ns, size=content.size,
            twin_of=entry.target,
        )  # fmt: skip
    return Listed(
        path=path, kind="link", mode=0o777, mtime_ns=entry.mtime_ns, size=len(entry.target), target=entry.target
    )


def _folder(folder: Folder) -> Listed:
    return Listed(path=folder.path, kind="folder", mode=folder.mode, mtime_ns=folder.mtime_ns)
