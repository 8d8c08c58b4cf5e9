"""A reader who follows one session's log from any server, moving on to another when the line breaks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from random import Random

import httpx2
import msgspec
from msgspec import Struct

from bide.client.frames import Frames

SILENT_S = 8.0  # a line that says nothing for so long is left for another
AGAIN_S = 0.3


class _Event(Struct):
    seq: int
    type: str


class Follower:
    """What it was shown: (seq, type) in the order in which they came."""

    def __init__(self, clients: Sequence[httpx2.AsyncClient], session: str, rng: Random) -> None:
        self._clients, self._rng, self.session = clients, rng, session
        self.seen: list[tuple[int, str]] = []
        self.lines = 0

    async def follow(self) -> None:
        """Until it is cancelled."""
        while True:
            with contextlib.suppress(httpx2.HTTPError, TimeoutError):
                await self._line()
            await asyncio.sleep(AGAIN_S)

    async def _line(self) -> None:
        frames, path = Frames(), f"/v1/sessions/{self.session}/events/stream"
        after = str(self.seen[-1][0] if self.seen else 0)
        timeout = httpx2.Timeout(SILENT_S)
        client = self._rng.choice(self._clients)
        async with client.stream("GET", path, headers={"last-event-id": after}, timeout=timeout) as answer:
            if answer.status_code >= 300:
                return
            self.lines += 1
            async for chunk in answer.aiter_bytes():
                for frame in frames.feed(chunk):
                    event = msgspec.json.decode(frame.body, type=_Event)
                    self.seen.append((event.seq, event.type))
