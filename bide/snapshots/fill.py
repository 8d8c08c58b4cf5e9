"""Writes files and links of a checkpoint, divided among processes, and says what could not be had."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from bide.core import limits
from bide.snapshots import crew
from bide.snapshots.fetch import chunks_in, fetch
from bide.snapshots.index import Load
from bide.snapshots.losses import Stopped
from bide.snapshots.manifest import LINK
from bide.snapshots.plan import Job, Slot, Window, windows
from bide.snapshots.root import Root
from bide.snapshots.write import Remarks, Told, Writer

_FILE_COST = 40_000  # making a file takes as long as unpacking and writing so many bytes: measured

Hands = Callable[[Remarks], Mapping[str, Writer]]  # makes the writers, by tree


class _Done(Struct, frozen=True):
    reasons: dict[bytes, str]
    told: Told


class Filler:
    """`reasons` are the contents that cannot be had, as far as they were asked for."""

    def __init__(
        self, opened: Root, hands: Hands, remarks: Remarks, workers: int, stop: Callable[[], bool] | None = None
    ) -> None:
        self._opened, self._hands, self._remarks = opened, hands, remarks
        self._workers, self._stop = workers, stop
        self._process = os.getpid()
        self.reasons: dict[bytes, str] = {}

    def fill(self, jobs: Iterable[Job]) -> None:
        """Makes all of these. Raises `Unavailable`, `Hostile`, `BadFolder`, `Stopped`, OSError of the target."""
        writers = self._hands(self._remarks)
        dressed_last: list[Job] = []
        for window in windows(jobs):
            for tree, folder, entry in window.blank:
                writers[tree].blank(folder, entry)
            self._fill(window)
            dressed_last += window.blank
        for tree, folder, entry in dressed_last:
            writers[tree].dress_file(folder, entry)

    def _fill(self, window: Window) -> None:
        loads = window.loads(self._opened)
        known = {part.id for load in loads for part in load.parts}
        self.reasons |= {ident: self._opened.index.reason() for ident in window.slots if ident not in known}

        def work(share: tuple[Sequence[Load], Sequence[Job]]) -> _Done:
            if os.getpid() != self._process:
                os.umask(0)  # so that files are made with their modes; here are no other threads to mind
            said = Remarks()
            writers = self._hands(said)
            reasons = self._write(writers, share[0], window.slots)
            for job in share[1]:
                _bare(writers, job)
            return _Done(reasons, said.told())

        bad: dict[bytes, str] = {}
        for done in crew.each(work, self._shares(window, loads), _Done, self._stop):
            bad |= done.reasons
            self._remarks.take(done.told)
        if bad:
            self.reasons |= self._elsewhere(window, bad)

    def _elsewhere(self, window: Window, bad: Mapping[bytes, str]) -> dict[bytes, str]:
        """Looks for contents in all packs once more, since they may lie in several."""
        left = dict(bad)
        self._write(self._hands(self._remarks), self._opened.index.loads(left), window.slots, left)
        return left

    def _write(
        self,
        writers: Mapping[str, Writer],
        loads: Iterable[Load],
        slots: Mapping[bytes, Sequence[Slot]],
        left: dict[bytes, str] | None = None,
    ) -> dict[bytes, str]:
        reasons: dict[bytes, str] = {}
        for got in fetch(loads, self._opened.blobs):
            if self._stop and self._stop():
                raise Stopped
            for ident, content, reason in chunks_in(got, self._opened.keys.chunks):
                if content is None:
                    reasons[ident] = reason
                    continue
                if left is not None:
                    if ident not in left:
                        continue
                    del left[ident]
                for tree, folder, entry, at in slots[ident]:
                    if at < 0:
                        writers[tree].whole(folder, entry, content)
                    else:
                        writers[tree].piece(folder, entry, at, content)
        return reasons

    def _shares(self, window: Window, loads: list[Load]) -> list[tuple[Sequence[Load], Sequence[Job]]]:
        def cost(load: Load) -> int:
            places = (len(window.slots[part.id]) * (_FILE_COST + part.length) for part in load.parts)
            return load.row.raw + sum(places)

        small = window.size < limits.RESTORE_FORK_MIN and sum(map(cost, loads)) < limits.RESTORE_FORK_MIN << 20
        count = 1 if small else max(1, self._workers)
        parts = crew.shared(loads, cost, count)
        bare = crew.shared(window.bare, lambda _: 1, count)
        return list(_paired(parts, bare))


def _paired(loads: list[Sequence[Load]], bare: list[Sequence[Job]]) -> Iterator[tuple[Sequence[Load], Sequence[Job]]]:
    for n in range(max(len(loads), len(bare))):
        yield (loads[n] if n < len(loads) else (), bare[n] if n < len(bare) else ())


def _bare(writers: Mapping[str, Writer], job: Job) -> None:
    tree, folder, entry = job
    if entry.kind == LINK:
        writers[tree].link(folder, entry)
    else:
        writers[tree].whole(folder, entry, b"")
