"""Defects in saving, in what people send and in placement: each takes one rule away, and says what a user would lose."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bide.core import effects as e
from bide.core import evolve, evolve_saved, inputs, lease, placement, recovery
from bide.core import facts as f
from bide.core import report as reports
from bide.core.deliveries import Deliveries
from bide.core.draft import Draft
from bide.core.handle import Lock, Locked
from bide.core.placement import Runner as Registered
from bide.core.run import Run
from bide.core.runner import Runner
from bide.core.saver import Saver
from bide.core.session import Session, Unsaved
from bide.core.turns import Turns
from bide.store.memory import MemoryStore
from tests.sim.planting import Bed

BED = Bed()

# -- saving -----------------------------------------------------------------------------------------------------------


@BED.within(60)
def current_before_verified(patch: pytest.MonkeyPatch) -> None:
    """A session is bound to a checkpoint that was never written."""

    def hopeful(self: Run, failed: e.NotCaptured, now: float) -> None:
        self.captured(e.Captured(root=""), now)

    patch.setattr(Run, "not_captured", hopeful)


@BED.within(60, runner_crash=0.05, quick=1.0)
def a_tails_checkpoint_under_the_new_epoch(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint that was saved just before a runner was killed is looked for under a name that it never had."""
    one = reports._one

    def renamed(d: Draft, fact: f.RunnerFact, n: int) -> None:
        of, d.of = d.of, d.s.epoch if isinstance(fact, f.CheckpointSaved) else d.of
        one(d, fact, n)
        d.of = of

    patch.setattr(reports, "_one", renamed)


@BED.within(60, runner_crash=0.06, disk_lost=1.0)
def saved_in_mid_turn_is_saved_for_good(patch: pytest.MonkeyPatch) -> None:
    """The end of a turn that was saved in its middle is lost without a word."""
    checkpointed = evolve_saved.checkpoint_after

    def trusting(s: Session, envelope: f.Envelope) -> Session:
        after = checkpointed(s, envelope)
        return after if s.turn.open else replace(after, unsaved=Unsaved())

    patch.setattr(evolve, "checkpoint_after", trusting)


@BED.within(60, runner_crash=0.05, disk_lost=1.0)
def rolled_back_silently(patch: pytest.MonkeyPatch) -> None:
    """Work is lost, and nobody is told."""

    def forfeit(d: Draft, reason: str) -> bool:
        if d.s.turn.open:
            d.add(f.TurnEnded(result="lost"))
        return True

    patch.setattr(recovery, "forfeit", forfeit)


@BED.within(60)
def repeated_after_a_restore(patch: pytest.MonkeyPatch) -> None:
    """The same message is worked on twice."""

    def never(self: Deliveries, memory: frozenset[str], how: str, turn: int) -> bool:
        return False

    patch.setattr(Deliveries, "settle", never)


# -- people -----------------------------------------------------------------------------------------------------------


@BED.within(60)
def answer_beats_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """An answer given while its session parks is never delivered."""

    def parked(d: Draft, fact: f.Parked, n: int) -> None:
        if d.s.cancelling:
            recovery.end(d, "cancelled", "Cancelled while it parked.", n=n)
        else:
            recovery.park(d, fact.reason or d.s.parking, fact.seconds, n)

    patch.setattr(reports, "_parked", parked)


@BED.within(60, model_away=0.3)
def fed_into_what_cannot_work(patch: pytest.MonkeyPatch) -> None:
    """What people said is told to a model that is away, one message after the other."""
    patch.setattr(Turns, "hold", lambda self: None)


@BED.within(60, model_away=0.3)
def held_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A session that was held does not go on, though it was let go."""
    patch.setattr(lease, "freed", lambda s: 0)


@BED.within(60)
def cancel_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A cancelled session goes on."""
    accepted = evolve._accepted

    def deaf(s: Session, envelope: f.Envelope) -> Session:
        return replace(accepted(s, envelope), cancelling=s.cancelling)

    patch.setattr(evolve, "_accepted", deaf)


@BED.within(60)
def answered_twice(patch: pytest.MonkeyPatch) -> None:
    """Two people's answers to one question are both delivered."""
    closed = evolve._closed

    def stays_open(s: Session, question_id: str, status: str, why: str) -> Session:
        return replace(closed(s, question_id, status, why), questions=s.questions)

    patch.setattr(evolve, "_closed", stays_open)


@BED.within(60)
def a_click_made_twice_counts_twice(patch: pytest.MonkeyPatch) -> None:
    """A message that is sent again because its receipt was lost is there twice."""
    lock = MemoryStore._lock

    def forgetful(self: MemoryStore, step: Lock) -> Locked:
        return replace(lock(self, step), known=None)

    patch.setattr(MemoryStore, "_lock", forgetful)


@BED.within(60)
def a_message_wakes_nobody(patch: pytest.MonkeyPatch) -> None:
    """A message is called accepted and never delivered."""
    patch.setattr(inputs, "_wake", lambda d, input_id, reason: None)


# -- the fleet --------------------------------------------------------------------------------------------------------


@BED.within(60, order=0.1)
def a_drain_waits_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A runner that was told to drain keeps its waiting sessions."""

    def lazy(self: Runner, now: float) -> list[e.Effect]:
        self.draining = True
        return []

    patch.setattr(Runner, "drain", lazy)


@BED.within(60, mixed=1.0)
def placed_by_name_of_the_runtime_alone(patch: pytest.MonkeyPatch) -> None:
    """A conversation is given to an older runtime, which cannot read it."""

    def any_version(runner: Registered, s: Session) -> bool:
        return placement.usable(runner, s.runtime)

    patch.setattr(placement, "_has_version", any_version)


@BED.within(60, mixed=1.0)
def versions_compared_as_texts(patch: pytest.MonkeyPatch) -> None:
    """Version 9 passes for newer than version 10."""
    patch.setattr(placement, "release", lambda version: tuple(version.split(".")))


@BED.within(100, mixed=1.0, terminated=0.15, order=0.1)
def version_forgotten_without_a_runtime(patch: pytest.MonkeyPatch) -> None:
    """A session that parked before its runtime came up goes to a runtime that cannot read it."""
    saved = Saver.saved

    def forgetful(self: Saver, done: e.Captured, version: str, now: float, wall: float) -> f.CheckpointSaved:
        said = saved(self, done, version, now, wall)
        self.last = replace(said.checkpoint, runtime_version=version)
        return f.CheckpointSaved(checkpoint=self.last)

    patch.setattr(Saver, "saved", forgetful)


@BED.within(60, mixed=1.0)
def labels_ignored(patch: pytest.MonkeyPatch) -> None:
    """A session that needs a GPU starts where there is none."""
    patch.setattr(placement, "_has_labels", lambda runner, s: True)


@BED.within(60, mixed=1.0)
def room_ignored(patch: pytest.MonkeyPatch) -> None:
    """A big workspace fills the disk of a runner that has no room for it."""
    patch.setattr(placement, "_has_room", lambda runner, s: True)
