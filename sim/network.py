"""The network: loses, doubles, delays and repeats messages, and cuts one direction of a line for a while."""

from __future__ import annotations

from collections.abc import Callable

from sim.clock import Clock

PEOPLE = "people"  # where everybody who is no machine sits


class Network:
    """Messages between places. `places` are the machines whose lines can be cut."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.places: list[str] = []
        self._cut: dict[tuple[str, str], float] = {}  # (place, "in" or "out") -> until
        clock.after(1.0, self._weather)

    def send(self, source: str, target: str, do: Callable[[], None]) -> None:
        """Does it at the target a moment later: once, not at all, or more often."""
        clock = self.clock
        faults = clock.faults
        if self._cut and (self._dead(source, "out") or self._dead(target, "in")):
            return
        for _ in range(2 if clock.chance(faults.duplicate) else 1):
            if clock.chance(faults.loss):
                clock.struck["loss"] += 1
            else:
                late = clock.rng.uniform(1, 8) if clock.chance(faults.slow) else 0.0
                clock.after(clock.rng.uniform(0.005, 0.08) + late, do)
        if clock.chance(faults.replay):
            clock.struck["replay"] += 1
            clock.after(clock.rng.uniform(2, 25), do)

    def _dead(self, place: str, way: str) -> bool:
        return self._cut.get((place, way), 0.0) > self.clock.now

    def _weather(self) -> None:
        clock = self.clock
        clock.after(1.0, self._weather)
        if not clock.chance(clock.faults.cut):
            return
        place, ways = clock.rng.choice(self.places), clock.rng.choice((("in",), ("out",), ("in", "out")))
        span = clock.span(1, 25)
        clock.happened("cut", f"{place}, {' and '.join(ways)}, for {span:.0f} s")
        self._cut |= {(place, way): clock.now + span for way in ways}
