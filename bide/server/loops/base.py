"""How a loop lives: one round after another, and a failed one is logged, counted, and tried again a little later.

Of some duties all servers together do one round at a time: the one that first finds it due claims it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace

from bide.core.limits import LOOP_BACKOFF_S
from bide.core.refusals import Unavailable
from bide.server.parts import Parts
from bide.store.base import Engine

ROUND = "round"  # the kind of document that says how far a duty has come
R = TypeVar("R", bound="Round")
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


class Round(Struct, frozen=True, kw_only=True):
    """What the servers together know of the last round of a duty: when it began, how long after the one before, and when
    the next is due. A duty adds what it goes on from. Epoch seconds.
    """

    at: float = 0.0
    passed_s: float = 0.0
    due: float = 0.0


def claim(engine: Engine, duty: str, form: type[R], every_s: float) -> R | None:
    """The round that is due, claimed; the next is due `every_s` later. None: none is. Called within a write."""
    last, now = _last(engine, duty, form), engine.now()
    if last.at <= now < last.due:  # a clock that was set back makes no duty wait for it
        return None
    claimed = replace(last, at=now, passed_s=max(0.0, now - last.at), due=now + every_s)
    keep(engine, duty, claimed)
    return claimed


def keep(engine: Engine, duty: str, now: Round) -> None:
    """Stores where a round has come to. Called within a write."""
    engine.put(ROUND, duty, msgspec.json.encode(now))


def _last(engine: Engine, duty: str, form: type[R]) -> R:
    stored = engine.get(ROUND, duty)
    try:
        return msgspec.json.decode(stored, type=form) if stored else form()
    except msgspec.DecodeError:  # of a release that had another form: it goes on from the beginning
        return form()
