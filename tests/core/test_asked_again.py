"""A session that goes back to before an answer: without it the coding agent would wait for ever for what nobody can say."""

from __future__ import annotations

from bide.core.lease import job_of
from bide.core.words import words
from tests.core.branches import at_rest, turn
from tests.core.playbook import DONE, RESTORED, Story, answer, asks, began, grant, qid, receipt, rewind, waiting


def answered_late() -> Story:
    """The question stands in the first checkpoint, its answer only in the second."""
    story = waiting(asks("early"))
    story << answer("a", "early")
    story << (began("a"), receipt("a", "consumed"), DONE)
    story << (story.saves("a"),)
    return at_rest(story)


def test_a_question_whose_answer_is_left_behind_is_asked_again_and_the_coding_agent_hears_the_new_answer() -> None:
    story = answered_late()
    story << rewind(1)
    assert [q.id for q in story.s.questions] == [qid("early")]
    assert story.s.turn.waiting_for == "answer"
    assert words(story.s).next_step == "Answer its question with `bide inbox`."
    asked = story.store.question(qid("early"))
    assert asked is not None
    assert (asked.status, asked.answer) == ("open", None), "it is in the inbox again"
    assert isinstance(story << answer("b", "early", "no"), list)
    story << grant("r2")
    assert ["no" in p.text for p in job_of(story.s).inputs] == [True]


def test_forward_again_the_question_is_closed_by_the_answer_that_is_there() -> None:
    story = answered_late()
    story << rewind(1)
    story << rewind(2, "forward")
    assert not story.s.questions
    assert story << answer("b", "early") == "no: question_closed"
    story << rewind(1, "back")
    assert [q.id for q in story.s.questions] == [qid("early")]


def test_of_two_answers_on_two_lines_the_one_of_the_line_it_stands_on_counts() -> None:
    story = answered_late()
    story << rewind(1)
    story << answer("b", "early", "no")
    story << grant("r2")
    story << (RESTORED, began("b"), receipt("b", "consumed"), DONE)
    story << (story.saves("b"),)
    at_rest(story)
    story << rewind(2, "other line")
    assert [story.fate(name) for name in ("a", "b")] == ["consumed", "abandoned"]
    assert not story.s.questions, "the conversation there has its answer"
    story << rewind(1, "before both")
    assert [q.id for q in story.s.questions] == [qid("early")]


def test_an_answer_that_nobody_has_told_yet_is_not_asked_for_twice() -> None:
    story = waiting(asks("early"))
    turn(story, "m2")
    at_rest(story)
    story << answer("a", "early")
    story << rewind(1)
    assert (story.s.questions, story.fate("a")) == ((), "accepted")
