"""Silence of a runtime, a tool or a model: it has a name, a person hears of it, and it comes to an end."""

from __future__ import annotations

import pytest

from bide.core import facts as f
from bide.core import runtime as r
from bide.core.limits import (
    HEARD_S,
    INTERRUPT_S,
    MODEL_QUIET_S,
    RUNTIME_SILENCE_S,
    RUNTIME_TRIES_MAX,
    STOPPING_S,
    TOOL_QUIET_S,
    TOOL_SILENCE_S,
)
from tests.core.playbook import TOTAL, uid
from tests.core.playrunner import HERE, IDLE, READY, SAVED, Exit, Machine, busy, feed, granted, idle, input_, news

TOOL = r.Called(id="t1", name="Bash", input="{}")


def wait(machine: Machine, seconds: float) -> list[str]:
    """Time passes while the lease is renewed; what was done meanwhile, checkpoints left out."""
    done: list[str] = []
    end = machine.now + seconds
    while machine.now < end:
        done += machine.after(min(20.0, end - machine.now))
        if any(word.startswith("capture") for word in done):
            machine << SAVED
            done = [word for word in done if not word.startswith("capture")]
        machine.renewed()
    return done


def codes(machine: Machine) -> list[str]:
    return [fact.code for fact in machine.facts(f.Error)]


def results(machine: Machine) -> list[str]:
    return [fact.result for fact in machine.facts(f.TurnEnded)]


# -- a runtime without a word -----------------------------------------------------------------------------------------


def test_a_runtime_that_takes_a_message_and_stays_mute_is_ended_and_the_message_told_to_the_next() -> None:
    machine = idle(input_("m1", 2))
    assert wait(machine, HEARD_S - 1) == []
    assert wait(machine, 1) == ["interrupt"]
    assert codes(machine) == ["runtime_mute"]
    assert wait(machine, INTERRUPT_S) == ["stop by force"]
    assert "spawn" in machine << Exit(())
    machine << SAVED
    assert machine << READY == ["deliver m1"]
    assert results(machine) == ["failed"]
    assert "silent" in machine.order().preamble


def test_a_mute_runtime_is_not_started_without_end_and_the_message_is_kept() -> None:
    machine = idle(input_("m1", 2), freed=1)
    starts = 0
    for _ in range(RUNTIME_TRIES_MAX):
        assert "interrupt" in wait(machine, HEARD_S)
        assert "stop by force" in wait(machine, INTERRUPT_S)
        starts += "spawn" in machine << Exit(())
        machine << SAVED
        machine << READY
    assert starts == RUNTIME_TRIES_MAX - 1
    assert codes(machine)[-1] == "runtime_failed"
    assert machine.receipts("m1")[-1] == "accepted", "it waits, and is not refused"
    assert machine.facts(f.Ended) == []
    assert wait(machine, 10 * HEARD_S).count("spawn") == 0


def test_a_runtime_that_never_works_after_a_resume_says_that_it_is_the_resume() -> None:
    machine = idle(input_("m1", 2), freed=1, resumed=True)
    for _ in range(RUNTIME_TRIES_MAX):
        machine << Exit(())
        machine << SAVED
        machine << READY
    assert codes(machine) == ["resume_failed"]


def test_a_message_that_a_mute_runtime_had_taken_is_never_told_again() -> None:
    machine = busy()
    assert wait(machine, RUNTIME_SILENCE_S) == ["interrupt"]
    wait(machine, INTERRUPT_S)
    machine << Exit(("m1",))
    machine << SAVED
    assert machine << READY == []
    assert results(machine) == ["failed"]
    assert machine.receipts("m1") == ["delivered", "consumed"]


def test_people_hear_of_a_silence_before_it_ends_the_turn() -> None:
    machine = busy()
    assert wait(machine, RUNTIME_SILENCE_S / 3) == []
    assert codes(machine) == ["runtime_quiet"]
    wait(machine, 60)
    assert codes(machine) == ["runtime_quiet"], "once"
    machine << r.Spoke(text="here I am")
    wait(machine, RUNTIME_SILENCE_S / 3)
    assert codes(machine) == ["runtime_quiet"] * 2, "another silence"


def test_a_runtime_that_stops_its_silent_turn_when_it_is_asked_to_goes_on_as_it_is() -> None:
    machine = busy()
    assert wait(machine, RUNTIME_SILENCE_S) == ["interrupt"]
    machine << r.Idle(result="interrupted")
    assert results(machine) == ["failed"]
    machine << SAVED
    assert machine << news(input_("m2", 5)) == ["deliver m2"]
    assert "silent" in machine.order().preamble


def test_a_turn_that_came_to_its_end_just_before_it_was_stopped_for_its_silence_is_no_failure() -> None:
    machine = busy()
    wait(machine, RUNTIME_SILENCE_S)
    machine << IDLE
    assert results(machine) == ["completed"]


def test_a_session_can_allow_its_runtime_another_silence() -> None:
    machine = idle(input_("m1", 2), limits={**TOTAL, "runtime_silence_s": 5.0})
    assert machine.after(5) == ["interrupt"]


# -- tools ------------------------------------------------------------------------------------------------------------


def test_a_silent_tool_is_named_after_a_quarter_and_stopped_at_its_limit() -> None:
    machine = busy()
    machine << TOOL
    assert wait(machine, TOOL_QUIET_S) == []
    assert codes(machine) == ["tool_quiet"]
    assert wait(machine, TOOL_SILENCE_S - TOOL_QUIET_S - 20) == []
    assert codes(machine) == ["tool_quiet"] * 2, "again when the silence has doubled"
    assert wait(machine, 20) == ["interrupt"]
    machine << r.Idle(result="interrupted")
    (ended,) = machine.facts(f.TurnEnded)
    assert (ended.result, "Bash" in ended.detail, "1h" in ended.detail) == ("failed", True, True)


def test_a_tool_that_speaks_now_and_then_is_never_stopped() -> None:
    machine = busy()
    machine << TOOL
    for _ in range(10):
        assert wait(machine, TOOL_QUIET_S - 1) == []
        machine << r.Glimpsed(kind="tool", text="test 17 of 200")
    assert codes(machine) == []


@pytest.mark.parametrize(
    "beside", [r.Asking(open=1), r.Metered(tokens=5), r.Delayed(for_s=1)], ids=lambda e: type(e).__name__
)
def test_a_loop_in_the_background_that_asks_the_model_does_not_hide_a_silent_tool(beside: r.RuntimeEvent) -> None:
    machine = busy()
    machine << TOOL
    done: list[str] = []
    for _ in range(int(TOOL_SILENCE_S / 60) - 1):
        done += wait(machine, 60)
        machine << beside
        machine << r.Asking(open=0)
    assert (done, codes(machine)) == ([], ["tool_quiet"] * 2)
    assert wait(machine, 60) == ["interrupt"]


def test_a_tool_has_the_time_that_its_session_allows_it() -> None:
    machine = idle(input_("m1", 2), limits={**TOTAL, "tool_silence_s": 10 * TOOL_SILENCE_S})
    machine << r.Consumed(input_id=uid("m1"))
    machine << TOOL
    assert wait(machine, 9 * TOOL_SILENCE_S) == []
    assert "interrupt" in wait(machine, TOOL_SILENCE_S)


def test_a_tool_that_returned_is_not_waited_for() -> None:
    machine = busy()
    machine << TOOL
    machine << r.Returned(id="t1", ok=True, output="")
    assert "interrupt" in wait(machine, RUNTIME_SILENCE_S)


# -- the model --------------------------------------------------------------------------------------------------------


def test_a_long_answer_of_the_model_is_told_and_never_taken_for_a_mute_runtime() -> None:
    machine = busy()
    machine << r.Asking(open=1)
    assert wait(machine, 10 * RUNTIME_SILENCE_S) == []
    assert codes(machine) == ["model_quiet"]
    machine << r.Asking(open=0)
    assert "interrupt" in wait(machine, RUNTIME_SILENCE_S)


def test_two_minutes_of_thinking_are_not_worth_a_word() -> None:
    machine = busy()
    machine << r.Asking(open=1)
    wait(machine, MODEL_QUIET_S - 1)
    assert codes(machine) == []


# -- what is no silence -----------------------------------------------------------------------------------------------


def test_the_time_that_a_session_was_frozen_counts_as_nobodys_silence() -> None:
    machine = busy()
    machine << TOOL
    machine.after(80)
    assert machine.after(TOOL_SILENCE_S / 2) == []
    assert "thaw" in machine.renewed()
    assert wait(machine, TOOL_QUIET_S - 81) == []
    assert codes(machine) == []


def test_a_session_that_waits_for_people_is_silent_as_long_as_they_are() -> None:
    machine = busy()
    machine << IDLE
    machine << SAVED
    assert wait(machine, 3 * TOOL_SILENCE_S) == []
    assert codes(machine) == []


# -- ends -------------------------------------------------------------------------------------------------------------


def test_a_runtime_that_ends_while_nothing_is_to_be_done_is_started_when_there_is() -> None:
    machine = busy()
    feed(machine, [IDLE, SAVED])
    for n in range(2 * RUNTIME_TRIES_MAX):
        assert machine << Exit(("m1",)) == []
        assert wait(machine, 60) == []
        assert "spawn" in machine << news(input_(f"m{n + 2}", n + 5))
        assert machine << READY == [f"deliver m{n + 2}"]
        feed(machine, [r.Consumed(input_id=uid(f"m{n + 2}")), IDLE, SAVED])
    assert codes(machine) == []


def test_a_runtime_that_cannot_be_ended_does_not_keep_its_session_for_ever() -> None:
    machine = busy()
    feed(machine, [IDLE, SAVED])
    assert machine << news(parking="it waited") == ["stop"]
    assert wait(machine, STOPPING_S) == ["stop by force"]
    assert wait(machine, STOPPING_S)[-1] == "release salvage"
    assert "ended" in machine.runner.returned["s"].reason


def test_a_runtime_that_never_starts_and_cannot_be_ended_does_not_either() -> None:
    machine = Machine()
    feed(machine, [granted(input_("m1", 2)), HERE, SAVED])
    assert "release salvage" in wait(machine, 60 + STOPPING_S + 20)
