"""People who go other ways: they fork sessions and take them back to checkpoints. They draw from a well of their own."""

from __future__ import annotations

import random

from bide.core import commands as c
from bide.core import ids
from bide.core.branching import kept
from bide.core.session import Session
from sim.clock import Clock
from sim.faults import HEALS_AT
from sim.people import People

SESSIONS_MAX = 8  # more would only wait for runners


class Branchers:
    """In half of all worlds."""

    def __init__(self, clock: Clock, people: People, rng: random.Random) -> None:
        self.clock, self.people, self.rng = clock, people, rng
        self.often = rng.uniform(0.02, 0.4) if rng.random() < 0.5 else 0.0

    def each_second(self) -> None:
        """Somebody looks at a session and wants it otherwise; now and then once more than it is there for."""
        if not self.often or self.clock.now > HEALS_AT or self.rng.random() >= self.often:
            return
        s = self.people.store.session(self.rng.choice(self.people.sessions))
        if s is None:
            return
        numbers = [one.n for one in kept(s, self.people.store.checkpoints(s.id))]
        self.people.sent += 1
        input_id = ids.mint(self.clock.now, s.id, "branch", self.people.sent)
        if self.rng.random() < 0.6:
            n = self.rng.choice([*numbers, *numbers, s.checkpoint_n + 1])
            self.people.send(s.id, c.Rewind(id=input_id, author="cleo", checkpoint=n))
        elif len(self.people.sessions) < SESSIONS_MAX:
            self._fork(s, input_id, self.rng.choice([0, *numbers]))

    def _fork(self, s: Session, input_id: str, n: int) -> None:
        session, text = ids.mint(self.clock.now, input_id), self.rng.choice(("", "work", "ask"))
        self.people.send(s.id, c.Fork(id=input_id, author="cleo", session=session, checkpoint=n, text=text))
