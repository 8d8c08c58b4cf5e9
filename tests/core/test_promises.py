"""Promises that were broken once."""

from __future__ import annotations

import pytest

from bide.core import commands as c
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.lease import job_of
from bide.core.limits import DAY, INPUTS_MAX, PARKING_S, STARTING_S, STARTS_MAX
from bide.core.recovery import EARLIER, RETRY
from tests.core.playbook import (
    DONE,
    EDIT,
    LEASE_S,
    RESTORED,
    START,
    TOTAL,
    began,
    cancel,
    grant,
    interrupt,
    leased,
    park,
    parked,
    receipt,
    renew,
    resume,
    say,
    uid,
    waiting,
    working,
)
from tests.core.playrunner import (
    READY,
    Exit,
    Machine,
    busy,
    granted,
    idle,
    input_,
    news,
)
from tests.core.test_leases import held
from tests.core.test_questions import choose, lost

# -- two runtimes -----------------------------------------------------------------------------------------------------


def test_a_start_given_up_is_given_to_nobody_else_while_its_runner_may_still_act() -> None:
    story = leased()
    held(story, STARTING_S)
    story.after(0)  # the last renewal was 50 s ago: its holder may act for 30 s more
    assert story << grant("r2") == "no: not_waiting"


def test_a_cancelled_session_that_wakes_is_given_to_nobody_else_while_its_runner_may_still_act() -> None:
    story = waiting()
    story << cancel()
    held(story, 300)
    assert story.s.outcome == "cancelled"
    story << say("m")
    assert story << grant("r2") == "no: not_waiting"


# -- cancel -----------------------------------------------------------------------------------------------------------


def test_a_cancel_holds_when_its_runner_is_restarted() -> None:
    story = waiting()
    story << cancel()
    story << c.Disown(runner="r1", epoch=1, reason="restarted")
    assert story.s.outcome == "cancelled"


def test_a_cancel_holds_when_the_session_finished_too_early() -> None:
    story = waiting()
    story << say("m")
    story << cancel()
    story << (f.Ended(outcome="completed"),)
    assert story.s.outcome == "cancelled"


def test_a_cancel_holds_when_the_checkpoint_turns_out_to_be_lost() -> None:
    story = parked()
    story << resume()
    story << grant("r2")
    story << cancel()
    story << (f.EnvironmentLost(reason="gone"),)
    assert story.s.outcome == "cancelled"


# -- never waited for -------------------------------------------------------------------------------------------------


def test_a_session_whose_last_message_was_withdrawn_still_parks() -> None:
    story = waiting()
    story << say("m")
    story << interrupt("i", drop=True)
    story << (receipt("m", "withdrawn"), receipt("i", "consumed"))
    assert story.s.window_until > 0


def test_a_park_revived_after_a_lease_ran_out_has_a_deadline() -> None:
    story = waiting()
    story.after(60)
    story.after(LEASE_S)
    assert story << renew(1) == ["session.leased"]
    assert story.s.parking
    assert story.s.phase_until > 0


def test_a_start_that_kills_every_runner_ends_as_failed() -> None:
    story = parked()
    story << resume()
    for attempt in range(STARTS_MAX + 2):
        story << grant(boot=str(attempt))
        story << c.Disown(runner="r1", epoch=story.s.epoch, reason="restarted")
    assert story.s.outcome == "failed"


def test_a_turn_that_outlasts_a_stalled_park_is_not_parked_as_idle() -> None:
    story = waiting()
    story << say("m")
    story << park()
    story << (began("m"), receipt("m", "consumed"), DONE)
    assert story.s.parking
    story << (f.TurnStarted(input_ids=()),)
    held(story, PARKING_S)
    assert held(story, 60) == []


def test_a_resume_while_parking_brings_it_back() -> None:
    story = waiting()
    story.after(60)
    story << resume()
    story << (f.Parked(checkpoint=1),)
    assert story.s.lifecycle == "queued"


# -- inputs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way_out", [interrupt("i", drop=True), cancel()], ids=["interrupt", "cancel"])
def test_a_session_full_of_messages_can_be_emptied_and_cancelled(way_out: c.Command) -> None:
    story = waiting()
    for n in range(INPUTS_MAX):
        story << say(f"m{n}")
    assert story << way_out != "no: too_many"


def test_messages_that_were_delivered_do_not_fill_the_queue() -> None:
    story = waiting()
    for n in range(0, INPUTS_MAX, 10):
        names = [f"m{n + k}" for k in range(10)]
        for name in names:
            story << say(name)
        story << tuple(fact for name in names for fact in (began(name), receipt(name, "unconfirmed"), DONE))
    assert story << say("one more") == ["user.message"]


def test_a_limit_on_queued_inputs_is_kept() -> None:
    story = waiting(limits=TOTAL | {"queued_inputs": 1})
    story << say("m1")
    assert story << say("m2") == "no: too_many"


def test_what_an_interrupt_was_to_drop_is_not_delivered_after_a_park() -> None:
    story = waiting()
    story << say("m")
    story << interrupt("i", drop=True)
    story << (f.Parked(checkpoint=1),)
    assert story.fate("m") == "withdrawn"


def test_what_an_interrupt_was_to_drop_is_not_delivered_by_the_next_lease() -> None:
    story = working()
    story << say("m")
    story << interrupt("i", drop=True)
    story.after(LEASE_S)
    story << renew(1)
    machine = Machine()
    machine << granted(*job_of(story.s).inputs)
    assert machine.receipts("m") == ["withdrawn"]


def test_inputs_told_again_keep_their_order() -> None:
    machine = busy()
    machine << news(input_("s1", 5, "steer"), input_("s2", 6, "steer"))
    machine << Exit(("m1",))
    assert machine << READY == ["deliver s1"]
    assert machine << r.Consumed(input_id=uid("s1")) == ["steer s2"]


def test_inputs_that_went_with_a_lost_checkpoint_do_not_stay_called_consumed() -> None:
    story = lost(checkpoints=2)
    choose(story, EARLIER)
    assert story.fate("m0") in ("abandoned", "accepted")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (interrupt("x"), interrupt("x", drop=True)),
        (say("x"), say("x", delivery="interrupt")),
        (
            c.Extend(id=uid("x"), author="ann", until=START + 40 * DAY),
            c.Extend(id=uid("x"), author="ann", until=START + 90 * DAY),
        ),
    ],
    ids=["drop", "delivery", "until"],
)
def test_a_different_wish_under_a_used_id_is_refused(first: c.Command, second: c.Command) -> None:
    story = waiting()
    story << first
    assert story << second == "no: key_reused"


def test_an_input_delivered_when_the_session_ends_gets_its_fate() -> None:
    story = waiting()
    story << say("m")
    story << (began("m"), receipt("m", "delivered"), DONE, f.Ended(outcome="completed"))
    assert story.fate("m") != "delivered"


def test_an_unconfirmed_input_is_not_replayed_when_nothing_was_rolled_back() -> None:
    story = waiting()
    story << say("m")
    story << (began("m"), receipt("m", "delivered"), receipt("m", "unconfirmed"), DONE)
    story << (story.saves(),)
    story.after(LEASE_S)
    story.after(60)
    assert story.fate("m") == "unconfirmed"


# -- what the coding agent and the person are told --------------------------------------------------------------------


def test_a_checkpoint_found_again_is_not_called_lost_in_the_next_prompt() -> None:
    story = lost()
    choose(story, RETRY)
    assert not any("fresh copy" in line for line in story.s.report)


def test_the_loss_is_told_again_when_the_runtime_died_before_hearing_it() -> None:
    machine = idle(input_("m1", 2), report=("Work was lost.",))
    machine << Exit(())
    machine << READY
    assert machine.order().preamble == "Work was lost."


def test_the_loss_is_told_when_the_next_runner_dies_before_telling_it() -> None:
    story = waiting()
    story << say("m")
    story << (began("m"), receipt("m", "consumed"), EDIT)
    story.after(LEASE_S)
    story.after(60)
    story << grant("r2")
    story << (RESTORED,)
    story << c.Disown(runner="r2", epoch=2, reason="restarted")
    story << grant("r3")
    assert job_of(story.s).report


def test_the_loss_is_told_when_the_next_runner_dies_after_it_found_an_input_in_the_conversation() -> None:
    story = waiting()
    story << say("m")
    story << (began("m"), receipt("m", "consumed"), EDIT)
    story.after(LEASE_S)
    story.after(60)
    story << grant("r2")
    story << (RESTORED, receipt("m", "consumed"))
    story << c.Disown(runner="r2", epoch=2, reason="restarted")
    story << grant("r3")
    assert job_of(story.s).report


def test_a_fresh_conversation_knows_its_task_also_when_a_message_waits() -> None:
    story = lost("ask")
    story << say("m", "update the changelog too")
    choose(story, "Start over from the repository")
    story << grant("r3")
    job = job_of(story.s)
    assert "Fix it." in "\n".join([*job.report, *(p.text for p in job.inputs)])


# -- retention --------------------------------------------------------------------------------------------------------


def test_a_session_kept_longer_by_hand_stays_so_after_its_next_park() -> None:
    story = parked()
    story << c.Extend(id=uid("x"), author="ann", until=START + 300 * DAY)
    story << resume()
    story << grant()
    story << (RESTORED,)
    story.after(60)
    story << (f.Parked(checkpoint=1),)
    assert story.s.expires_at >= START + 300 * DAY


def test_a_working_session_is_never_called_expired() -> None:
    story = parked()
    story << resume()
    story << grant()
    story << (RESTORED,)
    story.now = START + TOTAL["retention_s"] + 100
    assert story << c.Extend(id=uid("x"), author="ann", until=story.now + DAY) != "no: expired"


# -- after a loss -----------------------------------------------------------------------------------------------------


def test_an_interrupt_that_died_with_its_turn_does_not_drop_the_task_that_is_delivered_again() -> None:
    story = waiting()
    story << say("m")
    story << (began("m"), receipt("m", "consumed"), EDIT)
    story << interrupt("i", drop=True)
    story << (receipt("i", "delivered"),)
    story.after(LEASE_S)
    story.after(60)
    assert story.fate("m") == "accepted"
    assert story.fate("i") == "consumed"
    assert [p.type for p in job_of(story.s).inputs] == ["user.message"]


def test_a_resume_during_a_park_that_was_lost_does_not_undo_the_next_park() -> None:
    story = waiting()
    story.after(60)
    story << resume()
    story.after(LEASE_S)
    story.after(60)
    assert not any(p.type == "user.resume" for p in story.s.inputs)
