"""What was kept of one lease, folded: the shell's file is a list of `Keep`, and this is what it comes to."""

from __future__ import annotations

from collections import deque

from bide.core import facts as f
from bide.core.effects import Keep
from bide.core.kept import Kept, Left


class Spool:
    """One session's. `boot` names the process that kept it last."""

    def __init__(self, session: str) -> None:
        self.session, self.boot, self.epoch = session, "", 0
        self._facts: deque[tuple[int, int, f.RunnerFact]] = deque()  # epoch, n: those not acknowledged, in order
        self._telling, self._first = 0, 0
        self._kept: Kept | None = None

    def add(self, keep: Keep, boot: str) -> None:
        """The next thing that was kept."""
        if keep.epoch != self.epoch and not keep.adopted:
            self._facts.clear()
        self.boot, self.epoch, self._kept = boot, keep.epoch, keep.kept
        self._telling, self._first = keep.telling, keep.first
        self._facts += [(keep.epoch, n, fact) for n, fact in enumerate(keep.facts, keep.at)]
        while self._facts and self._facts[0][:2] < (keep.telling, keep.first):
            self._facts.popleft()

    def left(self) -> Left | None:
        """What a later process may take up; None where nothing was kept."""
        if self._kept is None:
            return None
        facts = tuple(fact for epoch, _, fact in self._facts if epoch == self._telling)
        return Left(
            session=self.session, epoch=self.epoch, boot=self.boot, of=self._telling, first=self._first, facts=facts,
            kept=self._kept,
        )  # fmt: skip

    def short(self) -> tuple[Keep, ...]:
        """As few records as come to the same."""
        if self._kept is None:
            return ()
        epochs = sorted({self._telling, self.epoch})
        return tuple(self._record(epoch, self._kept, adopted=epoch != epochs[0]) for epoch in epochs)

    def _record(self, epoch: int, kept: Kept, *, adopted: bool) -> Keep:
        of = {n: fact for each, n, fact in self._facts if each == epoch}
        at = min(of, default=self._first if epoch == self._telling else 0)
        return Keep(
            session=self.session, epoch=epoch, adopted=adopted, at=at, facts=tuple(of.values()), telling=self._telling,
            first=self._first, kept=kept,
        )  # fmt: skip
