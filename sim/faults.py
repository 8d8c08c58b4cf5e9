"""Which faults a seed draws: swarm testing, each seed has its own mix, and some have none of a kind."""

from __future__ import annotations

import random

from msgspec import Struct

HEALS_AT = 70.0  # virtual seconds; afterwards nothing fails any more
ENDS_BY = 900.0  # by then everything must have ended: retries and deadlines are minutes long


class Faults(Struct, frozen=True, kw_only=True):
    """Chances per occasion, unless said otherwise."""

    loss: float  # of one message
    duplicate: float
    slow: float  # a message takes seconds
    server_crash: float  # between two steps of one request
    runner_crash: float  # per second and runner
    runner_stall: float  # per second and runner: SIGSTOP of the whole machine for a while
    runner_drain: float  # per second and runner: told to go, parks everything, comes back
    runtime_crash: float  # per step of work
    memory_unreadable: float  # when a runtime has died: what its state contains cannot be told
    capture_fails: float
    blob_lost: float  # per second: one current checkpoint disappears
    clock_jump: float  # per second: the store's clock jumps ahead, as on a laptop that slept
    skew_s: float  # runners' clocks are off by up to this
    drift: float  # and run fast or slow by up to this


def draw(rng: random.Random) -> Faults:
    """The mix of one seed."""

    def maybe(low: float, high: float, often: float = 0.6) -> float:
        return rng.uniform(low, high) if rng.random() < often else 0.0

    return Faults(
        loss=maybe(0.01, 0.25),
        duplicate=maybe(0.01, 0.25),
        slow=maybe(0.01, 0.15),
        server_crash=maybe(0.002, 0.05),
        runner_crash=maybe(0.002, 0.03),
        runner_stall=maybe(0.002, 0.03, 0.4),
        runner_drain=maybe(0.002, 0.02, 0.3),
        runtime_crash=maybe(0.005, 0.05, 0.5),
        memory_unreadable=maybe(0.1, 1.0, 0.2),
        capture_fails=maybe(0.02, 0.4, 0.4),
        blob_lost=maybe(0.001, 0.01, 0.2),
        clock_jump=maybe(0.001, 0.01, 0.2),
        skew_s=rng.choice((0.0, 5.0, 3600.0)),
        drift=rng.choice((0.0, 0.01, 0.03)),
    )


NONE = Faults(
    loss=0, duplicate=0, slow=0, server_crash=0, runner_crash=0, runner_stall=0, runner_drain=0, runtime_crash=0, memory_unreadable=0, capture_fails=0,
    blob_lost=0, clock_jump=0, skew_s=0, drift=0,
)  # fmt: skip
