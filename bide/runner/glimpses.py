"""Words of runtimes as they work, on their way to whoever watches: gathered for a moment, sent once, never again.

Nothing waits for them, and they wait for everything: one request is under way at a time, and what comes meanwhile takes
the place of what is older.
"""

from __future__ import annotations

import asyncio
from collections import deque

import structlog
from msgspec.structs import replace

from bide.core.hearing import clean
from bide.core.limits import GLIMPSE_BYTES, GLIMPSE_REST_S, GLIMPSE_S, GLIMPSES_PER_POST_MAX
from bide.core.refusals import Refused, Unavailable
from bide.core.wire import Glimpse, GlimpsesPost
from bide.runner.link import Link

LOG = structlog.get_logger()


class Gathered:
    """Those of one session, the oldest first; of too much the newest."""

    def __init__(self) -> None:
        self._parts: deque[Glimpse] = deque()
        self._size = 0

    def add(self, glimpse: Glimpse) -> None:
        """Joins it with what is like it. What a fact has said since is dropped."""
        last = self._parts[-1] if self._parts else None
        if last is not None and (last.epoch, last.n) != (glimpse.epoch, glimpse.n):
            self._parts.clear()
            self._size, last = 0, None
        text = clean(glimpse.text[-GLIMPSE_BYTES:])
        if last is not None and last.kind == glimpse.kind:
            self._parts[-1] = replace(last, text=_tail(last.text + text))
            self._size += len(self._parts[-1].text) - len(last.text)
        else:
            self._parts.append(replace(glimpse, text=text))
            self._size += len(text)
        while self._size > GLIMPSE_BYTES and len(self._parts) > 1:
            self._size -= len(self._parts.popleft().text)

    def take(self) -> tuple[Glimpse, ...]:
        """All of them; nothing is left."""
        taken = tuple(self._parts)
        self._parts.clear()
        self._size = 0
        return taken


class Glimpses:
    """Of all sessions of one runner."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._gathered: dict[str, Gathered] = {}
        self._resting: dict[str, float] = {}  # sessions that nobody watches, until when
        self._task: asyncio.Task[None] | None = None
        self._unwanted = False  # by a server of another release

    def add(self, glimpse: Glimpse) -> None:
        """One more; returns at once."""
        if self._unwanted:
            return
        self._gathered.setdefault(glimpse.session, Gathered()).add(glimpse)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send(), name="glimpses")

    def release(self, session: str) -> None:
        """Its lease is over."""
        self._gathered.pop(session, None)
        self._resting.pop(session, None)

    async def _send(self) -> None:
        """Sends until there is nothing more."""
        loop = asyncio.get_running_loop()
        while self._gathered:
            soonest = min(self._resting.get(session, 0.0) for session in self._gathered)
            await asyncio.sleep(max(GLIMPSE_S, soonest - loop.time()))
            now = loop.time()
            due = [session for session in self._gathered if self._resting.get(session, 0.0) <= now]
            parts = [part for session in due for part in self._gathered.pop(session).take()][:GLIMPSES_PER_POST_MAX]
            try:
                watched = (await self._link.glimpse(GlimpsesPost(glimpses=tuple(parts)))).watched if parts else ()
            except Unavailable:
                watched = ()
            except Refused as refused:
                LOG.info("glimpses_not_wanted", code=refused.code)
                self._unwanted = refused.code == "no_route"
                watched = ()
            for session in due:
                self._resting[session] = 0.0 if session in watched else loop.time() + GLIMPSE_REST_S
            if self._unwanted:
                self._gathered.clear()


def _tail(text: str) -> str:
    return text if len(text) <= GLIMPSE_BYTES else text[-GLIMPSE_BYTES:]
