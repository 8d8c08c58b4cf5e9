"""The blob store of a world: create-only roots, that can be lost, and a store that can be away."""

from __future__ import annotations

from sim.clock import Clock
from sim.runtimes import Disk


class Blobs:
    """The checkpoints. `ever` is what was ever written, lost or not: the truth that checks compare with."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.roots: dict[str, Disk] = {}
        self.ever: dict[str, Disk] = {}
        self.away_until = 0.0

    @property
    def away(self) -> bool:
        """Whether it cannot be reached now."""
        return self.clock.now < self.away_until

    def put(self, root: str, disk: Disk) -> None:
        """Writes a checkpoint; a root that is there stays as it is."""
        if root not in self.ever:
            self.roots[root] = self.ever[root] = disk

    def lose(self) -> None:
        """One of them disappears."""
        if self.roots:
            root = self.clock.rng.choice(sorted(self.roots))
            self.clock.happened("blob_lost", root[14:])
            del self.roots[root]
