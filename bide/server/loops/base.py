"""How a loop lives: one round after another, and a failed one is logged, counted, and tried again a little later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from bide.core.limits import LOOP_BACKOFF_S
from bide.core.refusals import Unavailable
from bide.server.parts import Parts

log = structlog.get_logger("bide.server.loops")


async def forever(parts: Parts, name: str, every_s: float, duty: Callable[[], Awaitable[None]]) -> None:
    """Does the duty every `every_s` seconds until the server closes. Nothing that a round raises ends the loop."""
    failed = 0
    while not parts.closing.is_set():
        try:
            await duty()
            failed = 0
        except Unavailable as error:
            failed += 1
            log.warning("unavailable", loop=name, what=error.what, why=error.why)
        except Exception:
            failed += 1
            parts.metrics.failures.labels(name).inc()
            log.exception("failed", loop=name)
        pause = LOOP_BACKOFF_S[min(failed, len(LOOP_BACKOFF_S)) - 1] if failed else every_s
        try:
            async with asyncio.timeout(pause):
                await parts.closing.wait()
        except TimeoutError:
            pass
