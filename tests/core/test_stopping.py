"""The runner's machine told to stop: what is stopped, what is not, and what people are told of it."""

from __future__ import annotations

from bide.core import effects as e
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.limits import INTERRUPT_S, LEFT_NAMED_MAX
from tests.core.playbook import uid
from tests.core.playrunner import HERE, IDLE, SAVED, Exit, Machine, busy, feed, granted, input_, news

INTERRUPT = news(input_("i", 6, type="user.interrupt"))
STOPPED = e.NotRestored(lost=False, code="stopped", sentence="It was stopped before its workspace was made.")


def how(machine: Machine) -> str:
    return str(machine.facts(f.Receipt)[-1].how)


def test_an_interrupt_that_comes_too_late_does_not_claim_the_end_of_the_turn_as_its_own() -> None:
    machine = busy()
    assert machine << INTERRUPT == ["interrupt"]
    machine << IDLE
    assert machine.receipts("i") == ["delivered", "consumed"]
    assert how(machine) == "turn 1 ended by itself"


def test_an_interrupt_that_stops_its_turn_says_so() -> None:
    machine = busy()
    machine << INTERRUPT
    machine << r.Idle(result="interrupted")
    assert how(machine) == "stopped turn 1"


def test_an_interrupt_of_a_runtime_that_has_to_be_ended_for_it_says_so_as_well() -> None:
    machine = busy()
    machine << INTERRUPT
    machine.after(INTERRUPT_S)
    machine << Exit(("m1",))
    assert how(machine) == "stopped turn 1"


def test_a_cancel_does_not_wait_for_a_workspace_that_nobody_wants_any_more() -> None:
    machine = Machine()
    assert machine << granted(input_("m1", 2)) == ["restore"]
    assert machine << news(cancelling=True) == ["stop by force"]
    assert machine << news(cancelling=True) == []
    assert machine << STOPPED == ["release warm"]
    assert [fact.outcome for fact in machine.facts(f.Ended)] == ["cancelled"]
    assert machine.facts(f.Error) == []


def test_a_workspace_that_was_made_all_the_same_is_saved_before_the_session_ends_as_cancelled() -> None:
    machine = Machine()
    machine << granted(input_("m1", 2))
    machine << news(cancelling=True)
    assert machine << HERE == ["capture 1"]
    machine << SAVED
    assert [fact.outcome for fact in machine.facts(f.Ended)] == ["cancelled"]


def test_a_folder_that_is_taken_up_is_saved_even_where_its_session_is_cancelled_meanwhile() -> None:
    machine = busy()
    machine.restart()
    machine.adopted()
    assert machine << news(cancelling=True, epoch=2) == [], "what stands there was never saved"


def test_a_start_that_fails_is_no_cancel() -> None:
    machine = Machine()
    machine << granted(input_("m1", 2))
    machine << e.NotRestored(lost=False, code="no_repository", sentence="It could not be cloned.")
    assert [fact.outcome for fact in machine.facts(f.Ended)] == ["failed"]


SERVES = r.Idle(result="completed", left=("`npm run dev` on port 5173",))


def notes(machine: Machine) -> list[str]:
    return [fact.text for fact in machine.facts(f.Note) if fact.code == "left_running"]


def test_what_a_turn_left_running_is_told_when_it_is_something_else_than_before() -> None:
    machine = busy()
    feed(machine, [SERVES, SAVED])
    assert notes(machine) == ["Left running: `npm run dev` on port 5173"]
    feed(machine, [news(input_("m2", 5)), r.Consumed(input_id=uid("m2")), SERVES, SAVED])
    assert len(notes(machine)) == 1
    many = r.Idle(result="completed", left=tuple(f"`{n}`" for n in range(LEFT_NAMED_MAX + 3)))
    feed(machine, [news(input_("m3", 7)), r.Consumed(input_id=uid("m3")), many, SAVED])
    assert notes(machine)[-1].endswith(" and 3 more")


def test_an_interrupt_between_turns_ends_what_they_left_running_and_says_so_once() -> None:
    machine = busy()
    feed(machine, [SERVES, SAVED])
    assert machine << INTERRUPT == ["interrupt"]
    assert (machine.receipts("i"), how(machine)) == (
        ["consumed"],
        "nothing was running; 1 background process ended",
    )
    assert machine << news(input_("again", 8, type="user.interrupt")) == []
    assert how(machine) == "nothing was running"


def test_what_was_left_running_does_not_keep_a_session_from_parking() -> None:
    machine = busy()
    feed(machine, [SERVES, SAVED])
    assert machine << news(parking="it waited") == ["stop"]
