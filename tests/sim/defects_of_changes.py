"""Defects in what people say and think again about: each takes one rule away, and says what a user would lose by that."""

from __future__ import annotations

import pytest

from bide.core import changing, recovery, report
from bide.core import facts as f
from bide.core.deliveries import Deliveries
from bide.core.draft import Draft
from bide.core.session import Pending, undelivered
from tests.sim.planting import Bed

BED = Bed()


@BED.within(100)
def interrupts_drop_answers(patch: pytest.MonkeyPatch) -> None:
    """An answer is thrown away with the messages, its question stays closed, and nobody is asked again."""

    def drop(self: Deliveries, before_seq: int) -> None:
        for dropped in [p for p in self.queue if p.seq < before_seq]:
            self.queue.remove(dropped)
            self._receipt(dropped.id, "withdrawn", how="dropped by an interrupt", code="dropped")

    def drop_here(d: Draft, before_seq: int) -> None:
        for pending in undelivered(d.s):
            if pending.seq < before_seq:
                d.add(f.Receipt(input_id=pending.id, status="withdrawn", how="dropped by an interrupt", code="dropped"))

    patch.setattr(Deliveries, "drop", drop)
    patch.setattr(recovery, "drop", drop_here)


@BED.within(60)
def changes_made_without_asking_the_runner(patch: pytest.MonkeyPatch) -> None:
    """A message is called taken back, and the coding agent does what it says."""
    patch.setattr(changing, "_held", lambda s: False)


@BED.within(60)
def changes_forgotten_with_the_runner(patch: pytest.MonkeyPatch) -> None:
    """A message that a person takes back is in limbo for ever, once its runner is gone."""
    patch.setattr(recovery, "settle_changes", lambda d: None)


@BED.within(60)
def runners_deaf_to_changes(patch: pytest.MonkeyPatch) -> None:
    """A message says one thing in the log and another to the coding agent."""

    def confirms(self: Deliveries, order: Pending) -> None:
        if order.type == "user.edit":
            self._receipt(order.target, "accepted", how="changed", code="edited")

    patch.setattr(Deliveries, "change", confirms)


@BED.within(60)
def changes_never_settled(patch: pytest.MonkeyPatch) -> None:
    """Whoever takes a message back never hears what came of it, and a changed one reads as before."""
    patch.setattr(report, "heard", lambda d, receipt: None)


@BED.within(60)
def told_again_without_looking(patch: pytest.MonkeyPatch) -> None:
    """The coding agent does the same thing twice, because its runner died before it could say that it had begun."""
    settle = Deliveries.settle

    def blind(self: Deliveries, memory: frozenset[str], how: str, turn: int) -> bool:
        return settle(self, frozenset(), how, turn)

    patch.setattr(Deliveries, "settle", blind)
