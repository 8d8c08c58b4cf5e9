"""What one lease says to its runtime: words that open a turn, join it, take its place or stop it."""

from __future__ import annotations

from collections.abc import Callable

from bide.core import runtime as r
from bide.core.deliveries import Deliveries
from bide.core.outbox import Outbox
from bide.core.recovery import GO_ON
from bide.core.session import Pending
from bide.core.turns import Turns


class Steering:
    """Takes from the queue of deliveries what can be said now, one word at a time; `tell` says it."""

    def __init__(self, tell: Callable[[r.Order], None], outbox: Outbox, turns: Turns, deliveries: Deliveries) -> None:
        self._tell, self._receipt, self._turns, self._deliveries = tell, outbox.receipt, turns, deliveries

    def opens(self, pending: Pending) -> None:
        """A turn begins with this input."""
        turns = self._turns
        turns.begin((pending.id,))
        self._deliveries.tell(pending, "interrupt" if pending.id == turns.redirect else "next_turn", turns.n)
        turns.resumed_midway, turns.redirect = False, ""
        self._tell(r.Deliver(input_id=pending.id, text=pending.text, preamble=self._deliveries.preface()))

    def nudges(self, input_id: str) -> None:
        """A bide-authored word where nobody's input is due, so that a turn cut short is taken up again."""
        self._turns.resumed_midway = False
        self._turns.begin(())
        self._deliveries.preamble = self._deliveries.preamble or [GO_ON]
        self._tell(r.Deliver(input_id=input_id, text=self._deliveries.preface()))

    def joins(self, *, can_steer: bool) -> str:
        """Queued inputs that need not wait for the turn's end. Steers join it one by one: a runtime merges, or turns
        around, what it is told in one breath, so each waits until the word before it is taken. A redirect wants it
        stopped: its id, else "".
        """
        first = self._deliveries.queue[0]
        if first.delivery == "interrupt":
            self._turns.redirect = first.id
            return first.id
        if first.delivery == "steer" and can_steer and not self._turns.stopping and not self._deliveries.untaken:
            self._deliveries.tell(first, "steer", self._turns.n)
            self._tell(r.Steer(input_id=first.id, text=first.text))
        return ""

    def stops(self, order: Pending, *, idle: bool, works: bool) -> bool:
        """A person's interrupt, for a runtime that is idle, works, or neither; whether the turn is to be stopped."""
        turns = self._turns
        if order.drop_queued:
            self._deliveries.drop(order.seq)
        if order.turn and order.turn < turns.n + (not turns.open):
            self._receipt(order.id, "consumed", how=f"turn {order.turn} had ended already")
            return False
        turns.stopped_by(order.id)
        if not turns.open:
            if turns.left and idle:
                self._tell(r.Interrupt(request_id=order.id))
            self._receipt(order.id, "consumed", how=f"nothing was running{turns.clear()}")
            return False
        if works:  # else it is gone, or going: the turn is closed when that is known
            self._receipt(order.id, "delivered", how="interrupt", turn=turns.n)
        return works
