"""People think again: what is not delivered yet is changed or taken back, and never half of it."""

from __future__ import annotations

import pytest

from bide.core import commands as c
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.lease import job_of
from bide.core.session import Pending
from tests.core.playbook import (
    LEASE_S,
    PROMPT,
    Story,
    answer,
    asks,
    began,
    cancel,
    ended,
    grant,
    interrupt,
    leased,
    park,
    parked,
    qid,
    receipt,
    rewind,
    say,
    uid,
    waiting,
    working,
)
from tests.core.playrunner import IDLE, READY, Exit, Machine, busy, granted, idle, input_, news

RUNNER_TOOK_BACK = f.Receipt(input_id=uid("m"), status="withdrawn", code="taken_back")
RUNNER_EDITED = f.Receipt(input_id=uid("m"), status="accepted", code="edited")


def target(name: str) -> str:
    return PROMPT if name == "prompt" else uid(name)


def edit(name: str, text: str = "", by: str = "ann", key: str = "edit", **more: object) -> c.Edit:
    return c.Edit(id=uid(key), author=by, input_id=target(name), text=text, **more)  # type: ignore[arg-type]


def withdraw(name: str, by: str = "ann", key: str = "withdraw") -> c.Withdraw:
    return c.Withdraw(id=uid(key), author=by, input_id=target(name))


# -- no runner has the session ----------------------------------------------------------------------------------------


def test_a_message_is_changed_at_once_while_no_runner_has_the_session() -> None:
    story = Story()
    story << say("m", "fix the tests")
    assert story << edit("m", "fix the docs") == ["user.edit", "user.receipt", "user.edited", "user.receipt"]
    assert (story.row("m").text, story.fate("m"), story.fate("edit")) == ("fix the docs", "accepted", "consumed")
    assert [p.text for p in job_of(story.s).inputs] == ["Fix it.", "fix the docs"]


def test_a_message_is_taken_back_at_once_while_no_runner_has_the_session() -> None:
    story = Story()
    story << say("m")
    assert story << withdraw("m", by="ben") == ["user.withdraw", "user.receipt", "user.receipt"]
    assert (story.fate("m"), story.row("m").how, story.fate("withdraw")) == (
        "withdrawn",
        "taken back by ben",
        "consumed",
    )
    assert [p.id for p in job_of(story.s).inputs] == [PROMPT]


def test_a_task_that_is_changed_before_it_begins_is_the_task_from_then_on() -> None:
    story = Story()
    story << edit("prompt", "Fix the other thing.")
    assert story.s.task == "Fix the other thing."


def test_a_message_that_becomes_a_redirect_keeps_its_text() -> None:
    story = Story()
    story << say("m", "stop that")
    story << edit("m", delivery="interrupt")
    assert [(p.text, p.delivery) for p in job_of(story.s).inputs][:1] == [("stop that", "interrupt")]


def test_a_change_sent_twice_is_one_change() -> None:
    story = Story()
    story << edit("prompt", "Other.")
    assert story << edit("prompt", "Other.") == []
    assert story << edit("prompt", "Another.") == "no: key_reused"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (edit("prompt"), "bad_value"),
        (edit("prompt", " "), "bad_value"),
        (edit("prompt", "x" * 300_000), "too_large"),
        (edit("nothing", "x"), "no_input"),
        (withdraw("nothing"), "no_input"),
    ],
)
def test_a_change_that_makes_no_sense_changes_nothing(command: c.Command, code: str) -> None:
    assert Story() << command == f"no: {code}"


def test_an_order_is_no_message_that_could_be_taken_back() -> None:
    story = working()
    story << park("order")
    assert story << withdraw("order") == "no: no_input"


def test_what_was_delivered_once_is_not_changed_any_more_and_the_refusal_has_its_text() -> None:
    story = working()
    story << (receipt("prompt", "consumed"),)
    for command in (edit("prompt", "other"), withdraw("prompt")):
        assert story << command == "no: already_delivered"
        assert story.refusal is not None
        assert story.refusal.more["text"] == "Fix it."


def test_what_is_to_be_delivered_again_may_stand_in_the_conversation_and_is_not_changed() -> None:
    story = leased()
    story << (began(), f.Receipt(input_id=PROMPT, status="delivered", turn=1))
    story.after(LEASE_S)
    story.after(60)
    assert story.fate("prompt") == "accepted"
    assert story << withdraw("prompt") == "no: already_delivered"


# -- a runner has it --------------------------------------------------------------------------------------------------


def test_a_message_is_taken_back_once_its_runner_has_said_so() -> None:
    story = working()
    story << say("m")
    assert story << withdraw("m") == ["user.withdraw", "user.receipt"]
    assert (story.fate("m"), story.fate("withdraw")) == ("withdrawing", "accepted")
    assert story << (RUNNER_TOOK_BACK,) == ["user.receipt", "user.receipt"]
    assert (story.fate("m"), story.fate("withdraw")) == ("withdrawn", "consumed")


def test_a_message_told_in_the_same_moment_stands_and_the_withdrawal_says_why() -> None:
    story = waiting()
    story << say("m")
    story << withdraw("m")
    story << (began("m"), f.Receipt(input_id=uid("m"), status="delivered", turn=2), receipt("m", "consumed"))
    assert (story.fate("m"), story.fate("withdraw")) == ("consumed", "refused")
    assert (story.row("withdraw").code, "turn 2" in story.row("withdraw").how) == ("already_delivered", True)


def test_a_message_changed_while_its_runner_has_it_waits_for_the_runners_word() -> None:
    story = working()
    story << say("m", "one")
    story << edit("m", "two")
    assert (story.row("m").text, story.fate("m"), story.fate("edit")) == ("one", "accepted", "accepted")
    story << (RUNNER_EDITED,)
    assert (story.row("m").text, story.fate("m"), story.fate("edit")) == ("two", "accepted", "consumed")


def test_two_people_who_change_one_message_are_not_mixed_up() -> None:
    story = working()
    story << say("m")
    story << edit("m", "ann's")
    assert story << withdraw("m", by="ben") == "no: already_changing"
    story << (RUNNER_EDITED,)
    assert story << withdraw("m", by="ben") == ["user.withdraw", "user.receipt"]


def test_a_message_that_is_being_taken_back_wakes_and_keeps_nothing() -> None:
    story = waiting()
    story << say("m")
    story << withdraw("m")
    assert story << (f.Ended(outcome="completed"),) == [
        "user.receipt", "user.receipt", "session.ended",
    ]  # fmt: skip
    assert (story.fate("m"), story.fate("withdraw")) == ("withdrawn", "consumed")


@pytest.mark.parametrize("last", [f.Parked(checkpoint=1), f.Ended(outcome="cancelled")])
def test_a_withdrawal_that_meets_the_end_of_the_lease_has_its_fate(last: f.RunnerFact) -> None:
    story = waiting()
    story << say("m")
    story << withdraw("m")
    if isinstance(last, f.Ended):
        story << cancel()
    story << (last,)
    assert (story.fate("m"), story.fate("withdraw")) == ("withdrawn", "consumed")
    assert story.s.lifecycle in ("parked", "ended")


def test_a_change_that_meets_a_park_is_delivered_changed() -> None:
    story = waiting()
    story << say("m", "one")
    story << edit("m", "two")
    story << (f.Parked(checkpoint=1),)
    assert [p.text for p in job_of(story.s).inputs] == ["two"]
    assert story.s.lifecycle == "queued"


def test_a_withdrawal_survives_a_lost_runner() -> None:
    story = working()
    story << say("m")
    story << withdraw("m")
    story.after(LEASE_S)
    assert story.fate("m") == "withdrawing", "its runner may still come back with another word"
    story.after(60)
    assert (story.fate("m"), story.fate("withdraw")) == ("withdrawn", "consumed")
    story << grant("r2")
    assert uid("m") not in [p.id for p in job_of(story.s).inputs]


def test_a_withdrawal_of_what_the_lost_runner_had_told_is_refused_and_it_is_delivered_again() -> None:
    story = waiting()
    story << say("m")
    story << withdraw("m")
    story << (began("m"), f.Receipt(input_id=uid("m"), status="delivered", turn=2))
    story.after(LEASE_S)
    story.after(60)
    assert (story.fate("m"), story.fate("withdraw")) == ("accepted", "refused")


def test_a_withdrawal_survives_a_rewind() -> None:
    story = waiting()
    story << say("m")
    story << withdraw("m")
    story << rewind(1)
    story << (story.saves(), f.Parked(checkpoint=2))
    assert (story.fate("m"), story.fate("withdraw"), story.fate("rewind")) == ("withdrawn", "consumed", "consumed")


def test_a_runner_that_knows_no_withdrawals_delivers_and_the_withdrawal_is_refused() -> None:
    story = waiting()
    story << say("m")
    story << withdraw("m")
    story << (began("m"), receipt("m", "delivered"), receipt("m", "accepted"), receipt("m", "delivered"))
    assert story.fate("withdraw") == "accepted", "the runtime may still die before it takes it"
    story << (receipt("m", "consumed"),)
    assert (story.fate("m"), story.fate("withdraw")) == ("consumed", "refused")


def test_a_message_dropped_by_an_interrupt_while_it_is_changed_says_so_to_both() -> None:
    story = working()
    story << say("m")
    story << edit("m", "other")
    story << interrupt("i", drop=True)
    story << (f.Receipt(input_id=uid("m"), status="withdrawn", code="dropped"),)
    assert (story.fate("m"), story.fate("edit")) == ("withdrawn", "refused")


# -- answers ----------------------------------------------------------------------------------------------------------


def test_a_withdrawn_answer_opens_its_question_again() -> None:
    story = parked(asks("q"))
    story << answer("a", "q", "left")
    assert story << withdraw("a") == ["user.withdraw", "user.receipt", "question.asked", "user.receipt"]
    assert [q.id for q in story.s.questions] == [qid("q")]
    question = story.store.question(qid("q"))
    assert question is not None
    assert (question.status, question.answer) == ("open", None)
    assert isinstance(story << answer("b", "q", "right"), list)
    assert story.fate("a") == "withdrawn"


def test_an_answer_is_not_changed_but_taken_back_and_given_again() -> None:
    story = parked(asks("q"))
    story << answer("a", "q", "left")
    assert story << edit("a", "right") == "no: not_editable"


def test_a_finish_is_too_early_again_once_the_answer_is_taken_back() -> None:
    machine = busy()
    machine.runner.runs["s"].tools.blocking.add("q")
    machine << news(input_("a", 5, type="user.answer", question_id="q"))
    machine << news(input_("w", 6, type="user.withdraw", target=uid("a"), question_id="q", blocking=True))
    assert machine.receipts("a") == ["withdrawn"]
    assert machine.runner.runs["s"].tools.blocking == {"q"}


# -- the runner's half ------------------------------------------------------------------------------------------------


def order(kind: str, name: str, seq: int, delivery: f.Delivery = "next_turn") -> Pending:
    return input_(kind, seq, delivery, type=f"user.{kind}", target=uid(name), target_seq=3)


def test_a_message_that_the_runner_has_not_told_is_never_told() -> None:
    machine = busy(input_("m", 3))
    machine << news(order("withdraw", "m", 5))
    assert machine.receipts("m") == ["withdrawn"]
    assert "deliver m" not in machine << IDLE


def test_a_message_that_the_runner_never_heard_of_is_never_told() -> None:
    machine = busy()
    machine << news(order("withdraw", "m", 5))
    assert machine.receipts("m") == ["withdrawn"]
    machine << news(input_("m", 3))
    assert "deliver m" not in machine << IDLE


def test_a_changed_message_keeps_its_place_in_the_order() -> None:
    machine = busy(input_("m", 3), input_("later", 4))
    machine << news(order("edit", "m", 5))
    assert "deliver edit" in machine << IDLE, "its text is the new one"
    machine << r.Consumed(input_id=uid("m"))
    assert "deliver later" in machine << IDLE
    assert machine.receipts("m") == ["accepted", "delivered", "consumed"]


def test_a_message_changed_into_a_steer_joins_the_running_turn() -> None:
    machine = busy(input_("m", 3))
    assert machine << news(order("edit", "m", 5, delivery="steer")) == ["steer edit"]


def test_a_message_that_was_told_stands() -> None:
    machine = busy()
    machine << news(order("withdraw", "m1", 5))
    assert machine.receipts("m1") == ["delivered", "consumed"]


def test_a_message_told_to_a_runtime_that_died_before_taking_it_is_withdrawn_after_all() -> None:
    machine = idle(input_("m", 3))
    machine << news(order("withdraw", "m", 5))
    machine << Exit(())
    assert "deliver m" not in machine << READY
    assert machine.receipts("m") == ["delivered", "withdrawn"]


def test_a_message_changed_while_the_runtime_died_before_taking_it_is_told_changed() -> None:
    machine = idle(input_("m", 3))
    machine << news(order("edit", "m", 5))
    machine << Exit(())
    assert "deliver edit" in machine << READY


def test_a_withdrawal_survives_a_restart_of_the_runner() -> None:
    machine = busy()
    machine.restart()
    machine.adopted(order("withdraw", "m", 5))
    assert machine.receipts("m") == ["withdrawn"]


def test_a_fresh_lease_never_meets_an_order_about_another_input() -> None:
    story = working()
    story << say("m")
    story << withdraw("m")
    story.after(LEASE_S)
    story.after(60)
    story << grant("r2")
    machine = Machine()
    machine << granted(*job_of(story.s).inputs)
    assert machine.receipts("m") == []


def test_nothing_of_an_ended_session_is_changed() -> None:
    story = ended()
    assert story << withdraw("prompt") == "no: no_input"
