"""Tells sessions whose time has come what time it is. The whole timer service: no timer lives in memory."""

from __future__ import annotations

import msgspec
import structlog

from bide.core import commands as c
from bide.core.lease import Pulse, beat
from bide.core.limits import LIST_MAX, OUTAGE_GAP_SHARE, PULSE_SHARE, WAKER_S
from bide.core.refusals import Refused, Unavailable
from bide.server.parts import Parts
from bide.store.base import Engine

LOG = structlog.get_logger()
PULSE = ("pulse", "waker")


class Waker:
    """One server's waker. Several servers may each have one: what a session decides twice it decides once."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._pulse = Pulse()
        gap_s = parts.config.lease_s * OUTAGE_GAP_SHARE
        self._beat_s = gap_s * PULSE_SHARE
        self.every_s = min(WAKER_S, gap_s * PULSE_SHARE)

    async def round(self) -> None:
        """Beats where it is time, then wakes everything that is due."""
        store = self._parts.store
        now = store.now()
        # Backwards too: a clock that was set back is a clock that jumped.
        if not 0 <= now - self._pulse.at < self._beat_s:
            self._pulse = await store.write(self._beat)
        wake = c.Wake(outage_until=self._pulse.outage_until)
        for session_id in await store.due(store.now(), LIST_MAX):
            try:
                done = await self._parts.handle(session_id, wake)
            except Refused:
                continue  # it was deleted meanwhile
            except Unavailable:
                raise  # the store is away for all of them
            except Exception as error:
                LOG.error("wake_failed", session=session_id, exc_info=error)
                continue
            if done.envelopes:
                self._parts.metrics.wakes.inc()

    def _beat(self, engine: Engine) -> Pulse:
        stored = engine.get(*PULSE)
        before = msgspec.json.decode(stored, type=Pulse) if stored else Pulse()
        after = beat(before, engine.now(), self._parts.config.lease_s)
        engine.put(*PULSE, msgspec.json.encode(after))
        return after
