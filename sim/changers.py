"""People who think again: they change what they said, take it back, and settle what is in doubt. A well of their own."""

from __future__ import annotations

import random

from bide.core import commands as c
from bide.core import ids
from bide.core.session import RUNTIME_INPUTS, Session, in_doubt
from sim.clock import Clock
from sim.people import People

TEXTS = ("work", "ask", "work after all")


class Changers:
    """In three of four worlds. What they look at may be delivered at that very moment."""

    def __init__(self, clock: Clock, people: People, rng: random.Random) -> None:
        self.clock, self.people, self.rng = clock, people, rng
        self.often = rng.uniform(0.05, 0.6) if rng.random() < 0.75 else 0.0

    def each_second(self) -> None:
        """Somebody looks at a session and at what it was told; sometimes two do, and want different things."""
        if not self.often or self.rng.random() >= self.often:
            return
        s = self.people.store.session(self.rng.choice(self.people.sessions))
        if s is None:
            return
        for author in ("ann", "ben")[: self.rng.choice((1, 1, 1, 2))]:
            self._one(s, author)

    def _one(self, s: Session, author: str) -> None:
        waiting = [p.id for p in s.inputs if p.type in RUNTIME_INPUTS and p.status in ("accepted", "delivered")]
        doubted = [p.id for p in in_doubt(s)]
        if not waiting and not doubted:
            return
        self.people.sent += 1
        mine = ids.mint(self.clock.now, s.id, "change", self.people.sent)
        if doubted and self.rng.random() < 0.7:
            choice = self.rng.choice(("again", "delivered"))
            target = self.rng.choice(doubted)
            self.people.send(s.id, c.Resolve(id=mine, author=author, input_id=target, choice=choice))  # type: ignore[arg-type]
        elif waiting and self.rng.random() < 0.5:
            self.people.send(s.id, c.Withdraw(id=mine, author=author, input_id=self.rng.choice(waiting)))
        elif waiting:
            text, delivery = self.rng.choice((*TEXTS, "")), self.rng.choice((None, "next_turn", "steer", "interrupt"))
            edit = c.Edit(id=mine, author=author, input_id=self.rng.choice(waiting), text=text, delivery=delivery)  # type: ignore[arg-type]
            self.people.send(s.id, edit)
