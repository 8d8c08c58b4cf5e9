"""The inputs of one lease on their way into the runtime: heard, told, found in its state, or in doubt."""

from __future__ import annotations

from collections.abc import Iterable

from bide.core.outbox import Outbox
from bide.core.saver import Saver
from bide.core.session import RUNTIME_INPUTS, Pending, delivery_order


class Deliveries:
    """`queue` waits to be told, in order of delivery; `untaken` was told and is not yet found in the runtime's state."""

    def __init__(self, outbox: Outbox, saver: Saver, preamble: Iterable[str]) -> None:
        self._receipt, self._saver = outbox.receipt, saver
        self.queue: list[Pending] = []
        self.untaken: dict[str, Pending] = {}
        self.preamble = list(preamble)  # bide's own words, told with the next input
        self.told: list[str] = []  # those of the turn under way, should they have to be told again
        self._heard: set[str] = set()

    def hear(self, inputs: Iterable[Pending]) -> list[Pending]:
        """Queues what the runtime is to be told; gives all that was not heard before."""
        fresh = [p for p in inputs if p.id not in self._heard]
        self._heard.update(p.id for p in fresh)
        self.queue += [p for p in fresh if p.type in RUNTIME_INPUTS]
        self.queue.sort(key=delivery_order)
        return fresh

    def adopt(self, untaken: Iterable[Pending], told: Iterable[str], settled: Iterable[str]) -> None:
        """What an earlier process told, and the inputs that it has said the last word about."""
        self.untaken = {p.id: p for p in untaken}
        self.told = list(told)
        self._heard.update(self.untaken, settled)

    def drop(self, before_seq: int) -> None:
        """Withdraws what was accepted before and not told."""
        for dropped in [p for p in self.queue if p.seq < before_seq]:
            self.queue.remove(dropped)
            self._receipt(dropped.id, "withdrawn", how="dropped by an interrupt", code="dropped")

    def tell(self, pending: Pending, how: str, turn: int) -> None:
        """It goes to the runtime now."""
        if pending in self.queue:
            self.queue.remove(pending)
        self.untaken[pending.id] = pending
        self._receipt(pending.id, "delivered", how=how, turn=turn)

    def preface(self) -> str:
        """The preamble of the turn that opens; the next one has none."""
        self.told, self.preamble = self.preamble, []
        return "\n".join(self.told)

    def took(self, input_id: str, how: str, turn: int) -> None:
        """The runtime's own state contains it."""
        self.untaken.pop(input_id, None)
        if input_id in self._heard and input_id not in self._saver.taken:
            self._saver.taken.append(input_id)
            self._saver.unsaved = True
            self._receipt(input_id, "consumed", how=how, turn=turn)

    def settle(self, memory: frozenset[str], how: str, turn: int) -> bool:
        """Inputs that the runtime's saved state contains are taken; whether there were any."""
        found = [p for p in (*self.untaken.values(), *self.queue) if p.id in memory]
        for pending in found:
            self.took(pending.id, how, turn)
        self.queue = [p for p in self.queue if p.id not in memory]
        return bool(found)

    def doubt(self, how: str) -> None:
        """Whether the runtime took what it was told cannot be known: never told again by itself."""
        for pending in self.untaken.values():
            self._receipt(pending.id, "unconfirmed", how=how)
        self.untaken.clear()

    def requeue(self) -> None:
        """Told to a process that died before taking them: safe to tell again."""
        for pending in self.untaken.values():
            self._receipt(pending.id, "accepted", how="the runtime ended before taking it; it is told again")
        if self.untaken:
            self.preamble, self.told = [*self.told, *self.preamble], []
        self.queue[:0] = self.untaken.values()
        self.untaken.clear()
