"""Questions and the loss of everything: one answer each, a late one keeps its text, and nobody decides by silence."""

from __future__ import annotations

from typing import Literal

import pytest

from bide.core import facts as f
from bide.core.limits import DAY
from bide.core.recovery import EARLIER, END, RETRY, START_OVER
from tests.core.playbook import (
    DONE,
    EDIT,
    PROMPT,
    RESTORED,
    Story,
    answer,
    asks,
    began,
    cancel,
    grant,
    parked,
    qid,
    receipt,
    renew,
    resume,
    say,
    uid,
    waiting,
    working,
)

LOST = (f.EnvironmentLost(reason="the blobs are gone", lost=(f.Lost(what="the workspace", reason="gone"),)),)


def test_a_question_waits_for_an_answer_and_otherwise_for_a_message() -> None:
    assert waiting(asks("q")).s.turn.waiting_for == "answer"
    assert waiting(asks("q", blocking=False)).s.turn.waiting_for == "message"
    assert waiting().s.turn.waiting_for == "message"


def test_questions_are_answered_in_any_order_and_each_answer_says_what_it_answers() -> None:
    story = waiting(asks("q1"), asks("q2"))
    assert story << answer("a2", "q2", "two") == ["user.answer", "question.answered"]
    assert story.s.turn.waiting_for == "answer"
    assert story << answer("a1", "q1", "one") == ["user.answer", "question.answered"]
    assert [p.text for p in story.s.inputs] == [
        "Answer to your question “q2?”:\ntwo", "Answer to your question “q1?”:\none",
    ]  # fmt: skip


def test_the_session_waits_again_while_another_blocking_question_is_open() -> None:
    story = waiting(asks("q1"), asks("q2"))
    story << answer("a1", "q1")
    story << (began("a1"), receipt("a1", "consumed"), DONE)
    assert story.s.turn.waiting_for == "answer"


def test_a_message_never_answers_or_closes_a_question() -> None:
    story = waiting(asks("q"))
    story << say("m", "take the left one")
    story << (began("m"), receipt("m", "consumed"), DONE)
    assert [q.id for q in story.s.questions] == [qid("q")]
    assert story.s.turn.waiting_for == "answer"


def test_the_second_answer_is_told_who_won_and_keeps_its_text() -> None:
    story = waiting(asks("q"))
    story << answer("a", "q", "left", by="ann")
    assert story << answer("b", "q", "right", by="ben") == "no: already_answered"
    assert story.refusal is not None
    assert "ann" in story.refusal.sentence
    assert story.refusal.more["text"] == "right"


def test_a_declined_question_is_closed_and_the_coding_agent_is_told() -> None:
    story = waiting(asks("q"))
    assert story << answer("a", "q", "", decline=True) == ["user.answer", "question.declined"]
    assert "declined" in story.s.inputs[0].text
    assert story << answer("b", "q") == "no: already_answered"


def test_an_answer_to_a_withdrawn_question_gets_the_reason_and_its_text_back() -> None:
    story = waiting(asks("q", blocking=False))
    story << (f.Ended(outcome="completed"),)
    assert story << answer("a", "q", "too late") == "no: question_closed"
    assert story.refusal is not None
    assert "the session ended as completed" in story.refusal.sentence
    assert story.refusal.more["text"] == "too late"


def test_a_choice_that_was_not_offered_is_refused_and_the_offers_are_named() -> None:
    story = waiting(asks("q", "left", "right"))
    assert story << answer("a", "q", choices=("up",)) == "no: bad_value"
    assert story.refusal is not None
    assert "left · right" in story.refusal.hint
    assert story << answer("b", "q", "", choices=("left",)) == ["user.answer", "question.answered"]
    assert "left" in story.s.inputs[0].text


@pytest.mark.parametrize("question", ["q", "never asked"])
def test_an_empty_answer_or_one_to_nothing_is_refused(question: str) -> None:
    code = "bad_value" if question == "q" else "no_question"
    assert waiting(asks("q")) << answer("a", question, " ") == f"no: {code}"


def test_an_unanswered_question_never_becomes_a_decision_however_long_it_waits() -> None:
    story = parked(asks("q"))
    assert story.after(29 * DAY) == ["session.expiring"]
    assert story << answer("a", "q") == ["user.answer", "question.answered", "session.queued"]


def test_an_answer_given_while_its_runner_is_away_is_delivered_by_the_next() -> None:
    story = waiting(asks("q"))
    story.after(60)
    story.after(60)
    assert story.s.lifecycle == "queued"
    story << answer("a", "q")
    assert story.after(0) == ["session.queued"]
    story << grant("r2")
    assert [p.id for p in story.s.inputs] == [uid("a")]


def test_a_question_says_from_whom_its_answer_came() -> None:
    story = waiting(asks("q"))
    story << answer("a", "q", "left", via="web")
    (row,) = story.store.questions(story.id)
    assert row.answer is not None
    assert (row.status, row.answer.by, row.answer.via, row.answer.text) == ("answered", "ann", "web", "left")


# -- the question after a loss ----------------------------------------------------------------------------------------


def lost(on_loss: Literal["continue", "ask", "fail"] = "ask", checkpoints: int = 1) -> Story:
    """Parked, resumed on r2, and there the checkpoint turns out to be gone."""
    story = waiting(on_loss=on_loss)
    for n in range(checkpoints - 1):
        story << say(f"m{n}")
        story << (began(f"m{n}"), receipt(f"m{n}", "consumed"), DONE)
        story << (story.saves(f"m{n}"),)
    story.after(60)
    story << (f.Parked(checkpoint=checkpoints),)
    story << resume()
    story << grant("r2")
    story << LOST
    return story


def choose(story: Story, choice: str) -> list[str] | str:
    (question,) = story.s.questions
    given = answer("choice", "", "", choices=(choice,))
    return story << type(given)(id=given.id, author="ann", question_id=question.id, choices=(choice,))


def test_a_lost_checkpoint_asks_instead_of_starting_in_an_empty_folder() -> None:
    story = lost()
    assert [e.type for e in story.log()][-3:] == ["environment.lost", "question.asked", "session.parked"]
    assert (story.s.lifecycle, story.s.environment.state) == ("parked", "lost")
    assert story.s.questions[0].options == (RETRY, START_OVER, END)


def test_an_earlier_checkpoint_is_offered_where_there_is_one() -> None:
    assert lost(checkpoints=2).s.questions[0].options == (RETRY, EARLIER, START_OVER, END)


def test_nothing_wakes_a_lost_session_before_a_person_decided() -> None:
    story = lost()
    assert story << say("m") == ["user.message"]
    assert story << resume("again") == "no: not_waiting"
    assert story.s.lifecycle == "parked"
    assert story << grant("r3") == "no: not_waiting"


def test_a_loss_needs_one_of_its_options() -> None:
    story = lost()
    assert choose(story, "whatever") == "no: bad_value"
    (question,) = story.s.questions
    given = answer("words", "", "just go on")
    assert story << type(given)(id=given.id, author="ann", question_id=question.id, text="go on") == "no: bad_value"
    declined = type(given)(id=given.id, author="ann", question_id=question.id, decline=True)
    assert story << declined == "no: bad_value"


def test_starting_over_is_a_new_environment_with_the_task_and_the_loss_in_its_first_prompt() -> None:
    story = lost()
    before = story.s.environment
    assert choose(story, START_OVER)[-2:] == ["user.message", "session.queued"]
    story << grant("r3")
    after = story.s.environment
    assert (after.reset_count, after.id != before.id) == (before.reset_count + 1, True)
    assert story.s.checkpoint is None
    assert "Fix it." in story.s.inputs[0].text
    assert any("the blobs are gone" in line for line in story.s.report)


def test_trying_again_restores_the_same_checkpoint() -> None:
    story = lost()
    assert choose(story, RETRY) == [
        "user.answer", "question.answered", "user.receipt", "environment.rolled_back", "session.queued",
    ]  # fmt: skip
    story << grant("r3")
    assert story.s.checkpoint is not None
    assert story.s.checkpoint.n == 1


def test_going_back_restores_the_checkpoint_before_and_says_what_is_gone() -> None:
    story = lost(checkpoints=2)
    choose(story, EARLIER)
    assert story.one(f.EnvironmentRolledBack).lost
    story << grant("r3")
    assert story.s.checkpoint is not None
    assert story.s.checkpoint.n == 1


def test_ending_after_a_loss_ends_as_failed() -> None:
    story = lost()
    assert choose(story, END)[-1] == "session.ended"
    assert story.s.outcome == "failed"


def test_a_cancel_while_the_loss_question_is_open_ends_it() -> None:
    story = lost()
    assert story << cancel() == ["user.cancel", "question.withdrawn", "user.receipt", "session.ended"]


def test_on_loss_continue_starts_over_by_itself_and_says_so() -> None:
    story = lost("continue")
    assert [e.type for e in story.log()][-4:] == [
        "environment.lost",
        "session.parked",
        "user.message",
        "session.queued",
    ]


def test_on_loss_fail_ends_as_failed_with_the_reason() -> None:
    story = lost("fail")
    assert [e.type for e in story.log()][-3:] == ["environment.lost", "error", "session.ended"]
    assert story.s.outcome == "failed"


def test_a_runner_lost_before_anything_was_saved_asks_and_never_restarts_silently() -> None:
    story = working()
    story << (EDIT,)
    story.after(120)
    assert story.after(60) == [
        "turn.ended", "user.receipt", "environment.lost", "question.asked", "session.parked",
    ]  # fmt: skip
    assert story.s.questions[0].options == (START_OVER, END)
    assert story.fate("prompt") == "accepted"
    assert choose(story, START_OVER)[-1] == "session.queued"
    story << grant("r2")
    assert [p.id for p in story.s.inputs] == [PROMPT]


def test_a_question_of_lost_work_is_withdrawn_and_one_of_saved_work_stays() -> None:
    story = waiting(asks("kept", blocking=False))
    story << say("m")
    story << (began("m"), receipt("m", "consumed"), asks("gone"))
    story << renew(1)
    story.after(120)
    story.after(60)
    assert [q.id for q in story.s.questions] == [qid("kept")]
    assert story << answer("a", "gone") == "no: question_closed"
    story << grant("r2")
    assert story << (RESTORED,) == ["environment.restored"]
