"""A lease's facts on their way to the server: numbered, kept until acknowledged, sent again after a while."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any

import msgspec

from bide.core import facts as f
from bide.core.effects import Post
from bide.core.hearing import clean
from bide.core.limits import FACT_BATCH_BYTES, FACT_BATCH_MAX, RESEND_S


class _Line:
    """Facts of one epoch in the order of their telling; `n` is the number of the next one."""

    def __init__(self, n: int = 0) -> None:
        self.n = n
        self.unacked: deque[f.RunnerFact] = deque()
        self.sizes: deque[int] = deque()

    @property
    def first(self) -> int:
        return self.n - len(self.unacked)

    def add(self, fact: f.RunnerFact) -> f.RunnerFact:
        fact, size = sendable(fact)
        self.unacked.append(fact)
        self.sizes.append(size)
        self.n += 1
        return fact

    def acked(self, next_n: int) -> None:
        while self.unacked and self.first < next_n:
            self.unacked.popleft()
            self.sizes.popleft()

    def batch(self) -> tuple[f.RunnerFact, ...]:
        """As many of the oldest facts as go into one request; at least one."""
        total = 0
        for count, size in enumerate(islice(self.sizes, FACT_BATCH_MAX)):
            total += size
            if count and total > FACT_BATCH_BYTES:
                return tuple(islice(self.unacked, count))
        return tuple(islice(self.unacked, FACT_BATCH_MAX))


class Outbox:
    """One batch is under way at a time. What an adopted epoch has still to tell is told before anything else."""

    def __init__(self, session: str, epoch: int) -> None:
        self.session, self.epoch = session, epoch
        self.closed = False
        self.posting = False
        self.post_at = 0.0
        self.fresh: list[f.RunnerFact] = []  # not kept on disk yet
        self._own, self._tail, self._tail_of = _Line(), _Line(), 0

    @property
    def n(self) -> int:
        """The number of the next fact."""
        return self._own.n

    @property
    def unacked(self) -> int:
        """How many facts the server has not acknowledged."""
        return len(self._own.unacked) + len(self._tail.unacked)

    @property
    def telling(self) -> int:
        """The epoch whose facts are sent now."""
        return self._tail_of if self._tail.unacked else self.epoch

    @property
    def first(self) -> int:
        """The number of the oldest fact that is not acknowledged, of the epoch that is being told."""
        return self._tail.first if self._tail.unacked else self._own.first

    @property
    def untold(self) -> tuple[f.RunnerFact, ...]:
        """The facts from `first` on, of the epoch that is being told."""
        return tuple(self._tail.unacked or self._own.unacked)

    def adopt(self, of: int, first: int, facts: Iterable[f.RunnerFact]) -> None:
        """What an earlier epoch has still to tell."""
        self._tail_of, self._tail = of, _Line(first)
        for fact in facts:
            self._tail.add(fact)

    def unkept(self) -> tuple[int, tuple[f.RunnerFact, ...]]:
        """What is new for the disk: the number of the first, and the facts. Once for each fact."""
        fresh, self.fresh = tuple(self.fresh), []
        return self.n - len(fresh), fresh

    def record(self, fact: f.RunnerFact) -> None:
        """Adds a fact; nothing is added after the last word."""
        if not self.closed:
            self.fresh.append(self._own.add(fact))

    def receipt(self, input_id: str, status: f.ReceiptStatus, how: str = "", turn: int = 0, code: str = "") -> None:
        """Records what became of an input."""
        self.record(f.Receipt(input_id=input_id, status=status, how=how, turn=turn, code=code))

    def next_post(self, now: float) -> Post | None:
        """The batch to send now, if any."""
        if not self.unacked or (self.posting and now < self.post_at):
            return None
        self.posting, self.post_at = True, now + RESEND_S
        line, of = (self._tail, self._tail_of) if self._tail.unacked else (self._own, 0)
        return Post(session=self.session, epoch=self.epoch, first=line.first, facts=line.batch(), of=of)

    def acked(self, next_n: int, of: int) -> None:
        """The server has everything of that epoch before `next_n`; 0 is the lease's own."""
        self.posting = False
        (self._tail if of else self._own).acked(next_n)


def sendable(fact: f.RunnerFact) -> tuple[f.RunnerFact, int]:
    """The fact as UTF-8 can carry it, whoever wrote its texts, and its size on the wire."""
    try:
        return fact, len(msgspec.json.encode(fact))
    except UnicodeEncodeError:
        told: f.RunnerFact = msgspec.convert(cleaned(msgspec.to_builtins(fact)), f.RunnerFact)
        return told, len(msgspec.json.encode(told))


def cleaned(plain: Any) -> Any:
    """Plain values with every text in them as UTF-8 can carry it."""
    if isinstance(plain, str):
        return clean(plain)
    if isinstance(plain, dict):
        return {key: cleaned(value) for key, value in plain.items()}
    return [cleaned(value) for value in plain] if isinstance(plain, list | tuple) else plain
