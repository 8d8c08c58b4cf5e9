"""Virtual time: a heap of things to do. The only source of order in a world, and its diary of what went wrong."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from itertools import count

from sim.faults import HEALS_AT, NONE, Faults


class Clock:
    """Runs what was scheduled, in order of time and then of scheduling. `hear` is told each fault that strikes."""

    def __init__(self, rng: random.Random, faults: Faults, hear: Callable[[str], None]) -> None:
        self.rng, self._faults, self._hear = rng, faults, hear
        self.now, self.steps = 0.0, 0
        self.struck: Counter[str] = Counter()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    @property
    def faults(self) -> Faults:
        """The faults of this moment; none once the world has healed."""
        return self._faults if self.now < HEALS_AT else NONE

    def chance(self, p: float) -> bool:
        """True with probability `p`. Draws nothing for 0, so that a fault that is off changes no trace."""
        return p > 0 and self.rng.random() < p

    def strikes(self, fault: str, where: str = "") -> bool:
        """Whether this fault happens on this occasion; then it is counted and told."""
        if not self.chance(getattr(self.faults, fault)):
            return False
        self.happened(fault, where)
        return True

    def happened(self, fault: str, where: str = "") -> None:
        """Counts and tells a fault."""
        self.struck[fault] += 1
        self._hear(f"{fault.replace('_', ' ')} {where}".rstrip())

    def span(self, low: float, high: float) -> float:
        """How long something lasts; nothing lasts past the healing."""
        return max(0.01, min(self.rng.uniform(low, high), HEALS_AT - self.now))

    def after(self, delay: float, do: Callable[[], None]) -> None:
        """Does it later."""
        heapq.heappush(self._heap, (self.now + delay, next(self._order), do))

    def run(self, until: float, each: Callable[[], bool]) -> None:
        """Steps until `each` says that all is done, or time is up."""
        while self._heap and self.now < until:
            self.now, _, do = heapq.heappop(self._heap)
            do()
            self.steps += 1
            if each():
                return
