"""Makes the segments of a capture that are not settled, alone or together with children of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from bide.core import limits
from bide.core.keyring import Opening
from bide.snapshots import crew
from bide.snapshots.blobs.base import BlobStore
from bide.snapshots.content import cut_list
from bide.snapshots.known import Known
from bide.snapshots.lineage import Lineage
from bide.snapshots.manifest import SegmentRef, chunk_id
from bide.snapshots.packs import Packer, Written
from bide.snapshots.survey import Survey
from bide.snapshots.take import Made, Sink, Taker

Task = tuple[int, int]  # a tree, and a group of it


class _Share(Struct, frozen=True, array_like=True):
    """What one process made."""

    made: list[Made]
    written: list[Written]


class _List(Struct, frozen=True):
    """A segment, and where it lies: packs known before, and new ones."""

    ref: SegmentRef
    uses: set[int]
    fresh: tuple[int, ...]


class Reader(Struct, frozen=True, kw_only=True):
    """What reading needs beside the trees. `proceed` is called often and may raise to stop, `stop` says so as well."""

    blobs: BlobStore
    opening: Opening
    trusted_before_ns: int
    proceed: Callable[[], None]
    stop: Callable[[], bool] | None
    workers: int

    def read(self, surveys: Sequence[Survey], lineage: Lineage) -> list[Written]:
        """Settles every open group of these trees; gives the packs that were written, which stand in the lineage now."""
        tasks = [(tree, group) for tree, survey in enumerate(surveys) for group in survey.open]
        known = lineage.known()
        batches = _batches(tasks, surveys, known, self.workers) if self.workers > 1 else []
        shares = self._together(batches, surveys, known) if len(batches) > 1 else []
        own, lists = self._alone(
            [] if shares else tasks, [made for share in shares for made in share.made], surveys, known
        )
        places = [lineage.add(share.written) for share in (*shares, own)]
        listed = iter(lists)
        for share, first in zip((*shares, own), places, strict=True):
            for made in share.made:
                of_list = next(listed)
                uses = {*made.uses, *of_list.uses}
                uses |= {first + n for n in made.fresh} | {places[-1] + n for n in of_list.fresh}
                surveys[made.tree].settle(made, of_list.ref, uses)
        everything = [made for share in (*shares, own) for made in share.made]
        for tree, survey in enumerate(surveys):
            lost = [name for made in everything if made.tree == tree for name in made.lost]
            if lost:
                survey.lose(lost)
        return [pack for share in (*shares, own) for pack in share.written]

    def _alone(
        self, tasks: Sequence[Task], made_elsewhere: list[Made], surveys: Sequence[Survey], known: Known
    ) -> tuple[_Share, list[_List]]:
        """Makes these segments, and writes the lists of all, those made elsewhere first."""
        with self._packer() as packer:
            sink = Sink(packer, known, self.opening.chunks)
            found = list(self._made(tasks, surveys, sink))
            packer.end_pack()  # lists are read without contents, and name what is lost with a pack of these
            lists = [self._list(made, sink) for made in (*made_elsewhere, *(made for made, _ in found))]
            written = packer.finish()
        own = [replace(made, fresh=_places(packer, fresh)) for made, fresh in found]
        return _Share(own, written), [_List(ref, uses, _places(packer, fresh)) for ref, uses, fresh in lists]

    def _packer(self) -> Packer:
        return Packer(self.blobs, self.opening.family, self.proceed)

    def _made(self, tasks: Iterable[Task], surveys: Sequence[Survey], sink: Sink) -> Iterator[tuple[Made, list[bytes]]]:
        takers: dict[int, Taker] = {}
        for tree, group in tasks:
            if tree not in takers:
                takers[tree] = Taker(tree, surveys[tree].subject, sink, self.trusted_before_ns, self.proceed)
            yield takers[tree].make(group, surveys[tree].groups[group])

    def _list(self, made: Made, sink: Sink) -> tuple[SegmentRef, set[int], list[bytes]]:
        sink.begin()
        ids = [sink.add(part) for part in cut_list(made.content)]
        if len(ids) == 1:
            ref = SegmentRef(made.first, ids[0])
        else:
            ref = SegmentRef(made.first, chunk_id(made.content, self.opening.chunks), b"".join(ids))
        return ref, sink.uses, sink.fresh

    def _together(self, batches: list[list[Task]], surveys: Sequence[Survey], known: Known) -> list[_Share]:
        """Children of this process make what is in the batches."""

        def work(drawn: Iterator[int]) -> _Share:
            with self._packer() as packer:
                sink = Sink(packer, known, self.opening.chunks)
                found = list(self._made((task for batch in drawn for task in batches[batch]), surveys, sink))
                written = packer.finish()
            return _Share([replace(made, fresh=_places(packer, fresh)) for made, fresh in found], written)

        return crew.drawing(work, len(batches), self.workers, _Share, self.stop)


def _places(packer: Packer, fresh: Iterable[bytes]) -> tuple[int, ...]:
    return tuple({packer.place_of(ident) for ident in fresh})


def _batches(tasks: list[Task], surveys: Sequence[Survey], known: Known, workers: int) -> list[list[Task]]:
    """Neighbours together, about equal in cost; a single one when it would not pay to share."""
    costs = [surveys[tree].cost(group, known) for tree, group in tasks]
    total = sum(costs)
    if total < limits.CAPTURE_FORK_BYTES:
        return [tasks]
    most = total // min(workers * limits.CAPTURE_BATCHES, limits.DRAWN_MAX)
    batches: list[list[Task]] = []
    done = most
    for task, cost in zip(tasks, costs, strict=True):
        if done >= most:
            batches.append([])
            done = 0
        batches[-1].append(task)
        done += cost
    return batches
