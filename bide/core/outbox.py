"""A lease's facts on their way to the server: numbered, kept until acknowledged, sent again after a while."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any

import msgspec

from bide.core import facts as f
from bide.core.believed import believed
from bide.core.effects import Post
from bide.core.hearing import clean
from bide.core.limits import FACT_BATCH_BYTES, FACT_BATCH_MAX, GAP_TRIES_MAX, RESEND_S

# What a server may say of a batch that it cannot take, whatever is done about the rest of the world.
UNTAKABLE = ("bad_value", "malformed", "too_large", "too_many")
# Facts that only tell: without one of them the session is the same.
_TELLS = (
    f.AssistantMessage | f.AssistantThought | f.ToolCall | f.ToolResult | f.AssumptionRecorded | f.EnvironmentChanged
    | f.Cost | f.Note | f.Raw | f.Gap | f.QuestionWithdrawn | f.QuestionSuperseded
)  # fmt: skip


class _Line:
    """Facts of one epoch in the order of their telling; `n` is the number of the next one."""

    def __init__(self, n: int = 0) -> None:
        self.n = n
        self.unacked: deque[f.RunnerFact] = deque()
        self.sizes: deque[int] = deque()
        self.singly_before = 0  # facts up to this number go alone: one of them cannot be taken
        self.lost = self.gaps = 0  # facts before `first` that the server has lost, and how often it was told so

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
        self.lost = self.gaps = 0
        while self.unacked and self.first < next_n:
            self.unacked.popleft()
            self.sizes.popleft()

    def batch(self) -> tuple[f.RunnerFact, ...]:
        """As many of the oldest facts as go into one request; at least one."""
        if self.first < self.singly_before:
            return (self.unacked[0],)
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
        facts = line.batch()
        return Post(session=self.session, epoch=self.epoch, first=line.first, facts=facts, of=of, lost=line.lost)

    def acked(self, next_n: int, of: int) -> None:
        """The server has everything of that epoch before `next_n`; 0 is the lease's own."""
        self.posting = False
        self._line(of).acked(next_n)

    def missing(self, first: int, of: int, next_n: int) -> bool:
        """The server has lost what it had acknowledged, from `next_n` to `first`: it is told that there is a hole. False
        where it was told so before, and does not take it.
        """
        line = self._line(of)
        if first != line.first:
            return True  # an answer that comes late
        line.lost, line.gaps, self.posting = max(0, first - next_n), line.gaps + 1, False
        return bool(line.lost) and line.gaps <= GAP_TRIES_MAX

    def untakable(self, first: int, of: int, code: str) -> bool:
        """The batch from `first` on cannot be taken, and never will be: what is in it is told one by one, and the one
        that it was about as an error in its place. False where the session cannot do without that one.
        """
        line = self._line(of)
        if code not in UNTAKABLE or not line.unacked:
            return False
        if first != line.first:
            return True  # an answer that comes late
        self.posting = False
        if first >= line.singly_before and len(line.unacked) > 1:
            line.singly_before = first + FACT_BATCH_MAX
            return True
        if not isinstance(line.unacked[0], _TELLS):
            return False
        sentence = f"An event of {line.sizes[0]} bytes ({f.tag_of(type(line.unacked[0]))}) could not be told: {code}."
        line.unacked[0], line.sizes[0] = sendable(f.Error(code="bad_event", sentence=sentence))
        return True

    def _line(self, of: int) -> _Line:
        return self._tail if of else self._own


def sendable(fact: f.RunnerFact) -> tuple[f.RunnerFact, int]:
    """The fact within its bounds and as UTF-8 can carry it, whoever wrote its texts, and its size on the wire."""
    fact = believed(fact)
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
