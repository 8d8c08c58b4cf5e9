"""Questions that nobody needs answered any more: taken back by who asked or by people, or replaced by a better one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bide.core import effects as e
from bide.core import facts as f
from bide.core.limits import MADE_MAX
from bide.core.refusals import Refused
from tests.core.playbook import DONE, Story, answer, asks, parked, qid, uid, waiting, working
from tests.core.playrunner import IDLE, SAVED, busy, input_, news

MADE = (f.AssumptionRecorded, f.QuestionAsked, f.QuestionWithdrawn)
ASK = e.Asked(key="call-1", question="Which?", options=("a", "b"))


def replaced(old: str, new: str) -> f.QuestionSuperseded:
    return f.QuestionSuperseded(question_id=qid(old), by=qid(new), reason=f"replaced by “{new}?”")


def status(story: Story, name: str) -> tuple[str, str]:
    question = story.store.question(qid(name))
    assert question is not None
    return question.status, question.reason


# -- by people --------------------------------------------------------------------------------------------------------


def test_a_question_that_people_withdraw_is_closed_and_the_coding_agent_is_told_why() -> None:
    story = parked(asks("q"))
    assert story << answer("a", "q", "we drop the feature", withdraw=True) == [
        "user.answer", "question.withdrawn", "session.queued",
    ]  # fmt: skip
    assert status(story, "q") == ("withdrawn", "ann withdrew it: we drop the feature")
    (told,) = story.s.inputs
    assert ("withdrawn by ann" in told.text, "we drop the feature" in told.text) == (True, True)


def test_a_question_is_withdrawn_without_a_word_but_never_together_with_an_answer() -> None:
    story = parked(asks("q", "left"))
    assert story << answer("a", "q", "", withdraw=True, choices=("left",)) == "no: bad_value"
    assert story << answer("a", "q", "", withdraw=True, decline=True) == "no: bad_value"
    assert isinstance(story << answer("a", "q", "", withdraw=True), list)
    assert story << answer("a", "q", "") == "no: key_reused"


def test_an_answer_to_a_withdrawn_question_is_refused_with_the_reason_and_offered_as_a_message() -> None:
    story = parked(asks("q", "left"))
    story << answer("a", "q", "not needed", withdraw=True)
    assert story << answer("b", "q", "but tests first", by="ben", choices=()) == "no: question_closed"
    assert story.refusal is not None
    assert "ann withdrew it: not needed" in story.refusal.sentence
    assert story.refusal.more["offer"] == {"type": "user.message", "text": "but tests first"}
    assert (story.refusal.more["session_id"], story.id[:13] in story.refusal.hint) == (story.id, True)


# -- by the session itself --------------------------------------------------------------------------------------------


def test_a_question_that_its_session_takes_back_is_closed_with_the_reason() -> None:
    story = waiting(asks("q"))
    taken_back = f.QuestionWithdrawn(question_id=qid("q"), reason="found it in the README")
    assert story << (taken_back,) == ["question.withdrawn"]
    assert (status(story, "q"), story.s.turn.waiting_for) == (("withdrawn", "found it in the README"), "message")
    assert story << answer("a", "q") == "no: question_closed"


def test_a_question_that_is_replaced_refuses_late_answers_and_names_the_one_in_its_place() -> None:
    story = waiting(asks("old"))
    assert story << (asks("new"), replaced("old", "new")) == ["question.asked", "question.superseded"]
    assert status(story, "old") == ("superseded", "replaced by “new?”")
    assert story << answer("a", "old", "left") == "no: question_closed"
    assert story.refusal is not None
    assert "superseded: replaced by “new?”" in story.refusal.sentence
    assert isinstance(story << answer("b", "new", "right"), list)


@pytest.mark.parametrize(
    "closing",
    [
        f.QuestionWithdrawn(question_id=qid("q"), reason="late"),
        f.QuestionWithdrawn(question_id=uid("stranger"), reason="never asked"),
        replaced("q", "nothing"),
    ],
    ids=["answered meanwhile", "never asked", "replaced by nothing"],
)
def test_an_answer_that_came_first_stands(closing: f.RunnerFact) -> None:
    story = waiting(asks("q"))
    if isinstance(closing, f.QuestionWithdrawn):
        story << answer("a", "q", "left")
    before = status(story, "q")
    assert story << (closing,) == ["note"]
    assert status(story, "q") == before


def test_a_runtime_never_closes_what_bide_asks_about_the_session() -> None:
    story = waiting()
    held = f.TurnEnded(result="failed", detail="401", code="model_unauthenticated")
    story << (f.TurnStarted(), held)
    (asked,) = story.s.questions
    story << (f.QuestionWithdrawn(question_id=asked.id, reason="I go on"),)
    assert [q.id for q in story.s.questions] == [asked.id]


def test_a_question_replaced_in_work_that_is_lost_is_no_answer_to_anything() -> None:
    story = working()
    story << (asks("old"), asks("new"), replaced("old", "new"), DONE)
    story.after(120)
    story.after(60)
    assert (status(story, "old")[0], status(story, "new")[0]) == ("superseded", "withdrawn")


# -- the runner's half ------------------------------------------------------------------------------------------------


def test_a_question_taken_back_no_longer_keeps_the_session_from_its_end() -> None:
    machine = busy()
    machine << ASK
    assert machine.made is not None
    machine << e.Unasked(key="call-2", question_id=machine.made, reason="found it")
    machine << e.Finish(summary="done")
    assert "stop" in machine << IDLE
    assert [x.reason for x in machine.facts(f.QuestionWithdrawn)] == ["found it"]


def test_a_repeated_call_takes_back_once() -> None:
    machine = busy()
    machine << ASK
    unasked = e.Unasked(key="call-2", question_id=str(machine.made), reason="found it")
    machine << unasked
    machine << unasked
    assert len(machine.facts(f.QuestionWithdrawn)) == 1


def test_a_question_that_replaces_another_is_the_only_one_that_blocks() -> None:
    machine = busy()
    machine << ASK
    old = str(machine.made)
    machine << replace(ASK, key="call-2", question="Which of these?", replaces=old)
    assert machine.runner.runs["s"].tools.blocking == {machine.made}
    (fact,) = machine.facts(f.QuestionSuperseded)
    assert (fact.question_id, fact.by, fact.reason) == (old, machine.made, "replaced by “Which of these?”")


def test_a_question_withdrawn_by_people_no_longer_keeps_the_session_from_its_end() -> None:
    machine = busy()
    machine << ASK
    machine << news(input_("a", 5, type="user.answer", question_id=str(machine.made)))
    assert machine.runner.runs["s"].tools.blocking == set()


# -- too many ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        e.Assumed(key="", text="utf-8"),
        e.Asked(key="", question="Which?", blocking=False),
        e.Unasked(key="", question_id="x", reason="never mind"),
    ],
    ids=lambda call: type(call).__name__,
)
def test_a_turn_that_records_without_end_is_told_so_until_its_next_turn(call: e.ToolCall) -> None:
    machine = busy()
    for _ in range(MADE_MAX):
        machine << call
    with pytest.raises(Refused, match="too_many") as refused:
        machine << call
    assert str(MADE_MAX) in refused.value.sentence
    assert sum(len(machine.facts(kind)) for kind in MADE) == MADE_MAX
    machine << e.Finish(summary="")  # a word that ends something is always heard
    machine << IDLE
    with pytest.raises(Refused, match="too_many"):
        machine << call


def test_a_call_that_is_repeated_is_answered_and_not_counted() -> None:
    machine = busy()
    for _ in range(3 * MADE_MAX):
        machine << ASK
    machine << e.Assumed(key="", text="utf-8")
    assert len(machine.facts(f.QuestionAsked)) == 1
    assert len(machine.facts(f.AssumptionRecorded)) == 1


def test_what_one_turn_may_record_does_not_lessen_what_the_next_one_may() -> None:
    machine = busy()
    for _ in range(MADE_MAX):
        machine << e.Assumed(key="", text="utf-8")
    machine << IDLE
    machine << SAVED
    machine << news(input_("m2", 9))
    machine << e.Assumed(key="", text="tabs")
    assert machine.facts(f.AssumptionRecorded)[-1].text == "tabs"
