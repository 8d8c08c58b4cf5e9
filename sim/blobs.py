"""The blob store of a world: create-only objects, that can be lost, and a store that can be away."""

from __future__ import annotations

import random

from bide.store.keyrows import root_object
from sim.clock import Clock
from sim.runtimes import Disk


def content(disk: Disk) -> frozenset[str]:
    """What a checkpoint of this disk has to hold, piece by piece."""
    return frozenset((*disk.files, *disk.memory))


class Blobs:
    """The checkpoints: roots, and packs with pieces of content. `ever` is what was ever written as a root, lost or not:
    the truth that checks compare with.
    """

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self.clock, self._rng = clock, rng
        self.roots: dict[str, Disk] = {}
        self.ever: dict[str, Disk] = {}
        self.packs: dict[str, frozenset[str]] = {}  # by their keys in the store
        self.ever_packed: dict[str, frozenset[str]] = {}
        self.named: dict[str, tuple[str, ...]] = {}  # root -> its packs' keys
        self.lost: set[str] = set()  # objects that a fault took
        self.away_until = 0.0

    @property
    def away(self) -> bool:
        """Whether it cannot be reached now."""
        return self.clock.now < self.away_until

    def put(self, root: str, disk: Disk, packs: tuple[str, ...]) -> None:
        """Writes a checkpoint; a root that is there stays as it is."""
        if root not in self.ever:
            self.roots[root] = self.ever[root] = disk
            self.named[root] = packs

    def put_pack(self, key: str, pieces: frozenset[str]) -> None:
        """Writes a pack."""
        self.packs[key] = self.ever_packed[key] = pieces

    def whole(self, root: str) -> bool:
        """Whether everything of a checkpoint is there."""
        return root in self.roots and content(self.roots[root]) <= self.holding(self.named[root])

    def holding(self, packs: tuple[str, ...]) -> frozenset[str]:
        """All pieces in these packs, as far as they are there."""
        return frozenset().union(*(self.packs.get(key, ()) for key in packs))

    def taken(self, root: str) -> bool:
        """Whether a fault took something of the checkpoint."""
        return bool(self.lost & {root_object(root), *self.named.get(root, ())})

    def objects(self, prefix: str = "") -> list[str]:
        """The keys of what is there."""
        return sorted(key for key in (*map(root_object, self.roots), *self.packs) if key.startswith(prefix))

    def delete(self, key: str) -> bool:
        """Removes an object; whether it was there."""
        kind, _, name = key.partition("/")
        return (self.roots.pop(name, None) if kind == "roots" else self.packs.pop(key, None)) is not None

    def lose(self) -> None:
        """One of them disappears, or a pack of it."""
        if self.roots:
            root = self.clock.rng.choice(sorted(self.roots))
            packs = [key for key in self.named[root] if key in self.packs]
            key = self._rng.choice([root_object(root), root_object(root), *packs])
            self.clock.happened("blob_lost", root[14:])
            self.lost.add(key)
            self.delete(key)
