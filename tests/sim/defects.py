"""Defects in the log, in leases and in coming back: each takes one rule away, and says what a user would lose by that."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

import sim.servers
import sim.shell
from bide.core import commands as c
from bide.core import decide, evolve, exchange, lease, placement, recovery, takeup
from bide.core import effects as e
from bide.core import facts as f
from bide.core import report as reports
from bide.core import runner as runners
from bide.core.draft import Draft
from bide.core.kept import Left
from bide.core.outbox import Outbox
from bide.core.run import Run
from bide.core.runner import Runner
from bide.core.session import Session
from bide.core.wire import Granted, Renewed, Sync
from bide.store.memory import MemoryStore
from sim.runtimes import Process
from tests.sim.planting import Bed

BED = Bed()


# -- the log ----------------------------------------------------------------------------------------------------------


@BED.within(60)
def no_epoch_check(patch: pytest.MonkeyPatch) -> None:
    """Two runners' words are mixed in one conversation."""

    def report(d: Draft, command: c.Report) -> None:
        reports.report(d, replace(command, epoch=d.s.epoch, runner=d.s.last_runner))

    patch.setattr(decide, "report", report)


@BED.within(60)
def no_dedupe(patch: pytest.MonkeyPatch) -> None:
    """A turn ends twice, a question is asked twice."""

    def report(d: Draft, command: c.Report) -> None:
        reports.report(d, replace(command, first=reports.awaited(d.s, command.of)))

    patch.setattr(decide, "report", report)


@BED.within(60)
def forgets_what_was_not_acknowledged(patch: pytest.MonkeyPatch) -> None:
    """A fact is lost on the way, and its session stands still for ever."""
    acked = Outbox.acked

    def too_much(self: Outbox, next_n: int, of: int) -> None:
        acked(self, next_n + 1, of)

    patch.setattr(Outbox, "acked", too_much)


@BED.within(60)
def gaps_accepted(patch: pytest.MonkeyPatch) -> None:
    """Facts are lost on the way, and nobody notices."""
    forgets_what_was_not_acknowledged(patch)
    report = reports.report

    def anything_goes(d: Draft, command: c.Report) -> None:
        report(d, replace(command, first=min(command.first, reports.awaited(d.s, command.of))))

    patch.setattr(decide, "report", anything_goes)


@BED.within(60)
def acknowledges_what_is_not_stored(patch: pytest.MonkeyPatch) -> None:
    """The runner forgets what no server has."""

    def awaited(s: Session, of: int) -> int:
        return reports.awaited(s, of) + 1

    patch.setattr(sim.shell, "awaited", awaited)


# -- leases -----------------------------------------------------------------------------------------------------------


@BED.within(60)
def no_self_fencing(patch: pytest.MonkeyPatch) -> None:
    """Two runtimes work on one session at once."""
    tick = Runner.tick

    def believes_for_ever(self: Runner, now: float) -> list[e.Effect]:
        for run in self.runs.values():
            run.deadline = math.inf
        return tick(self, now)

    patch.setattr(Runner, "tick", believes_for_ever)


@BED.within(60)
def late_grants_taken(patch: pytest.MonkeyPatch) -> None:
    """A session that went on elsewhere starts a second time."""
    granted = Runner.granted

    def forgetful(self: Runner, grant: Granted, asked_at: float, now: float) -> list[e.Effect]:
        self.seen.pop(grant.session, None)
        return granted(self, grant, asked_at, now)

    patch.setattr(Runner, "granted", forgetful)


@BED.within(60, slow=0.5, cut=0.1)
def lease_counted_from_the_reply(patch: pytest.MonkeyPatch) -> None:
    """A runner believes in a lease that its server has given to another."""
    granted, renewed = Runner.granted, Runner.renewed

    def granted_now(self: Runner, grant: Granted, asked_at: float, now: float) -> list[e.Effect]:
        return granted(self, grant, now, now)

    def renewed_now(self: Runner, renewal: Renewed, asked_at: float, now: float) -> list[e.Effect]:
        return renewed(self, renewal, now, now)

    patch.setattr(Runner, "granted", granted_now)
    patch.setattr(Runner, "renewed", renewed_now)


@BED.within(60)
def thaws_without_a_renewal(patch: pytest.MonkeyPatch) -> None:
    """A frozen runtime goes on although another runner has its session."""
    tick = Runner.tick

    def impatient(self: Runner, now: float) -> list[e.Effect]:
        thawed: list[e.Effect] = []
        for run in self.runs.values():
            if run.frozen_at and now - run.frozen_at > 2:
                run.frozen_at, run.deadline = 0.0, now + 3
                thawed.append(e.Thaw(session=run.session, epoch=run.epoch))
        return [*thawed, *tick(self, now)]

    patch.setattr(Runner, "tick", impatient)


@BED.within(60, replay=0.2, runner_crash=0.05, quick=1.0)
def disowned_by_an_older_boot(patch: pytest.MonkeyPatch) -> None:
    """A late word of a dead process takes the session from the living one, which still works on it."""
    reckon = lease.reckon

    def any_other(sync: Sync, held: list[Session], *rest: Any) -> lease.Reckoning:
        later = tuple((s.id, s.epoch) for s in held if s.lease is not None and s.lease.boot > sync.boot)
        found = reckon(sync, held, *rest)
        return replace(found, disown=(*found.disown, *later))

    patch.setattr(exchange, "reckon", any_other)


def _starts_given_up_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(evolve, "STARTING_S", 1.5)  # so that some take too long
    phase_over = decide._phase_over

    def at_once(d: Draft) -> None:
        phase_over(d)
        if d.s.recovery_until:
            recovery.give_up(d, d.s.reason)

    patch.setattr(decide, "_phase_over", at_once)


@BED.within(60)
def held_until_ignored(patch: pytest.MonkeyPatch) -> None:
    """A session whose start was given up goes to another runner while the first still starts it."""
    _starts_given_up_at_once(patch)
    for room in (placement, lease):
        patch.setattr(room, "claimable", lambda s, now: s.lifecycle == "queued" and not s.recovery_until)


@BED.within(120, clock_jump=0.1, server_stall=0.04, slow=0.3, cut=0.1)
def held_by_the_clock_alone(patch: pytest.MonkeyPatch) -> None:
    """The same, where the database's clock jumps: a laptop that slept in the middle of a start."""
    _starts_given_up_at_once(patch)


@BED.within(60, store_away=12.0)
def pulse_ignored(patch: pytest.MonkeyPatch) -> None:
    """After the database was away, every session is taken from its runner."""

    def steady(pulse: lease.Pulse, now: float, lease_s: float) -> lease.Pulse:
        return lease.Pulse(at=now)

    patch.setattr(sim.servers, "beat", steady)


@BED.within(60, server_stall=0.05, clock_jump=0.15)
def a_stale_look_ends_leases(patch: pytest.MonkeyPatch) -> None:
    """A server that stood still through an outage takes sessions from their runners when it goes on."""
    wake = decide._wake

    def trusting(d: Draft, command: c.Wake) -> None:
        wake(d, replace(command, good_until=math.inf))

    patch.setattr(decide, "_wake", trusting)


@BED.within(60, server_crash=0.05, runner_crash=0.05)
def wake_claims_lost(patch: pytest.MonkeyPatch) -> None:
    """A session whose waking server died is never woken again."""
    claim_due = MemoryStore.claim_due

    def for_ever(self: MemoryStore, now: float, limit: int, hold_s: float) -> list[str]:
        return claim_due(self, now, limit, math.inf)

    patch.setattr(MemoryStore, "claim_due", for_ever)


# -- coming back ------------------------------------------------------------------------------------------------------


@BED.within(60, runner_crash=0.05, quick=0.0)
def adopted_after_another_was_granted(patch: pytest.MonkeyPatch) -> None:
    """A runner that comes back takes the session from the one that went on with it."""

    def adopt(d: Draft, command: c.Adopt) -> None:
        d.add(
            f.Leased(runner=command.runner, epoch=d.s.epoch + 1, runner_name=command.runner, boot=command.boot,
                     adopts=command.of)
        )  # fmt: skip

    patch.setattr(decide, "adopt", adopt)


@BED.within(60, runner_crash=0.05, quick=1.0)
def tail_taken_twice(patch: pytest.MonkeyPatch) -> None:
    """What a runner had still to tell when it was killed stands in the log twice."""
    report = reports.report

    def again(d: Draft, command: c.Report) -> None:
        first = reports.awaited(d.s, command.of) if command.of else command.first
        report(d, replace(command, first=first))

    patch.setattr(decide, "report", again)


@BED.within(60, runner_crash=0.05, quick=1.0)
def tail_dropped(patch: pytest.MonkeyPatch) -> None:
    """What a runner had still to tell when it was killed is never told."""
    take_up = takeup.take_up

    def silent(grant: Granted, left: Left, deadline: float, now: float, wall: float) -> Run:
        return take_up(grant, replace(left, facts=(), first=grant.tail_n), deadline, now, wall)

    patch.setattr(runners, "take_up", silent)


@BED.within(
    300, loss=0.3, cut=0.1, runner_crash=0.15, quick=1.0, crash_again=0.9, terminated=0.05, disk_lost=0.0,
    restore_fails=0.0, memory_unreadable=0.0, server_crash=0.0, server_stall=0.0, store_slow=0.0, store_away=0.0,
)  # fmt: skip
def told_inputs_forgotten_on_return(patch: pytest.MonkeyPatch) -> None:
    """A message that was put back just before a runner was killed is never delivered."""
    patch.setattr(Process, "_pace", lambda self: self.clock.rng.uniform(2, 8))  # a runtime that reads slowly
    job_of = lease.job_of
    patch.setattr(lease, "job_of", lambda s, *, adopted=False: job_of(s))


@BED.within(60, runner_crash=0.05, quick=1.0)
def recovery_window_ignored(patch: pytest.MonkeyPatch) -> None:
    """A runner that was out of contact for a moment loses all unsaved work."""
    lease_over = decide._lease_over

    def at_once(d: Draft) -> None:
        lease_over(d)
        if d.s.recovery_until:
            recovery.give_up(d, d.s.reason)

    patch.setattr(decide, "_lease_over", at_once)


@BED.within(60, runner_crash=0.05, disk_lost=0.0)
def a_half_restored_folder_called_warm(patch: pytest.MonkeyPatch) -> None:
    """A folder that holds half of a checkpoint is taken for all of it."""
    patch.setattr(Left, "saved", property(lambda self: self.kept.checkpoint is not None))
