"""A model, a login or a runtime that cannot work is fed nothing: what people said waits, and they hear why."""

from __future__ import annotations

from typing import Any

import pytest

from bide.core import commands as c
from bide.core import facts as f
from bide.core.lease import job_of
from bide.core.limits import MODEL_TRIES_S, RETRY_AFTER_S_MAX
from bide.core.session import Lifecycle, deliverable, undelivered, wake_at
from bide.core.troubles import TRY_AGAIN
from bide.core.words import words
from tests.core.playbook import (
    LEASE_S,
    RESTORED,
    TOTAL,
    WINDOW_S,
    Story,
    answer,
    asks,
    began,
    cancel,
    grant,
    park,
    receipt,
    renew,
    resume,
    rewind,
    say,
    uid,
    waiting,
    working,
)

LOGIN, OUTAGE = "model_unauthenticated", "model_overloaded"


def failed(code: str, detail: str = "API Error") -> tuple[f.RunnerFact, ...]:
    return (f.Error(code=code, sentence=detail), f.TurnEnded(result="failed", detail=detail, code=code))


def held(code: str, **more: Any) -> Story:
    """Its first turn failed for this reason; that turn's checkpoint is saved."""
    story = working(limits=TOTAL | {"online_window_s": 30.0}, **more)  # shorter than the first wait for a model
    assert isinstance(story << failed(code), list)
    assert story << (story.saves("prompt"),) == ["checkpoint.saved"]
    return story


def at_rest(story: Story) -> Story:
    story << renew(story.s.epoch)
    if not story.s.parking:
        story.after(story.s.limits["online_window_s"])
    assert story << (f.Parked(checkpoint=story.s.checkpoint_n),) == ["session.parked"]
    return story


def fails_again(story: Story, code: str = OUTAGE) -> list[str] | str:
    """Whatever is told next fails in the same way."""
    name = undelivered(story.s)[0].id
    told = tuple(f.Receipt(input_id=name, status=status) for status in ("delivered", "consumed"))
    return story << (f.TurnStarted(input_ids=(name,)), *told, *failed(code))


def kept_alive(story: Story, seconds: float) -> list[str] | str:
    """Time passes, and its runner renews its lease."""
    while seconds > LEASE_S / 2:
        seconds -= LEASE_S / 2
        assert story.after(LEASE_S / 2) in ([], ["session.parking"])
        story << renew(story.s.epoch)
    return story.after(seconds)


def questions(story: Story) -> list[tuple[str, tuple[str, ...]]]:
    return [(q.kind, q.options) for q in story.s.questions]


def ask_of(story: Story) -> str:
    (question,) = story.s.questions
    return question.id


def answers(story: Story, choice: str = TRY_AGAIN, name: str = "answered") -> list[str] | str:
    told = c.Answer(id=uid(name), author="ann", question_id=ask_of(story), choices=(choice,))
    return story << told


# -- the session ------------------------------------------------------------------------------------------------------


def test_messages_are_not_fed_into_a_login_that_fails() -> None:
    story = working()
    story << say("m1")
    story << say("m2")
    assert story << failed(LOGIN) == ["error", "turn.ended", "question.asked", "session.parking"]
    assert questions(story) == [("credentials", (TRY_AGAIN, "End the session"))]
    assert deliverable(story.s) == ()
    assert story << (story.saves("prompt"), f.Parked(checkpoint=1)) == ["checkpoint.saved", "session.parked"]
    assert story << say("m3") == ["user.message"]
    assert story.s.lifecycle is Lifecycle.PARKED
    assert [p.text for p in undelivered(story.s)] == ["m1", "m2", "m3"]
    assert (story.s.turn.waiting_for, words(story.s).must_act) == ("credentials", "human")


def test_an_outage_of_the_model_is_tried_again_later_and_later_and_then_asks() -> None:
    story = working()
    story << say("m1")
    told = story << failed(OUTAGE)
    for wait_s in MODEL_TRIES_S:
        assert told[-2:] == ["error", "turn.ended"]
        assert story.s.retry_at == pytest.approx(story.now + wait_s)
        assert words(story.s).must_act == "nobody"
        kept_alive(story, 1)
        if wait_s > WINDOW_S:
            at_rest(story)
        assert wake_at(story.s) == pytest.approx(story.s.retry_at) or story.s.lease
        tried = kept_alive(story, story.s.retry_at - story.now)
        assert tried[:2] == ["user.resume", "user.receipt"]
        if story.s.lifecycle is not Lifecycle.ACTIVE:
            story << grant()
            story << (RESTORED,)
        told = fails_again(story)
    assert told[-3:] == ["error", "turn.ended", "question.asked"]
    assert [kind for kind, _ in questions(story)] == ["approval"]
    assert (story.s.retry_at, story.s.turn.waiting_for) == (0, "approval")


def test_a_model_that_wants_to_be_left_alone_for_longer_is_and_never_for_days() -> None:
    for asked_s, wait_s in ((3.0, MODEL_TRIES_S[0]), (3600.0, 3600.0), (9e9, RETRY_AFTER_S_MAX)):
        story = working()
        story << (f.TurnEnded(result="failed", code="model_rate_limited", retry_after_s=asked_s),)
        assert story.s.retry_at == pytest.approx(story.now + wait_s)


def test_a_turn_that_works_gives_the_next_outage_its_tries_again() -> None:
    story = held(OUTAGE)
    kept_alive(story, MODEL_TRIES_S[0])
    assert fails_again(story) == ["turn.started", "user.receipt", "user.receipt", "error", "turn.ended"]
    assert story.s.retry_at == pytest.approx(story.now + MODEL_TRIES_S[1])
    story << say("m1")
    story << (began("m1"), receipt("m1", "consumed"), f.TurnEnded(result="completed"))
    story << say("m2")
    fails_again(story)
    assert story.s.retry_at == pytest.approx(story.now + MODEL_TRIES_S[0])


def test_a_try_again_delivers_what_waited_in_its_order() -> None:
    story = held(LOGIN)
    story << say("m1")
    story << say("redirect", delivery="interrupt")
    at_rest(story)
    assert answers(story) == ["user.answer", "question.answered", "user.receipt", "session.queued"]
    assert [p.text for p in deliverable(story.s)] == ["redirect", "m1"]
    assert (story.fate("answered"), story.row("answered").how) == ("consumed", TRY_AGAIN)


def test_a_try_again_with_nothing_to_say_takes_the_failed_turn_up() -> None:
    story = at_rest(held(LOGIN))
    assert answers(story) == [
        "user.answer", "question.answered", "user.receipt", "user.message", "session.queued",
    ]  # fmt: skip
    assert "cut off" in deliverable(story.s)[0].text


def test_a_held_session_parks_and_does_not_come_back_by_itself() -> None:
    story = working()
    story << say("m1")
    story << (f.TurnEnded(result="completed"), f.Error(code="runtime_failed", sentence="it ended 3 times"))
    assert [kind for kind, _ in questions(story)] == ["approval"]
    assert story << (story.saves("prompt"), f.Parked(checkpoint=1)) == ["checkpoint.saved", "session.parked"]
    assert story.after(3600) == []
    assert story.s.lifecycle is Lifecycle.PARKED


def test_a_message_to_a_session_that_waits_to_be_tried_again_tries_it() -> None:
    story = at_rest(held(OUTAGE))
    assert story << say("m1") == ["user.message", "session.queued"]
    assert [p.text for p in deliverable(story.s)] == ["m1"]


def test_a_message_after_a_runtime_that_gave_up_tries_it_again_and_closes_its_question() -> None:
    story = waiting()
    story << (f.Error(code="runtime_failed", sentence="it ended 3 times"), f.Parked(checkpoint=1))
    assert story << say("m1") == ["user.message", "question.withdrawn", "session.queued"]


@pytest.mark.parametrize("code", [OUTAGE, LOGIN])
def test_a_resume_by_hand_tries_it_at_once(code: str) -> None:
    story = at_rest(held(code))
    told = story << resume()
    assert told[0] == "user.resume"
    assert told[-2:] == ["session.queued", "user.receipt"]
    assert "cut off" in deliverable(story.s)[0].text
    story = held(OUTAGE)
    assert story << resume() == ["user.resume", "user.message", "user.receipt"]
    assert story.row("resume").how == "it is tried again"


def test_a_resume_while_a_held_session_parks_brings_it_back_as_soon_as_it_is_saved() -> None:
    story = held(LOGIN)
    story << resume()
    assert story << (f.Parked(checkpoint=1),) == ["user.receipt", "session.parked", "session.queued"]


def test_what_waited_while_it_was_held_survives_the_loss_of_its_runner() -> None:
    story = held(OUTAGE)
    story << park("stay")  # an order that its runner will not hear
    story << c.Disown(runner="r1", epoch=1, reason="it was restarted")
    assert (story.s.lifecycle, story.s.retry_at > 0) == (Lifecycle.PARKED, True)
    story << say("m1")
    story << grant("r2")
    assert [p.text for p in job_of(story.s).inputs] == ["m1"]


def test_the_loss_of_a_runner_feeds_nothing_into_a_login_that_fails() -> None:
    story = held(LOGIN)
    story << say("m1")
    told = story << c.Disown(runner="r1", epoch=1, reason="it was restarted")
    assert told[-1] == "session.parked"
    assert [p.text for p in undelivered(story.s)] == ["m1"]
    assert answers(story)[-1] == "session.queued"


def test_the_answer_to_such_a_question_never_reaches_the_coding_agent() -> None:
    story = held(LOGIN)
    assert job_of(story.s).blocking == ()
    answers(story)
    assert [p.type for p in undelivered(story.s)] == ["user.message"]
    assert story.s.answered == ()


def test_such_a_question_takes_one_of_its_options_and_nothing_else() -> None:
    story = held(LOGIN)
    for more in ({"text": "ok"}, {"decline": True}):
        assert story << c.Answer(id=uid("no"), author="ann", question_id=ask_of(story), **more) == "no: bad_value"


def test_who_gives_a_held_session_up_ends_it_with_its_work_kept() -> None:
    story = at_rest(held(LOGIN))
    story << say("m1")
    answers(story, "End the session")
    assert (story.s.lifecycle, story.s.outcome, story.fate("m1")) == (Lifecycle.ENDED, "cancelled", "refused")
    assert story.s.checkpoint is not None


def test_a_held_session_that_runs_is_stopped_and_saved_before_it_ends() -> None:
    story = working()
    story << (f.Error(code="runtime_failed", sentence="mute"),)
    answers(story, "End the session")
    assert story.s.cancelling
    story << (f.Parked(checkpoint=1),)
    assert story.s.outcome == "cancelled"


def test_a_question_of_its_own_stays_open_while_a_session_is_held() -> None:
    story = working()
    story << (asks("q"), *failed(OUTAGE))
    assert story << answer("a1", "q") == ["user.answer", "question.answered"]
    assert [p.type for p in deliverable(story.s)] == ["user.answer"]


def test_a_runner_that_knows_no_holding_is_taken_at_its_word() -> None:
    story = held(LOGIN)
    story << say("m1")
    assert story << (began("m1"),) == ["turn.started", "question.withdrawn"]


def test_a_cancel_of_a_held_session_is_a_cancel() -> None:
    story = at_rest(held(OUTAGE))
    story << cancel()
    assert (story.s.outcome, story.s.retry_at, story.after(7200)) == ("cancelled", 0, [])


def test_a_session_that_goes_back_is_not_held_by_what_it_left() -> None:
    story = waiting()
    story << say("m1")
    fails_again(story, LOGIN)
    story << (story.saves("m1"), f.Parked(checkpoint=2))
    story << rewind(1)
    assert (story.s.questions, story.s.retry_at, story.s.turn.waiting_for) == ((), 0, "message")


def test_what_failed_for_another_reason_holds_nothing() -> None:
    story = working()
    story << say("m1")
    assert story << failed("model_error") == ["error", "turn.ended"]
    assert [p.text for p in deliverable(story.s)] == ["m1"]
