"""Where checkpoints lie: the objects in a blob store, and their keys elsewhere."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from bide.core.keyring import Keys, Opening, Seal
from bide.snapshots.blobs.base import BlobStore


class KeyMissing(Exception):
    """There is no key for this root: it was erased, never sealed, or the keys are lost. Its content cannot be read."""

    def __init__(self, root: str) -> None:
        self.root = root
        super().__init__(f"the key of checkpoint {root} is gone")


class RootTaken(Exception):
    """Another capture already has this root's name: whoever wrote this one no longer holds the lease."""

    def __init__(self, root: str) -> None:
        self.root = root
        super().__init__(f"the checkpoint {root} exists already")


class Keyring(Protocol):
    """The keys of one session's checkpoints. Every method may raise `Unavailable` or `Refused`."""

    def opening(self) -> Opening:
        """What a capture begins with."""
        ...

    def seal(self, seal: Seal) -> tuple[str, ...]:
        """Stores the keys of a root and its new packs, once all packs it uses are certain to stay.

        Gives the names of those that are gone, with nothing stored; empty: it is sealed. `RootTaken` for a name that
        is sealed with other keys; the same seal again is no error.
        """
        ...

    def keys(self, root: str) -> Keys:
        """What opens a root; `KeyMissing` when there is nothing."""
        ...


class Depot(Struct, frozen=True):
    """A blob store with the keys to what lies in it."""

    blobs: BlobStore
    keyring: Keyring
