"""A runner's sync: heartbeat, renewal, claim and news in one question that may wait for its answer.

Law 7 shapes it: a lease begins after the runner asked, so leases are given and renewed inside the request whose answer
carries them. A question that is overtaken by a newer one of the same runner gives up: its answer would be read by nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from bide.core import commands as c
from bide.core.lease import granted, margin, reckon, renewed
from bide.core.limits import COALESCE_S, SYNC_LOOK_S
from bide.core.placement import Runner, choose
from bide.core.refusals import Refused
from bide.core.session import Session
from bide.core.wire import Gone, Granted, News, Renewed, Sync, SyncReply, agree
from bide.server.parts import QUEUE, Parts
from bide.store.base import Reader


class _Seen(Struct, frozen=True, kw_only=True):
    """What the store says at one moment: `held` by this runner, `named` by it, `queued` for anybody."""

    held: Sequence[Session]
    named: dict[str, Session]
    queued: Sequence[Session]


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
    finally:
        if parts.asking.get(runner.id) is exchange:
            del parts.asking[runner.id]


class _Exchange:
    """One sync while it is answered."""

    def __init__(self, parts: Parts, runner: Runner, ask: Sync) -> None:
        self._parts, self._ask = parts, ask
        self._lease_s = parts.config.lease_s
        self._began = parts.store.now()
        self._runner = replace(
            runner,
            boot=ask.boot,
            draining=ask.draining,
            slots_free=max(0, ask.free_slots),
            warm=ask.warm,
            last_seen_at=self._began,
        )
        self._renewed: dict[str, Renewed] = {}
        self._lost: dict[str, Gone] = {}
        self._news: tuple[News, ...] = ()
        self._grants: dict[str, Granted] = {}

    async def answer(self) -> SyncReply:
        """Renews first, then looks until there is something to tell or the time is up."""
        store, wait_s = self._parts.store, min(self._ask.wait_s, self._parts.config.poll_s)
        with store.subscribe(QUEUE, *(report.session for report in self._ask.leases)) as changes:
            await store.put_runner(self._runner)
            await self._settle()
            await self._look()
            while not (self._grants or self._lost or self._news or self._over()):
                left = self._began + wait_s - store.now()
                if left <= 0:
                    break
                with self._parts.metrics.syncs.track_inprogress():
                    wakeup = await changes.wait(min(left, SYNC_LOOK_S))
                if wakeup.sessions or wakeup.everything:
                    await asyncio.sleep(COALESCE_S)
                await self._look()
        if store.now() - self._began > margin(self._lease_s) / 2 and not self._over():
            await self._renew([(r.session, r.epoch) for r in self._renewed.values()])
        return SyncReply(
            grants=tuple(self._grants.values()),
            renewed=tuple(r for r in self._renewed.values() if r.session not in self._lost),
            lost=tuple(self._lost.values()),
            commands=tuple(n for n in self._news if n.session not in self._lost),
        )

    def _over(self) -> bool:
        """Whether nobody waits for this answer, or nobody will be there to give another."""
        return self._parts.asking.get(self._runner.id) is not self or self._parts.closing.is_set()

    async def _seen(self) -> _Seen:
        wanted = [report.session for report in self._ask.leases]

        def read(reader: Reader) -> _Seen:
            named = {s.id: s for session_id in wanted if (s := reader.session(session_id)) is not None}
            return _Seen(held=reader.leased_to(self._runner.id), named=named, queued=reader.queued())

        return await self._parts.store.read(read)

    async def _settle(self) -> None:
        """Once per sync: what a former process held goes back to the queue, what this one holds is renewed."""
        seen = await self._seen()
        reckoning = reckon(self._ask, seen.held, seen.named, self._began, self._lease_s)
        for session_id, epoch in reckoning.disown:
            reason = f"runner {self._runner.name} was restarted"
            await self._parts.handle(session_id, c.Disown(runner=self._runner.id, epoch=epoch, reason=reason))
        await self._renew(reckoning.renew)

    async def _renew(self, leases: Iterable[tuple[str, int]]) -> None:
        runner = self._runner
        for session_id, epoch in leases:
            command = c.Renew(
                runner=runner.id, runner_name=runner.name, boot=runner.boot, epoch=epoch, lease_s=self._lease_s
            )
            try:
                done = await self._parts.handle(session_id, command)
            except Refused as refused:
                self._lost[session_id] = Gone(session=session_id, epoch=epoch, reason=refused.sentence)
            else:
                self._renewed[session_id] = renewed(done.session, self._lease_s)

    async def _look(self) -> None:
        """Collects what the runner has not heard, and claims what it has room for."""
        seen = await self._seen()
        if self._over():
            return
        reckoning = reckon(self._ask, seen.held, seen.named, self._parts.store.now(), self._lease_s)
        self._lost |= {gone.session: gone for gone in reckoning.lost}
        self._news = reckoning.news
        self._grants |= {again.session: again for again in reckoning.again}
        free = min(self._ask.free_slots - len(self._grants), self._runner.slots - len(seen.held))
        if free > 0 and not self._ask.draining and any(s.pool == self._runner.pool for s in seen.queued):
            await self._claim(seen.queued, free)

    async def _claim(self, queued: Sequence[Session], free: int) -> None:
        runner, now = self._runner, self._parts.store.now()
        for s in choose(runner, free, queued, await self._parts.online(), now):
            command = c.Grant(runner=runner.id, runner_name=runner.name, boot=runner.boot, lease_s=self._lease_s)
            try:
                done = await self._parts.handle(s.id, command)
            except Refused:
                continue  # another runner was faster
            self._grants[s.id] = granted(done.session, self._lease_s, self._lease_s)
            self._parts.metrics.grants.inc()
