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
from sim.clock import Clock
from sim.faults import ENDS_BY, HEALS_AT, draw
from sim.people import People
from sim.runners import Blobs, Host
from sim.servers import Servers

OpenStore = Callable[[StoreClock], Engine]
Tell = Callable[[f.Envelope, float], None]  # hears each fact, with the virtual second
EPOCH = 1_000_000.0  # the store's clock at virtual second 0


def silent(envelope: f.Envelope, now: float) -> None:
    """Tells nothing."""


class World:
    """Everything of one seed."""

    def __init__(self, seed: int, open_store: OpenStore = MemoryStore, tell: Tell = silent) -> None:
        self.tell = tell
        rng = random.Random(seed)
        self.clock = Clock(rng, draw(rng))
        self.jumped = 0.0
        self.store = open_store(lambda: EPOCH + self.clock.now + self.jumped)
        self.servers = Servers(self.clock, self.store, rng.randint(1, 3))
        self.blobs = Blobs()
        self.trace = hashlib.blake2b()
        self.servers.observe = self._observe
        self.hosts: list[Host] = []
        self.hosts += [
            Host(self.clock, self.servers, self.blobs, f"runner{i}", self._begins_to_act)
            for i in range(rng.randint(2, 4))
        ]
        self.people = People(self.clock, self.servers, rng.randint(1, 3))
        self.clock.after(1.0, self._world_faults)

    def run(self) -> str:
        """Plays it to its end; gives the digest of everything that was written. Raises `Violation`."""
        self.clock.run(ENDS_BY, self._all_ended)
        checks.in_the_end(self.store, self.people.sessions, self.blobs)
        return self.trace.hexdigest()

    def _observe(self, done: Done) -> None:
        checks.leased_only_while_active(done.session)
        for envelope in done.envelopes:
            self.trace.update(f"{envelope.session_id} {envelope.seq} {envelope.time:.6f} {envelope.n} ".encode())
            self.trace.update(codec.encode_fact(envelope.fact))
            self.tell(envelope, self.clock.now)

    def _begins_to_act(self, session: str) -> None:
        checks.one_live_runtime(session, self.hosts)

    def _all_ended(self) -> bool:
        if self.clock.now < HEALS_AT or self.clock.steps % 64:
            return False
        known = (self.store.session(session) for session in self.people.sessions)
        return all(s is not None and s.lifecycle == "ended" for s in known)

    def _world_faults(self) -> None:
        self.clock.after(1.0, self._world_faults)
        faults, rng = self.clock.faults, self.clock.rng
        if self.clock.chance(faults.clock_jump):
            self.jumped += rng.uniform(1, 7200)
        if self.clock.chance(faults.blob_lost) and self.blobs.roots:
            del self.blobs.roots[rng.choice(sorted(self.blobs.roots))]


def play(seed: int, open_store: OpenStore = MemoryStore, tell: Tell = silent) -> tuple[str, dict[str, Any]]:
    """Plays one seed; its digest and what it amounted to."""
    world = World(seed, open_store, tell)
    digest = world.run()
    world.store.close()
    return digest, {"steps": world.clock.steps, "seconds": world.clock.now, "inputs": world.people.sent}
