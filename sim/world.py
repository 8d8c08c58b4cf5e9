"""One seed, one world: sessions, servers, runners, people and a bad network. It heals, and then all must end."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any

from bide.core import codec
from bide.core import facts as f
from bide.core.handle import Done
from bide.store.base import Clock as StoreClock
from bide.store.base import Engine
from bide.store.memory import MemoryStore
from sim import checks
from sim.blobs import Blobs
from sim.branchers import Branchers
from sim.changers import Changers
from sim.clock import Clock
from sim.database import Database
from sim.faults import ENDS_BY, HEALS_AT, Faults, draw
from sim.fleet import builds, needs
from sim.keeper import Keeper
from sim.network import Network
from sim.operators import Operators
from sim.people import People
from sim.runners import Host
from sim.servers import GAP_S, HOLD_S, LEASE_S, Servers
from sim.witness import Witness

OpenStore = Callable[[StoreClock], Engine]
Tell = Callable[[f.Envelope | str, float], None]  # hears each fact, and each fault as a text, with the virtual second
Bend = Callable[[Faults], Faults]  # makes more or less of the faults that a seed has drawn
EPOCH = 1_000_000.0  # the store's clock at virtual second 0


def silent(told: f.Envelope | str, now: float) -> None:
    """Tells nothing."""


def as_drawn(faults: Faults) -> Faults:
    """Changes nothing."""
    return faults


class World:
    """Everything of one seed."""

    def __init__(
        self, seed: int, open_store: OpenStore = MemoryStore, tell: Tell = silent, bend: Bend = as_drawn
    ) -> None:
        self.tell = tell
        rng = random.Random(seed)
        faults = bend(draw(rng))
        self.clock = Clock(rng, faults, lambda fault: tell(fault, self.clock.now))
        self.jumped, self.calm_from = 0.0, -LEASE_S
        self.store = open_store(lambda: EPOCH + self.clock.now + self.jumped)
        self.database = Database(self.clock, self.store)
        self.database.observe = self._observe
        self.network = Network(self.clock)
        self.servers = Servers(self.clock, self.network, self.database, rng.randint(1, 3))
        apart = random.Random(f"keeper {seed}")
        self.blobs = Blobs(self.clock, apart)
        self.keeper = Keeper(self.clock, self.database, self.blobs, apart)
        self.witness = Witness(self.clock, self.store, self.blobs)
        self.witness.calm_until = lambda: max(self.calm_from, self.servers.awoke or -LEASE_S) + LEASE_S
        self.trace = hashlib.blake2b()
        machines = builds(rng, rng.randint(2, 4), mixed=bool(faults.mixed))
        self.hosts = [
            Host(self.clock, self.network, self.servers, self.keeper, self.witness, f"runner{i}", build)
            for i, build in enumerate(machines)
        ]
        self.witness.hosts = list(self.hosts)
        self.people = People(self.clock, self.servers, self.store, needs(rng, rng.randint(1, 3), machines))
        self.branchers = Branchers(self.clock, self.people, random.Random(f"branches {seed}"))
        self.changers = Changers(self.clock, self.people, random.Random(f"changes {seed}"))
        self.operators = Operators(self.clock, self.servers, self.store, self.hosts, last=bool(faults.order))
        self.clock.after(1.0, self._each_second)
        self._plan(faults.store_away, self._store_goes)
        self._plan(faults.blobs_away, self._blobs_go)

    def run(self) -> str:
        """Plays it to its end; gives the digest of everything that was written. Raises `Violation`."""
        self.clock.run(ENDS_BY, self._all_ended)
        left = [session for session in self.people.sessions if session not in self.keeper.erased]
        promised = [(session, i) for session, i in self.people.promised if session not in self.keeper.erased]
        checks.in_the_end(self.store, left, promised, self.blobs)
        self.keeper.in_the_end(left)
        return self.trace.hexdigest()

    def _observe(self, done: Done) -> None:
        for envelope in done.envelopes:
            self.trace.update(f"{envelope.session_id} {envelope.seq} {envelope.time:.6f} {envelope.n} ".encode())
            self.trace.update(codec.encode_fact(envelope.fact))
            self.tell(envelope, self.clock.now)
        self.witness.wrote(done)
        if done.fork is not None:
            self.people.sessions.append(done.fork.session.id)
            self._observe(done.fork)

    def _all_ended(self) -> bool:
        if self.clock.now < HEALS_AT or self.clock.steps % 64:
            return False
        known = (self.store.session(i) for i in self.people.sessions if i not in self.keeper.erased)
        return all(s is not None and s.lifecycle == "ended" for s in known) and self.keeper.quiet()

    # -- what befalls all of it ---------------------------------------------------------------------------------------

    def _each_second(self) -> None:
        self.clock.after(1.0, self._each_second)
        rng = self.clock.rng
        if self.clock.strikes("clock_jump"):
            self._jump(rng.uniform(1, 7200))
        # Not while nobody looks at it: an outage and a step back of the same length would cancel each other out.
        looked_at = max(self.database.away_until, self.servers.awoke) + 1
        noticed = self.clock.now > looked_at and self.servers.silent_since is None
        if noticed and self.clock.strikes("clock_back"):
            self._jump(-rng.uniform(0.1, 60))
        if self.clock.chance(self.clock.faults.blob_lost):
            self.blobs.lose()
        self.keeper.each_second(self.people.sessions)
        self.branchers.each_second()
        self.changers.each_second()
        self.witness.look(self.people.sessions)

    def _jump(self, seconds: float) -> None:
        self.jumped += seconds
        if seconds > GAP_S:
            self.calm_from = self.clock.now
        # What was claimed for a moment stays claimed until the clock is there again.
        self.witness.claimed_until = max(self.witness.claimed_until, self.clock.now + HOLD_S) - min(seconds, 0.0)

    def _plan(self, seconds: float, do: Callable[[float], None]) -> None:
        if seconds:
            begins = self.clock.rng.uniform(3, max(5, HEALS_AT - seconds - 1))
            self.clock.after(begins, lambda: do(min(seconds, HEALS_AT - begins)))

    def _store_goes(self, seconds: float) -> None:
        self.clock.happened("store_away", f"for {seconds:.0f} s")
        self.database.away_until = self.clock.now + seconds
        if seconds > GAP_S + 1:
            self.clock.after(seconds, self._store_is_back)

    def _store_is_back(self) -> None:
        self.calm_from = self.clock.now

    def _blobs_go(self, seconds: float) -> None:
        self.clock.happened("blobs_away", f"for {seconds:.0f} s")
        self.blobs.away_until = self.clock.now + seconds


def play(
    seed: int, open_store: OpenStore = MemoryStore, tell: Tell = silent, bend: Bend = as_drawn
) -> tuple[str, dict[str, Any]]:
    """Plays one seed; its digest and what it amounted to."""
    world = World(seed, open_store, tell, bend)
    digest = world.run()
    world.store.close()
    sums = {"steps": world.clock.steps, "seconds": world.clock.now, "inputs": world.people.sent}
    return digest, {**sums, "faults": dict(world.clock.struck)}
