"""Looks at what sleeping sessions have saved before anybody needs it, and says so in the session when it is damaged."""

from __future__ import annotations

import zlib

import structlog
from msgspec.structs import replace

from bide.core.limits import SCRUB_CYCLE_S, SCRUB_FULL_CYCLES, SCRUB_LOOK_S, SCRUB_SESSIONS
from bide.core.refusals import Refused, Unavailable
from bide.core.session import Lifecycle, Session
from bide.server import checking
from bide.server.loops.base import Round, claim, keep
from bide.server.parts import Parts
from bide.store.base import Page

LOG = structlog.get_logger()
DUTY = "scrubber"
AT_REST = (Lifecycle.PARKED, Lifecycle.ENDED)


class Scrub(Round, frozen=True, kw_only=True):
    """Sessions are looked at newest first, down from the id `before`, in cycles that begin again once they are through."""

    before: str = ""
    cycle: int = 0
    begun_at: float = 0.0  # the cycle


class Scrubber:
    """One server's. A round is done by the one that first finds it due."""

    every_s = SCRUB_LOOK_S

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def round(self) -> None:
        """Looks at some sessions at rest. A blob store that is away ends the round: it says nothing about anything."""
        store = self._parts.store
        now = await store.write(lambda engine: claim(engine, DUTY, Scrub, SCRUB_LOOK_S / 2))
        if now is None:
            return
        now = now if now.before else replace(now, begun_at=now.at)
        page = Page(limit=SCRUB_SESSIONS, before=now.before, lifecycles=AT_REST)
        found = await store.read(lambda reader: reader.sessions(page))
        for s in found:
            if self._parts.closing.is_set():
                return
            await self._apart(s, full=(now.cycle + zlib.crc32(s.id.encode())) % SCRUB_FULL_CYCLES == 0)
            now = replace(now, before=s.id)
        if not found:
            now = replace(now, before="", cycle=now.cycle + 1, due=now.begun_at + SCRUB_CYCLE_S)
        await store.write(lambda engine: keep(engine, DUTY, now))

    async def _apart(self, s: Session, *, full: bool) -> None:
        """One session that fails is said, and those behind it are looked at all the same."""
        try:
            await self._look(s, full=full)
        except Unavailable:
            raise
        except Refused as refused:
            LOG.info("not_looked_at", session=s.id, why=str(refused))  # mostly it was deleted meanwhile
        except Exception as error:
            self._parts.metrics.failures.labels(DUTY).inc()
            LOG.error("not_looked_at", session=s.id, exc_info=error)

    async def _look(self, s: Session, *, full: bool) -> None:
        saved = s.checkpoint
        if saved is None or s.lease is not None:
            return
        seen = await checking.look_at(self._parts, s, saved, full=full or bool(s.flagged))
        await checking.flag(self._parts, s.id, seen)
