"""What people would lose if a damaged checkpoint were found only when they need it, or lost work were passed over."""

from __future__ import annotations

from typing import Any

from bide.core import commands as c
from bide.core import facts as f
from bide.core.recovery import CARRY_ON, END, RETRY, START_OVER
from bide.core.words import words
from tests.core.playbook import DONE, EDIT, LEASE_S, Story, answer, began, cancel, grant, receipt, resume, say, waiting

DAMAGE = f.Lost(what="workspace/app.py", bytes=7, reason="its object is missing")
DAMAGED = c.Flag(checkpoint=1, what=(DAMAGE,), reason="1 file is damaged")
WHOLE = c.Flag(checkpoint=1, what=(), reason="it is whole again")


def parked(**more: Any) -> Story:
    story = waiting(**more)
    story.after(60)
    story << (f.Parked(checkpoint=1),)
    assert story.s.lifecycle == "parked"
    return story


def choose(story: Story, choice: str) -> list[str] | str:
    (question,) = story.s.questions
    given = answer("choice", "", "")
    return story << c.Answer(id=given.id, author="ann", question_id=question.id, choices=(choice,))


def test_damage_is_told_before_anybody_answers_and_asks_how_to_go_on() -> None:
    story = parked()
    assert story << DAMAGED == ["checkpoint.flagged", "question.asked"]
    assert (story.s.lifecycle, story.s.flagged) == ("parked", (DAMAGE,))
    assert story.s.questions[0].options == (RETRY, START_OVER, END)
    assert words(story.s).must_act == "human"
    assert story << resume() == "no: not_waiting"


def test_damage_is_told_once() -> None:
    story = parked()
    story << DAMAGED
    assert story << DAMAGED == []


def test_what_is_whole_again_takes_its_question_back() -> None:
    story = parked()
    story << DAMAGED
    assert story << WHOLE == ["checkpoint.flagged", "question.withdrawn"]
    assert (story.s.flagged, story.s.questions) == ((), ())
    assert story << resume() == ["user.resume", "user.receipt", "session.queued"]


def test_a_session_that_does_not_ask_is_flagged_and_left_asleep() -> None:
    story = parked(on_loss="continue")
    assert story << DAMAGED == ["checkpoint.flagged"]
    assert (story.s.lifecycle, story.s.questions) == ("parked", ())
    assert "damaged" in words(story.s).next_step


def test_starting_over_after_damage_begins_in_a_new_environment() -> None:
    story = parked()
    story << DAMAGED
    assert choose(story, START_OVER)[-3:] == ["environment.lost", "user.message", "session.queued"]
    story << grant("r2")
    assert (story.s.checkpoint, story.s.environment.reset_count, story.s.flagged) == (None, 1, ())


def test_an_older_checkpoints_damage_and_a_working_sessions_are_nobodys_concern() -> None:
    story = parked()
    assert story << c.Flag(checkpoint=0, what=(DAMAGE,), reason="") == []
    story << resume()
    story << grant("r2")
    assert story << DAMAGED == []


def test_a_newer_save_ends_the_damage() -> None:
    story = parked()
    story << c.Flag(checkpoint=1, what=(DAMAGE,), reason="1 file is damaged")
    choose(story, RETRY)
    story << grant("r2")
    story << (f.EnvironmentRestored(source="warm", workspace=f.Workspace(repository="repo")),)
    assert story.s.flagged == ()


# -- work after the last checkpoint -----------------------------------------------------------------------------------


def rolled_back(on_rollback: f.OnLoss) -> tuple[Story, list[str] | str]:
    """A second turn edited something; then its runner is lost for good."""
    story = waiting(on_rollback=on_rollback)
    story << say("m")
    story << (began("m"), receipt("m", "consumed"), EDIT, DONE)
    story.after(LEASE_S)
    return story, story.after(60)


def test_a_rollback_goes_on_by_itself_unless_told_otherwise() -> None:
    _, came = rolled_back("continue")
    assert came[-1] == "session.queued"


def test_a_rollback_can_ask_first_and_nothing_runs_until_a_person_decided() -> None:
    story, came = rolled_back("ask")
    assert came[-2:] == ["question.asked", "session.parked"]
    assert story.s.questions[0].options == (CARRY_ON, START_OVER, END)
    assert story << say("m2") == ["user.message"]
    assert story.s.lifecycle == "parked"
    assert choose(story, CARRY_ON)[-1] == "session.queued"
    story << grant("r2")
    assert story.s.checkpoint is not None
    assert any("Work was lost" in line for line in story.s.report)


def test_starting_over_after_a_rollback_does_not_bring_the_old_workspace_back() -> None:
    story, _ = rolled_back("ask")
    choose(story, START_OVER)
    story << grant("r2")
    assert (story.s.checkpoint, story.s.environment.reset_count) == (None, 1)


def test_a_rollback_can_end_the_session_and_says_why() -> None:
    story, came = rolled_back("fail")
    assert came[-1] == "session.ended"
    assert (story.s.outcome, "was lost" in story.s.summary) == ("failed", True)


def test_a_cancel_while_the_rollback_question_is_open_ends_it() -> None:
    story, _ = rolled_back("ask")
    assert "session.ended" in (story << cancel())
