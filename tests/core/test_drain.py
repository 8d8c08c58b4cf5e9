"""A runner is emptied on demand: nothing is lost by it, and one line says what became of each session."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bide.core import facts as f
from bide.core import runtime as r
from bide.core.drain import OVER, Line, Order, lines, over
from tests.core.playbook import (
    LEASE_S,
    START,
    Story,
    ended,
    grant,
    leased,
    park,
    parked,
    say,
    uid,
    waiting,
    working,
)
from tests.core.playrunner import IDLE, SAVED, Exit, busy, feed, idle, input_, news

ORDER = Order(runner="r1", boot="1", by="ann", asked_at=START, deadline_s=60.0)


def line(story: Story, order: Order = ORDER) -> Line:
    (found,) = lines(replace(order, sessions=(story.id,)), [], {story.id: story.s})
    return found


# -- one line for each ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("story", "result", "sentence"),
    [
        (leased, "waiting", "about to be saved"),
        (working, "working", "interrupted and saved at the deadline"),
        (waiting, "waiting", "about to be saved"),
        (parked, "parked", "Everything is saved"),
        (ended, "ended", "ended as completed"),
    ],
)
def test_each_session_has_a_line_that_says_what_became_of_it(story: object, result: str, sentence: str) -> None:
    found = line(story())  # type: ignore[operator]
    assert (found.result, sentence in found.sentence) == (result, True)


def test_a_session_that_is_being_saved_says_so() -> None:
    story = waiting()
    story << park()
    assert (line(story).result, line(story).checkpoint) == ("parking", 1)


def test_a_session_that_went_on_elsewhere_names_where() -> None:
    story = parked()
    story << say("m")
    assert line(story).result == "queued"
    story << grant("r2")
    assert line(story).result == "moved"
    assert "r2" in line(story).sentence


def test_a_session_that_a_later_process_of_the_runner_holds_is_not_in_the_way_of_the_drain() -> None:
    story = parked()
    story << say("m")
    story << grant("r1", boot="2")
    assert line(story).result == "moved"


def test_a_session_out_of_contact_is_waited_for_where_the_drained_runner_had_it_and_not_elsewhere() -> None:
    story = working()
    story.after(LEASE_S)
    assert line(story).result == "waiting"
    assert "out of contact" in line(story).sentence
    assert line(story, replace(ORDER, boot="0")).result == "queued"
    assert line(story, replace(ORDER, runner="r2")).result == "queued"


def test_a_session_that_was_deleted_meanwhile_is_gone_and_not_waited_for() -> None:
    (found,) = lines(replace(ORDER, sessions=(uid("deleted"),)), [], {})
    assert found.result == "gone"
    assert over([found])


def test_a_session_granted_before_the_runner_heard_of_the_order_is_in_the_list_too() -> None:
    story = working()
    (found,) = lines(ORDER, [story.s], {})
    assert found.session == story.id
    assert not over([found])


def test_a_drain_is_over_when_nothing_is_left_on_the_runner() -> None:
    assert over([])
    found = line(parked())
    assert over([replace(found, result=result) for result in OVER])
    assert not over([found, replace(found, result="parking")])


def test_working_sessions_have_until_the_deadline_and_never_less_than_nothing() -> None:
    assert ORDER.left_s(START + 20) == 40.0
    assert ORDER.left_s(START + 100) == 0.0


# -- the runner -------------------------------------------------------------------------------------------------------


def test_a_waiting_session_is_saved_at_once_and_a_working_one_at_the_end_of_its_turn() -> None:
    waits, works = idle(), busy()
    assert waits.drain() == ["stop"]
    assert works.drain() == []
    assert "stop" in works << IDLE


def test_a_turn_at_the_deadline_is_stopped_saved_and_goes_on_elsewhere_by_itself() -> None:
    machine = busy()
    machine.drain()
    assert machine.deadline() == ["interrupt"]
    feed(machine, [r.Idle(result="interrupted"), Exit(("m1",)), SAVED])
    (said,) = machine.facts(f.Parked)
    assert said.go_on
    assert machine.runner.runs == {}


def test_a_message_that_arrives_while_it_drains_is_left_for_the_next_runner() -> None:
    machine = idle()
    machine.drain()
    machine << news(input_("m2", 9))
    words = [*(machine << Exit(())), *(machine << SAVED)]
    assert "deliver m2" not in words
    assert machine.receipts("m2") == []
    assert machine.said[-1] == "session.parked"


def test_an_order_that_is_taken_back_lets_the_runner_take_sessions_again() -> None:
    machine = idle()
    machine.drain()
    machine.runner.go_on_taking()
    assert not machine.runner.draining


def test_a_process_that_must_go_while_the_server_is_away_leaves_folders_that_are_taken_up_whole() -> None:
    machine = busy()
    machine.away = True
    machine.drain()
    assert machine.leave() == ["stop"]
    machine << Exit(("m1",))
    left = machine.restart()
    assert left.whole
    assert left.kept.cut_short
    assert machine.adopted() == ["restore"]
    assert machine.said.count("turn.ended") == 1
