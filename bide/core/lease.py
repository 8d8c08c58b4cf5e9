"""Epochs, terms and margins: who may act for a session, and what server and runner tell each other about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from bide.core import commands as c
from bide.core import facts as f
from bide.core.draft import Draft
from bide.core.limits import LEASE_HOLDER_SHARE, OUTAGE_GAP_SHARE, TAKEUPS_MAX
from bide.core.placement import claimable
from bide.core.recovery import give_up, settle_controls
from bide.core.refusals import Refused
from bide.core.session import RUNTIME_INPUTS, Lifecycle, Session, freed, rewinding, stopping, undelivered
from bide.core.troubles import about_session
from bide.core.walls import allowed
from bide.core.wire import Gone, Granted, Held, Job, News, Renewed, Sync


def margin(lease_s: float) -> float:
    """How long before the lease's end its holder stops, seconds."""
    return lease_s * (1 - LEASE_HOLDER_SHARE)


# -- decisions --------------------------------------------------------------------------------------------------------


def grant(d: Draft, command: c.Grant) -> None:
    """Leases a queued session to a runner under the next epoch."""
    s = d.s
    if not claimable(s, d.now):
        raise Refused("not_waiting", f"The session is {s.lifecycle}, not waiting for a runner.")
    began_before, saved = s.epoch > 0 or s.checkpoint is not None, s.checkpoint
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


def adopt(d: Draft, command: c.Adopt) -> None:
    """A new lease for a runner that came back with the session's folder intact, unless somebody else was granted one.

    `of` is the epoch whose facts it has still to tell: the last one's, or that of the one before, where the last had
    not yet said anything of its own.
    """
    s = d.s
    # Adoptions of which the runner never heard: had it, it would name the newer epoch.
    unheard = command.epoch < s.epoch and command.of == s.adopted_from and not s.n
    mine = (s.epoch == command.epoch and s.last_boot == command.was_boot) or (unheard and s.last_boot <= command.boot)
    if s.last_runner != command.runner or not mine:
        raise Refused("fenced", f"Epoch {command.epoch} is over; {s.epoch} is current.")
    if unheard and s.lease is not None and s.lease.boot == command.boot:
        return  # it is granted again
    if s.lease is None and (s.lifecycle is not Lifecycle.QUEUED or not s.recovery_until or s.revoked):
        raise Refused("fenced", f"The session is {s.lifecycle} and no longer this runner's.")
    if s.takeups >= TAKEUPS_MAX:
        raise Refused("fenced", f"It was taken up {s.takeups} times and never came to the end of a turn.")
    if command.of != s.epoch and (command.of != s.adopted_from or s.n):
        raise Refused("fenced", f"Nothing of epoch {command.of} can be told any more.")
    d.add(
        f.Leased(
            runner=command.runner, epoch=s.epoch + 1, runner_name=command.runner_name, boot=command.boot,
            adopts=command.of,
        )
    )  # fmt: skip
    if s.parking:
        settle_controls(d, {"user.resume": "it goes on"})  # the park that it waited for is not finished


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


def reckon(
    sync: Sync,
    held: Iterable[Session],
    named: Mapping[str, Session | None],
    now: float,
    lease_s: float,
    apart: str = "",
) -> Reckoning:
    """Compares what the runner says it holds (`named`: those sessions) with what the store says it holds (`held`).

    Processes up to the boot `apart` are those of another machine.
    """
    renewals: list[tuple[str, int]] = []
    lost: list[Gone] = []
    news: list[News] = []
    for report in sync.leases:
        s = named.get(report.session)
        if s is None and report.session in named:
            continue  # a server of a newer release may know it; until then it is neither renewed nor lost
        if s is None:
            lost.append(Gone(session=report.session, epoch=report.epoch, reason="the session was deleted"))
        elif s.epoch != report.epoch or s.last_boot != sync.boot:
            lost.append(Gone(session=s.id, epoch=report.epoch, reason=f"epoch {s.epoch} was granted since"))
        else:
            renewals.append((s.id, s.epoch))
            fresh = news_for(s, report)
            if fresh is not None:
                news.append(fresh)
    reported = {(report.session, report.epoch) for report in sync.leases}
    spoken_of = {back.session for back in sync.adopt} | {back.session for back in sync.returned}
    disowned: list[tuple[str, int]] = []
    again: list[Granted] = []
    for s in held:
        if s.lease is None or (s.id, s.epoch) in reported or s.id in spoken_of:
            continue
        # A later process speaks; a late word of an earlier one must change nothing. Of one that was apart nobody knows
        # whether it has ended: its lease runs out.
        if apart < s.lease.boot < sync.boot:
            disowned.append((s.id, s.epoch))
        elif s.lease.boot == sync.boot and s.n == 0 and s.lease.until - now > margin(lease_s):
            # Never more than a whole lease, though the clock was set back meanwhile.
            again.append(granted(s, min(s.lease.until - now, lease_s), lease_s))
    return Reckoning(
        renew=tuple(renewals), lost=tuple(lost), disown=tuple(disowned), again=tuple(again), news=tuple(news)
    )


def news_for(s: Session, held: Held) -> News | None:
    """What the holder has not heard yet; None when it is up to date."""
    stops, cursor, free = stopping(s), held.cursor, freed(s)
    walls = None if held.walls is None else allowed(s.limits)
    # What comes after the order to go back is for the time after it: this holder is told nothing more.
    inputs = () if rewinding(s) else tuple(p for p in s.inputs if p.seq > cursor and p.status == "accepted")
    if (
        not inputs
        and bool(s.parking) == held.parking
        and stops == held.cancelling
        and held.walls == walls
        and not 0 < held.held <= free
    ):
        return None
    newest = max((p.seq for p in inputs), default=cursor)
    return News(
        session=s.id, epoch=s.epoch, parking=s.parking, cancelling=stops, inputs=inputs, cursor=newest, freed=free,
        walls=walls,
    )  # fmt: skip


def granted(s: Session, ttl_s: float, lease_s: float) -> Granted:
    """The lease as the runner gets it. `ttl_s` is what is left of it, counted from now."""
    adopted_from, tail_n = (s.adopted_from, s.tail_n) if s.n == 0 else (0, 0)
    return Granted(
        session=s.id, epoch=s.epoch, ttl_s=ttl_s, margin_s=margin(lease_s), job=job_of(s, adopted=adopted_from > 0),
        adopted_from=adopted_from, tail_n=tail_n,
    )  # fmt: skip


def renewed(s: Session, lease_s: float) -> Renewed:
    """The renewal as the runner gets it."""
    return Renewed(session=s.id, epoch=s.epoch, ttl_s=lease_s, margin_s=margin(lease_s))


def job_of(s: Session, *, adopted: bool = False) -> Job:
    """All that a runner needs to know of a session."""
    controls = tuple(p for p in s.inputs if p.type not in RUNTIME_INPUTS and p.status == "accepted")
    # One that came back knows what it told and what has become of it; the server may have heard the half of that.
    told = tuple(p for p in s.inputs if adopted and p.type in RUNTIME_INPUTS and p.status == "delivered")
    return Job(
        project=s.project,
        runtime=s.runtime,
        runtime_session_id=s.runtime_session_id,
        model=s.model,
        repository=s.workspace.repository,
        branch=s.workspace.branch,
        environment_id=s.environment.id,
        checkpoint=s.checkpoint,
        inputs=(*controls, *told, *(() if rewinding(s) else undelivered(s))),
        cursor=s.last_seq,
        turn=s.turn.n,
        blocking=tuple(q.id for q in s.questions if q.blocking and not about_session(q)),
        report=s.report,
        limits=s.limits,
        resumed=s.epoch > 1 or s.forked_from is not None,
        checkpoint_n=s.checkpoint_n,
        care=s.care,
        freed=freed(s),
        usd=s.usd,
        tokens=s.tokens,
        worked_s=s.worked_s,
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
