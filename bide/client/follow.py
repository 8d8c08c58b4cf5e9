"""A session's log without end: from a cursor on, each event once and in order, across cuts, dead lines and restarts."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import httpx2
import msgspec

from bide.client.frames import Frames
from bide.client.shapes import Event
from bide.client.transport import Transport
from bide.core import limits
from bide.core.refusals import Kind, Refused

Trouble = Callable[[str], None]


async def follow(
    transport: Transport, session: str, after: int, *, on_trouble: Trouble | None = None
) -> AsyncGenerator[list[Event], None]:
    """Events with a seq above `after`, as they come, in batches; an empty one says that the line is alive.

    A line that breaks, or says nothing for `limits.FOLLOW_DEAD_S`, is opened again where it broke. The first
    connection has to succeed, with one of the servers; later they may be away for `limits.FOLLOW_AWAY_S`, and
    `on_trouble` hears of it in a sentence. Raises what the server refuses, and `Refused('unreachable')`.
    """
    cursor, heard, tries = after, -math.inf, 0
    while True:
        trouble, url = "", transport.servers.now
        try:
            async with aclosing(_line(transport, session, cursor)) as line:
                async for batch in line:
                    heard = time.monotonic()
                    fresh = [event for event in batch if event["seq"] > cursor]  # what is repeated is not passed on
                    if fresh:
                        cursor, tries = fresh[-1]["seq"], 0
                    yield fresh
        except httpx2.HTTPError as error:
            trouble = f"The connection to {url} is lost: {str(error) or type(error).__name__}."
        except Refused as refused:
            if refused.kind is not Kind.UNREACHABLE:
                raise
            trouble = refused.sentence
        every_one = tries + 1 >= len(transport.servers)  # was asked: at the first connection, too
        if trouble and every_one and time.monotonic() - heard > limits.FOLLOW_AWAY_S:
            raise Refused("unreachable", trouble)
        if trouble and on_trouble is not None and tries == 1:  # the first try again mostly does it, without a word
            on_trouble(f"{trouble} Trying again.")
        await asyncio.sleep(limits.FOLLOW_BACKOFF_S[min(tries, len(limits.FOLLOW_BACKOFF_S) - 1)])
        tries += 1


async def _line(transport: Transport, session: str, cursor: int) -> AsyncGenerator[list[Event], None]:
    """One connection, until the server says goodbye or it breaks."""
    frames = Frames()
    path = f"/v1/sessions/{session}/events/stream"
    async with transport.stream(path, {"last-event-id": str(cursor), "accept": "text/event-stream"}) as chunks:
        async for chunk in chunks:
            yield [msgspec.json.decode(frame.body) for frame in frames.feed(chunk)]
