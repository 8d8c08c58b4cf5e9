"""One tree of a capture: walked, compared with what is remembered of it, and laid out into segments."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress

from msgspec import Struct
from msgspec.structs import replace

from bide.core import limits
from bide.snapshots.content import holes_of
from bide.snapshots.folders import Folders, join
from bide.snapshots.groups import grouped, later_names
from bide.snapshots.known import Known
from bide.snapshots.losses import BadFolder, Notes, shown
from bide.snapshots.manifest import Entry, SegmentRef, TreeRecord, data_bytes
from bide.snapshots.mapped import distrust_mapped
from bide.snapshots.scan import Seen, Tree, Walked, entries_in, open_tree, seen_of
from bide.snapshots.scan_shared import scan_shared
from bide.snapshots.statcache import Keeping, Kept, Memory, Remembered, head_of
from bide.snapshots.take import Made, Old, Subject


class Part(Struct, frozen=True):
    """A segment of the new checkpoint: `kept.uses` are numbers of the lineage, `content` its bytes unless it is the
    `old` one that is remembered.
    """

    kept: Kept
    content: bytes = b""
    old: int = -1
    warnings: tuple[str, ...] = ()


class Survey:
    """`groups` are the folders of each segment; those that are settled already stand in `parts`."""

    def __init__(
        self, tree: Tree, memory: Memory, numbers: Mapping[int, int], notes: Notes, proceed: Callable[[], None],
        stop: Callable[[], bool] | None, workers: int, stack: ExitStack, stood: Walked | None = None,
    ) -> None:  # fmt: skip
        """`numbers` leads from the memory's packs to those of the lineage. `stood`: the tree as it was then is meant, and
        nothing that was changed since. Raises `BadFolder`.
        """
        self.tree = tree
        self.folders = stack.enter_context(Folders(open_tree(tree)))
        self.top = os.fstat(self.folders.at(b""))
        self.head = head_of(tree, self.top)
        self.memory = memory.tree(self.head)
        before = self.memory.rows if self.memory else {}
        self.walked = stood or scan_shared(tree, self.folders, notes, before, proceed, stop, workers)
        self.walked.changed.update(_bereft(before, self.walked))
        if stood is None:
            distrust_mapped(self.walked, self.top.st_dev)
        self._past = stood is not None
        self.parts: dict[int, Part] = {}
        self._too_long: set[int] = set()
        relinked: frozenset[bytes] = frozenset()
        self._later_names: dict[bytes, bytes] | None = None
        self._lost: frozenset[bytes] = frozenset()
        self._rows: dict[bytes, bytes] = {}
        self._looked: dict[bytes, tuple[Seen, Seen | None]] = {}
        self._looked_bytes = 0
        self._old, self._numbers = Old(self.memory), numbers
        self._gone: set[int] = set()
        same = self.memory is not None and not self.walked.changed and len(before) == len(self.walked.folders)
        if self.memory is not None and same:
            self.groups = [self.memory.paths_of(n) for n in range(len(self.memory.segments))]
        else:
            self.groups = grouped(self.walked.folders)
            relinked = self._relinked(before)
        if self.memory is not None:
            self._keep(self.memory, numbers, self.walked.changed | relinked)

    @property
    def subject(self) -> Subject:
        """As takers need it."""
        return Subject(
            tree=self.tree, folders=self.folders, top=self.top, walked=self.walked, memory=self.memory,
            later_names=self.later_names, look=self.look, past=self._past,
        )  # fmt: skip

    @property
    def later_names(self) -> dict[bytes, bytes]:
        """Further names of files, and the name that comes first."""
        if self._later_names is None:
            self._later_names = later_names(self.walked.folders, self.walked.linked, self._lost)
        return self._later_names

    @property
    def open(self) -> list[int]:
        """The groups that are to be made."""
        return [n for n in range(len(self.groups)) if n not in self.parts]

    def settle(self, made: Made, ref: SegmentRef, uses: Iterable[int]) -> None:
        """Takes a segment that was made; one that no reader would take stays open, to be parted. `BadFolder` where it is of
        a single folder.
        """
        group = self.groups[made.group]
        names = sum(1 + entries_in(self.walked.folders[path]) for path in group)
        if names > limits.SEGMENT_NAMES_MAX or len(made.content) > limits.SEGMENT_BYTES_MAX:
            if len(group) == 1:
                what = "names" if names > limits.SEGMENT_NAMES_MAX else "attributes, links and long names"
                reason = f"there are more {what} in this one folder than a checkpoint can hold"
                raise BadFolder(shown(self.tree.name, group[0]), reason)
            self._too_long.add(made.group)
            return
        kept = Kept(
            ref.first, ref.id, len(made.content), len(self.groups[made.group]), made.files, made.size,
            tuple(sorted(uses)), made.notes, ref.chunks,
        )  # fmt: skip
        self.parts[made.group] = Part(kept, made.content, warnings=made.warnings)
        self._rows |= made.rows

    def part(self) -> None:
        """Makes of groups whose segments came out too long one for each folder."""
        if not self._too_long:
            return
        groups, parts = list[list[bytes]](), dict[int, Part]()
        for n, group in enumerate(self.groups):
            if n in self._too_long:
                groups += [[path] for path in group]
                continue
            if n in self.parts:
                parts[len(groups)] = self.parts[n]
            groups.append(group)
        self.groups, self.parts = groups, parts
        self._too_long.clear()

    def drop(self, gone: set[int]) -> None:
        """Takes back what lies in these packs."""
        self._gone |= gone
        self.parts = {n: part for n, part in self.parts.items() if gone.isdisjoint(part.kept.uses)}

    def lose(self, names: Iterable[bytes]) -> None:
        """These could not be read, so they lead no other names any more; takes back what relied on them."""
        before = self.later_names
        self._lost |= frozenset(names)
        self._later_names = None
        relinked = _folders_of(_differing(before, self.later_names))
        self.parts = {n: part for n, part in self.parts.items() if relinked.isdisjoint(self.groups[n])}

    def record(self) -> TreeRecord:
        """As it stands in the root."""
        kept = [self.parts[n].kept for n in range(len(self.groups))]
        return TreeRecord(
            name=self.tree.name,
            path=self.head.path,
            only=tuple(map(os.fsencode, self.tree.only)),
            skip=tuple(map(os.fsencode, self.tree.skip)),
            keep=tuple(map(os.fsencode, self.tree.keep)),
            uid=self.top.st_uid,
            gid=self.top.st_gid,
            files=sum(segment.files for segment in kept),
            size=sum(segment.size for segment in kept),
            segments=tuple(segment.ref for segment in kept),
        )

    def tell(self, notes: Notes) -> None:
        """Says what was found while reading."""
        for _, part in sorted(self.parts.items()):
            for path, reason in part.kept.notes:
                notes.leave(self.tree.name, path, reason)
            for warning in part.warnings:
                notes.warn(warning)

    def keeping(self, numbers: Mapping[int, int]) -> Keeping:
        """As it is to be remembered, with other numbers for the packs."""
        parts = [self.parts[n] for n in range(len(self.groups))]
        folders = self.walked.folders
        return Keeping(
            head=self.head,
            rows={path: self._rows.get(path, folders[path]) for group in self.groups for path in group},
            segments=[
                replace(part.kept, uses=tuple(sorted({numbers[use] for use in part.kept.uses}))) for part in parts
            ],
            content=lambda n: self._content(parts[n]),
        )

    def size(self) -> int:
        """About how many bytes its files hold, by what the system says of them; `holes` of them are not kept."""
        found = sum(part.kept.size for part in self.parts.values())
        for path in (path for group in self.open for path in self.groups[group]):
            seen = seen_of(self.walked.folders[path])
            found += sum(row.size for row in seen.rows if row.nlink < 2 and stat.S_ISREG(row.mode))
            if path in self.walked.linked:
                later = self.later_names
                linked = ((name, row) for name, row in seen.by_name().items() if row.nlink > 1)
                found += sum(
                    row.size for name, row in linked if stat.S_ISREG(row.mode) and join(path, name) not in later
                )
        return found

    def holes(self) -> int:
        """How much of `size` is holes: each file that is to be read is looked at."""
        found = 0
        for path in (path for group in self.open for path in self.groups[group]):
            with suppress(OSError):  # a folder that is gone holds nothing
                for name, row in seen_of(self.walked.folders[path]).by_name().items():
                    later = row.nlink > 1 and join(path, name) in self.later_names
                    if row.size and stat.S_ISREG(row.mode) and not later:
                        found += holes_of(self.folders.at(path), name)
        return found

    def look(self, path: bytes) -> tuple[Seen, Seen | None]:
        """A folder as it stands, and as it is remembered. Those looked at first are held: each is asked for twice."""
        found = self._looked.get(path)
        if found is None:
            before = self.memory.rows.get(path) if self.memory else None
            found = seen_of(self.walked.folders[path]), None if before is None else seen_of(before)
            if before is not None and self._looked_bytes + len(before) <= limits.LOOKED_BYTES:
                self._looked[path] = found
                self._looked_bytes += len(before)
        return found

    def cost(self, group: int, known: Known) -> int:
        """About how many bytes it would take to make the segment, an entry counting as much as its bookkeeping. What is
        not `known` any more has to be read again.
        """
        found = 0
        for path in self.groups[group]:
            if path in self.walked.changed:
                seen, was = self.look(path)
                if was and was.names == seen.names:
                    rows = [row for row, old in zip(seen.rows, was.rows, strict=True) if row != old]
                else:
                    same = set(was.rows) if was else set()
                    rows = [row for row in seen.rows if row not in same]
                found += sum(row.size for row in rows) + len(rows) * limits.ENTRY_COST_BYTES
            lost = [entry for entry in self._in_doubt(path) if None in known.packs_of(entry.ids)]
            found += data_bytes(lost) + len(lost) * limits.ENTRY_COST_BYTES
        return found

    def _in_doubt(self, path: bytes) -> tuple[Entry, ...]:
        """What a folder held, where some of it may lie in packs that are not built upon."""
        n = self._old.segment_of(path)
        if self.memory is None or n < 0:
            return ()
        uses = self.memory.segments[n].uses
        if all(use in self._numbers and self._numbers[use] not in self._gone for use in uses):
            return ()
        old = self._old.folder(path)
        return old.entries if old else ()

    def _content(self, part: Part) -> bytes:
        return part.content if part.old < 0 or self.memory is None else self.memory.content(part.old)

    def _keep(self, memory: Remembered, numbers: Mapping[int, int], unsettled: set[bytes]) -> None:
        by_first = {kept.first: n for n, kept in enumerate(memory.segments)}
        for n, group in enumerate(self.groups):
            old = by_first.get(group[0], -1)
            if old < 0 or not unsettled.isdisjoint(group) or memory.paths_of(old) != group:
                continue
            kept = memory.segments[old]
            if all(use in numbers for use in kept.uses):
                self.parts[n] = Part(replace(kept, uses=tuple(numbers[use] for use in kept.uses)), old=old)

    def _relinked(self, before: Mapping[bytes, bytes]) -> frozenset[bytes]:
        """Folders that look as before although a name in them now leads, or follows, another one elsewhere."""
        calm = self.walked.linked - self.walked.changed
        if not calm:
            return frozenset()
        moved = {path for path in before if path in self.walked.changed or path not in self.walked.folders}
        was = later_names(before, calm | moved, frozenset())
        return _folders_of(_differing(was, self.later_names)) & calm


def _bereft(before: Mapping[bytes, bytes], walked: Walked) -> set[bytes]:
    """Folders that may look as before although one that was in them is gone: it went after they were looked at."""
    above = {path.rpartition(b"/")[0] for path in before.keys() - walked.folders.keys()}
    return above & walked.folders.keys()


def _differing(one: Mapping[bytes, bytes], other: Mapping[bytes, bytes]) -> Iterable[bytes]:
    return (full for full in one.keys() | other.keys() if one.get(full) != other.get(full))


def _folders_of(names: Iterable[bytes]) -> frozenset[bytes]:
    return frozenset(full.rpartition(b"/")[0] for full in names)
