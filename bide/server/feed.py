"""Server-sent events from the log, by cursor: a reader that comes back goes on where it was, whoever serves it.

Nothing is queued for a reader. Each stream reads the log at its own pace, one batch at a time, and a reader that stops
reading is closed; so the memory of a stream is one batch, however far it lags behind.
"""

from __future__ import annotations

import asyncio

import msgspec
from starlette.types import Receive, Scope, Send

from bide.core import ids
from bide.core.limits import SEQ_MAX, SSE_AWAY_S, SSE_BATCH, SSE_FRAMES_BYTES, SSE_PING_S, SSE_RETRY_MS, SSE_STALL_S
from bide.core.refusals import Refused, Unavailable
from bide.server import render
from bide.server.calls import Streamed, hung_up
from bide.server.parts import Parts
from bide.store.wakeups import Subscription

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),  # else proxies hold the stream back
]
RETRY = b"retry: %d\n\n" % SSE_RETRY_MS
PING, BYE = b": ping\n\n", b": bye\n\n"
_encode = msgspec.json.Encoder().encode


class Gone(Exception):
    """The reader has left, or takes nothing any more."""


class Feed(Streamed):
    """One open stream. `cursors`: session -> seq of the last event the reader has."""

    def __init__(self, parts: Parts, cursors: dict[str, int], *, many: bool = False) -> None:
        self._parts, self._cursors, self._many = parts, dict(sorted(cursors.items())), many
        self._began = parts.store.now()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Streams until the reader leaves, stalls, or the server closes."""
        watch = asyncio.ensure_future(_left(receive, self._parts.closing))
        self._parts.metrics.streams.inc()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await self._send(send, RETRY)
            await self._stream(send, watch)
            await self._send(send, BYE, more=False)
        except Gone:
            pass
        finally:
            watch.cancel()
            self._parts.metrics.streams.dec()

    async def _stream(self, send: Send, watch: asyncio.Future[None]) -> None:
        with self._parts.store.subscribe(*self._cursors) as subscription:
            behind = set(self._cursors)
            while not watch.done():
                try:
                    for session_id in sorted(behind):
                        await self._catch_up(send, session_id, watch)
                except Unavailable:  # the stream stays open, and goes on when the store is back
                    await self._send(send, PING)
                    await asyncio.wait((watch,), timeout=SSE_AWAY_S)
                    behind = set(self._cursors)
                    continue
                behind = await self._next(send, subscription, watch)

    async def _catch_up(self, send: Send, session_id: str, watch: asyncio.Future[None]) -> None:
        while not watch.done():
            found = await self._parts.store.events(session_id, self._cursors[session_id], SSE_BATCH)
            if not found:
                return
            frames = bytearray()
            for envelope in found:
                self._cursors[session_id] = envelope.seq
                frames += b"id: %b\nevent: %b\ndata: %b\n\n" % (
                    self._place(envelope.seq),
                    envelope.type.encode(),
                    _encode(render.event(envelope)),
                )
                if len(frames) > SSE_FRAMES_BYTES:
                    await self._send(send, bytes(frames))
                    frames.clear()
            await self._send(send, bytes(frames))
            if found[0].time >= self._began:  # what is older was not written late, but asked for late
                self._parts.metrics.event_lag.observe(max(0.0, self._parts.store.now() - found[0].time))
            if len(found) < SSE_BATCH:
                return

    async def _next(self, send: Send, subscription: Subscription, watch: asyncio.Future[None]) -> set[str]:
        """Waits for something new, and says that the stream is alive where there is nothing."""
        waiting = asyncio.ensure_future(subscription.wait(SSE_PING_S))
        try:
            await asyncio.wait((waiting, watch), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                return set()
            wakeup = waiting.result()
        except Unavailable:
            raise Gone from None  # the store closes: the server does, too
        finally:
            waiting.cancel()
        if wakeup.everything:
            return set(self._cursors)
        if not wakeup.sessions:
            await self._send(send, PING)
            return set(self._cursors)  # a hint may be lost; the log is the truth
        return set(wakeup.sessions)

    def _place(self, seq: int) -> bytes:
        if not self._many:
            return b"%d" % seq
        return ",".join(f"{session_id}:{cursor}" for session_id, cursor in self._cursors.items()).encode()

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        try:
            async with asyncio.timeout(SSE_STALL_S):
                await send({"type": "http.response.body", "body": body, "more_body": more})
        except (TimeoutError, OSError):
            raise Gone from None


async def _left(receive: Receive, closing: asyncio.Event) -> None:
    """Returns when the reader has left or the server closes."""
    gone = asyncio.ensure_future(hung_up(receive))
    end = asyncio.ensure_future(closing.wait())
    try:
        await asyncio.wait((gone, end), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        end.cancel()


def cursors_of(text: str) -> dict[str, int]:
    """The places that an event id of a stream of many names: `session:seq,session:seq`."""
    found: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        session_id, _, seq = part.strip().partition(":")
        found[ids.parse(session_id, "session id")] = seq_of(seq)
    return found


def seq_of(text: str) -> int:
    """The place that an event id of a stream of one session names."""
    if not text.isdecimal() or len(text) > len(str(SEQ_MAX)):
        raise Refused("bad_value", f"{text[:80]!r} is not the id of an event of this stream.")
    return int(text)
