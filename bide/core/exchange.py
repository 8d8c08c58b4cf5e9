"""The server's half of a sync, as a generator of steps: the server awaits them, the simulator schedules them.

A lease starts and is renewed inside the request that carries it, so it never starts before its runner asked (law 7).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from msgspec import Struct

from bide.core import commands as c
from bide.core.drain import Order
from bide.core.handle import Done
from bide.core.lease import granted, news_for, reckon, renewed
from bide.core.limits import QUEUE_PAGE, QUEUE_PAGES_MAX, REASON_CHARS
from bide.core.placement import Runner, choose
from bide.core.session import Session
from bide.core.wire import Adoptable, Gone, Granted, News, Renewed, Sync, SyncReply


class Holdings(Struct, frozen=True, kw_only=True):
    """Step: read the sessions leased to the runner, and those named, and the order to drain it.

    Answered by `(held, named by id, order or None, now)`; one that is there and cannot be read is named as None.
    """

    runner: str
    named: tuple[str, ...]


class Queue(Struct, frozen=True, kw_only=True):
    """Step: read queued sessions of the pool with one of the runtimes, after a place in the queue (queued_at, id), and
    the pool's runners that are online. Answered by `(queued, online, now)`.
    """

    pool: str
    runtimes: tuple[str, ...]
    after: tuple[float, str] | None
    limit: int


class Do(Struct, frozen=True, kw_only=True):
    """Step: `handle(session, command)`. Answered by its `Done`, or by the `Refused` as a value."""

    session: str
    command: c.Command


class DoAll(Struct, frozen=True, kw_only=True):
    """Step: each of them, for different sessions, in any order or at once. Answered by the list of their answers."""

    each: tuple[Do, ...]


Step = Holdings | Queue | Do | DoAll
Exchange = Generator[Step, Any, SyncReply]


def renewal(sync: Sync, runner: Runner, lease_s: float) -> Exchange:
    """The first half: gives back what an earlier process left intact, drops what else it held, renews what is held,
    and hands out what is new for it.
    """
    held, named, order, now = yield Holdings(runner=runner.id, named=tuple(r.session for r in sync.leases))
    reckoning = reckon(sync, held, named, now, lease_s, runner.apart)
    grants: list[Granted] = list(reckoning.again)
    lost: list[Gone] = list(reckoning.lost)
    renewals: list[Renewed] = []
    adopts = tuple(Do(session=back.session, command=_adopt(back, sync, runner, lease_s)) for back in sync.adopt)
    for offer, done in zip(sync.adopt, (yield DoAll(each=adopts)) if adopts else (), strict=True):
        if isinstance(done, Done):
            grants.append(granted(done.session, lease_s, lease_s))
        elif done.code != "failed":  # our fault, and maybe over by the next sync
            lost.append(Gone(session=offer.session, epoch=offer.epoch, reason=done.sentence))
    for back in sync.returned:
        reason = f"runner {runner.name} could not take it: {back.reason[:REASON_CHARS]}"
        yield Do(session=back.session, command=c.Disown(runner=runner.id, epoch=back.epoch, reason=reason))
    for session_id, epoch in reckoning.disown:
        reason = f"runner {runner.name} was restarted"
        yield Do(session=session_id, command=c.Disown(runner=runner.id, epoch=epoch, reason=reason))
    renews = tuple(Do(session=i, command=_renew(epoch, sync, runner, lease_s)) for i, epoch in reckoning.renew)
    for (session_id, epoch), done in zip(reckoning.renew, (yield DoAll(each=renews)) if renews else (), strict=True):
        if isinstance(done, Done):
            renewals.append(renewed(done.session, lease_s))
        elif done.code != "failed":
            lost.append(Gone(session=session_id, epoch=epoch, reason=done.sentence))
    return SyncReply(
        grants=tuple(grants), renewed=tuple(renewals), lost=tuple(lost), commands=reckoning.news, **_wish(order, now)
    )


def _adopt(back: Adoptable, sync: Sync, runner: Runner, lease_s: float) -> c.Adopt:
    return c.Adopt(
        runner=runner.id, runner_name=runner.name, boot=sync.boot, epoch=back.epoch, of=back.of, was_boot=back.boot,
        lease_s=lease_s,
    )  # fmt: skip


def _renew(epoch: int, sync: Sync, runner: Runner, lease_s: float) -> c.Renew:
    return c.Renew(runner=runner.id, runner_name=runner.name, boot=sync.boot, epoch=epoch, lease_s=lease_s)


def claim(sync: Sync, runner: Runner, lease_s: float) -> Exchange:
    """The second half, repeated while the server waits for news: news for held leases, and new leases."""
    held, named, order, now = yield Holdings(runner=runner.id, named=tuple(r.session for r in sync.leases))
    news: list[News] = []
    lost: list[Gone] = []
    for report in sync.leases:
        s: Session | None = named.get(report.session)
        if s is None and report.session in named:
            continue
        if s is None or s.epoch != report.epoch or s.lease is None:
            lost.append(Gone(session=report.session, epoch=report.epoch, reason="the lease was taken back"))
        elif (fresh := news_for(s, report)) is not None:
            news.append(fresh)
    unheard = sum(1 for s in held if s.id not in {r.session for r in sync.leases})
    free = 0 if sync.draining or order else sync.free_slots - unheard
    grants = (yield from _grants(sync, runner, free, lease_s)) if free > 0 else ()
    return SyncReply(grants=grants, lost=tuple(lost), commands=tuple(news), **_wish(order, now))


def _grants(sync: Sync, runner: Runner, free: int, lease_s: float) -> Generator[Step, Any, tuple[Granted, ...]]:
    """Up to `free` new leases, oldest first. One that another runner was granted meanwhile is passed over."""
    grant = c.Grant(runner=runner.id, runner_name=runner.name, boot=sync.boot, lease_s=lease_s)
    runtimes = tuple(sorted({r.name for r in runner.runtimes if not r.problem}))
    grants: list[Granted] = []
    after: tuple[float, str] | None = None
    for _ in range(QUEUE_PAGES_MAX):
        page, online, now = yield Queue(pool=runner.pool, runtimes=runtimes, after=after, limit=QUEUE_PAGE)
        for s in choose(runner, page, online, now):
            done = yield Do(session=s.id, command=grant)
            if isinstance(done, Done):
                grants.append(granted(done.session, lease_s, lease_s))
            if len(grants) == free:
                return tuple(grants)
        if len(page) < QUEUE_PAGE:
            break
        after = (page[-1].queued_at, page[-1].id)
    return tuple(grants)


def _wish(order: Order | None, now: float) -> dict[str, Any]:
    return {"drain": order is not None, "drain_s": order.left_s(now) if order else 0.0}


def merge(first: SyncReply, second: SyncReply) -> SyncReply:
    """Both halves as one reply; what the second says about a session is newer."""
    gone = {g.session for g in second.lost}
    newer = {n.session for n in second.commands}
    return SyncReply(
        grants=(*first.grants, *second.grants),
        renewed=tuple(r for r in first.renewed if r.session not in gone),
        lost=(*(g for g in first.lost if g.session not in gone), *second.lost),
        commands=(*(n for n in first.commands if n.session not in newer | gone), *second.commands),
        drain=second.drain,
        drain_s=second.drain_s,
    )


def urgent(reply: SyncReply, sync: Sync) -> bool:
    """Whether the reply should go out at once instead of waiting for more."""
    return bool(reply.grants or reply.lost or reply.commands) or reply.drain != sync.ordered
