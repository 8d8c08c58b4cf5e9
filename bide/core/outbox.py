"""A lease's facts on their way to the server: numbered, kept until acknowledged, sent again after a while."""

from __future__ import annotations

from collections import deque

from bide.core import facts as f
from bide.core.effects import Post
from bide.core.limits import FACT_BATCH_MAX, RESEND_S


class Outbox:
    """`n` is the number of the next fact; one batch is under way at a time."""

    def __init__(self, session: str, epoch: int) -> None:
        self.session, self.epoch = session, epoch
        self.n = 0
        self.unacked: deque[f.RunnerFact] = deque()
        self.closed = False
        self.posting = False
        self.post_at = 0.0

    def record(self, fact: f.RunnerFact) -> None:
        """Adds a fact; nothing is added after the last word."""
        if not self.closed:
            self.unacked.append(fact)
            self.n += 1

    def receipt(self, input_id: str, status: f.ReceiptStatus, how: str = "", turn: int = 0, code: str = "") -> None:
        """Records what became of an input."""
        self.record(f.Receipt(input_id=input_id, status=status, how=how, turn=turn, code=code))

    def next_post(self, now: float) -> Post | None:
        """The batch to send now, if any."""
        if not self.unacked or (self.posting and now < self.post_at):
            return None
        self.posting, self.post_at = True, now + RESEND_S
        batch = tuple(fact for fact, _ in zip(self.unacked, range(FACT_BATCH_MAX), strict=False))
        return Post(session=self.session, epoch=self.epoch, first=self.n - len(self.unacked), facts=batch)

    def acked(self, next_n: int) -> None:
        """The server has everything before `next_n`."""
        self.posting = False
        while self.unacked and self.n - len(self.unacked) < next_n:
            self.unacked.popleft()
