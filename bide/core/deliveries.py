"""The inputs of one lease on their way into the runtime: heard, told, found in its state, or in doubt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from bide.core.outbox import Outbox
from bide.core.receipts import carried_out, dropped
from bide.core.saver import Saver
from bide.core.session import OWN_TURN, RUNTIME_INPUTS, Pending, delivery_order


class Deliveries:
    """`queue` waits to be told, in order of delivery; `untaken` was told and is not yet found in the runtime's state.

    `blocking` are the open questions that block: an answer closes its question, and one that is taken back opens it.
    """

    def __init__(self, outbox: Outbox, saver: Saver, preamble: Iterable[str], blocking: set[str]) -> None:
        self._receipt, self._record = outbox.receipt, outbox.record
        self._saver, self._blocking = saver, blocking
        self.queue: list[Pending] = []
        self.untaken = saver.told
        self.preamble = list(preamble)  # bide's own words, told with the next input
        self.told: list[str] = []  # those of the turn under way, should they have to be told again
        self._heard: set[str] = set()
        self._doubted: set[str] = set()
        self._retold: set[str] = set()  # a second time a turn ended without them
        self._orders: dict[str, Pending] = {}  # about what is untaken, should the runtime never take it

    def hear(self, inputs: Iterable[Pending]) -> list[Pending]:
        """Queues what the runtime is to be told; gives all that was not heard before."""
        fresh = [p for p in inputs if p.id not in self._heard]
        self._heard.update(p.id for p in fresh)
        for pending in fresh:
            if pending.type in RUNTIME_INPUTS:
                self._blocking.discard(pending.question_id)
                self._queue(pending)
        return fresh

    def adopt(self, untaken: Iterable[Pending], told: Iterable[str], said: Mapping[str, str]) -> None:
        """What an earlier process told, and the last word that it has said about each input."""
        self.untaken.update((p.id, p) for p in untaken)
        self.told = list(told)
        self._heard.update(self.untaken, (i for i, status in said.items() if status != "accepted"))
        self._doubted.update(i for i, status in said.items() if status == "unconfirmed")

    def change(self, order: Pending) -> None:
        """An order about another input. It counts where the runtime was not told, or a person settles a doubt; else its
        target's receipts tell why not.
        """
        target = order.target
        if order.type == "user.resolve":
            if order.choice == "again" and (target in self._doubted or target not in self._heard):
                self._carry_out(order)
        elif target in self.untaken:
            self._orders[target] = order
        elif target not in self._heard or any(p.id == target for p in self.queue):
            self._carry_out(order)

    def _carry_out(self, order: Pending) -> None:
        target = order.target
        self.queue = [p for p in self.queue if p.id != target]
        self._heard.add(target)
        self._doubted.discard(target)
        if order.type == "user.withdraw":
            if order.blocking:
                self._blocking.add(order.question_id)
            self._record(carried_out(order))
            return
        kind = "user.answer" if order.question_id else "user.message"
        self._queue(replace(order, id=target, type=kind, seq=order.target_seq, target="", target_seq=0, choice=""))
        self._record(carried_out(order))

    def _queue(self, pending: Pending) -> None:
        self.queue.append(pending)
        self.queue.sort(key=delivery_order)

    def drop(self, before_seq: int) -> None:
        """Withdraws the messages that were accepted before and not told. Answers stay: nobody is asked again."""
        for pending in [p for p in self.queue if p.seq < before_seq and p.type == "user.message"]:
            self.queue.remove(pending)
            self._record(dropped(pending.id))

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

    def took(self, input_id: str, how: str, turn: int, *, alone: bool = False) -> None:
        """The runtime's own state contains it. `alone`: the turn had no room for it any more, it began another."""
        self.untaken.pop(input_id, None)
        self.queue = [p for p in self.queue if p.id != input_id]  # it was to be told again, and is taken after all
        self._orders.pop(input_id, None)
        self._doubted.discard(input_id)
        if input_id in self._heard and input_id not in self._saver.taken:
            self._saver.taken.append(input_id)
            self._saver.unsaved = True
            how, code = ("next_turn", OWN_TURN) if alone else (how, "")
            self._receipt(input_id, "consumed", how=how, turn=turn, code=code)

    def settle(self, memory: frozenset[str], how: str, turn: int) -> bool:
        """Inputs that the runtime's saved state contains are taken; whether there were any."""
        found = [p for p in (*self.untaken.values(), *self.queue) if p.id in memory]
        for pending in found:
            self.took(pending.id, how, turn)
        return bool(found)

    def find(self, told: Iterable[str], memory: frozenset[str], how: str, turn: int) -> None:
        """Of inputs that were on their way when a checkpoint was begun, its conversation contains these: whatever became of
        them since on another line, here they are taken.
        """
        for input_id in [i for i in told if i in memory and i not in self._heard]:
            self._heard.add(input_id)
            self.took(input_id, how, turn)

    def doubt(self, how: str) -> None:
        """Whether the runtime took what it was told cannot be known: never told again by itself."""
        for input_id in list(self.untaken):
            self._doubt(input_id, how)

    def _doubt(self, input_id: str, how: str) -> None:
        del self.untaken[input_id]
        self._orders.pop(input_id, None)
        self._doubted.add(input_id)
        self._receipt(input_id, "unconfirmed", how=how)

    def requeue(self, how: str = "the runtime ended before taking it; it is told again") -> None:
        """Told, and never taken for certain: safe to tell again, unless somebody has changed that meanwhile."""
        orders = [self._orders.pop(i) for i in self.untaken if i in self._orders]
        changed = {order.target for order in orders}
        again = [p for p in self.untaken.values() if p.id not in changed]
        for pending in again:
            self._receipt(pending.id, "accepted", how=how)
        if self.untaken:
            self.preamble, self.told = [*self.told, *self.preamble], []
        self.queue[:0] = again
        self.untaken.clear()
        for order in orders:
            self._carry_out(order)

    def recall(self, memory: frozenset[str] | None, turn: int, *, again: bool) -> None:
        """The turn is over, and this is what the runtime's state contains; None: nobody can read it. What it does not
        contain was never seen, and is told once more if the turn was not stopped.
        """
        if memory is None:
            self.doubt("the turn ended, and its state cannot be read")
            return
        self.settle(memory, "found in its conversation", turn)
        for input_id in [i for i in self.untaken if not again or i in self._retold]:
            self._doubt(input_id, "the turn ended, and its state does not show the input")
        self._retold.update(self.untaken)
        self.requeue("the turn ended, and its conversation does not contain it; it is told again")
