"""What differs between a tree in two checkpoints: lists that both have are passed over, so that it takes as long as it
differs much, not as long as it is large.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from bide.core.limits import DIFF_BYTES_MAX, DIFF_FOLDER_FILES
from bide.snapshots.folders import join
from bide.snapshots.losses import shown
from bide.snapshots.manifest import FILE, FOLDER, HARD, Entry, Folder
from bide.snapshots.patch import Text, patch
from bide.snapshots.reader import NotThere, Reader

Change = Literal["added", "removed", "changed"]
LeftOut = Literal["", "bytes", "lines"]
_GIT = b".git"  # git's own files change with every commit and say nothing that the files do not


class Changed(Struct, frozen=True, kw_only=True):
    """One path that differs. `old_mode` and `new_mode` are permission bits, None where there is nothing.

    `patch` is the whole difference as git writes it. There is none for a folder, where only such bits differ that git
    does not know, and for what is `left_out`: one side has too many `bytes`, or too many `lines` differ. A folder that
    came or went with many `files` is one line, as is one without any.
    """

    path: bytes
    change: Change
    kind: Literal["file", "folder", "link"]
    old_mode: int | None = None
    new_mode: int | None = None
    added: int = 0
    removed: int = 0
    size: int = 0
    files: int = 0
    binary: bool = False
    left_out: LeftOut = ""
    patch: bytes | None = None


class Side(Struct, frozen=True):
    """A tree of one of the two checkpoints."""

    reader: Reader
    tree: str


class _Twin(Struct, frozen=True):
    path: bytes
    before: Entry | None
    now: Entry | None


def diff(old: Side, new: Side, under: bytes = b"", after: bytes = b"") -> Iterator[Changed]:
    """The differences at `under` and below, by folder and then by name; with `after` those that come after that path.

    Times and owners do not count, and what is called .git is left out. `NotThere` when a side has no such tree.
    """
    return (one for one in looks(old, new, under, after) if one is not None)


def looks(old: Side, new: Side, under: bytes = b"", after: bytes = b"") -> Iterator[Changed | None]:
    """The same look by look, None where it found nothing: no step reads more than one file, or counts one folder."""
    whole: set[bytes] = set()
    for twin in _twins(old, new, under):
        if any(above in whole for above in _above(twin.path)):
            continue
        wanted = not after or _place(twin.path) > _place(after)
        for side, left, right in _sides(old, new, twin):
            entry = right or left
            if entry is None or entry.kind != FOLDER:
                found = _compared(old, new, twin.path, left, right) if wanted else None
            else:
                found = _folder(side, twin.path, "added" if right else "removed")
                if found is not None and _is_under(under, twin.path):
                    found = None  # it was asked for, so what is in it is told
                elif found is not None and found.files:
                    whole.add(twin.path)
            if wanted:
                yield found


def require_there(old: Side, new: Side, path: bytes) -> None:
    """Passes a path at which one of the two has something; `NotThere`."""
    if not (old.reader.has(old.tree, path) or new.reader.has(new.tree, path)):
        raise NotThere(new.tree, path, f"there is no {shown(new.tree, path)} in either checkpoint")


def _place(path: bytes) -> tuple[bytes, bytes]:
    folder, _, name = path.rpartition(b"/")
    return folder, name


def _above(path: bytes) -> Iterator[bytes]:
    while path:
        path = path.rpartition(b"/")[0]
        yield path


def _is_under(path: bytes, folder: bytes) -> bool:
    return not folder or path == folder or path.startswith(folder + b"/")


def _sides(old: Side, new: Side, twin: _Twin) -> Iterator[tuple[Side, Entry | None, Entry | None]]:
    """What to compare at one path: where a folder took another thing's place, each goes and comes on its own."""
    before, now = twin.before, twin.now
    if before and now and before.kind == now.kind == FOLDER:
        return
    if before and now and FOLDER in (before.kind, now.kind):
        yield old, before, None
        yield new, None, now
    else:
        yield new if now else old, before, now


def _twins(old: Side, new: Side, under: bytes) -> Iterator[_Twin]:
    """Entries that may differ, side by side."""
    for before, now in _pairs(old, new):
        folder = now or before
        assert folder is not None
        if _GIT in folder.path.split(b"/") or not (_is_under(folder.path, under) or _is_under(under, folder.path)):
            continue
        left = {entry.name: entry for entry in before.entries} if before else {}
        right = {entry.name: entry for entry in now.entries} if now else {}
        for name in sorted(left.keys() | right.keys()):
            path = join(folder.path, name)
            if left.get(name) == right.get(name) and right[name].kind != HARD:
                continue
            if name != _GIT and (_is_under(path, under) or _is_under(under, path)):
                yield _Twin(path, left.get(name), right.get(name))


def _pairs(old: Side, new: Side) -> Iterator[tuple[Folder | None, Folder | None]]:
    """The folders of lists that only one side has, side by side and by path."""
    left = ((folder, True) for folder in _own(old, new))
    right = ((folder, False) for folder in _own(new, old))
    waiting: Folder | None = None
    waiting_is_old = False
    for folder, is_old in merge(left, right, key=lambda found: found[0].path):
        if waiting is not None and waiting.path == folder.path:
            yield (waiting, folder) if waiting_is_old else (folder, waiting)
            waiting = None
            continue
        if waiting is not None:
            yield (waiting, None) if waiting_is_old else (None, waiting)
        waiting, waiting_is_old = folder, is_old
    if waiting is not None:
        yield (waiting, None) if waiting_is_old else (None, waiting)


def _own(side: Side, other: Side) -> Iterator[Folder]:
    known = {ref.id for ref in other.reader.tree(other.tree).segments}
    for at, ref in enumerate(side.reader.tree(side.tree).segments):
        if ref.id not in known:
            yield from side.reader.segment(side.tree, at)


def _folder(side: Side, path: bytes, change: Change) -> Changed | None:
    """A folder that is one line; None for one whose files are told one by one."""
    files = 0
    for folder in side.reader.walk(side.tree, path):
        files += sum(entry.kind != FOLDER for entry in folder.entries)
    return Changed(path=path, change=change, kind="folder", files=files) if not 0 < files < DIFF_FOLDER_FILES else None


def _compared(old: Side, new: Side, path: bytes, before: Entry | None, now: Entry | None) -> Changed | None:
    left, right = _resolved(old, path, before), _resolved(new, path, now)
    last = right or left
    assert last is not None
    same_kind = left is not None and right is not None and left.kind == right.kind
    if left and right and same_kind and _content_of(left) == _content_of(right) and left.mode == right.mode:
        return None
    made = Changed(
        path=path,
        change="changed" if left and right else "added" if right else "removed",
        kind="file" if last.kind == FILE else "link",
        old_mode=left.mode if left else None,
        new_mode=right.mode if right else None,
        size=last.size if last.kind == FILE else len(last.target),
    )
    if any(entry and entry.size > DIFF_BYTES_MAX for entry in (left, right)):
        return replace(made, left_out="bytes")
    was, text = _text(old, path, left), _text(new, path, right)
    if was == text:
        return made if left and right and left.mode != right.mode else None  # else cut into other chunks or holes
    return _patched(made, was, text)


def _patched(made: Changed, was: Text | None, text: Text | None) -> Changed:
    found = patch(made.path, was, text)
    if found is None:
        return replace(made, left_out="lines")
    return replace(made, added=found.added, removed=found.removed, binary=found.binary, patch=found.body)


def _resolved(side: Side, path: bytes, entry: Entry | None) -> Entry | None:
    """Of a hard link what it shares."""
    return side.reader.entry(side.tree, path) if entry and entry.kind == HARD else entry


def _content_of(entry: Entry) -> tuple[object, ...]:
    return entry.size, entry.ids, entry.lengths, entry.target


def _text(side: Side, path: bytes, entry: Entry | None) -> Text | None:
    if entry is None:
        return None
    if entry.kind != FILE:
        return Text(entry.target, "120000")
    content = b"".join(side.reader.content(side.tree, path, entry, 0, entry.size))
    return Text(content, "100755" if entry.mode & 0o100 else "100644")
