"""Brings a checkpoint's folders back, whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from bide.snapshots.blobs.base import BlobStore, Missing
from bide.snapshots.folders import Folders, names_in, remove
from bide.snapshots.losses import BadFolder, Damaged, Lost, Notes
from bide.snapshots.packs import chunks_of
from bide.snapshots.root import Root, open_root
from bide.snapshots.verify import Needs, itemised, needed_packs, needs_of, unlisted
from bide.snapshots.write import Slot, Writer

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Restored(Struct, frozen=True, kw_only=True):
    """What was brought back. `warnings` names what this machine or file system could not take."""

    files: int
    bytes: int
    seconds: float
    warnings: tuple[str, ...]


def restore(
    root: str,
    blobs: BlobStore,
    targets: Mapping[str, Path],
    owner: tuple[int, int] | None = None,
    clean: bool = True,
) -> Restored:
    """Restores the named trees of a checkpoint, each to its target folder.

    Everything is written to a folder beside the target and moved into place when all of it is right, so a target is
    either as before or complete. A target with something in it is replaced as a whole; without `clean` it is
    refused. As root, entries of the tree's owner are given to `owner` (uid, gid), or to root when None; entries of
    other users keep their ids. As another user everything belongs to that user.

    Raises `Missing` (no such root), `Damaged` (itemised), `Hostile`, `BadFolder` or `Unavailable`.
    """
    started = time.monotonic()
    opened = open_root(root, blobs)
    needs = _checked(opened, blobs, targets)
    notes = Notes()
    for target in targets.values():
        _check_target(target, clean)
    with ExitStack() as stack:
        staged = {tree: _Staged(target, stack) for tree, target in targets.items()}
        writers = {
            tree: Writer(stack.enter_context(folder.open()), opened.trees[tree], needs.folders[tree], owner, notes)
            for tree, folder in staged.items()
        }
        try:
            _write(opened, needs, blobs, writers)
        except OSError as error:
            raise BadFolder(", ".join(map(str, targets.values())), f"writing failed: {error.strerror}") from error
        for folder in staged.values():
            folder.move_into_place()
    records = [opened.trees[tree] for tree in targets]
    return Restored(
        files=sum(record.files for record in records),
        bytes=sum(record.size for record in records),
        seconds=time.monotonic() - started,
        warnings=notes.warnings,
    )


def _checked(opened: Root, blobs: BlobStore, targets: Mapping[str, Path]) -> Needs:
    """What the trees need, all of it there as far as can be known without reading it."""
    absent = [tree for tree in targets if tree not in opened.trees]
    if absent:
        raise Damaged(Lost(what=tree, bytes=0, reason="the checkpoint has nothing of this name") for tree in absent)
    needs = needs_of(opened, targets)
    reasons = unlisted(opened, needs.wanted)
    for row in needed_packs(opened, needs.wanted):
        if not blobs.has(row.key):
            reasons |= {ident: "its object is missing" for ident in needs.wanted if _is_in(opened, ident, row.key)}
    items = [*needs.lost, *itemised(needs, reasons)]
    if items:
        raise Damaged([*opened.faults, *items])
    return needs


def _is_in(opened: Root, ident: bytes, key: str) -> bool:
    return ident in opened.places and opened.places[ident].pack.key == key


def _write(opened: Root, needs: Needs, blobs: BlobStore, writers: Mapping[str, Writer]) -> None:
    places: dict[bytes, list[tuple[Writer, Slot]]] = {}
    for writer in writers.values():
        writer.lay_out()
        for ident, slot in writer.slots():
            places.setdefault(ident, []).append((writer, slot))
    reasons: dict[bytes, str] = {}
    for row in needed_packs(opened, places):
        try:
            content = blobs.get(row.key)
        except Missing:
            content = b""
        here = {ident for ident in places if _is_in(opened, ident, row.key)}
        for frame in row.frames:
            for ident, chunk, reason in chunks_of(content, frame, here):
                if chunk is None:
                    reasons[ident] = reason if content else "its object is missing"
                    continue
                for writer, slot in places.pop(ident, ()):
                    writer.fill(slot, chunk)
    if reasons or places:
        left = {ident: reasons.get(ident, "its content is nowhere") for ident in places}
        raise Damaged(itemised(needs, left))
    for writer in writers.values():
        writer.finish()


def _check_target(target: Path, clean: bool) -> None:
    if target.name in ("", ".."):
        raise BadFolder(str(target), "it has no name of its own")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = os.lstat(target).st_mode
        if not stat.S_ISDIR(mode):
            raise BadFolder(str(target), "it is no folder")
        if not clean and any(target.iterdir()):
            raise BadFolder(str(target), "it is not empty")
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadFolder(str(target), error.strerror or str(error)) from error


class _Staged:
    """A folder in the making beside its target; whatever is left of it when the stack unwinds is removed."""

    def __init__(self, target: Path, stack: ExitStack) -> None:
        self._target = target
        self._name = os.fsencode(target.name)
        try:
            self._parent_fd = os.open(target.parent, _OPEN)
        except OSError as error:
            raise BadFolder(str(target), error.strerror or str(error)) from error
        stack.callback(os.close, self._parent_fd)
        self._remove_leftovers()
        mark = secrets.token_hex(4).encode()
        self._staging = b".%s.restoring-%s" % (self._name, mark)
        self._replaced = b".%s.replaced-%s" % (self._name, mark)
        os.mkdir(self._staging, 0o700, dir_fd=self._parent_fd)
        stack.callback(remove, self._parent_fd, self._replaced)
        stack.callback(remove, self._parent_fd, self._staging)

    def open(self) -> Folders:
        return Folders(os.open(self._staging, _OPEN | os.O_NOFOLLOW, dir_fd=self._parent_fd))

    def move_into_place(self) -> None:
        try:
            self._rename(self._name, self._replaced)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise BadFolder(str(self._target), f"it cannot be replaced: {error.strerror}") from error
        try:
            self._rename(self._staging, self._name)
        except OSError as error:
            self._rename(self._replaced, self._name)
            raise BadFolder(str(self._target), f"it cannot be replaced: {error.strerror}") from error

    def _rename(self, old: bytes, new: bytes) -> None:
        os.rename(old, new, src_dir_fd=self._parent_fd, dst_dir_fd=self._parent_fd)

    def _remove_leftovers(self) -> None:
        """What a restore left that was killed: it was never current, or was about to be replaced."""
        marks = (b".%s.restoring-" % self._name, b".%s.replaced-" % self._name)
        for name in names_in(self._parent_fd):
            if name.startswith(marks):
                remove(self._parent_fd, name)
