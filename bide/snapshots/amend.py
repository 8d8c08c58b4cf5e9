"""Decides, entry by entry, what it takes to make a tree what a checkpoint says; touches nothing."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from bide.core import limits
from bide.snapshots.folders import join
from bide.snapshots.losses import shown
from bide.snapshots.manifest import FILE, FOLDER, HARD, Entry, Folder
from bide.snapshots.plan import Job
from bide.snapshots.proof import Proof
from bide.snapshots.scan import UNSURE_NS, Row, seen_of, split
from bide.snapshots.standing import Difference

_Name = tuple[bytes, bytes]  # a folder, and a name in it


class Look(Struct, frozen=True):
    """What stands, or stood, in a folder: all but folders by name, and the names of folders."""

    own: Row | None
    rows: Mapping[bytes, Row]
    folders: frozenset[bytes]

    @classmethod
    def of(cls, content: bytes | None) -> Self:
        """From the bytes of a `Seen`; nothing from None."""
        if content is None:
            return cls(None, {}, frozenset())
        seen = seen_of(content)
        return cls(seen.own, seen.by_name(), frozenset(split(seen.folders)))


class Amendment:
    """What is to be done to one tree, in this order: `remove`, `make` (folders), `jobs`, `redress`, `hard`, `dress`.

    `healed` are entries that somebody changed since the tree was last saved or restored: nothing of them is trusted.
    """

    def __init__(self, difference: Difference, shared: frozenset[bytes], proof: Proof) -> None:
        """`shared` are folders that other trees of the same place have: they stay where this one has no use for them."""
        self._it, self._shared, self._proof = difference, shared, proof
        self._name = difference.standing.record.name
        self._kept: dict[bytes, Row] = {}  # files and links that stand as they should
        self.remove: list[_Name] = []
        self.make: list[bytes] = []
        self.jobs: list[Job] = []
        self.redress: list[tuple[bytes, Entry]] = []
        self.hard: list[tuple[bytes, Entry]] = []
        self.dress: dict[bytes, Folder] = {}
        self.healed: list[str] = []
        for path, folder in sorted(difference.wanted.items()):
            if path not in difference.same:
                self._amend(folder)
        self._link(difference)

    @property
    def nothing(self) -> bool:
        """Whether the tree stands as it should."""
        return not (self.remove or self.make or self.jobs or self.redress or self.hard or self.dress)

    @property
    def written(self) -> int:
        """How many entries are made or changed."""
        return len(self.jobs) + len(self.hard) + len(self.redress)

    @property
    def touched(self) -> frozenset[bytes]:
        """The paths of all files and links that are made or changed, and of those that get more names."""
        made = (join(folder, entry.name) for _, folder, entry in self.jobs)
        changed = (join(folder, entry.name) for folder, entry in (*self.redress, *self.hard))
        return frozenset((*made, *changed, *(entry.target for _, entry in self.hard)))

    def _amend(self, folder: Folder) -> None:
        path, walked = folder.path, self._it.standing.walked
        before = self._it.old.get(path)
        old = {entry.name: entry for entry in before.entries} if before else {}
        now = Look.of(walked.folders.get(path))
        was = Look.of(self._it.standing.memory.rows.get(path))
        if now.own is None:
            self.make.append(path)
        entries, gone = folder.entries, now.rows.keys() | now.folders
        if before and now.own and path not in walked.changed | walked.linked:  # only what the two checkpoints say
            entries = tuple(entry for entry in entries if old.get(entry.name) != entry)
            gone = set(old)
        touched = now.own is None
        for entry in entries:
            touched |= self._entry(path, entry, now, was, old.get(entry.name))
        for name in sorted(gone - {entry.name for entry in folder.entries}):
            touched = True
            if name not in was.rows and name not in was.folders:
                self._heal(join(path, name))
            self._clear(path, name, name in now.folders)
        bare = replace(folder, entries=())
        as_before = now.own == was.own or (_was_unsure(was.own, now.own) and self._proof.holds_folder(folder))
        if touched or not as_before or before is None or replace(before, entries=()) != bare:
            self.dress[path] = bare
            if now.own and was.own and was.own.ctime_ns and now.own.mode != was.own.mode:
                self._heal(path)

    def _entry(self, folder: bytes, entry: Entry, now: Look, was: Look, old: Entry | None) -> bool:
        """Whether anything is to be done about an entry of a folder."""
        name, full = entry.name, join(folder, entry.name)
        row = now.rows.get(name)
        if entry.kind == FOLDER:
            if row is not None:
                self.remove.append((folder, name))
            elif name in was.folders and name not in now.folders:
                self._heal(full)
            return row is not None
        if name in now.folders:
            self._clear(folder, name, is_folder=True)
            if name in was.rows:
                self._heal(full)
        before = was.rows.get(name)
        proved = old == entry and _was_unsure(before, row) and self._proof.holds(folder, entry)
        if row is not None and (row == before or proved):
            if old == entry:
                self._kept[full] = row
                if entry.kind == HARD:
                    self.hard.append((folder, entry))  # until it is known that it leads to the right file
                return False
            if old and row.nlink == 1 and row.mode & stat.S_IRUSR and _same_content(old, entry):
                self.redress.append((folder, entry))
                return True
        elif before is not None and (old == entry or not _was_unsure(before, row)):
            self._heal(full)
        if row is not None:
            self.remove.append((folder, name))
        if entry.kind == HARD:
            self.hard.append((folder, entry))
        else:
            self.jobs.append((self._name, folder, entry))
        return True

    def _clear(self, folder: bytes, name: bytes, is_folder: bool) -> None:
        """Takes away a name that is not wanted; of a folder that another tree has too, only what is this one's."""
        full = join(folder, name)
        if not is_folder or full not in self._shared:
            self.remove.append((folder, name))
            return
        now = Look.of(self._it.standing.walked.folders.get(full))
        for inner in sorted(now.rows.keys() | now.folders):
            self._clear(full, inner, inner in now.folders)

    def _link(self, difference: Difference) -> None:
        """Leaves alone the names of files whose names all stand as they should; the others are linked anew."""
        broken: set[bytes] = set()
        for folder, entry in self.hard:
            one, other = self._kept.get(join(folder, entry.name)), self._kept.get(entry.target)
            if one is None or other is None or (one.ino, one.dev) != (other.ino, other.dev):
                broken.add(entry.target)
        hard, self.hard = self.hard, []
        for folder, entry in hard:
            if entry.target in broken:
                self.hard.append((folder, entry))
                if join(folder, entry.name) in self._kept:
                    self.remove.append((folder, entry.name))
                self.dress[folder] = replace(difference.wanted[folder], entries=())

    def _heal(self, path: bytes) -> None:
        self.healed.append(shown(self._name, path))


def told(healed: list[str]) -> str:
    """A sentence about what had been changed; empty for nothing."""
    if not healed:
        return ""
    named = ", ".join(healed[: limits.HEALED_NAMED_MAX])
    more = len(healed) - limits.HEALED_NAMED_MAX
    entries = "entry was" if len(healed) == 1 else "entries were"
    return (
        f"{len(healed)} {entries} changed since the folder was last saved, and are as they should be again: {named}"
        + (f" and {more} more" if more > 0 else "")
    )


def _same_content(one: Entry, other: Entry) -> bool:
    return one.kind == other.kind == FILE and (one.ids, one.lengths, one.size) == (other.ids, other.lengths, other.size)


def _was_unsure(before: Row | None, now: Row | None) -> bool:
    """Whether a row was marked when it was remembered, because the file was too young to be sure of; it may be the same."""
    return (
        before is not None
        and now is not None
        and before.ctime_ns == UNSURE_NS
        and replace(now, ctime_ns=UNSURE_NS, nlink=before.nlink) == before
    )
