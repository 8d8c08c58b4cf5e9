"""Which runner may take which session, and a sentence for why none does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from bide.core.limits import AFFINITY_S, MISSED_POLLS
from bide.core.runtime import Runtime
from bide.core.session import Lifecycle, Session

RunnerState = Literal["online", "draining", "out_of_contact", "gone"]


class Runner(Struct, frozen=True, kw_only=True):
    """A runner as the server knows it."""

    id: str
    name: str
    pool: str
    slots: int
    root: str = ""
    isolation: str = "none"
    protocol: int = 1
    runtimes: tuple[Runtime, ...] = ()
    boot: str = ""
    draining: bool = False
    last_seen_at: float = 0.0
    slots_free: int = 0
    warm: tuple[str, ...] = ()


def state_of(runner: Runner, now: float, poll_s: float, lease_s: float) -> RunnerState:
    """The runner's word; `gone` after a whole lease of silence."""
    silent = now - runner.last_seen_at
    if silent > lease_s:
        return "gone"
    if silent > MISSED_POLLS * poll_s:
        return "out_of_contact"
    return "draining" if runner.draining else "online"


def usable(runner: Runner, runtime: str) -> bool:
    """Whether the runner has this runtime in working order."""
    return any(r.name == runtime and not r.problem for r in runner.runtimes)


def claimable(s: Session, now: float) -> bool:
    """Whether the session waits for a runner, and no former holder can still believe in its lease."""
    return s.lifecycle is Lifecycle.QUEUED and not s.recovery_until and now >= s.held_until


def choose(runner: Runner, free: int, queued: Sequence[Session], online: Iterable[Runner], now: float) -> list[Session]:
    """Which of the queued sessions this runner takes now, oldest first. One that has a warm folder elsewhere waits
    a moment for that runner."""
    others = {other.id: other for other in online if other.id != runner.id}
    chosen: list[Session] = []
    for s in queued:
        if len(chosen) >= free:
            break
        if s.pool != runner.pool or not usable(runner, s.runtime) or not claimable(s, now):
            continue
        home = others.get(s.last_runner)
        patient = home is not None and home.slots_free > 0 and not home.draining and usable(home, s.runtime)
        if patient and now < s.queued_at + AFFINITY_S:
            continue
        chosen.append(s)
    return chosen


def why_not(s: Session, online: Sequence[Runner], queued: Sequence[Session]) -> tuple[str, int]:
    """Why a queued session has no runner yet, as a sentence, and its place in the queue (1 is next)."""
    ahead = [q for q in queued if q.pool == s.pool and (q.queued_at, q.id) < (s.queued_at, s.id)]
    pool = [r for r in online if r.pool == s.pool]
    if not pool:
        return f"no runner of pool {s.pool} is online", len(ahead) + 1
    if not any(usable(r, s.runtime) for r in pool):
        return f"no runner of pool {s.pool} has {s.runtime}", len(ahead) + 1
    if all(r.draining for r in pool):
        return f"all runners of pool {s.pool} are draining", len(ahead) + 1
    if all(r.slots_free <= 0 for r in pool):
        return f"all {sum(r.slots for r in pool)} slots of pool {s.pool} are taken", len(ahead) + 1
    return "a runner takes it in a moment", len(ahead) + 1
