"""What people send: each input has one fate, in every state of the session, and none is lost on the way."""

from __future__ import annotations

import pytest

from bide.core import commands as c
from bide.core import facts as f
from bide.core.handle import handle
from bide.core.limits import DAY, INPUTS_MAX
from bide.core.refusals import Refused
from bide.store.memory import MemoryStore
from tests.core.playbook import (
    DONE,
    PROMPT,
    RESTORED,
    START,
    Story,
    answer,
    asks,
    began,
    cancel,
    create,
    ended,
    forgotten,
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

PARKED = (f.Parked(checkpoint=1),)


def extend(days: float, name: str = "extend") -> c.Extend:
    return c.Extend(id=uid(name), author="ann", until=START + days * DAY)


# -- messages ---------------------------------------------------------------------------------------------------------


def test_a_message_is_accepted_while_the_session_queues_starts_works_and_waits() -> None:
    for story in (Story(), leased(), working(), waiting()):
        assert story << say("m") == ["user.message"]
        assert story.fate("m") == "accepted"


def test_a_message_to_a_parked_session_wakes_it() -> None:
    story = parked()
    assert story << say("m") == ["user.message", "session.queued"]
    assert story << grant("r2") == ["session.leased", "session.resuming"]


def test_a_message_to_an_ended_session_goes_on_in_the_same_session() -> None:
    story = ended()
    assert story << say("m") == ["user.message", "session.reopened", "session.queued"]
    assert story.s.outcome == ""
    assert story << grant("r2") == ["session.leased", "session.resuming"]


def test_a_message_to_a_session_that_ended_with_nothing_saved_is_refused() -> None:
    story = Story()
    story << cancel()
    assert story << say("m") == "no: ended"


def test_a_message_after_retention_is_refused_as_expired() -> None:
    story = ended()
    forgotten(story)
    assert story << say("m") == "no: expired"
    assert story << resume() == "no: expired"
    assert story << extend(60) == "no: expired"


@pytest.mark.parametrize(("text", "code"), [(" \n", "bad_value"), ("x" * 300_000, "too_large")])
def test_an_empty_or_huge_message_is_refused_whole(text: str, code: str) -> None:
    assert waiting() << say("m", text) == f"no: {code}"


def test_a_first_prompt_over_the_limit_creates_nothing() -> None:
    store = MemoryStore(lambda: START)
    (refused,) = store.perform([lambda: handle(uid("s"), create(prompt="x" * 300_000))])
    assert isinstance(refused, Refused)
    assert (refused.code, store.session(uid("s")), store.inputs(uid("s"))) == ("too_large", None, [])


def test_a_message_over_the_number_that_may_wait_is_refused() -> None:
    story = Story()
    for n in range(INPUTS_MAX - 1):
        assert story << say(f"m{n}") == ["user.message"]
    assert story << say("one more") == "no: too_many"


# -- the same input twice ---------------------------------------------------------------------------------------------


def test_a_message_sent_twice_is_one_message() -> None:
    story = waiting()
    assert story << say("m") == ["user.message"]
    assert story << say("m") == []
    assert [row.id for row in story.store.inputs(story.id)] == [PROMPT, uid("m")]


def test_a_repeat_is_harmless_after_the_session_ended() -> None:
    story = parked()
    story << cancel()
    assert story << cancel() == []


@pytest.mark.parametrize("other", [say("m", "something else"), c.Interrupt(id=uid("m"), author="ann")])
def test_an_id_used_for_something_else_is_refused_instead_of_swallowed(other: c.Command) -> None:
    story = waiting()
    story << say("m", "the first")
    assert story << other == "no: key_reused"


def test_an_answer_sent_twice_is_one_answer_and_a_different_one_is_refused() -> None:
    story = waiting(asks("q"))
    story << answer("a", "q", "left")
    assert story << answer("a", "q", "left") == []
    assert story << answer("a", "q", "right") == "no: key_reused"


def test_a_session_created_twice_is_one_session() -> None:
    story = waiting()
    assert story << create() == []


def test_nothing_is_said_to_a_session_that_is_not_there() -> None:
    story = Story()
    story.id = uid("another session")
    assert story.store.perform([]) == []
    assert story << say("m") == "no: no_session"


# -- interrupt --------------------------------------------------------------------------------------------------------


def test_an_interrupt_reaches_the_runner_of_an_active_session() -> None:
    story = working()
    assert story << interrupt("i") == ["user.interrupt"]
    assert story << (receipt("i", "consumed"),) == ["user.receipt"]
    assert story.fate("i") == "consumed"


@pytest.mark.parametrize("make", [Story, parked])
def test_an_interrupt_where_nothing_runs_says_so(make: type[Story]) -> None:
    story = make()
    assert story << interrupt("i") == ["user.interrupt", "user.receipt"]
    assert story.row("i").how == "nothing was running"


def test_an_interrupt_that_drops_what_is_queued_withdraws_it_while_no_runner_has_it() -> None:
    story = Story()
    story << say("m")
    story << interrupt("i", drop=True)
    assert (story.fate("prompt"), story.fate("m"), story.fate("i")) == ("withdrawn", "withdrawn", "consumed")


def test_an_interrupt_of_an_ended_session_is_refused() -> None:
    assert ended() << interrupt("i") == "no: ended"


# -- cancel -----------------------------------------------------------------------------------------------------------


def test_a_cancel_while_queued_ends_at_once_and_refuses_what_was_never_delivered() -> None:
    story = Story()
    assert story << cancel() == ["user.cancel", "user.receipt", "user.receipt", "session.ended"]
    assert (story.s.outcome, story.fate("prompt"), story.row("prompt").code) == (
        "cancelled",
        "refused",
        "ended_cancelled",
    )
    assert story.row("prompt").text == "Fix it."


def test_a_cancel_while_parked_ends_at_once_and_keeps_the_checkpoint() -> None:
    story = parked(asks("q"))
    assert story << cancel() == ["user.cancel", "question.withdrawn", "user.receipt", "session.ended"]
    assert story.s.checkpoint is not None
    assert story << say("m") == ["user.message", "session.reopened", "session.queued"]


@pytest.mark.parametrize("make", [leased, working, waiting])
def test_a_cancel_of_a_held_session_waits_for_the_runner_to_save(make: type[Story]) -> None:
    story = make()
    assert story << cancel() == ["user.cancel"]
    assert story.s.cancelling
    assert story << (f.Ended(outcome="cancelled"),) in (
        ["user.receipt", "session.ended"],
        ["user.receipt", "user.receipt", "session.ended"],
    )
    assert (story.s.outcome, story.fate("cancel")) == ("cancelled", "consumed")


def test_a_cancel_that_the_runner_never_hears_ends_with_its_lease() -> None:
    story = working()
    story << cancel()
    assert story.after(120) == [
        "session.interrupted", "turn.ended", "user.receipt", "environment.lost", "user.receipt", "user.receipt",
        "session.ended",
    ]  # fmt: skip
    assert story.s.outcome == "cancelled"


def test_a_cancel_that_the_runner_does_not_obey_ends_at_its_deadline() -> None:
    story = waiting()
    story << cancel()
    for _ in range(3):
        assert story << renew(1) == []
        assert story.after(99) == []
    story << renew(1)
    assert story.after(3) == ["session.interrupted", "user.receipt", "session.ended"]
    assert story.s.outcome == "cancelled"


def test_a_cancel_beats_a_park_under_way() -> None:
    story = waiting()
    story << park()
    story << cancel()
    story << PARKED
    assert (story.s.lifecycle, story.s.outcome) == ("ended", "cancelled")


def test_a_cancel_of_an_ended_session_is_refused() -> None:
    assert ended() << cancel() == "no: ended"


# -- park, resume, extend ---------------------------------------------------------------------------------------------


def test_a_park_by_hand_waits_for_the_end_of_the_turn() -> None:
    story = working()
    assert story << park() == ["user.park"]
    assert story << (DONE,) == ["turn.ended", "session.parking"]
    story << (story.saves("prompt"), *PARKED)
    assert (story.s.lifecycle, story.fate("park")) == ("parked", "consumed")


def test_a_park_by_hand_lets_what_was_said_before_be_worked_on_first() -> None:
    story = waiting()
    story << say("m")
    assert story << park() == ["user.park"]
    assert story << (began("m"), receipt("m", "consumed"), DONE) == [
        "turn.started", "user.receipt", "turn.ended", "session.parking",
    ]  # fmt: skip


def test_a_park_of_a_parked_session_is_done_already() -> None:
    assert parked() << park() == ["user.park", "user.receipt"]


@pytest.mark.parametrize("make", [Story, ended])
def test_a_park_of_a_session_that_no_runner_has_is_refused(make: type[Story]) -> None:
    assert make() << park() == "no: not_waiting"


def test_a_resume_by_hand_brings_a_parked_session_to_a_runner_without_a_word() -> None:
    story = parked()
    assert story << resume() == ["user.resume", "user.receipt", "session.queued"]
    story << grant("r2")
    assert [p.id for p in story.s.inputs] == []


def test_a_resume_of_a_running_session_changes_nothing() -> None:
    assert working() << resume() == ["user.resume", "user.receipt"]


def test_a_resume_of_an_ended_session_reopens_it() -> None:
    assert ended() << resume() == ["user.resume", "user.receipt", "session.reopened", "session.queued"]


def test_a_kept_session_is_kept_longer_within_bounds() -> None:
    story = parked()
    assert story << extend(60) == ["user.extend", "user.receipt"]
    assert story.s.expires_at == START + 60 * DAY
    assert story << extend(400, "too long") == "no: bad_value"
    assert story << extend(-1, "too late") == "no: bad_value"


# -- an input on its way through a park -------------------------------------------------------------------------------


def test_an_input_that_arrives_while_parking_is_saved_first_and_then_wakes_the_session() -> None:
    story = waiting()
    story << park()
    assert story << say("m") == ["user.message"]
    assert story << PARKED == ["user.receipt", "session.parked", "session.queued"]
    assert (story.s.lifecycle, story.fate("m")) == ("queued", "accepted")


def test_an_answer_that_beats_the_checkpoint_is_not_lost() -> None:
    story = waiting(asks("q"))
    story.after(60)
    assert story << answer("a", "q") == ["user.answer", "question.answered"]
    assert story << PARKED == ["session.parked", "session.queued"]
    assert story.fate("a") == "accepted"


# -- finish -----------------------------------------------------------------------------------------------------------

FINISHED = (f.Ended(outcome="completed", summary="done"),)


def test_a_finish_with_nothing_open_ends_the_session() -> None:
    story = waiting()
    assert story << FINISHED == ["session.ended"]
    assert (story.s.outcome, story.s.summary) == ("completed", "done")


def test_a_finish_with_a_message_undelivered_is_a_note_and_the_message_is_next() -> None:
    story = waiting()
    story << say("m")
    assert story << FINISHED == ["note", "session.parked", "session.queued"]
    assert story.fate("m") == "accepted"


def test_a_finish_with_a_blocking_question_open_is_a_note_and_the_session_waits() -> None:
    story = waiting(asks("q"))
    assert story << FINISHED == ["note", "session.parked"]
    assert story << answer("a", "q") == ["user.answer", "question.answered", "session.queued"]


def test_a_finish_withdraws_a_question_that_does_not_block() -> None:
    story = waiting(asks("q", blocking=False))
    assert story << FINISHED == ["question.withdrawn", "session.ended"]


# -- the online window ------------------------------------------------------------------------------------------------


def test_a_waiting_session_parks_when_its_window_is_over() -> None:
    story = waiting()
    assert story.wakes_in() == 60
    assert story.after(59) == []
    assert story.after(1) == ["session.parking"]
    assert story.s.window_until == 0


def test_a_working_session_is_never_parked_as_idle_however_silent() -> None:
    story = working()
    for _ in range(50):
        story << renew(1)
        assert story.after(100) == []


def test_a_message_stops_the_window_and_the_turns_end_starts_a_new_one() -> None:
    story = waiting()
    story.after(30)
    story << say("m")
    assert story.s.window_until == 0
    story << (began("m"), receipt("m", "consumed"), DONE)
    assert story.s.window_until == story.now + 60


def test_a_park_that_stalls_is_left_with_a_reason_and_tried_again() -> None:
    story = waiting()
    story.after(60)
    for _ in range(9):
        story << renew(1)
        assert story.after(100 if _ < 8 else 99) == []
    story << renew(1)
    assert story.after(1) == ["checkpoint.failed"]
    assert story.one(f.CheckpointFailed).retry_at == story.now + 60
    assert story.s.environment.state == "ready"
    story << renew(1)
    assert story.after(60) == ["session.parking"]


def test_a_restored_session_that_hears_nothing_has_its_window() -> None:
    story = parked()
    story << resume()
    story << grant("r2")
    story << (RESTORED,)
    assert story.after(60) == ["session.parking"]
