"""What every handler and loop is given: the configuration, the store, the blobs, and whether the server is closing."""

from __future__ import annotations

import asyncio
import secrets
import time

from bide.core import commands as c
from bide.core import ids
from bide.core.facts import Envelope
from bide.core.handle import Done
from bide.core.limits import FLEET_CACHE_S
from bide.core.placement import Runner
from bide.server import around
from bide.server.archive import Archive
from bide.server.auth import Tokens
from bide.server.blobs import Blobs
from bide.server.config import Config
from bide.server.gauges import Gauges
from bide.server.glimpses import Glimpses
from bide.server.keyring import Keyring
from bide.server.metrics import Metrics
from bide.server.pieces import Pieces
from bide.server.signing import Pages
from bide.server.tracing import Tracing
from bide.server.wrapping import Wrapper
from bide.store.threaded import Store


class Parts:
    """One server's parts; lives as long as it does."""

    def __init__(self, config: Config, store: Store, blobs: Blobs, master: Wrapper) -> None:
        self.config, self.store, self.blobs = config, store, blobs
        self.id, self.url = self.mint("server"), ""  # the address is known once it listens
        self.tokens = Tokens(store)
        self.pages = Pages(config, store, self.tokens)
        self.keyring = Keyring(store, master)
        self.archive = Archive(self.keyring, blobs.store)
        self.glimpses = Glimpses()
        self.pieces = Pieces(store, blobs, self.keyring)
        self.metrics, self.tracing = Metrics(), Tracing()
        self.gauges = Gauges(config, store, self.metrics)
        store.on_commit = self._committed
        self.closing = asyncio.Event()
        self._fleet: dict[str, tuple[float, list[Runner]]] = {}
        self.places: dict[str, tuple[float, str] | None] = {}  # runner -> where in the queue its last look ended
        self.asking: dict[str, object] = {}  # runner -> its newest sync; an older one that still waits gives up

    def mint(self, *parts: object) -> str:
        """A new id of this moment."""
        return ids.mint(self.store.now(), *parts, secrets.token_bytes(10))

    async def handle(self, session_id: str, command: c.Command) -> Done:
        """Decides and appends, and counts what came of it."""
        with self.tracing.span(f"handle {type(command).__name__}", session=session_id) as span:
            done = await self.store.handle(session_id, command)
            if self.tracing.on:
                span.set_attributes({"bide.epoch": done.session.epoch, "bide.facts": len(done.envelopes)})
        self.metrics.decided(command, done)
        return done

    async def log(self, session_id: str, after: int, limit: int) -> list[Envelope]:
        """Events to be shown, in order; damaged ones, too, which are counted."""
        found = await self.store.shown(session_id, after, limit)
        self.metrics.shown(found)
        return found

    def _committed(self, writes: int, seconds: float) -> None:
        """Called by the thread that writes."""
        self.metrics.committed(writes, seconds)
        self.tracing.committed(writes, seconds)

    async def online(self, pool: str = "") -> list[Runner]:
        """Runners that were heard of lately, draining ones included; of one pool, or of all."""
        return await self.store.read(lambda reader: around.online(reader, self.config, pool))

    async def fleet(self, pool: str) -> list[Runner]:
        """The same as of a moment ago: many syncs look at it together."""
        until, found = self._fleet.get(pool, (0.0, []))
        if time.monotonic() >= until:
            found = await self.online(pool)
            self._fleet[pool] = time.monotonic() + FLEET_CACHE_S, found
        return found
