"""Epochs, terms and margins: who may act for a session, and what server and runner tell each other about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from bide.core import commands as c
from bide.core import facts as f
from bide.core.draft import Draft
from bide.core.limits import LEASE_HOLDER_SHARE, OUTAGE_GAP_SHARE
from bide.core.placement import claimable
from bide.core.recovery import give_up
from bide.core.refusals import Refused
from bide.core.session import RUNTIME_INPUTS, Lifecycle, Session, deliverable
from bide.core.wire import Gone, Granted, Job, News, Renewed, Sync


def margin(lease_s: float) -> float:
    """How long before the lease's end its holder stops, seconds."""
    return lease_s * (1 - LEASE_HOLDER_SHARE)


# -- decisions --------------------------------------------------------------------------------------------------------


def grant(d: Draft, command: c.Grant) -> None:
    """Leases a queued session to a runner under the next epoch."""
    s = d.s
    if not claimable(s, d.now):
        raise Refused("not_waiting", f"The session is {s.lifecycle}, not waiting for a runner.")
    began_before, saved = s.epoch > 0, s.checkpoint
    d.add(
        f.Leased(runner=command.runner, epoch=s.epoch + 1, runner_name=command.runner_name, boot=command.boot),
    )
    if began_before:
        d.add(f.Resuming(runner=command.runner, checkpoint=saved.n if saved and d.s.checkpoint else 0))


def renew(d: Draft, command: c.Renew) -> None:
    """Checks that the holder may go on. The shell moves `lease.until`; a lease that ran out is revived by a fact."""
    s = d.s
    mine = s.epoch == command.epoch and s.last_runner == command.runner and s.last_boot == command.boot
    if not mine:
        raise Refused("fenced", f"Epoch {command.epoch} is over; {s.epoch} is current.")
    if s.lease is not None:
        return
    if s.lifecycle is not Lifecycle.QUEUED or not s.recovery_until or s.revoked:
        raise Refused("fenced", f"The session is {s.lifecycle} and no longer this runner's.")
    d.add(f.Leased(runner=command.runner, epoch=s.epoch, runner_name=command.runner_name, boot=command.boot))


def disown(d: Draft, command: c.Disown) -> None:
    """The holder's process is gone for certain: no waiting for the lease's end."""
    s = d.s
    if s.lease is None or s.lease.epoch != command.epoch or s.lease.runner != command.runner:
        return
    d.add(f.Interrupted(reason=command.reason, runner=s.lease.runner_name))
    give_up(d, command.reason)


# -- the server's half of a sync --------------------------------------------------------------------------------------


class Reckoning(Struct, frozen=True, kw_only=True):
    """What a runner's sync and the store's view of its leases amount to, before anything is written."""

    renew: tuple[tuple[str, int], ...] = ()
    lost: tuple[Gone, ...] = ()
    disown: tuple[tuple[str, int], ...] = ()
    again: tuple[Granted, ...] = ()  # granted before, never heard: the reply was lost
    news: tuple[News, ...] = ()


def reckon(sync: Sync, held: Iterable[Session], named: Mapping[str, Session], now: float, lease_s: float) -> Reckoning:
    """Compares what the runner says it holds (`named`: those sessions) with what the store says it holds (`held`)."""
    renewals: list[tuple[str, int]] = []
    lost: list[Gone] = []
    news: list[News] = []
    for report in sync.leases:
        s = named.get(report.session)
        if s is None:
            lost.append(Gone(session=report.session, epoch=report.epoch, reason="the session was deleted"))
        elif s.epoch != report.epoch or s.last_boot != sync.boot:
            lost.append(Gone(session=s.id, epoch=report.epoch, reason=f"epoch {s.epoch} was granted since"))
        else:
            renewals.append((s.id, s.epoch))
            fresh = news_for(s, report.cursor, report.parking, report.cancelling)
            if fresh is not None:
                news.append(fresh)
    reported = {(report.session, report.epoch) for report in sync.leases}
    disowned: list[tuple[str, int]] = []
    again: list[Granted] = []
    for s in held:
        if s.lease is None or (s.id, s.epoch) in reported:
            continue
        if s.lease.boot < sync.boot:  # a later process speaks; a late word of an earlier one must change nothing
            disowned.append((s.id, s.epoch))
        elif s.lease.boot == sync.boot and s.n == 0 and s.lease.until - now > margin(lease_s):
            again.append(granted(s, s.lease.until - now, lease_s))
    return Reckoning(
        renew=tuple(renewals), lost=tuple(lost), disown=tuple(disowned), again=tuple(again), news=tuple(news)
    )


def news_for(s: Session, cursor: int, parking: bool, cancelling: bool) -> News | None:
    """What the holder has not heard yet; None when it is up to date."""
    inputs = tuple(p for p in s.inputs if p.seq > cursor and p.status == "accepted")
    if not inputs and bool(s.parking) == parking and s.cancelling == cancelling:
        return None
    newest = max((p.seq for p in inputs), default=cursor)
    return News(session=s.id, epoch=s.epoch, parking=s.parking, cancelling=s.cancelling, inputs=inputs, cursor=newest)


def granted(s: Session, ttl_s: float, lease_s: float) -> Granted:
    """The lease as the runner gets it. `ttl_s` is what is left of it, counted from now."""
    return Granted(session=s.id, epoch=s.epoch, ttl_s=ttl_s, margin_s=margin(lease_s), job=job_of(s))


def renewed(s: Session, lease_s: float) -> Renewed:
    """The renewal as the runner gets it."""
    return Renewed(session=s.id, epoch=s.epoch, ttl_s=lease_s, margin_s=margin(lease_s))


def job_of(s: Session) -> Job:
    """All that a runner needs to know of a session."""
    controls = tuple(p for p in s.inputs if p.type not in RUNTIME_INPUTS and p.status == "accepted")
    return Job(
        project=s.project,
        runtime=s.runtime,
        runtime_session_id=s.runtime_session_id,
        model=s.model,
        repository=s.workspace.repository,
        branch=s.workspace.branch,
        environment_id=s.environment.id,
        checkpoint=s.checkpoint,
        inputs=(*controls, *deliverable(s)),
        cursor=s.last_seq,
        turn=s.turn.n,
        blocking=tuple(q.id for q in s.questions if q.blocking),
        report=s.report,
        limits=s.limits,
        resumed=s.epoch > 1,
    )


# -- outages ----------------------------------------------------------------------------------------------------------


class Pulse(Struct, frozen=True, kw_only=True):
    """The servers' shared heartbeat, kept in the store: when one last looked, and until when no lease ends."""

    at: float = 0.0
    outage_until: float = 0.0


def beat(pulse: Pulse, now: float, lease_s: float) -> Pulse:
    """The pulse after one more look. Silence, or a clock that jumped, counts as an outage: runners get a full term."""
    if pulse.at and 0 <= now - pulse.at <= lease_s * OUTAGE_GAP_SHARE:
        return Pulse(at=now, outage_until=min(pulse.outage_until, now + lease_s))
    return Pulse(at=now, outage_until=now + lease_s)
