"""Tells sessions whose time has come what time it is. The whole timer service: no timer lives in memory."""

from __future__ import annotations

import asyncio

import msgspec
import structlog

from bide.core import commands as c
from bide.core.lease import Pulse, beat
from bide.core.limits import LIST_MAX, OUTAGE_GAP_SHARE, PULSE_SHARE, WAKE_HOLD_SHARE, WAKER_S
from bide.core.refusals import Refused, Unavailable
from bide.server import presence
from bide.server.parts import Parts
from bide.store.base import Engine

LOG = structlog.get_logger()
PULSE = ("pulse", "waker")


class Waker:
    """One server's waker. Several servers may each have one: they share what is due."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._pulse = Pulse()
        self._gap_s = parts.config.lease_s * OUTAGE_GAP_SHARE
        self._beat_s = self._gap_s * PULSE_SHARE
        self.every_s = min(WAKER_S, self._gap_s * PULSE_SHARE)

    async def round(self) -> None:
        """Beats where it is time, then wakes everything that is due."""
        store = self._parts.store
        now = store.now()
        # Backwards too: a clock that was set back is a clock that jumped.
        if not 0 <= now - self._pulse.at < self._beat_s:
            self._pulse = await store.write(self._beat)
        wake = c.Wake(outage_until=self._pulse.outage_until, good_until=now + self._gap_s)
        hold_s = self._parts.config.lease_s * WAKE_HOLD_SHARE
        due = await store.claim_due(store.now(), LIST_MAX, hold_s)
        # All at once: they share a few transactions. One after the other could last so long that the next beat would
        # take it for an outage, and no lease would ever end.
        woken = await asyncio.gather(*(self._wake(session_id, wake) for session_id in due), return_exceptions=True)
        for failed in woken:
            if isinstance(failed, BaseException):
                raise failed

    async def _wake(self, session_id: str, wake: c.Wake) -> None:
        try:
            await self._parts.handle(session_id, wake)
        except Refused:
            pass  # it was deleted meanwhile
        except Unavailable:
            raise  # the store is away for all of them
        except Exception as error:
            LOG.error("wake_failed", session=session_id, exc_info=error)

    def _beat(self, engine: Engine) -> Pulse:
        stored = engine.get(*PULSE)
        before = msgspec.json.decode(stored, type=Pulse) if stored else Pulse()
        after = beat(before, engine.now(), self._parts.config.lease_s)
        engine.put(*PULSE, msgspec.json.encode(after))
        presence.announce(engine, self._parts)
        return after
