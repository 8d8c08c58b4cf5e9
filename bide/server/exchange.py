"""A runner's sync: one question that may wait for its answer.

What is asked and answered is `bide.core.exchange`; here its steps are performed, and the waiting is done. A question
that is overtaken by a newer one of the same runner gives up: its answer would be read by nobody.
"""

from __future__ import annotations

import asyncio
from typing import Any

import structlog
from msgspec.structs import replace
from starlette.types import Receive

from bide.core import exchange as x
from bide.core.believed import bounded_sync
from bide.core.commands import Grant
from bide.core.drain import Order
from bide.core.handle import Done
from bide.core.limits import COALESCE_S, SYNC_AT_ONCE_MAX, SYNC_IDLE_LOOK_S, SYNC_LOOK_S
from bide.core.placement import Runner
from bide.core.refusals import Refused, Unavailable
from bide.core.session import Session
from bide.core.wire import Sync, SyncReply, agree
from bide.server import drains
from bide.server.calls import hung_up
from bide.server.parts import Parts
from bide.store.base import Reader
from bide.store.collecting import forgotten
from bide.store.rows import Unreadable
from bide.store.wakeups import QUEUE, decided

LOG = structlog.get_logger()


async def sync(parts: Parts, runner: Runner, ask: Sync, receive: Receive) -> SyncReply:
    """Answers one sync, and gives nothing to a runner that hangs up meanwhile.

    Raises `Refused`: `wrong_protocol`, `fenced` for a process that was replaced, or what `bounded_sync` raises.
    """
    agree(ask.protocol)
    ask = bounded_sync(ask)
    if runner.boot and ask.boot != runner.boot:
        # Not a restart that went unannounced: whoever registered since may hold the leases, so nothing is given up.
        raise _replaced(runner)
    gone = asyncio.ensure_future(hung_up(receive))
    exchange = _Exchange(parts, runner, ask, gone)
    parts.asking[runner.id] = exchange
    try:
        with parts.tracing.span("sync", runner=runner.id, leases=len(ask.leases)) as span:
            reply = await exchange.answer()
            if parts.tracing.on:
                span.set_attributes({"bide.grants": len(reply.grants), "bide.lost": len(reply.lost)})
            return reply
    except _Overtaken:
        return SyncReply()
    finally:
        gone.cancel()
        if parts.asking.get(runner.id) is exchange:
            del parts.asking[runner.id]


class _Overtaken(Exception):
    """Nobody waits for this answer, or nobody will be there to give another."""


class _Exchange:
    """One sync while it is answered."""

    def __init__(self, parts: Parts, runner: Runner, ask: Sync, gone: asyncio.Future[None]) -> None:
        self._gone = gone
        self._parts, self._ask, self._lease_s = parts, ask, parts.config.lease_s
        self._began = parts.store.now()
        self._look_s = SYNC_IDLE_LOOK_S
        self._runner = replace(
            runner,
            boot=ask.boot,
            protocol=ask.protocol,
            draining=ask.draining,
            slots_free=max(0, min(ask.free_slots, runner.slots)),
            disk_free=ask.disk_free,
            warm=ask.warm,
            last_seen_at=0.0 if ask.leaving else self._began,
        )

    async def answer(self) -> SyncReply:
        """Renews first, then looks until there is something to tell or the time is up."""
        store, wait_s = self._parts.store, min(self._ask.wait_s, self._parts.config.poll_s)
        # Its own name rings when it is ordered to drain.
        with store.subscribe(QUEUE, self._runner.id, *(decided(r.session) for r in self._ask.leases)) as changes:
            await self._hear(self._runner)
            first = await self._drive(x.renewal(self._ask, self._runner, self._lease_s))
            forget = await store.read(lambda reader: forgotten(reader, self._ask.keeps)) if self._ask.keeps else ()
            if forget:
                return replace(first, forget=forget)
            while True:
                reply = x.merge(first, await self._drive(x.claim(self._ask, self._runner, self._lease_s)))
                if reply.grants:
                    self._parts.places.pop(self._runner.id, None)
                left = self._began + wait_s - store.now()
                if x.urgent(reply, self._ask) or left <= 0 or self._over():
                    return reply
                with self._parts.metrics.syncs.track_inprogress():
                    wakeup = await changes.wait(min(left, self._look_s))
                if wakeup.sessions or wakeup.everything:
                    await asyncio.sleep(COALESCE_S)

    async def _hear(self, runner: Runner) -> None:
        """Notes the heartbeat, unless a later process of the runner has registered in between."""
        self._runner = runner
        if not await self._parts.store.hear(runner):
            raise _replaced(runner)

    def _over(self) -> bool:
        """Whether nobody reads the answer any more.

        Only this server's own syncs are known here. One that was overtaken at another server may still be granted a
        session; its runner gets that grant again with its next sync.
        """
        overtaken = self._parts.asking.get(self._runner.id) is not self
        return overtaken or self._gone.done() or self._parts.closing.is_set()

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
                return await self._holdings(runner, named)
            case x.Queue(pool=pool, runtimes=runtimes, after=after, limit=limit):
                # What nobody can take for now must not hide what stands behind it: the next look goes on from there.
                place = after or self._parts.places.get(self._runner.id)
                page = await store.queued(pool, runtimes, place, limit)
                self._parts.places[self._runner.id] = (page[-1].queued_at, page[-1].id) if len(page) == limit else None
                self._look_s = SYNC_LOOK_S if page or place else SYNC_IDLE_LOOK_S
                return page, await self._parts.fleet(pool) if page else [], store.now()
            case x.Do():
                return await self._do(step)
            case x.DoAll(each=each):  # they share commits
                done: list[Done | Refused] = []
                for start in range(0, len(each), SYNC_AT_ONCE_MAX):
                    done += await asyncio.gather(*map(self._do, each[start : start + SYNC_AT_ONCE_MAX]))
                return done

    async def _do(self, step: x.Do) -> Done | Refused:
        if isinstance(step.command, Grant) and self._over():
            raise _Overtaken
        try:
            return await self._parts.handle(step.session, step.command)
        except Refused as refused:
            return refused
        except Unavailable:
            raise
        except Exception as error:
            LOG.error("exchange_failed", session=step.session, exc_info=error)
            return Refused("failed", "The server cannot handle this session.")

    async def _holdings(self, runner: str, named: tuple[str, ...]) -> object:
        def read(reader: Reader) -> tuple[list[Session], dict[str, Session | None], Order | None]:
            known: dict[str, Session | None] = {}
            for session_id in named:
                try:
                    if (s := reader.session(session_id)) is not None:
                        known[session_id] = s
                except Unreadable as error:
                    LOG.error("unreadable", session=session_id, exc_info=error)
                    known[session_id] = None
            return reader.leased_to(runner), known, drains.ordered(reader, runner, self._ask.boot)

        held, known, order = await self._parts.store.read(read)
        if order is not None and (late := {s.id for s in held}.difference(order.sessions)):
            await self._parts.store.write(lambda engine: drains.include(engine, order, sorted(late)))
        draining = self._ask.draining or order is not None
        if draining != self._runner.draining:  # ordered, or taken back, since the heartbeat was noted
            await self._hear(replace(self._runner, draining=draining))
        return held, known, order, self._parts.store.now()


def _replaced(runner: Runner) -> Refused:
    return Refused("fenced", f"Another process has registered as runner {runner.name} since.")
