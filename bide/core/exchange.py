"""The server's half of a sync, as a generator of steps: the server awaits them, the simulator schedules them.

A lease starts and is renewed inside the request that carries it, so it never starts before its runner asked (law 7).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bide.core import commands as c
from bide.core.handle import Done
from bide.core.lease import granted, news_for, reckon, renewed
from bide.core.placement import Runner, choose
from bide.core.refusals import Refused
from bide.core.session import Session
from bide.core.wire import Gone, Granted, News, Renewed, Sync, SyncReply


class Holdings(Struct, frozen=True, kw_only=True):
    """Step: read the sessions leased to the runner, and those named. Answered by `(held, named by id, now)`."""

    runner: str
    named: tuple[str, ...]


class Queue(Struct, frozen=True, kw_only=True):
    """Step: read the queued sessions and the runners that are online. Answered by `(queued, online, now)`."""


class Do(Struct, frozen=True, kw_only=True):
    """Step: `handle(session, command)`. Answered by its `Done`, or by the `Refused` as a value."""

    session: str
    command: c.Command


Step = Holdings | Queue | Do
Exchange = Generator[Step, Any, SyncReply]


def renewal(sync: Sync, runner: Runner, lease_s: float) -> Exchange:
    """The first half: drops what a dead process held, renews what is held, and hands out what is new for it."""
    held, named, now = yield Holdings(runner=runner.id, named=tuple(r.session for r in sync.leases))
    reckoning = reckon(sync, held, named, now, lease_s)
    lost: list[Gone] = list(reckoning.lost)
    renewals: list[Renewed] = []
    for session_id, epoch in reckoning.disown:
        reason = f"runner {runner.name} was restarted"
        yield Do(session=session_id, command=c.Disown(runner=runner.id, epoch=epoch, reason=reason))
    for session_id, epoch in reckoning.renew:
        renew = c.Renew(
            runner=runner.id, runner_name=runner.name, boot=sync.boot, epoch=epoch, lease_s=lease_s
        )  # fmt: skip
        done = yield Do(session=session_id, command=renew)
        if isinstance(done, Refused) and done.code == "failed":
            continue  # our fault, and maybe over by the next sync
        if isinstance(done, Refused):
            lost.append(Gone(session=session_id, epoch=epoch, reason=done.sentence))
        else:
            renewals.append(renewed(done.session, lease_s))
    return SyncReply(
        grants=reckoning.again, renewed=tuple(renewals), lost=tuple(lost), commands=reckoning.news,
        drain=runner.draining and not sync.draining,
    )  # fmt: skip


def claim(sync: Sync, runner: Runner, lease_s: float) -> Exchange:
    """The second half, repeated while the server waits for news: news for held leases, and new leases."""
    held, named, now = yield Holdings(runner=runner.id, named=tuple(r.session for r in sync.leases))
    news: list[News] = []
    lost: list[Gone] = []
    for report in sync.leases:
        s: Session | None = named.get(report.session)
        if s is None or s.epoch != report.epoch or s.lease is None:
            lost.append(Gone(session=report.session, epoch=report.epoch, reason="the lease was taken back"))
        elif (fresh := news_for(s, report.cursor, report.parking, report.cancelling)) is not None:
            news.append(fresh)
    unheard = sum(1 for s in held if s.id not in {r.session for r in sync.leases})
    free = 0 if sync.draining or runner.draining else sync.free_slots - unheard
    grants: list[Granted] = []
    if free > 0:
        queued, online, now = yield Queue()
        for s in choose(replace(runner, slots_free=free), free, queued, online, now):
            grant = c.Grant(runner=runner.id, runner_name=runner.name, boot=sync.boot, lease_s=lease_s)
            done = yield Do(session=s.id, command=grant)
            if isinstance(done, Done):
                grants.append(granted(done.session, lease_s, lease_s))
    return SyncReply(
        grants=tuple(grants), lost=tuple(lost), commands=tuple(news), drain=runner.draining and not sync.draining
    )


def merge(first: SyncReply, second: SyncReply) -> SyncReply:
    """Both halves as one reply; what the second says about a session is newer."""
    gone = {g.session for g in second.lost}
    newer = {n.session for n in second.commands}
    return SyncReply(
        grants=(*first.grants, *second.grants),
        renewed=tuple(r for r in first.renewed if r.session not in gone),
        lost=(*(g for g in first.lost if g.session not in gone), *second.lost),
        commands=(*(n for n in first.commands if n.session not in newer | gone), *second.commands),
        drain=first.drain or second.drain,
    )


def urgent(reply: SyncReply) -> bool:
    """Whether the reply should go out at once instead of waiting for more."""
    return bool(reply.grants or reply.lost or reply.commands or reply.drain)
