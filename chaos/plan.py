"""What is done to a fleet, and when: drawn from one seed before anything starts, so that a run can be had again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Literal

from msgspec import Struct

Part = Literal["server", "runner", "database"]  # whom it hits: the process, or the lines to it
EASE_S = 3.0  # what was disturbed is left alone for so long: a process has to come up before it can be killed again


class Kind(Struct, frozen=True, kw_only=True):
    """One way to break something: whom it hits, how often among all, and for how long."""

    name: str
    part: Part
    often: int
    shortest_s: float
    longest_s: float


def _kind(name: str, part: Part, often: int, shortest_s: float, longest_s: float) -> Kind:
    return Kind(name=name, part=part, often=often, shortest_s=shortest_s, longest_s=longest_s)


# With leases of 6 s: what is shorter than 4 s costs nothing, up to 6 s a pause, and what is longer the lease.
KINDS = (
    _kind("kill server", "server", 3, 0.2, 6.0),
    _kind("restart server", "server", 1, 0.1, 1.0),
    _kind("freeze server", "server", 2, 0.5, 8.0),
    _kind("cut people off", "server", 2, 0.5, 6.0),
    _kind("hang people", "server", 2, 0.5, 6.0),
    _kind("cut database off", "server", 1, 0.5, 6.0),
    _kind("hang database", "server", 1, 0.5, 8.0),
    _kind("kill daemon", "runner", 4, 0.1, 2.0),
    _kind("kill daemon for long", "runner", 2, 7.0, 14.0),
    _kind("freeze daemon", "runner", 4, 0.5, 12.0),
    _kind("lose machine", "runner", 2, 0.5, 8.0),
    _kind("restart runner", "runner", 2, 0.1, 1.0),
    _kind("drain", "runner", 2, 2.0, 8.0),
    _kind("cut runner off", "runner", 2, 0.5, 9.0),
    _kind("hang runner", "runner", 2, 0.5, 9.0),
    _kind("lose answers", "runner", 2, 0.5, 9.0),
    _kind("lose requests", "runner", 1, 0.5, 9.0),
    _kind("freeze database", "database", 1, 0.3, 5.0),
    _kind("stop database", "database", 1, 0.3, 4.0),
    _kind("kill database", "database", 1, 0.2, 3.0),
)


LINES = ("cut", "hang", "lose answers", "lose requests")  # kinds that begin so hit lines, all others processes


class Fault(Struct, frozen=True, kw_only=True):
    """One thing that is done: when (seconds from the beginning), to whom, for how long. `chance` decides what else is."""

    at: float
    kind: str
    target: str
    for_s: float
    chance: float

    @property
    def place(self) -> str:
        """What is disturbed. A process may be killed while its lines are cut."""
        return f"lines of {self.target}" if self.kind.startswith(LINES) else self.target


def draw(
    seed: int, seconds: float, servers: Sequence[str], runners: Sequence[str], every_s: float
) -> tuple[Fault, ...]:
    """All faults of a run, one in `every_s` on the average, each on something that is not disturbed already."""
    rng = Random(f"plan {seed}")  # noqa: S311 — to be had again
    targets: dict[Part, Sequence[str]] = {"server": servers, "runner": runners, "database": ("database",)}
    free_at: dict[str, float] = {}
    kinds, found, at = _bags(rng), list[Fault](), 0.0
    while (at := at + rng.uniform(0.3, 1.7) * every_s) < seconds:
        kind = next(kinds)
        for_s = round(min(rng.uniform(kind.shortest_s, kind.longest_s), max(0.1, seconds - at)), 2)
        target, chance = rng.choice(targets[kind.part]), rng.random()
        fault = Fault(at=round(at, 2), kind=kind.name, target=target, for_s=for_s, chance=chance)
        if free_at.get(fault.place, 0.0) <= at:
            free_at[fault.place] = at + for_s + EASE_S
            found.append(fault)
    return tuple(found)


def _bags(rng: Random) -> Iterator[Kind]:
    """Every kind as often as it should be, in an order of chance, again and again: a short run misses few kinds."""
    while True:
        bag = [kind for kind in KINDS for _ in range(kind.often)]
        rng.shuffle(bag)
        yield from bag
