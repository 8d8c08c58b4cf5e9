"""Leases, epochs and loss: one holder at a time, a late word changes nothing, and what is gone is itemised."""

from __future__ import annotations

import pytest

from bide.core import commands as c
from bide.core import facts as f
from bide.core.lease import Pulse, beat, job_of
from bide.core.limits import PARKING_S, STARTING_S, STARTS_MAX
from tests.core.playbook import (
    DONE,
    EDIT,
    LEASE_S,
    PROMPT,
    RESTORED,
    Story,
    began,
    cancel,
    grant,
    leased,
    parked,
    receipt,
    renew,
    say,
    uid,
    waiting,
    working,
)


def in_second_turn(**more: float) -> Story:
    """Checkpoint 1 is saved; a second turn has begun to change files."""
    story = waiting(**more)
    story << say("m")
    story << (began("m"), receipt("m", "delivered"), receipt("m", "consumed"), EDIT)
    return story


def report(story: Story, *facts: f.RunnerFact, first: int, epoch: int = 1, runner: str = "r1") -> c.Report:
    return c.Report(runner=runner, epoch=epoch, first=first, facts=facts)


# -- one holder -------------------------------------------------------------------------------------------------------


def test_a_session_is_given_to_one_runner_only() -> None:
    story = leased()
    assert story << grant("r2") == "no: not_waiting"


def test_each_lease_has_a_higher_epoch() -> None:
    story = parked()
    story << say("m")
    story << grant("r2")
    assert (story.s.epoch, story.s.n) == (2, 0)


def test_a_renewed_lease_lasts_and_leaves_no_trace_in_the_log() -> None:
    story = working()
    story.now += 100
    assert story << renew(1) == []
    assert story.wakes_in() == LEASE_S
    assert story.after(119) == []


@pytest.mark.parametrize(
    "stranger", [renew(2), renew(1, runner="r2"), renew(1, boot="0")], ids=["epoch", "runner", "process"]
)
def test_a_lease_is_renewed_by_its_holder_only(stranger: c.Renew) -> None:
    assert working() << stranger == "no: fenced"


# -- contact lost -----------------------------------------------------------------------------------------------------


def test_a_runner_out_of_contact_is_noticed_when_its_lease_ends() -> None:
    story = in_second_turn()
    assert story.after(119) == []
    assert story.after(1) == ["session.interrupted"]
    assert story.s.lifecycle == "queued"
    assert story << grant("r2") == "no: not_waiting"


def test_a_runner_that_comes_back_in_the_recovery_window_goes_on_with_nothing_lost() -> None:
    story = in_second_turn()
    story.after(120)
    assert story << (EDIT,) == "no: lease_over"
    assert story << renew(1) == ["session.leased"]
    assert (story.s.epoch, story.s.turn.open) == (1, True)
    assert story << (EDIT, DONE) == ["tool.call", "turn.ended"]


def test_work_is_rolled_back_itemised_and_its_inputs_are_delivered_again() -> None:
    story = in_second_turn()
    story.after(120)
    assert story.wakes_in() == 60
    assert story.after(60) == ["turn.ended", "environment.rolled_back", "user.receipt", "session.queued"]
    rolled = story.one(f.EnvironmentRolledBack)
    assert (rolled.checkpoint, rolled.turns, rolled.seconds) == (1, 1, 180.0)
    assert [item.what for item in rolled.lost][:2] == ["turn 2", "changes to src/app.py"]
    assert story.fate("m") == "accepted"
    assert story.row("m").how.startswith("to be delivered again")
    story << grant("r2")
    job = job_of(story.s)
    assert [p.id for p in job.inputs] == [uid("m")]
    assert "src/app.py" in "\n".join(job.report)


def test_a_runner_lost_while_nothing_was_unsaved_costs_nothing_and_no_wait() -> None:
    story = waiting()
    story.after(60)
    story.after(60)
    assert story.s.lifecycle == "queued"
    assert story.after(0) == ["session.queued"]
    assert story.s.report == ()


def test_work_saved_in_mid_turn_is_lost_only_past_the_save_and_the_agent_is_told_to_go_on() -> None:
    story = in_second_turn()
    story << (story.saves("m"), EDIT)
    story.after(120)
    assert story.after(60) == ["turn.ended", "environment.rolled_back", "user.message", "session.queued"]
    assert story.fate("m") == "consumed"
    assert "go on" in story.s.inputs[-1].text


def test_work_after_a_save_in_mid_turn_is_called_lost_though_the_turn_is_over() -> None:
    story = in_second_turn()
    saved = story.saves("m")
    story << (EDIT, DONE, saved)
    story.after(120)
    assert story.after(60) == ["environment.rolled_back", "user.message", "session.queued"]
    assert story.s.report
    assert story.fate("m") == "consumed"


def test_a_first_prompt_in_a_saved_turn_is_never_run_twice() -> None:
    story = in_second_turn()
    story.after(120)
    story.after(60)
    assert story.fate("prompt") == "consumed"
    assert PROMPT not in [p.id for p in story.s.inputs]


def test_a_runner_that_comes_back_after_the_window_is_fenced() -> None:
    story = in_second_turn()
    story.after(120)
    story.after(60)
    assert story << renew(1) == "no: fenced"
    assert story << report(story, EDIT, first=story.s.n) == "no: fenced"
    story << grant("r2")
    assert story << report(story, EDIT, first=0) == "no: fenced"


def test_a_runners_new_process_gives_its_sessions_up_at_once() -> None:
    story = in_second_turn()
    disown = c.Disown(runner="r1", epoch=1, reason="runner r1 was restarted")
    assert story << disown == [
        "session.interrupted", "turn.ended", "environment.rolled_back", "user.receipt", "session.queued",
    ]  # fmt: skip
    assert story << disown == []


def test_a_late_word_of_a_dead_process_takes_nothing_from_the_next_holder() -> None:
    story = in_second_turn()
    story << c.Disown(runner="r1", epoch=1, reason="restarted")
    story << grant("r1", boot="2")
    assert story << c.Disown(runner="r1", epoch=1, reason="restarted") == []
    assert story << c.Disown(runner="r2", epoch=2, reason="restarted") == []


def test_a_cancel_while_the_runner_is_out_of_contact_ends_with_the_loss_told() -> None:
    story = in_second_turn()
    story.after(120)
    facts = story << cancel()
    assert "environment.rolled_back" in facts
    assert facts[-1] == "session.ended"
    assert story.fate("m") == "refused"


# -- outages ----------------------------------------------------------------------------------------------------------


def test_no_lease_ends_until_a_whole_lease_after_an_outage() -> None:
    story = in_second_turn()
    story.now += 1000
    pulse = beat(Pulse(at=story.now - 1000), story.now, LEASE_S)
    assert pulse.outage_until == story.now + LEASE_S
    assert story << c.Wake(outage_until=pulse.outage_until) == []
    story.now += 119
    assert story << c.Wake(outage_until=pulse.outage_until) == []
    story.now += 1
    assert story << c.Wake(outage_until=pulse.outage_until) == ["session.interrupted"]


def test_a_look_at_the_clock_from_before_an_outage_ends_no_lease_after_it() -> None:
    story = in_second_turn()
    story.now += 1000
    assert story << c.Wake(outage_until=0.0, good_until=story.now - 970) == []


def test_no_recovery_window_ends_in_an_outage() -> None:
    story = in_second_turn()
    story.after(120)
    story.now += 60
    assert story << c.Wake(outage_until=story.now + 1) == []


@pytest.mark.parametrize(("silence", "outage"), [(29.0, False), (31.0, True), (-1.0, True)])
def test_silence_and_clocks_that_jump_count_as_an_outage(silence: float, outage: bool) -> None:
    pulse = beat(Pulse(at=1000.0), 1000.0 + silence, LEASE_S)
    assert (pulse.outage_until > 1000.0 + silence) is outage


def test_a_steady_pulse_lets_an_outage_end() -> None:
    pulse = beat(Pulse(), 1000.0, LEASE_S)
    for second in range(1, 200):
        pulse = beat(pulse, 1000.0 + second, LEASE_S)
    assert pulse.outage_until == 1000.0 + LEASE_S


def test_the_first_pulse_ever_counts_as_an_outage() -> None:
    assert beat(Pulse(), 5.0, LEASE_S).outage_until == 5.0 + LEASE_S


# -- transitional states ----------------------------------------------------------------------------------------------


def held(story: Story, seconds: float) -> list[str] | str:
    """Time passes while the holder renews in time; what happened at the end of it."""
    end = story.now + seconds
    facts: list[str] | str = []
    while story.now < end:
        story << renew(story.s.epoch)
        facts = story.after(min(50.0, end - story.now))
        if facts:
            break
    return facts


def test_a_start_that_takes_too_long_is_left() -> None:
    story = leased()
    assert held(story, STARTING_S) == ["session.interrupted"]
    assert (story.s.lifecycle, story.s.reason) == ("queued", "the start took too long")
    assert story.after(LEASE_S) == ["session.queued"]
    assert story << grant("r2") == ["session.leased", "session.resuming"]


def test_a_start_that_was_given_up_goes_to_nobody_while_its_runner_may_still_believe_in_it() -> None:
    story = leased()
    held(story, STARTING_S)
    assert story << (RESTORED,) == "no: fenced"
    assert story << renew(1) == "no: fenced"
    story.now += 1_000_000  # the clock jumps: an outage, as far as anybody can tell
    assert story << grant("r2") == "no: not_waiting"
    assert story << c.Wake(outage_until=story.now + LEASE_S) == []
    assert story << grant("r2") == "no: not_waiting"


def test_starts_that_fail_again_and_again_end_as_failed_with_the_reason() -> None:
    story = Story()
    for _ in range(STARTS_MAX):
        story << grant()
        assert held(story, STARTING_S)[0] == "session.interrupted"
        story.after(LEASE_S)
    assert story.s.outcome == "failed"
    assert "could not be started" in story.s.summary


def test_a_start_that_works_forgets_those_that_failed() -> None:
    story = leased()
    held(story, STARTING_S)
    story.after(LEASE_S)
    story << grant()
    story << (RESTORED,)
    assert story.s.starts == 0


def test_every_transitional_state_has_a_deadline() -> None:
    story = leased()
    assert story.s.phase_until == story.now + STARTING_S
    story = waiting()
    story.after(60)
    assert story.s.phase_until == story.now + PARKING_S
    story = working()
    story << cancel()
    assert story.s.phase_until > story.now


# -- what a runner reports --------------------------------------------------------------------------------------------


def test_a_batch_sent_twice_is_stored_once() -> None:
    story = working()
    first = story.s.n
    batch = report(story, EDIT, DONE, first=first)
    assert story << batch == ["tool.call", "turn.ended"]
    assert story << batch == []
    assert story << report(story, EDIT, DONE, f.Note(text="new"), first=first) == ["note"]


def test_a_batch_past_a_hole_is_refused_with_where_to_begin() -> None:
    story = working()
    assert story << report(story, EDIT, first=story.s.n + 2) == "no: gap"
    assert story.refusal is not None
    assert story.refusal.more["next"] == story.s.n


def test_nothing_counts_after_a_runners_last_word() -> None:
    story = waiting()
    assert story << (f.Ended(outcome="completed"), f.Note(text="and another thing")) == ["session.ended"]


def test_a_repeat_of_the_last_word_is_silent_and_anything_new_is_fenced() -> None:
    story = waiting()
    last = report(story, f.Ended(outcome="completed"), first=story.s.n)
    assert story << last == ["session.ended"]
    assert story << last == []
    assert story << report(story, EDIT, first=story.s.n) == "no: fenced"


def test_another_runners_word_is_fenced_even_under_the_current_epoch() -> None:
    story = working()
    assert story << report(story, EDIT, first=story.s.n, runner="r2") == "no: fenced"


def test_a_checkpoint_counts_under_the_epoch_that_reported_it() -> None:
    story = working()
    story << (story.saves("prompt", epoch=99),)
    assert story.s.checkpoint is not None
    assert story.s.checkpoint.epoch == 1


def test_a_question_cannot_be_asked_already_answered() -> None:
    story = working()
    forged = f.Question(
        id=uid("q"), session_id="another", question="q?", status="answered", answer=f.Answer(text="yes", by="ann")
    )
    story << (f.QuestionAsked(question=forged),)
    (row,) = story.store.questions(story.id)
    assert (row.status, row.answer, row.session_id) == ("open", None, story.id)


def test_a_question_longer_than_the_limit_is_cut() -> None:
    story = working()
    question = f.Question(id=uid("q"), session_id="", question="x" * 1_000_000)
    story << (f.QuestionAsked(question=question),)
    assert 63 * 1024 < len(story.s.questions[0].question) < 65 * 1024


def test_what_a_busy_runner_reports_never_refuses_a_persons_input() -> None:
    story = working()
    for n in range(20):
        assert story << (f.AssistantMessage(text=f"word {n}"),) == ["assistant.message"]
        assert story << say(f"m{n}") == ["user.message"]
