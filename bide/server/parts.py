"""What every handler and loop is given: the configuration, the store, the blobs, and whether the server is closing."""

from __future__ import annotations

import asyncio
import secrets

from bide.core import commands as c
from bide.core import facts as f
from bide.core import ids
from bide.core.handle import Done
from bide.core.placement import Runner, state_of
from bide.server.blobs import BlobFolder
from bide.server.config import Config
from bide.server.metrics import Metrics
from bide.store.threaded import Store

QUEUE = "queue"  # rings when a session begins to wait for a runner; no session has such an id
_QUEUES = (f.Created, f.Queued, f.Interrupted)


class Parts:
    """One server's parts; lives as long as it does."""

    def __init__(self, config: Config, store: Store, blobs: BlobFolder) -> None:
        self.config, self.store, self.blobs = config, store, blobs
        self.metrics = Metrics()
        self.closing = asyncio.Event()
        self.asking: dict[str, object] = {}  # runner -> its newest sync; an older one that still waits gives up

    def mint(self, *parts: object) -> str:
        """A new id of this moment."""
        return ids.mint(self.store.now(), *parts, secrets.token_bytes(10))

    async def handle(self, session_id: str, command: c.Command) -> Done:
        """Decides and appends; wakes the runners that wait for work when there is some."""
        done = await self.store.handle(session_id, command)
        if any(isinstance(envelope.fact, _QUEUES) for envelope in done.envelopes):
            self.store.changed(QUEUE)
        return done

    async def online(self) -> list[Runner]:
        """Runners that were heard of lately, draining ones included."""
        now, config = self.store.now(), self.config
        found = await self.store.runners()
        return [r for r in found if state_of(r, now, config.poll_s, config.lease_s) in ("online", "draining")]
