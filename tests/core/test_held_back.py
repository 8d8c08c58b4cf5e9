"""A runner holds back what its model, its login or its runtime cannot take, from the moment in which the turn ends."""

from __future__ import annotations

from typing import Any

import pytest

from bide.core import facts as f
from bide.core import runtime as r
from bide.core.lease import news_for
from bide.core.limits import RUNTIME_TRIES_MAX
from bide.core.troubles import OF_TURNS
from bide.core.wire import Held
from tests.core.playbook import Story, began, resume, say, uid, working
from tests.core.playrunner import HERE, IDLE, READY, SAVED, Exit, Machine, busy, feed, granted, idle, input_, news
from tests.core.test_holding import LOGIN, OUTAGE, failed, held

FAILED = r.Idle(result="failed", detail="529")


def troubled(machine: Machine, code: str = OUTAGE) -> list[str]:
    return feed(machine, [r.Troubled(code, "API Error"), FAILED])


@pytest.mark.parametrize("code", sorted(OF_TURNS))
def test_a_runner_tells_nothing_more_after_a_turn_that_such_trouble_ended(code: str) -> None:
    machine = busy(input_("m2", 3))
    assert not any(word.startswith("deliver") for word in troubled(machine, code))
    assert machine << news(input_("m4", 9), input_("now", 10, "interrupt")) == []
    (ended,) = [turn for turn in machine.facts(f.TurnEnded) if turn.result == "failed"]
    assert ended.code == code
    assert [lease.held for lease in machine.runner.held()] == [2]


def test_a_held_runner_goes_on_when_the_server_says_so_and_not_before() -> None:
    machine = busy(input_("m2", 3))
    troubled(machine)
    assert machine << news(freed=1) == []
    assert machine << news(freed=2) == ["deliver m2"]
    assert [lease.held for lease in machine.runner.held()] == [0]


def test_a_model_that_recovered_within_the_turn_holds_nothing() -> None:
    machine = busy(input_("m2", 3))
    machine << r.Troubled(OUTAGE, "API Error")
    assert "deliver m2" in machine << IDLE


def test_an_interrupted_turn_holds_nothing() -> None:
    machine = busy(input_("m2", 3))
    machine << r.Troubled(OUTAGE, "API Error")
    assert "deliver m2" in machine << r.Idle(result="interrupted")


def test_a_trouble_of_one_turn_is_not_that_of_the_next() -> None:
    machine = busy(input_("m2", 3), input_("m3", 4))
    machine << r.Troubled(OUTAGE, "API Error")
    machine << IDLE
    machine << r.Consumed(input_id=uid("m2"))
    assert "deliver m3" in machine << r.Idle(result="failed", detail="a bad script")


def test_a_runner_of_a_server_that_knows_no_holding_goes_on_as_ever() -> None:
    machine = idle(input_("m1", 2), input_("m2", 3), freed=None)
    machine << r.Consumed(input_id=uid("m1"))
    assert "deliver m2" in troubled(machine)


def test_a_held_session_is_not_started_on_its_next_runner_before_it_is_freed() -> None:
    machine = Machine()
    machine << granted(input_("m1", 2), turn=3, freed=3)
    assert machine << HERE == ["capture 1"]
    machine << SAVED
    assert machine << news(freed=4) == ["spawn"]
    assert machine << READY == ["deliver m1"]


def test_a_restarted_runner_still_holds_back_what_it_held_back() -> None:
    machine = busy(input_("m2", 3))
    troubled(machine)
    machine << SAVED
    machine.restart()
    machine.adopted(input_("m2", 3), turn=1, freed=1)
    assert "spawn" not in machine << HERE
    assert machine << news(freed=2, epoch=2) == ["spawn"]


def test_a_restarted_runner_goes_on_with_what_was_freed_meanwhile() -> None:
    machine = busy(input_("m2", 3))
    troubled(machine)
    machine << SAVED
    machine.restart()
    machine.adopted(input_("m2", 3), turn=1, freed=2)
    assert "spawn" in machine << HERE


def test_a_runtime_that_gave_up_has_all_its_tries_again_once_it_is_freed() -> None:
    machine = idle(input_("m1", 2))
    for _ in range(RUNTIME_TRIES_MAX - 1):
        machine << Exit(())
        machine << READY
    machine << Exit(())
    machine.runner.runs["s"].leaving.goal = ""  # as where the server gave up the park of its own
    assert machine << news(freed=machine.runner.held()[0].held) == ["spawn"]
    machine << READY
    assert "spawn" in machine << Exit(())


def test_a_held_machine_lets_its_shell_sleep() -> None:
    machine = busy(input_("m2", 3))
    troubled(machine)
    machine << SAVED
    wake = machine.runner.next_wake()
    assert wake is not None
    assert wake > machine.now


def test_what_the_model_says_of_its_return_is_told_with_the_turn_that_it_ended_and_no_other() -> None:
    machine = busy(input_("m2", 3))
    machine << r.Delayed(for_s=3600.0)
    machine << IDLE
    machine << r.Consumed(input_id=uid("m2"))
    machine << r.Delayed(for_s=60.0)
    troubled(machine)
    assert [turn.retry_after_s for turn in machine.facts(f.TurnEnded)] == [0.0, 60.0]


def test_a_login_that_each_request_of_a_turn_finds_refused_is_told_of_once_in_a_turn_and_again_in_the_next() -> None:
    machine = busy(input_("m2", 3))
    for _ in range(3):
        machine << r.Troubled(LOGIN, "refused")
    machine << r.Troubled("model_error", "400")
    machine << FAILED
    machine << news(freed=2)
    machine << r.Consumed(input_id=uid("m2"))
    feed(machine, [r.Troubled(LOGIN, "refused"), r.Troubled("model_error", "400"), FAILED])
    assert [error.code for error in machine.facts(f.Error)] == [LOGIN, "model_error"] * 2
    assert [turn.code for turn in machine.facts(f.TurnEnded)] == [LOGIN] * 2


# -- between both -----------------------------------------------------------------------------------------------------


def heard(story: Story, turn: int, cursor: int = 1000) -> Any:
    """What a runner hears that holds back the turn of this number."""
    return news_for(story.s, Held(session=story.id, epoch=1, cursor=cursor, held=turn))


def test_a_server_that_has_not_heard_of_the_failed_turn_frees_nothing() -> None:
    story = working()
    assert heard(story, 2) is None
    story << failed(OUTAGE)
    assert heard(story, 2) is None
    story << resume()
    assert heard(story, 2).freed == 2
    assert heard(story, 0) is None


def test_a_runner_that_heard_of_a_try_keeps_quiet_about_it() -> None:
    story = held(OUTAGE)
    story << say("m1")
    assert heard(story, 2, story.s.last_seq).freed == 2
    story << (began("m1"),)
    assert heard(story, 0, story.s.last_seq) is None
