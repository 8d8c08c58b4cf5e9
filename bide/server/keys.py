"""What the idempotency keys of new sessions stand for: one small document each, for a while.

Inputs need none: their ids are made of their keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

import msgspec
from msgspec import Struct

from bide.core import ids
from bide.core.limits import KEY_KEPT_S
from bide.store.base import Engine, Reader

KIND = "session_key"


class Keyed(Struct, frozen=True, kw_only=True):
    """The session, and a digest of the request that it was started by."""

    session: str
    body: str

    def over(self, now: float) -> bool:
        """Whether nobody repeats that request any more."""
        return now - ids.moment(self.session) >= KEY_KEPT_S


def name(author: str, key: str) -> str:
    """What the document of somebody's key is called."""
    return hashlib.sha256(f"{author}\x1f{key}".encode("utf-8", "surrogatepass")).hexdigest()


def find(reader: Reader, name: str) -> Keyed | None:
    """What the key stands for."""
    stored = reader.get(KIND, name)
    return msgspec.json.decode(stored, type=Keyed) if stored else None


def claim(engine: Engine, name: str, wanted: Keyed) -> Keyed:
    """What the key stands for; from now on what is wanted, if it was free. Called `alone`."""
    found = find(engine, name)
    if found is None:
        engine.put(KIND, name, msgspec.json.encode(wanted))
    return found or wanted


def forget(engine: Engine, names: Iterable[str]) -> None:
    """Frees those of the keys that are over. Called `alone`: another server may have freed one, and somebody taken it."""
    for name in names:
        found = find(engine, name)
        if found is not None and found.over(engine.now()):
            engine.delete(KIND, name)


def forget_those_of(engine: Engine, names: Iterable[str], sessions: Collection[str]) -> None:
    """Frees the keys that stand for one of the sessions, which were erased. Called `alone`."""
    for name in names:
        found = find(engine, name)
        if found is not None and found.session in sessions:
            engine.delete(KIND, name)
