"""The simulator notices what it is there for: each defect planted here is found within a bounded number of seeds."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from bide.core import commands as c
from bide.core import decide
from bide.core import effects as e
from bide.core import facts as f
from bide.core import report as reports
from bide.core.draft import Draft
from bide.core.recovery import end, park
from bide.core.runner import Runner
from bide.core.wire import Granted
from sim.world import play

Plant = Callable[[pytest.MonkeyPatch], None]


def no_epoch_check(patch: pytest.MonkeyPatch) -> None:
    def report(d: Draft, command: c.Report) -> None:
        reports.report(d, replace(command, epoch=d.s.epoch, runner=d.s.last_runner))

    patch.setattr(decide, "report", report)


def no_dedupe(patch: pytest.MonkeyPatch) -> None:
    def report(d: Draft, command: c.Report) -> None:
        reports.report(d, replace(command, first=d.s.n))

    patch.setattr(decide, "report", report)


def no_self_fencing(patch: pytest.MonkeyPatch) -> None:
    tick = Runner.tick

    def believes_for_ever(self: Runner, now: float) -> list[e.Effect]:
        for run in self.runs.values():
            run.deadline = math.inf
        return tick(self, now)

    patch.setattr(Runner, "tick", believes_for_ever)


def late_grants_taken(patch: pytest.MonkeyPatch) -> None:
    granted = Runner.granted

    def forgetful(self: Runner, grant: Granted, asked_at: float, now: float) -> list[e.Effect]:
        self.seen.pop(grant.session, None)
        return granted(self, grant, asked_at, now)

    patch.setattr(Runner, "granted", forgetful)


def answer_beats_checkpoint(patch: pytest.MonkeyPatch) -> None:
    def parked(d: Draft, fact: f.Parked, n: int) -> None:
        if d.s.cancelling:
            end(d, "cancelled", "Cancelled while it parked.", n=n)
        else:
            park(d, fact.reason or d.s.parking, fact.seconds, n)

    patch.setattr(reports, "_parked", parked)


SEEDS_MAX = 60


@pytest.mark.parametrize(
    "plant",
    [no_epoch_check, no_dedupe, no_self_fencing, late_grants_taken, answer_beats_checkpoint],
    ids=lambda plant: plant.__name__,
)
def test_a_defect_is_found_before_it_costs_anybody_their_work(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS_MAX):
        try:
            play(seed)
        except AssertionError as found:  # a promise, or a machine that met what it holds impossible
            print(f"seed {seed}: {found}")
            return
    pytest.fail(f"{plant.__name__} went unnoticed for {SEEDS_MAX} seeds")
