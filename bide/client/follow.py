"""Logs without end: from cursors on, each event once and in order, across cuts, dead lines and restarts."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import cast

import httpx2
import msgspec

from bide.client.frames import Frame, Frames
from bide.client.shapes import Event, Glimpse, Items
from bide.client.transport import Transport
from bide.core import limits
from bide.core.refusals import Kind, Refused

Trouble = Callable[[str], None]
Glimpsed = Callable[[Glimpse], None]
AWAY = (Kind.UNREACHABLE, Kind.FAILED)  # a server that answers only that something went wrong is as good as away


class _Held(Exception):
    """Something on the way holds a stream back: its first bytes, which are sent at once, did not come."""


class _Broken(Exception):
    """What came is no stream of ours, or lacks an event; the text says so, as a sentence."""


async def follow(
    transport: Transport,
    session: str,
    after: int,
    *,
    on_trouble: Trouble | None = None,
    on_glimpse: Glimpsed | None = None,
) -> AsyncGenerator[list[Event], None]:
    """Events of one session with a seq above `after`; for the rest see `follow_many`. `on_glimpse` hears what its runtime
    says as it works: live only, some of it may be missing, and what the next event says takes its place.
    """
    async with aclosing(_follow(transport, _One(session, on_glimpse), {session: after}, on_trouble)) as batches:
        async for batch in batches:
            yield batch


async def follow_many(
    transport: Transport, cursors: Mapping[str, int], *, on_trouble: Trouble | None = None
) -> AsyncGenerator[list[Event], None]:
    """Events of sessions with a seq above the cursor of theirs, as they come, in batches; an empty one says that the line
    is alive.

    A line that breaks, or says nothing for `limits.FOLLOW_DEAD_S`, is opened again where it broke. Where something on
    the way holds streams back, the log is asked for again and again instead. The first connection has to succeed, with
    one of the servers; later they may be away for `limits.FOLLOW_AWAY_S`, and `on_trouble` hears of it in a sentence.
    An event is never left out: a server that does is asked once more, and then it is `Refused('failed')`. Raises what
    the server refuses, and `Refused('unreachable')`.
    """
    async with aclosing(_follow(transport, _Many(), dict(cursors), on_trouble)) as batches:
        async for batch in batches:
            yield batch


class _One:
    """One session's log."""

    def __init__(self, session: str, on_glimpse: Glimpsed | None) -> None:
        self._session, self._events = session, f"/v1/sessions/{session}/events"
        self.on_glimpse = on_glimpse

    def stream(self, cursors: Mapping[str, int]) -> tuple[str, str]:
        """The path of the stream, and the id of the last event that the reader has."""
        asks = "?glimpses=true" if self.on_glimpse else ""
        return f"{self._events}/stream{asks}", str(cursors[self._session])

    async def ask(self, transport: Transport, cursors: Mapping[str, int]) -> list[Event]:
        """What comes next, waited for."""
        return await _page(transport, self._events, cursors[self._session], wait_s=int(limits.POLL_S))


class _Many:
    """The logs of many sessions in one stream."""

    on_glimpse = None

    def stream(self, cursors: Mapping[str, int]) -> tuple[str, str]:
        """The path of the stream, and the id of the last event that the reader has."""
        places = (f"{session}:{seq}" for session, seq in cursors.items())
        return f"/v1/stream?sessions={','.join(cursors)}", ",".join(places)

    async def ask(self, transport: Transport, cursors: Mapping[str, int]) -> list[Event]:
        """What comes next of each; nothing is waited for but a moment."""
        found = [await _page(transport, f"/v1/sessions/{each}/events", seq) for each, seq in cursors.items()]
        if not any(found):
            await asyncio.sleep(limits.FOLLOW_LOOK_S)
        return [event for page in found for event in page]


async def _page(transport: Transport, path: str, after: int, *, wait_s: int = 0) -> list[Event]:
    query = {"after": after, "limit": limits.LIST_MAX, "wait_s": wait_s}
    answer = await transport.ask("GET", path, query={name: value for name, value in query.items() if value})
    return cast("Items[Event]", answer)["items"]


async def _follow(
    transport: Transport, what: _One | _Many, cursors: dict[str, int], on_trouble: Trouble | None
) -> AsyncGenerator[list[Event], None]:
    heard, tries, left_out, held = -math.inf, 0, 0, False
    while True:
        url = transport.servers.now
        trouble: Refused | None = None
        try:
            async with aclosing((_asked if held else _streamed)(transport, what, cursors)) as line:
                async for batch in line:
                    heard = time.monotonic()
                    if fresh := _next_of(batch, cursors):
                        tries = left_out = 0
                    yield fresh
                    if any(event["seq"] > cursors.get(event["session_id"], math.inf) for event in batch):
                        left_out += 1
                        raise _Broken(f"{url} left out an event after {_latest(cursors)}.")
        except _Held:
            held = True
            continue
        except _Broken as broken:
            trouble = Refused("failed", str(broken))
            if left_out > 1:
                raise trouble from None
        except httpx2.HTTPError as error:
            sentence = f"The connection to {url} is lost: {str(error) or type(error).__name__}."
            trouble = Refused("unreachable", sentence)
        except Refused as refused:
            if refused.kind not in AWAY:
                raise
            trouble = refused
        every_one = tries + 1 >= len(transport.servers)  # was asked: at the first connection, too
        if trouble is not None and every_one and time.monotonic() - heard > limits.FOLLOW_AWAY_S:
            raise trouble
        if trouble is not None and on_trouble is not None and tries == 1:  # the first try again mostly does it
            on_trouble(f"{trouble.sentence} Trying again.")
        await asyncio.sleep(limits.FOLLOW_BACKOFF_S[min(tries, len(limits.FOLLOW_BACKOFF_S) - 1)])
        tries += 1


def _next_of(batch: list[Event], cursors: dict[str, int]) -> list[Event]:
    """What comes right after the cursors, which it moves: nothing that is repeated, nothing after a hole, and nothing of
    another session.
    """
    fresh = []
    for event in batch:
        session = event["session_id"]
        if session in cursors and event["seq"] == cursors[session] + 1:
            cursors[session] += 1
            fresh.append(event)
    return fresh


def _latest(cursors: Mapping[str, int]) -> str:
    return " or ".join(f"{seq} of session {session}" for session, seq in list(cursors.items())[: limits.NAMED_MAX])


async def _asked(
    transport: Transport, what: _One | _Many, cursors: Mapping[str, int]
) -> AsyncGenerator[list[Event], None]:
    """One page after the other, without end."""
    while True:
        yield await what.ask(transport, cursors)


async def _streamed(
    transport: Transport, what: _One | _Many, cursors: Mapping[str, int]
) -> AsyncGenerator[list[Event], None]:
    """One connection, until the server says goodbye or it breaks."""
    frames, (path, place) = Frames(), what.stream(cursors)
    within_s: float | None = limits.FOLLOW_FIRST_S
    async with transport.stream(path, {"last-event-id": place, "accept": "text/event-stream"}) as chunks:
        while True:
            try:
                async with asyncio.timeout(within_s):
                    chunk = await anext(chunks, None)
            except TimeoutError:
                raise _Held from None
            if chunk is None:
                return
            within_s, whole = None, frames.feed(chunk)
            for frame in whole if what.on_glimpse else ():
                _glimpse(frame, what.on_glimpse)
            found, broken = _events(whole)
            yield found
            if broken:
                raise _Broken("What came was not an event.")


def _events(frames: list[Frame]) -> tuple[list[Event], bool]:
    """The events in frames, up to one that is broken, and whether one is. Those without a place in the log, which are only
    live or of a later release, are passed over.
    """
    found: list[Event] = []
    for frame in frames:
        if frame.id:
            if (event := _event(frame)) is None:
                return found, True
            found.append(event)
    return found, False


def _glimpse(frame: Frame, on_glimpse: Glimpsed | None) -> None:
    if frame.event == "glimpse" and not frame.id and on_glimpse is not None:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeError):
            on_glimpse(cast("Glimpse", msgspec.json.decode(frame.body)))


def _event(frame: Frame) -> Event | None:
    try:
        found = msgspec.json.decode(frame.body)
        if isinstance(found, dict) and isinstance(found["seq"], int) and isinstance(found["session_id"], str):
            return cast("Event", found)
    except (msgspec.MsgspecError, UnicodeError, KeyError):
        pass
    return None
