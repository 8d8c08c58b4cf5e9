"""Which faults a seed draws: swarm testing, each seed has its own mix, and some have none of a kind."""

from __future__ import annotations

import random

from msgspec import Struct

HEALS_AT = 70.0  # virtual seconds; afterwards nothing fails any more
ENDS_BY = 900.0  # by then everything must have ended: retries and deadlines are minutes long


class Faults(Struct, frozen=True, kw_only=True):
    """Chances per occasion, unless said otherwise. None of a kind is 0, and draws no random numbers."""

    # the network
    loss: float = 0.0  # of one message
    duplicate: float = 0.0
    slow: float = 0.0  # a message takes seconds
    replay: float = 0.0  # a message arrives once more, long after
    cut: float = 0.0  # per second: one direction of one machine's line is dead for a while
    # the servers
    server_crash: float = 0.0  # between two steps of one request
    server_stall: float = 0.0  # it stands still for seconds between two steps
    clock_jump: float = 0.0  # per second: the store's clock jumps ahead, as on a laptop that slept
    clock_back: float = 0.0  # per second: it is set back a little
    # the store and the blobs
    store_refuses: float = 0.0  # a call fails and nothing was written
    store_forgets: float = 0.0  # it is written, and the answer is lost
    store_slow: float = 0.0  # a call takes seconds
    store_away: float = 0.0  # seconds that it is away, once
    capture_fails: float = 0.0
    restore_fails: float = 0.0  # a runner's disk has no room: the lease is given back
    blobs_away: float = 0.0  # seconds that the blob store is away, once: captures fail or hang, restores wait
    blob_lost: float = 0.0  # per second: one checkpoint disappears
    # the machines
    runner_crash: float = 0.0  # per second and runner
    quick: float = 0.0  # when a runner has crashed: it is back within moments
    crash_again: float = 0.0  # when it is back: it crashes again while it takes up what was left
    disk_lost: float = 0.0  # when it has crashed: it comes back on another machine
    machine_stall: float = 0.0  # per second and runner: the whole machine stands still for a while
    daemon_stall: float = 0.0  # per second and runner: its daemon does, and the runtimes go on
    terminated: float = 0.0  # per second and runner: SIGTERM; it parks what it can, ends, comes back
    skew_s: float = 0.0  # runners' clocks are off by up to this
    drift: float = 0.0  # and run fast or slow by up to this
    # the runtimes
    runtime_crash: float = 0.0  # per step of work
    memory_unreadable: float = 0.0  # when a runtime has died: what its state contains cannot be told
    runtime_mute: float = 0.0  # per turn: it says nothing any more, and hears nothing
    runtime_deaf: float = 0.0  # per turn: it is over without a trace of what opened it
    model_away: float = 0.0  # per turn: its model answers nothing, or refuses its login
    # the operators, who are no fault, but disturb
    order: float = 0.0  # per second: a runner is to drain; the order may be taken back
    rolling: float = 0.0  # once: all runners and servers are restarted, one after the other
    erase: float = 0.0  # per second: somebody erases a session, if it is at rest
    collector_crash: float = 0.0  # between two steps of a round of collecting
    mixed: float = 0.0  # the fleet has pools, labels, versions and disks of its own


def draw(rng: random.Random) -> Faults:
    """The mix of one seed."""

    def maybe(low: float, high: float, often: float = 0.5) -> float:
        return rng.uniform(low, high) if rng.random() < often else 0.0

    return Faults(
        loss=maybe(0.01, 0.25),
        duplicate=maybe(0.01, 0.25),
        slow=maybe(0.01, 0.15),
        replay=maybe(0.01, 0.15, 0.4),
        cut=maybe(0.01, 0.15, 0.4),
        server_crash=maybe(0.002, 0.05),
        server_stall=maybe(0.0005, 0.008, 0.4),
        clock_jump=maybe(0.001, 0.03, 0.2),
        clock_back=maybe(0.001, 0.03, 0.2),
        store_refuses=maybe(0.002, 0.03, 0.4),
        store_forgets=maybe(0.002, 0.05, 0.4),
        store_slow=maybe(0.001, 0.02, 0.3),
        store_away=rng.choice((0.0, 0.0, 0.0, 2.0, 12.0, 60.0)),
        capture_fails=maybe(0.02, 0.4, 0.4),
        blobs_away=rng.choice((0.0, 0.0, 0.0, 5.0, 30.0)),
        blob_lost=maybe(0.001, 0.01, 0.2),
        runner_crash=maybe(0.005, 0.06, 0.6),
        quick=rng.choice((0.0, 0.5, 1.0, 1.0)),
        crash_again=maybe(0.2, 0.9, 0.6),
        disk_lost=rng.choice((0.0, 0.0, 0.0, 0.3, 1.0)),
        machine_stall=maybe(0.002, 0.03, 0.3),
        daemon_stall=maybe(0.002, 0.03, 0.3),
        terminated=maybe(0.002, 0.02, 0.3),
        skew_s=rng.choice((0.0, 5.0, 3600.0)),
        drift=rng.choice((0.0, 0.01, 0.05)),
        runtime_crash=maybe(0.005, 0.05),
        memory_unreadable=maybe(0.1, 1.0, 0.2),
        order=maybe(0.005, 0.05, 0.3),
        rolling=rng.choice((0.0, 0.0, 0.0, 1.0)),
        mixed=rng.choice((0.0, 1.0)),
        restore_fails=maybe(0.02, 0.3, 0.3),
        erase=maybe(0.005, 0.1, 0.3),
        collector_crash=maybe(0.01, 0.3),
        model_away=maybe(0.02, 0.3, 0.4),
        runtime_mute=maybe(0.02, 0.2, 0.3),
        runtime_deaf=maybe(0.02, 0.2, 0.3),
    )


NONE = Faults()
