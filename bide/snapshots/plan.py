"""What it takes to bring entries of a checkpoint back: a part at a time, in the order in which contents lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from bide.core import limits
from bide.snapshots.folders import join
from bide.snapshots.index import Load, Part
from bide.snapshots.losses import Hostile, shown
from bide.snapshots.manifest import FILE, FOLDER, HARD, HASH_SIZE, Entry, Folder
from bide.snapshots.root import Root

Job = tuple[str, bytes, Entry]  # tree, folder, a file or a link to be made
Slot = tuple[str, bytes, Entry, int]  # the same, and where in the file the content goes; -1: it is all of it


class Outline(Struct, frozen=True):
    """A tree without its contents: `folders` by path, without entries; `hard` are links to files, with their folders."""

    tree: str
    folders: list[Folder]
    hard: list[tuple[bytes, Entry]]
    files: int
    bytes: int


class Window:
    """A part of the work. `slots` are the places of each content, `bare` needs none, `blank` has many: it is made first."""

    def __init__(self) -> None:
        self.slots: dict[bytes, list[Slot]] = {}
        self.bare: list[Job] = []
        self.blank: list[Job] = []
        self.size = 0

    def want(self, ident: bytes, slot: Slot) -> None:
        """One more place for a content."""
        self.slots.setdefault(ident, []).append(slot)
        self.size += 1

    def loads(self, opened: Root) -> list[Load]:
        """The frames to read, each content in one of them. `Hostile` for a content that does not fit its place."""
        left, found = set(self.slots), list[Load]()
        for load in opened.index.loads(left):
            parts: list[Part] = []
            for part in load.parts:
                if part.id in left:
                    left.discard(part.id)
                    parts.append(part)
                    for slot in self.slots[part.id]:
                        _check_length(part, slot)
            found.append(Load(load.pack, load.n, parts))
        return found


def outline(opened: Root, tree: str) -> Outline:
    """Reads all lists of a tree, checked: nothing may be written before. Raises `Damaged`, `Hostile`."""
    folders: list[Folder] = []
    hard: list[tuple[bytes, Entry]] = []
    files = size = 0
    for segment in opened.segments(tree):
        for folder in segment:
            folders.append(replace(folder, entries=()))
            for entry in folder.entries:
                if entry.kind == FOLDER:
                    continue
                files += 1
                size += entry.size
                if entry.kind == HARD:
                    hard.append((folder.path, entry))
    return Outline(tree, folders, hard, files, size)


def jobs_of(opened: Root, trees: Iterable[str]) -> Iterator[Job]:
    """All files and symbolic links of these trees, whose lists were checked."""
    for tree in trees:
        for segment in opened.segments(tree, checked=False):
            for folder in segment:
                for entry in folder.entries:
                    if entry.kind not in (FOLDER, HARD):
                        yield tree, folder.path, entry


def check_apart(opened: Root, trees: list[str]) -> None:
    """Trees that share a folder may share folders in it, and nothing else; `Hostile`. Their lists were checked."""
    before: dict[bytes, bool] = {}
    for tree in trees if len(trees) > 1 else ():
        found = {
            join(folder.path, entry.name): entry.kind == FOLDER
            for segment in opened.segments(tree, checked=False)
            for folder in segment
            for entry in folder.entries
        }
        for path, is_folder in found.items():
            if path in before and not (is_folder and before[path]):
                raise Hostile(shown(tree, path), "another tree of the same folder has it too")
        before |= found


def windows(jobs: Iterable[Job]) -> Iterator[Window]:
    """The work in parts that bound the memory. A file of many chunks may go through several."""
    window = Window()
    for job in jobs:
        tree, folder, entry = job
        if entry.kind != FILE or not entry.size:
            window.bare.append(job)
            window.size += 1
        elif not entry.lengths:
            window.want(entry.ids, (tree, folder, entry, -1))
        else:
            window.blank.append(job)
            at = taken = 0
            for length in entry.lengths:
                if length > 0:
                    window.want(entry.ids[taken : taken + HASH_SIZE], (tree, folder, entry, at))
                    taken += HASH_SIZE
                    if window.size >= limits.RESTORE_WINDOW:
                        yield window
                        window = Window()
                at += abs(length)
        if window.size >= limits.RESTORE_WINDOW:
            yield window
            window = Window()
    if window.size or window.blank:
        yield window


def unlisted_jobs(opened: Root, jobs: Iterable[Job]) -> dict[bytes, str]:
    """The contents for these that lie in no pack, with the reason."""
    missing: set[bytes] = set()
    for window in windows(jobs):
        left = set(window.slots)
        for load in opened.index.loads(left) if left else ():
            left.difference_update(part.id for part in load.parts)
        missing |= left
    return dict.fromkeys(missing, opened.index.reason()) if missing else {}


def _check_length(part: Part, slot: Slot) -> None:
    tree, folder, entry, at = slot
    fine = part.length == entry.size if at < 0 else part.length in entry.lengths and at + part.length <= entry.size
    if not fine:
        raise Hostile(shown(tree, join(folder, entry.name)), "a chunk of it is not as long as the list says")
