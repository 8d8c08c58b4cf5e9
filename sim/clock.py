"""Virtual time: a heap of things to do. The only source of order in a world."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from itertools import count

from sim.faults import HEALS_AT, NONE, Faults


class Clock:
    """Runs what was scheduled, in order of time and then of scheduling."""

    def __init__(self, rng: random.Random, faults: Faults) -> None:
        self.rng, self._faults = rng, faults
        self.now, self.steps = 0.0, 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    @property
    def faults(self) -> Faults:
        """The faults of this moment; none once the world has healed."""
        return self._faults if self.now < HEALS_AT else NONE

    def chance(self, p: float) -> bool:
        """True with probability `p`. Draws nothing for 0, so that a fault that is off changes no trace."""
        return p > 0 and self.rng.random() < p

    def after(self, delay: float, do: Callable[[], None]) -> None:
        """Does it later."""
        heapq.heappush(self._heap, (self.now + delay, next(self._order), do))

    def send(self, do: Callable[[], None]) -> None:
        """The network: loses, doubles and delays while faults are on; reorders by delaying."""
        for _ in range(2 if self.chance(self.faults.duplicate) else 1):
            if not self.chance(self.faults.loss):
                slow = self.rng.uniform(1, 8) if self.chance(self.faults.slow) else 0.0
                self.after(self.rng.uniform(0.005, 0.08) + slow, do)

    def run(self, until: float, each: Callable[[], bool]) -> None:
        """Steps until `each` says that all is done, or time is up."""
        while self._heap and self.now < until:
            self.now, _, do = heapq.heappop(self._heap)
            do()
            self.steps += 1
            if each():
                return
