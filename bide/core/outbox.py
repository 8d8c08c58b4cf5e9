"""A lease's facts on their way to the server: numbered, kept until acknowledged, sent again after a while."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any

import msgspec

from bide.core import facts as f
from bide.core.effects import Post
from bide.core.hearing import clean
from bide.core.limits import FACT_BATCH_BYTES, FACT_BATCH_MAX, RESEND_S


class Outbox:
    """`n` is the number of the next fact; one batch is under way at a time."""

    def __init__(self, session: str, epoch: int) -> None:
        self.session, self.epoch = session, epoch
        self.n = 0
        self.unacked: deque[f.RunnerFact] = deque()
        self.sizes: deque[int] = deque()
        self.closed = False
        self.posting = False
        self.post_at = 0.0

    def record(self, fact: f.RunnerFact) -> None:
        """Adds a fact; nothing is added after the last word."""
        if not self.closed:
            fact, size = sendable(fact)
            self.unacked.append(fact)
            self.sizes.append(size)
            self.n += 1

    def receipt(self, input_id: str, status: f.ReceiptStatus, how: str = "", turn: int = 0, code: str = "") -> None:
        """Records what became of an input."""
        self.record(f.Receipt(input_id=input_id, status=status, how=how, turn=turn, code=code))

    def next_post(self, now: float) -> Post | None:
        """The batch to send now, if any."""
        if not self.unacked or (self.posting and now < self.post_at):
            return None
        self.posting, self.post_at = True, now + RESEND_S
        batch = tuple(islice(self.unacked, self._fitting()))
        return Post(session=self.session, epoch=self.epoch, first=self.n - len(self.unacked), facts=batch)

    def acked(self, next_n: int) -> None:
        """The server has everything before `next_n`."""
        self.posting = False
        while self.unacked and self.n - len(self.unacked) < next_n:
            self.unacked.popleft()
            self.sizes.popleft()

    def _fitting(self) -> int:
        """How many of the oldest facts go into one request; at least one."""
        total = 0
        for count, size in enumerate(islice(self.sizes, FACT_BATCH_MAX)):
            total += size
            if count and total > FACT_BATCH_BYTES:
                return count
        return FACT_BATCH_MAX


def sendable(fact: f.RunnerFact) -> tuple[f.RunnerFact, int]:
    """The fact as UTF-8 can carry it, whoever wrote its texts, and its size on the wire."""
    try:
        return fact, len(msgspec.json.encode(fact))
    except UnicodeEncodeError:
        cleaned: f.RunnerFact = msgspec.convert(_clean(msgspec.to_builtins(fact)), f.RunnerFact)
        return cleaned, len(msgspec.json.encode(cleaned))


def _clean(plain: Any) -> Any:
    if isinstance(plain, str):
        return clean(plain)
    if isinstance(plain, dict):
        return {key: _clean(value) for key, value in plain.items()}
    return [_clean(value) for value in plain] if isinstance(plain, list | tuple) else plain
