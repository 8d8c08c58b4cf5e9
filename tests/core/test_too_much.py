"""What people would lose if a session whose workspace holds too much kept stopping for it, or said nothing."""

from __future__ import annotations

from math import inf

from bide.core import effects as e
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.limits import PARKING_S
from tests.core.playbook import DONE, park, renew, resume, uid, waiting
from tests.core.playrunner import IDLE, READY, SAVED, Exit, Machine, busy, input_, news

TOO_MUCH = e.NotCaptured(code="over_quota", reason="Workspace and home hold 2 GiB; at most 1 GiB can be saved.")
PARK = news(parking="it waited")
FINISH = e.Finish(summary="done")


def told(machine: Machine) -> list[str]:
    return [fact.reason for fact in machine.facts(f.CheckpointFailed)]


def turn(machine: Machine, name: str) -> list[str]:
    """The runtime takes the message and is done with it."""
    machine << r.Consumed(input_id=uid(name))
    return machine << IDLE


def over() -> Machine:
    """After a turn that left too much."""
    machine = busy()
    assert machine << IDLE == ["capture 2"]
    assert machine << TOO_MUCH == []
    assert told(machine) == [TOO_MUCH.reason]
    return machine


def test_it_is_tried_again_at_the_end_of_the_next_turn_and_not_before() -> None:
    machine = over()
    for _ in range(60):
        machine.renewed()
        assert machine.after(30) == []
    assert machine << news(input_("m2", 5)) == ["deliver m2"]
    assert turn(machine, "m2") == ["capture 3"]
    assert machine << SAVED == []
    machine << news(input_("m3", 6))
    assert turn(machine, "m3") == ["capture 4"]
    assert machine << TOO_MUCH == []
    assert len(told(machine)) == 2, "it fitted in between, so that it is news again"


def test_people_and_the_coding_agent_are_told_once() -> None:
    machine = over()
    machine << news(input_("m2", 5))
    said = machine.order().preamble
    assert said == f"{TOO_MUCH.reason} Delete what can be made again, such as build outputs and caches."
    turn(machine, "m2")
    machine << TOO_MUCH
    machine << news(input_("m3", 6))
    assert machine.order().preamble == ""
    assert told(machine) == [TOO_MUCH.reason]


def test_a_park_that_does_not_fit_is_given_up_and_the_session_works_on_where_it_is() -> None:
    machine = over()
    assert machine << PARK == ["stop"]
    assert machine << Exit(()) == ["capture 3"]
    assert machine << TOO_MUCH == []
    assert len(told(machine)) == 2, "whoever asked for it is to know"
    assert machine << news() == ["spawn"]
    machine << READY
    assert machine << news(input_("m2", 5)) == ["deliver m2"]
    assert turn(machine, "m2") == ["capture 4"]


def test_a_session_does_not_end_before_its_last_word_fits() -> None:
    machine = busy()
    machine << FINISH
    machine << IDLE
    machine << TOO_MUCH
    machine << Exit(())
    machine << TOO_MUCH
    assert "session.ended" not in machine.said
    assert "not_finished" in [note.code for note in machine.facts(f.Note)]
    assert machine.runner.next_wake() not in (None, inf)


def test_a_drain_goes_on_trying_as_long_as_it_lasts() -> None:
    machine = over()
    assert machine.drain() == ["stop"]
    assert machine << Exit(()) == ["capture 3"]
    assert machine << TOO_MUCH == []
    machine.renewed()
    assert machine.after(30) == ["capture 4"]
    assert machine << SAVED == ["release warm"]


def test_a_waiting_session_that_cannot_be_saved_is_not_asked_to_park_again_before_its_next_turn() -> None:
    story = waiting()
    assert story << park() == ["user.park", "session.parking"]
    assert story << resume() == ["user.resume"]
    assert story << (f.CheckpointFailed(code="over_quota", reason=TOO_MUCH.reason),) == [
        "checkpoint.failed", "user.receipt",
    ]  # fmt: skip
    assert (story.s.parking, story.s.environment.state, story.s.reason) == ("", "ready", TOO_MUCH.reason)
    for _ in range(round(PARKING_S / 60) + 1):
        story << renew(1)
        assert story.after(60) == []
    story << (f.TurnStarted(input_ids=()), DONE)
    assert story.s.parking == "asked by ann", "what a person asked for still stands"
