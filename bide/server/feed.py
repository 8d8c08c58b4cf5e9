"""Server-sent events from the log, by cursor: a reader that comes back goes on where it was, whoever serves it.

Nothing is queued for a reader. Each stream reads the log at its own pace, one batch at a time, and a reader that stops
reading is closed; so the memory of a stream is one batch, however far it lags behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

import msgspec
from starlette.types import Receive, Scope, Send

from bide.core import ids
from bide.core.limits import (
    SEQ_MAX,
    SSE_AWAY_S,
    SSE_BATCH,
    SSE_BATCH_MIN,
    SSE_BYE_S,
    SSE_FRAMES_BYTES,
    SSE_PING_S,
    SSE_RETRY_MS,
    SSE_STALL_S,
    STILL_S,
)
from bide.core.refusals import Refused, Unavailable
from bide.server.calls import Streamed, hung_up
from bide.server.events import event
from bide.server.hints import Hints
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
    """The reader has left."""


class Stalled(Gone):
    """The reader takes nothing any more."""


class Over(Exception):
    """The log ends before the reader's place: its session was deleted, or a backup put back. Who comes back hears it."""


class Feed(Streamed):
    """One open stream. `cursors`: session -> seq of the last event the reader has. `still`: whether the reader may still
    read, asked now and then. `changes`: the reader is also told which sessions have changed, of all that there are;
    `glimpses`: and what their runtimes say as they work, between the events.
    """

    def __init__(
        self,
        parts: Parts,
        cursors: dict[str, int],
        *,
        still: Callable[[], Awaitable[bool]],
        many: bool = False,
        changes: bool = False,
        glimpses: bool = False,
    ) -> None:
        self._parts, self._cursors, self._many = parts, dict(sorted(cursors.items())), many
        self._hints = Hints() if changes else None
        self._glimpses = parts.glimpses.watching(cursors) if glimpses else None
        self._still = still
        self._asked_at = self._looked_at = time.monotonic()
        self._began = parts.store.now()
        self._batch = SSE_BATCH_MIN
        self._sending: asyncio.Timeout | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Streams until the reader leaves, stalls, or the server closes."""
        watch = asyncio.ensure_future(_left(receive, self._parts.closing))
        watch.add_done_callback(lambda _: self._hurry())
        self._parts.metrics.streams.inc()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await self._send(send, RETRY)
            await self._stream(send, watch)
            await self._send(send, BYE, more=False)
        except Stalled:
            await _cut(scope, receive)
        except Gone:
            pass
        finally:
            watch.cancel()
            self._parts.metrics.streams.dec()

    async def _stream(self, send: Send, watch: asyncio.Future[None]) -> None:
        subscribed = self._parts.store.subscribe(*(() if self._hints else self._cursors))
        with subscribed as subscription, self._glimpses or contextlib.nullcontext():
            behind = set(self._cursors)
            while not watch.done():
                try:
                    if not await self._may_read():
                        return
                    # One batch each: a session that writes faster than this reader reads must not keep it from the others.
                    behind = {name for name in sorted(behind) if await self._catch_up(send, name)}
                except Over:
                    return
                except Unavailable:  # the stream stays open, and goes on when the store is back
                    await self._send(send, PING)
                    await asyncio.wait((watch,), timeout=SSE_AWAY_S)
                    behind = set(self._cursors)
                    continue
                if self._hints:
                    await self._send(send, self._hints.frame(time.monotonic()))
                if self._glimpses and not behind:
                    await self._send(send, self._glimpses.frames())
                behind |= await self._next(send, subscription, watch, behind=bool(behind))

    async def _may_read(self) -> bool:
        if time.monotonic() - self._asked_at < STILL_S:
            return True
        self._asked_at = time.monotonic()
        return await self._still()

    async def _catch_up(self, send: Send, session_id: str) -> bool:
        """Sends one batch. Gives whether there is likely more."""
        asked, sent, frames = self._batch, 0, bytearray()
        found = await self._parts.log(session_id, self._cursors[session_id], asked)
        if not found:
            ends = await self._parts.store.last_seqs((session_id,))
            if ends.get(session_id, -1) < self._cursors[session_id]:
                raise Over
            return False
        more, written = len(found) == asked, found[0].time
        found.reverse()
        while found:  # what is sent is let go: the reader may take its time
            envelope = found.pop()
            self._cursors[session_id] = envelope.seq
            if self._glimpses:
                self._glimpses.told(session_id, envelope.epoch, envelope.n)
            frames += b"id: %b\nevent: %b\ndata: %b\n\n" % (
                self._place(envelope.seq),
                envelope.type.encode(),
                _encode(event(envelope)),
            )
            if len(frames) > SSE_FRAMES_BYTES:
                sent += len(frames)
                await self._send(send, bytes(frames))
                frames.clear()
        await self._send(send, bytes(frames))
        self._batch = SSE_BATCH_MIN if sent else min(SSE_BATCH, 2 * self._batch)
        if written >= self._began:  # what is older was not written late, but asked for late
            self._parts.metrics.event_lag.observe(max(0.0, self._parts.store.now() - written))
        return more

    async def _next(
        self, send: Send, subscription: Subscription, watch: asyncio.Future[None], *, behind: bool
    ) -> set[str]:
        """Waits for something new, unless there is something to go on with; says that the stream is alive where there is
        nothing.
        """
        due_s = self._hints.within_s(time.monotonic()) if self._hints else None
        waiting = asyncio.ensure_future(subscription.wait(0.0 if behind else SSE_PING_S if due_s is None else due_s))
        glimpsed = asyncio.ensure_future(self._glimpses.wait()) if self._glimpses else None
        try:
            awaited = {waiting, watch, *((glimpsed,) if glimpsed else ())}
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                return set()
            wakeup = waiting.result()
        except Unavailable:
            raise Gone from None  # the store closes: the server does, too
        finally:
            waiting.cancel()
            if glimpsed:
                glimpsed.cancel()
        if self._hints:
            self._hints.take(wakeup)
        if wakeup.everything:
            return set(self._cursors)
        if not (wakeup.sessions or behind or due_s is not None):
            await self._send(send, PING)
        if time.monotonic() - self._looked_at < SSE_PING_S:
            return set(self._cursors) & wakeup.sessions
        self._looked_at = time.monotonic()
        return set(self._cursors)  # a hint may be lost; the log is the truth

    def _place(self, seq: int) -> bytes:
        if not self._many:
            return b"%d" % seq
        return ",".join(f"{session_id}:{cursor}" for session_id, cursor in self._cursors.items()).encode()

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        if not body and more:
            return
        try:
            async with asyncio.timeout(SSE_BYE_S if self._parts.closing.is_set() else SSE_STALL_S) as self._sending:
                await send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            raise Stalled from None
        except OSError:
            raise Gone from None
        finally:
            self._sending = None

    def _hurry(self) -> None:
        """The server ends, or the reader has left: what is being sent is not waited for much longer."""
        if self._sending is not None and not self._sending.expired():
            self._sending.reschedule(asyncio.get_running_loop().time() + SSE_BYE_S)


async def _cut(scope: Scope, receive: Receive) -> None:
    """Ends the line at once: to close it in order, what lies in its buffer would be waited for as long as the reader
    lives.
    """
    if (abort := scope.get("bide.abort")) is not None:
        abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SSE_BYE_S):
                await hung_up(receive)


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
