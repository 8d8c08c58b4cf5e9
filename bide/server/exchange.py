"""A runner's sync: heartbeat, renewal, claim and news in one question that may wait for its answer.

What is asked and answered is `bide.core.exchange`; here its steps are performed, and the waiting is done. A question
that is overtaken by a newer one of the same runner gives up: its answer would be read by nobody.
"""

from __future__ import annotations

import asyncio
from typing import Any

import structlog
from msgspec.structs import replace

from bide.core import exchange as x
from bide.core.commands import Grant
from bide.core.limits import COALESCE_S, SYNC_LOOK_S
from bide.core.placement import Runner
from bide.core.refusals import Refused, Unavailable
from bide.core.session import Session
from bide.core.wire import Sync, SyncReply, agree
from bide.server.parts import QUEUE, Parts
from bide.store.base import Engine, Reader

LOG = structlog.get_logger()


async def sync(parts: Parts, runner: Runner, ask: Sync) -> SyncReply:
    """Answers one sync. Raises `Refused`: `wrong_protocol`, or `fenced` for a process that was replaced."""
    agree(ask.protocol)
    if runner.boot and ask.boot != runner.boot:
        # Not a restart that went unannounced: whoever registered since may hold the leases, so nothing is given up.
        raise Refused("fenced", f"Another process has registered as runner {runner.name} since.")
    exchange = _Exchange(parts, runner, ask)
    parts.asking[runner.id] = exchange
    try:
        return await exchange.answer()
    except _Overtaken:
        return SyncReply()
    finally:
        if parts.asking.get(runner.id) is exchange:
            del parts.asking[runner.id]


class _Overtaken(Exception):
    """Nobody waits for this answer, or nobody will be there to give another."""


class _Exchange:
    """One sync while it is answered."""

    def __init__(self, parts: Parts, runner: Runner, ask: Sync) -> None:
        self._parts, self._ask, self._lease_s = parts, ask, parts.config.lease_s
        self._began = parts.store.now()
        free = max(0, min(ask.free_slots, runner.slots))
        self._runner = replace(
            runner,
            boot=ask.boot,
            draining=ask.draining,
            slots_free=free,
            warm=ask.warm,
            last_seen_at=0.0 if ask.leaving else self._began,
        )

    async def answer(self) -> SyncReply:
        """Renews first, then looks until there is something to tell or the time is up."""
        store, wait_s = self._parts.store, min(self._ask.wait_s, self._parts.config.poll_s)
        with store.subscribe(QUEUE, *(report.session for report in self._ask.leases)) as changes:
            await store.write(self._seen)
            first = await self._drive(x.renewal(self._ask, self._runner, self._lease_s))
            while True:
                reply = x.merge(first, await self._drive(x.claim(self._ask, self._runner, self._lease_s)))
                left = self._began + wait_s - store.now()
                if x.urgent(reply) or left <= 0 or self._over():
                    return reply
                with self._parts.metrics.syncs.track_inprogress():
                    wakeup = await changes.wait(min(left, SYNC_LOOK_S))
                if wakeup.sessions or wakeup.everything:
                    await asyncio.sleep(COALESCE_S)

    def _seen(self, engine: Engine) -> None:
        """Notes the heartbeat, unless a later process of the runner has registered in between."""
        now = next((r for r in engine.runners() if r.id == self._runner.id), None)
        if now is None or now.boot != self._runner.boot:
            raise Refused("fenced", f"Another process has registered as runner {self._runner.name} since.")
        engine.put_runner(self._runner)

    def _over(self) -> bool:
        return self._parts.asking.get(self._runner.id) is not self or self._parts.closing.is_set()

    async def _drive(self, exchange: x.Exchange) -> SyncReply:
        answer: Any = None
        while True:
            try:
                step = exchange.send(answer)
            except StopIteration as done:
                reply: SyncReply = done.value
                return reply
            answer = await self._perform(step)

    async def _perform(self, step: x.Step) -> object:
        store = self._parts.store
        match step:
            case x.Holdings(runner=runner, named=named):

                def read(reader: Reader) -> tuple[list[Session], dict[str, Session]]:
                    known = {i: s for i in named if (s := reader.session(i)) is not None}
                    return reader.leased_to(runner), known

                return *await store.read(read), store.now()
            case x.Queue():
                return await store.queued(), await self._parts.online(), store.now()
            case x.Do(session=session, command=command):
                if isinstance(command, Grant) and self._over():
                    raise _Overtaken
                try:
                    done = await self._parts.handle(session, command)
                except Refused as refused:
                    return refused
                except Unavailable:
                    raise
                except Exception as error:
                    LOG.error("exchange_failed", session=session, exc_info=error)
                    return Refused("failed", "The server cannot handle this session.")
                if isinstance(command, Grant):
                    self._parts.metrics.grants.inc()
                return done
