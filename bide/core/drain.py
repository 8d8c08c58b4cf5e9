"""Emptying a runner on demand: the order, how far it has come, and what became of each session it held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from bide.core.session import Lifecycle, Session

Result = Literal["working", "waiting", "parking", "parked", "moved", "queued", "ended", "gone"]
OVER: tuple[Result, ...] = ("parked", "moved", "queued", "ended", "gone")


class Order(Struct, frozen=True, kw_only=True):
    """One drain of one runner's process. Moments are epoch seconds; `sessions` are those it held when it was asked."""

    runner: str
    boot: str
    by: str
    asked_at: float
    deadline_s: float
    sessions: tuple[str, ...] = ()

    def left_s(self, now: float) -> float:
        """How long working sessions may still take."""
        return max(0.0, self.asked_at + self.deadline_s - now)


class Line(Struct, frozen=True, kw_only=True):
    """What has become of one session."""

    session: str
    title: str
    result: Result
    sentence: str
    checkpoint: int = 0


def lines(order: Order, held: Iterable[Session], named: Mapping[str, Session]) -> tuple[Line, ...]:
    """One line for each session that the runner held when it was asked, or was granted before it heard of that."""
    known = {**{s.id: s for s in held}, **named}
    return tuple(_line(order, i, known.get(i)) for i in dict.fromkeys((*order.sessions, *known)))


def over(found: Iterable[Line]) -> bool:
    """Whether nothing is left on the runner."""
    return all(line.result in OVER for line in found)


def _line(order: Order, session_id: str, s: Session | None) -> Line:
    if s is None:
        return Line(session=session_id, title="", result="gone", sentence="It was deleted.")
    saved = s.checkpoint.n if s.checkpoint else 0
    result, sentence = _became(order, s)
    return Line(session=s.id, title=s.title, result=result, sentence=sentence, checkpoint=saved)


def _became(order: Order, s: Session) -> tuple[Result, str]:
    if s.lease is not None and s.lease.runner == order.runner and s.lease.boot == order.boot:
        if s.parking or s.environment.state == "saving":
            return "parking", "It is being saved."
        if s.turn.open:
            return "working", "Its turn goes on; it is interrupted and saved at the deadline."
        return "waiting", "It is about to be saved."
    if s.lease is not None:
        return "moved", f"It goes on with runner {s.lease.runner_name}."
    if s.lifecycle is Lifecycle.ENDED:
        return "ended", f"It has ended as {s.outcome}."
    if s.recovery_until and s.last_runner == order.runner and s.last_boot == order.boot:
        return "waiting", "Its runner is out of contact; it is waited for."
    if s.lifecycle is Lifecycle.QUEUED:
        return "queued", f"It waits for another runner{f', from checkpoint {s.checkpoint.n}' if s.checkpoint else ''}."
    if s.environment.state == "lost":
        return "parked", "Its saved state is lost; `bide inbox` asks how to go on."
    return "parked", "Everything is saved."
