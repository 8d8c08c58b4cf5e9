"""Subscribers: one stream a session, each event once and in order, and when it came."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from bench.crowd import Where
from bench.wire import Events, Line

LOOK_S = 0.02


class Event(Struct, frozen=True):
    """What is looked at of an event."""

    seq: int
    type: str
    time: datetime
    data: dict[str, Any]


class Heard(Struct, frozen=True):
    """One event, and when it came; epoch seconds."""

    event: Event
    at: float


_event = msgspec.json.Decoder(Event)


class Listener:
    """Follows one session from a place in its log on."""

    def __init__(self, session: str, after: int) -> None:
        self.session, self.seq = session, after
        self.heard: list[Heard] = []
        self._line: Line | None = None

    async def open(self, where: Where) -> None:
        """Connects and asks for the stream."""
        self._line = await where.line()
        self._line.follow(f"/v1/sessions/{self.session}/events/stream?after={self.seq}", Events(self._hear))

    def close(self) -> None:
        """Leaves."""
        if self._line is not None:
            self._line.close()

    @property
    def lost(self) -> bool:
        """Whether the server hung up."""
        return self._line is None or self._line.lost

    def _hear(self, seq: int, body: bytes) -> None:
        at = time.time()
        assert seq == self.seq + 1, f"{self.session}: {seq} came after {self.seq}"
        self.seq = seq
        self.heard.append(Heard(_event.decode(body), at))


async def all_heard(listeners: dict[str, Listener], last: dict[str, int], within_s: float) -> bool:
    """Whether every listener has heard its session up to that place in the log, in time."""
    end = time.monotonic() + within_s
    while any(listeners[session].seq < seq for session, seq in last.items()):
        if time.monotonic() > end or any(one.lost for one in listeners.values()):
            return False
        await asyncio.sleep(LOOK_S)
    return True
