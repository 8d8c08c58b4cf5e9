"""Pages of a session's log, bounded in bytes as well as in number, and the wait for the first event of the next one."""

from __future__ import annotations

import asyncio
import time

import msgspec

from bide.core.limits import LIST_BYTES, SSE_BATCH
from bide.server import shapes
from bide.server.events import event
from bide.server.parts import Parts

_encode = msgspec.json.Encoder().encode


async def page(parts: Parts, session_id: str, after: int, limit: int) -> shapes.Items[shapes.Event]:
    """Events with a seq above `after`: at most `limit`, and no more once there are LIST_BYTES of them."""
    items: list[shapes.Event] = []
    size = 0
    while True:
        asked = min(SSE_BATCH, limit + 1 - len(items))
        found = await parts.log(session_id, after, asked)
        for envelope in found:
            if len(items) == limit or size > LIST_BYTES:
                return shapes.Items(items=items, next=str(after))
            items.append(event(envelope))
            size, after = size + len(_encode(items[-1])), envelope.seq
        if len(found) < asked:
            return shapes.Items(items=items, next=None)


async def written(parts: Parts, session_id: str, after: int, within_s: float) -> None:
    """Returns once there is an event above `after`, the log is shorter than that, the time is up, or the server closes."""
    end = time.monotonic() + within_s
    closing = asyncio.ensure_future(parts.closing.wait())
    try:
        with parts.store.subscribe(session_id) as subscription:
            while (await parts.store.last_seqs((session_id,))).get(session_id) == after:
                waiting = asyncio.ensure_future(subscription.wait(max(0.0, end - time.monotonic())))
                await asyncio.wait((waiting, closing), return_when=asyncio.FIRST_COMPLETED)
                if closing.done() or time.monotonic() >= end or waiting.exception() is not None:
                    waiting.cancel()
                    return
    finally:
        closing.cancel()
