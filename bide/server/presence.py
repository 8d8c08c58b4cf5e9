"""Which servers work on the database: each says so now and then, in a small document of its own."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from bide.core.limits import SERVER_ALIVE_S
from bide.core.session import VERSION
from bide.server.parts import Parts
from bide.store.base import Engine, Reader

KIND = "server"


class Present(Struct, frozen=True, kw_only=True):
    """A server when it was last heard of. `schema` and `form` say its release: its newest step of the schema, and the
    form in which it stores sessions.
    """

    id: str
    url: str
    schema: int
    form: int
    at: float


def announce(engine: Engine, parts: Parts) -> None:
    """Says that this server is alive."""
    here = Present(id=parts.id, url=parts.url, schema=engine.schema, form=VERSION, at=engine.now())
    engine.put(KIND, here.id, msgspec.json.encode(here))


def alive(reader: Reader) -> list[Present]:
    """The servers heard of lately."""
    return [one for one in _every(reader) if reader.now() - one.at < SERVER_ALIVE_S]


def forget(engine: Engine) -> None:
    """Drops those that have ended."""
    for one in _every(engine):
        if engine.now() - one.at >= SERVER_ALIVE_S:
            engine.delete(KIND, one.id)


def _every(reader: Reader) -> list[Present]:
    found = (reader.get(KIND, key) for key in reader.keys(KIND))
    return [msgspec.json.decode(stored, type=Present) for stored in found if stored]
