"""Words of runtimes as they work, handed to those who watch at this moment. Nothing of it is stored or replayed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Self

import msgspec
from msgspec.structs import replace

from bide.core.limits import GLIMPSE_BYTES, GLIMPSE_COST_BYTES, GLIMPSES_HELD_BYTES
from bide.core.wire import Glimpse
from bide.server import shapes

_encode = msgspec.json.Encoder().encode


class Watching:
    """One reader's. A slow one costs a bounded number of bytes: the oldest go."""

    def __init__(self, hub: Glimpses, sessions: Iterable[str]) -> None:
        self._hub, self.sessions = hub, frozenset(sessions)
        self._held: deque[Glimpse] = deque()
        self._size = 0
        self._told: dict[str, tuple[int, int]] = {}  # session -> epoch and number of the last fact that the reader has
        self._rung = asyncio.Event()

    def add(self, glimpse: Glimpse) -> None:
        """One more."""
        self._held.append(glimpse)
        self._size += _cost(glimpse)
        while self._size > GLIMPSES_HELD_BYTES and len(self._held) > 1:
            self._size -= _cost(self._held.popleft())
        self._rung.set()

    def told(self, session: str, epoch: int, n: int) -> None:
        """The reader has this fact of a runner: what was glimpsed before it says nothing new."""
        if n >= 0:
            self._told[session] = (epoch, n)

    async def wait(self) -> None:
        """Returns once there is one."""
        await self._rung.wait()

    def frames(self) -> bytes:
        """Those that still say something, as frames of a stream. They have no id: the reader's place stays what it was."""
        return b"".join(b"event: glimpse\ndata: %b\n\n" % _encode(_shape(one)) for one in self._take())

    def _take(self) -> list[Glimpse]:
        taken = [one for one in self._held if (one.epoch, one.n) > self._told.get(one.session, (-1, -1))]
        self._held.clear()
        self._size = 0
        self._rung.clear()
        return taken

    def __enter__(self) -> Self:
        self._hub.open(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._hub.close(self)


class Glimpses:
    """Who watches what. Belongs to one event loop and is used from its thread only."""

    def __init__(self) -> None:
        self._by_session: dict[str, set[Watching]] = {}

    def watching(self, sessions: Iterable[str]) -> Watching:
        """A reader of these sessions, once it is entered."""
        return Watching(self, sessions)

    def watched(self, sessions: Iterable[str]) -> frozenset[str]:
        """Those of the sessions that somebody watches here."""
        return frozenset(session for session in sessions if session in self._by_session)

    def show(self, glimpses: Iterable[Glimpse]) -> None:
        """Hands each to those who watch its session."""
        for one in glimpses:
            short = one if len(one.text) <= GLIMPSE_BYTES else replace(one, text=one.text[-GLIMPSE_BYTES:])
            for watching in self._by_session.get(one.session, ()):
                watching.add(short)

    def open(self, watching: Watching) -> None:
        """It watches from now on."""
        for session in watching.sessions:
            self._by_session.setdefault(session, set()).add(watching)

    def close(self, watching: Watching) -> None:
        """It watches no more."""
        for session in watching.sessions:
            others = self._by_session.get(session, set())
            others.discard(watching)
            if not others:
                self._by_session.pop(session, None)


def _cost(one: Glimpse) -> int:
    return GLIMPSE_COST_BYTES + len(one.text)


def _shape(one: Glimpse) -> shapes.Glimpse:
    return shapes.Glimpse(session_id=one.session, turn=one.turn, kind=one.kind, text=one.text)
