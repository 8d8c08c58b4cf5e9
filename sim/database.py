"""The store as servers meet it: calls fail before or after the commit, take seconds, and for a while all of them fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from bide.core import commands as c
from bide.core.handle import Done, handle
from bide.core.refusals import Refused, Unavailable
from bide.store.base import Engine
from sim.clock import Clock

T = TypeVar("T")


class Database:
    """One engine, and the line to it. `observe` sees what is written, whoever hears of it."""

    def __init__(self, clock: Clock, engine: Engine) -> None:
        self.clock, self.engine = clock, engine
        self.observe: Callable[[Done], None] = lambda done: None
        self.away_until = 0.0

    def pause(self) -> float:
        """How long the next call waits."""
        return self.clock.rng.uniform(0.5, 6) if self.clock.strikes("store_slow") else 0.0

    def handle(self, session: str, command: c.Command) -> Done | Refused:
        """One transaction. Raises `Unavailable`: nothing was written, or the answer is lost."""
        self._reach()
        (done,) = self.engine.perform([lambda: handle(session, command)])
        if isinstance(done, Exception) and not isinstance(done, Refused):
            raise done
        if isinstance(done, Done):
            self.observe(done)
        if self.clock.strikes("store_forgets", type(command).__name__.lower()):
            raise Unavailable("the database", "the line broke after the commit")
        return done

    def call(self, do: Callable[[Engine], T]) -> T:
        """Any other call. Raises `Unavailable`."""
        self._reach()
        return do(self.engine)

    def alone(self, do: Callable[[Engine], T]) -> T:
        """A call in a transaction of its own. Raises `Unavailable`, and what the call does."""
        self._reach()
        with self.engine.alone():
            return do(self.engine)

    def _reach(self) -> None:
        if self.clock.now < self.away_until or self.clock.strikes("store_refuses"):
            raise Unavailable("the database", "it is away")
