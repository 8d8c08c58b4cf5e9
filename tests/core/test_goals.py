"""How a lease comes to its end on its runner: saved first, said next, and only then let go."""

from __future__ import annotations

import pytest

from bide.core import effects as e
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.limits import RESEND_S
from tests.core.playbook import uid
from tests.core.playrunner import (
    FAILED,
    HERE,
    IDLE,
    READY,
    SAVED,
    Exit,
    Machine,
    busy,
    feed,
    granted,
    idle,
    input_,
    news,
)

TOOK = r.Consumed(input_id=uid("m1"))
ASK = e.Asked(key="call-1", question="Which?", options=("a", "b"))
PARK = news(parking="it waited")


# -- checkpoints ------------------------------------------------------------------------------------------------------


def test_work_is_saved_at_each_turns_end() -> None:
    machine = busy()
    assert machine << IDLE == ["capture 2"]
    machine << SAVED
    saved = machine.facts(f.CheckpointSaved)[-1].checkpoint
    assert (saved.consumed, saved.consistency, saved.input_cursor) == ((uid("m1"),), "quiet", uid("m1"))


def test_a_save_never_delays_an_input_and_says_that_it_was_taken_in_passing() -> None:
    machine = busy()
    machine << IDLE
    assert machine << news(input_("m2", 5)) == ["deliver m2"]
    machine << SAVED
    assert machine.facts(f.CheckpointSaved)[-1].checkpoint.consistency == "crash"


def test_a_long_turn_is_saved_now_and_then() -> None:
    machine = busy()
    for _ in range(11):
        machine.renewed()
        assert machine.after(50) == []
    machine.renewed()
    assert machine.after(50) == ["capture 2"]
    machine << SAVED
    assert machine.facts(f.CheckpointSaved)[-1].checkpoint.turn_open


def test_a_failed_save_is_tried_again_and_the_good_one_stays() -> None:
    machine = busy()
    machine << IDLE
    assert machine << FAILED == []
    assert machine.facts(f.CheckpointFailed)[0].code == "blob_store_unavailable"
    assert machine.after(1) == ["capture 3"]
    machine << FAILED
    assert machine.after(1) == []
    assert machine.after(1) == ["capture 4"]
    machine << SAVED
    assert [fact.checkpoint.consumed for fact in machine.facts(f.CheckpointSaved)] == [(), (uid("m1"),)]


# -- park, cancel, finish, drain --------------------------------------------------------------------------------------


def test_a_park_ends_the_runtime_saves_says_so_and_only_then_lets_go() -> None:
    machine = idle()
    machine.deaf = True
    assert machine << PARK == ["stop"]
    assert machine << Exit(()) == ["capture 2"]
    assert machine << SAVED == []
    machine.deaf = False
    assert machine.after(RESEND_S) == ["release warm"]
    assert machine.said[-2:] == ["checkpoint.saved", "session.parked"]


def test_a_park_frees_nothing_while_the_save_fails() -> None:
    machine = idle()
    feed(machine, [PARK, Exit(())])
    assert machine << FAILED == []
    assert machine.after(0.5) == []
    assert machine.after(0.5) == ["capture 3"]
    assert machine << SAVED == ["release warm"]


def test_a_save_that_began_before_the_runtime_ended_is_not_the_one_to_park_on() -> None:
    machine = busy()
    machine << IDLE
    assert machine << PARK == ["stop"]
    machine << Exit(("m1",))
    assert machine << SAVED == ["capture 3"]
    assert machine << SAVED == ["release warm"]


def test_a_working_session_is_not_parked_before_its_turn_ends() -> None:
    machine = busy()
    assert machine << PARK == []
    assert machine << IDLE == ["stop"]


def test_an_input_that_arrives_while_parking_is_left_to_the_next_lease() -> None:
    machine = idle()
    machine << PARK
    assert machine << news(input_("m2", 5), parking="it waited") == []
    machine << Exit(())
    assert machine << SAVED == ["release warm"]
    assert machine.receipts("m2") == []


def test_a_park_given_up_by_the_server_lets_the_session_go_on() -> None:
    machine = idle()
    machine << PARK
    machine << news(input_("m2", 5))
    assert "spawn" in machine << Exit(())
    assert "deliver m2" in machine << READY


def test_a_cancel_stops_the_turn_saves_and_ends() -> None:
    machine = busy()
    assert machine << news(cancelling=True) == ["interrupt"]
    assert machine << r.Idle(result="interrupted") == ["stop"]
    assert machine << Exit(("m1",)) == ["capture 2"]
    assert machine << SAVED == ["release warm"]
    assert machine.facts(f.Ended)[0].outcome == "cancelled"


def test_a_cancel_beats_a_park() -> None:
    machine = idle()
    feed(machine, [PARK, news(parking="it waited", cancelling=True), Exit(()), SAVED])
    assert machine.said[-1] == "session.ended"


def test_a_finish_ends_the_session_after_its_turn() -> None:
    machine = busy()
    machine << e.Finish(summary="all green")
    assert machine << IDLE == ["stop"]
    feed(machine, [Exit(("m1",)), SAVED])
    ended = machine.facts(f.Ended)[0]
    assert (ended.outcome, ended.summary) == ("completed", "all green")


@pytest.mark.parametrize("late", [news(input_("m2", 5)), ASK], ids=["input", "question"])
def test_a_finish_with_something_still_open_is_a_note_and_the_session_goes_on(late: object) -> None:
    machine = busy()
    machine << e.Finish(summary="all green")
    machine << late
    assert "stop" not in machine << IDLE
    assert machine.facts(f.Note)[0].code == "not_finished"


def test_an_input_that_came_after_the_finish_is_left_for_the_server_to_requeue() -> None:
    machine = busy()
    machine << e.Finish(summary="all green")
    machine << IDLE
    assert machine << news(input_("m2", 5)) == []
    feed(machine, [Exit(("m1",)), SAVED])
    assert machine.receipts("m2") == []


def test_a_drain_parks_the_waiting_at_once_and_the_working_at_their_turns_end() -> None:
    machine = idle()
    assert machine.drain() == ["stop"]
    machine = busy()
    assert machine.drain() == []
    assert machine << IDLE == ["stop"]


def test_a_drains_deadline_stops_the_turn_that_still_runs() -> None:
    machine = busy()
    machine.drain()
    assert machine._done(machine.runner.interrupt_all(machine.now)) == ["interrupt"]
    assert machine << r.Idle(result="interrupted") == ["stop"]


def test_a_session_granted_to_a_draining_runner_is_parked_as_soon_as_it_is_there() -> None:
    machine = Machine()
    machine.drain()
    machine << granted()
    assert machine << HERE == ["capture 1"]
    assert machine << SAVED == ["release warm"]


# -- restore ----------------------------------------------------------------------------------------------------------


def test_a_start_that_fails_for_good_says_why_and_ends() -> None:
    machine = Machine()
    machine << granted()
    assert machine << e.NotRestored(lost=False, code="no_repository", sentence="There is no such repository.") == [
        "release warm"
    ]
    assert machine.said == ["error", "session.ended"]


def test_a_lost_checkpoint_is_reported_and_nothing_is_started() -> None:
    machine = Machine()
    machine << granted()
    lost = e.NotRestored(lost=True, code="blob_missing", sentence="gone", items=(f.Lost(what="the workspace"),))
    assert machine << lost == ["release warm"]
    assert machine.said == ["environment.lost"]


def test_an_input_found_in_the_restored_conversation_is_not_delivered_again_and_the_turn_is_taken_up() -> None:
    machine = Machine()
    machine << granted(input_("m1", 2), resumed=True)
    machine << e.Restored(source="checkpoint", workspace=f.Workspace(), memory=frozenset({uid("m1")}))
    machine << READY
    assert "go on" in machine.order().text
    assert machine.order().input_id != uid("m1")
    assert machine.receipts("m1") == ["consumed"]


def test_what_was_lost_stands_before_the_next_prompt() -> None:
    machine = idle(input_("m1", 2), report=("Work was lost.",))
    assert machine.order().preamble == "Work was lost."


def test_how_the_memory_came_back_is_never_silent() -> None:
    machine = Machine()
    feed(machine, [granted(resumed=True), HERE])
    machine << r.Ready(version="1", runtime_session_id="x", rung="new")
    assert machine.facts(f.RuntimeResumed)[0].rung == "fresh"
    assert machine.facts(f.RuntimeResumed)[0].reason


def test_a_changed_path_is_said() -> None:
    machine = Machine()
    machine << granted()
    machine << e.Restored(source="checkpoint", workspace=f.Workspace(), moved=("/a", "/b"))
    assert "environment.moved" in machine.said


# -- our tools --------------------------------------------------------------------------------------------------------


def test_asking_twice_for_one_tool_call_is_one_question() -> None:
    machine = busy()
    machine << ASK
    first = machine.made
    machine << ASK
    assert machine.made == first
    assert len(machine.facts(f.QuestionAsked)) == 1


def test_two_calls_are_two_questions_even_with_the_same_words() -> None:
    machine = busy()
    machine << ASK
    machine << e.Asked(key="call-2", question="Which?")
    assert len({fact.question.id for fact in machine.facts(f.QuestionAsked)}) == 2


def test_an_assumption_is_recorded_once() -> None:
    machine = busy()
    for _ in range(2):
        machine << e.Assumed(key="a", text="tabs")
    assert [fact.text for fact in machine.facts(f.AssumptionRecorded)] == ["tabs"]


def test_a_tool_call_of_a_session_that_left_makes_nothing() -> None:
    machine = busy()
    machine.gone()
    machine << ASK
    assert machine.made is None
