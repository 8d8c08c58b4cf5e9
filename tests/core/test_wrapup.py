"""What a runner does near and at what its session may cost: told before, stopped at it, and going on when more is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from bide.core import effects as e
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.limits import DAY, FROZEN_S, HOUR, INTERRUPT_S, TOKEN_USD_GUESS
from bide.core.walls import Walls, wrap_up_at
from tests.core.playbook import LEASE_S, TOTAL, uid
from tests.core.playrunner import HERE, IDLE, SAVED, Exit, Machine, granted, idle, input_, news

TOOK = r.Consumed(input_id=uid("m1"))


def limits(**more: float) -> dict[str, float]:
    return TOTAL | more


def spent(usd: float, tokens: int = 1000) -> r.Spent:
    return r.Spent(usd=usd, tokens=tokens, model="m")


def at_work(*more: Any, **limited: float) -> Machine:
    """The runtime works on `m1`; others wait."""
    machine = idle(input_("m1", 2), *more, limits=limits(**limited))
    machine << r.Busy()
    machine << TOOK
    return machine


def alive(machine: Machine, seconds: float) -> list[str]:
    """Time passes, and the lease is renewed; the effects of the last moment."""
    while seconds > LEASE_S / 4:
        seconds -= LEASE_S / 4
        assert machine.after(LEASE_S / 4) in ([], ["capture 2"], ["capture 3"]), machine.effects
        machine.renewed()
        machine << r.Spoke(text="still here")
    return machine.after(seconds)


def test_the_coding_agent_is_told_before_the_budget_ends_and_once() -> None:
    machine = at_work(budget_usd=1.0)
    assert machine << spent(0.8) == []
    (told,) = machine << spent(0.12)
    assert told.startswith("steer From bide, not from a person")
    assert "0.92 USD" in told
    assert machine << spent(0.01) == []
    assert [note.code for note in machine.facts(f.Note)] == ["wall_near"]


def test_news_that_move_no_wall_tell_of_it_no_second_time() -> None:
    machine = at_work(budget_usd=1.0)
    machine << spent(0.92)
    assert machine << news(input_("m2", 3), walls=Walls(limits(budget_usd=1.0), 0.0, 0, 0.0).limits) == []
    assert machine << spent(0.01) == []
    assert machine << news(walls=Walls(limits(budget_usd=1.1), 0.0, 0, 0.0).limits) == []
    (told,) = machine << spent(0.07)
    assert "1.0" in told, "it is near another wall"


def test_the_coding_agent_is_told_before_its_time_ends_and_once() -> None:
    machine = at_work(working_s=400.0)
    assert wrap_up_at(400.0) == 280
    (told,) = alive(machine, 280)
    assert told.startswith("steer From bide")
    assert alive(machine, 100) == []
    assert alive(machine, 20) == ["interrupt"]


def test_a_word_about_the_wall_never_overtakes_the_message_that_opens_a_turn() -> None:
    machine = at_work(budget_usd=1.0)
    machine << IDLE
    assert "deliver m2" in machine << news(input_("m2", 9))
    assert machine << spent(0.95) == []
    (told,) = machine << r.Consumed(input_id=uid("m2"))
    assert told.startswith("steer From bide")


def test_a_runtime_that_takes_no_word_in_a_turn_is_told_with_the_next_message() -> None:
    machine = Machine()
    for event in (granted(input_("m1", 2), input_("m2", 3), limits=limits(budget_usd=1.0)), HERE, SAVED):
        machine << event
    machine << r.Ready(version="1", runtime_session_id="x", rung="new")
    machine << TOOK
    assert machine << spent(0.95) == []
    machine << IDLE
    assert "0.95 USD of the 1.00 USD" in machine.order().preamble


def test_a_turn_at_the_wall_is_stopped_and_nothing_new_begins() -> None:
    machine = at_work(input_("m2", 3), budget_usd=1.0)
    assert machine << spent(1.1) == ["interrupt"]
    (error,) = machine.facts(f.Error)
    assert (error.code, "1.10 USD of 1.00 USD" in error.sentence) == ("over_budget", True)
    assert "deliver m2" not in machine << r.Idle(result="interrupted")
    assert machine << news(input_("m3", 9)) == []
    assert [lease.held for lease in machine.runner.held()] == [2]


def test_a_runtime_that_ignores_the_wall_is_ended_and_not_started_again() -> None:
    machine = at_work(budget_usd=1.0)
    machine << spent(2.0)
    assert machine.after(INTERRUPT_S) == ["stop by force"]
    assert "spawn" not in machine << Exit(("m1",))


def test_a_turn_that_wraps_up_in_time_is_not_interrupted() -> None:
    machine = at_work(budget_usd=1.0)
    machine << spent(0.95)
    assert "interrupt" not in machine << IDLE
    assert [turn.result for turn in machine.facts(f.TurnEnded)] == ["completed"]


def test_a_turn_that_ended_past_the_wall_by_itself_is_the_last_one() -> None:
    machine = at_work(input_("m2", 3), budget_usd=1.0)
    machine << spent(1.0)
    machine << IDLE
    assert [turn.result for turn in machine.facts(f.TurnEnded)] == ["completed"]
    assert [fact.input_ids for fact in machine.facts(f.TurnStarted)] == [(uid("m1"),)]


def test_a_session_that_finishes_with_its_last_cent_has_finished() -> None:
    machine = at_work(budget_usd=1.0)
    machine << e.Finish(summary="done")
    machine << spent(1.1)
    assert machine << IDLE == ["stop"]
    machine << Exit(("m1",))
    machine << SAVED
    assert [ended.outcome for ended in machine.facts(f.Ended)] == ["completed"]
    assert not machine.facts(f.Error)


def test_a_turn_that_has_asked_to_finish_and_goes_on_is_stopped_at_its_wall_all_the_same() -> None:
    machine = at_work(budget_usd=1.0)
    machine << e.Finish(summary="done")
    assert machine << spent(0.5) == []
    assert machine << spent(0.6) == ["interrupt"]
    assert machine.after(INTERRUPT_S) == ["stop by force"]
    assert "spawn" not in machine << Exit(("m1",))
    assert [error.code for error in machine.facts(f.Error)] == ["over_budget"]
    assert machine.facts(f.Ended) == [], "people decide whether it is done"


def test_what_one_long_turn_spends_is_seen_before_it_ends() -> None:
    machine = at_work(budget_usd=1.0)
    assert machine << r.Metered(tokens=int(0.5 / TOKEN_USD_GUESS)) == []
    assert machine << r.Metered(tokens=int(0.6 / TOKEN_USD_GUESS)) == ["interrupt"]
    assert "about" in machine.facts(f.Error)[0].sentence


def test_what_was_guessed_is_replaced_by_what_it_really_cost_and_by_its_price() -> None:
    walls = Walls(limits(budget_usd=1.0), 0.0, 0, 0.0)
    walls.heard(r.Metered(tokens=100_000))
    assert walls.usd == pytest.approx(100_000 * TOKEN_USD_GUESS)
    walls.heard(spent(0.1, 100_000))
    assert walls.usd == pytest.approx(0.1)
    walls.heard(r.Metered(tokens=50_000))
    assert walls.usd == pytest.approx(0.15)


def test_a_bill_of_the_runtime_pays_only_for_what_it_covers() -> None:
    walls = Walls(limits(budget_usd=1.0), 0.0, 0, 0.0)
    walls.heard(r.Metered(tokens=100_000))  # its own
    walls.heard(r.Metered(tokens=300_000))  # a program's in the background, of which it knows nothing
    walls.heard(spent(0.1, 100_000))
    assert walls.usd == pytest.approx(0.4)


def test_the_end_of_an_answer_that_is_seen_after_its_bill_is_not_paid_twice() -> None:
    walls = Walls(limits(budget_usd=1.0), 0.0, 0, 0.0)
    walls.heard(spent(0.1, 100_000))
    walls.heard(r.Metered(tokens=100_000))
    assert walls.usd == pytest.approx(0.1)


def test_a_bill_for_what_nobody_saw_pays_nothing_of_the_next_turn() -> None:
    walls = Walls(limits(budget_usd=1.0), 0.0, 0, 0.0)
    walls.look(0.0, turn_open=True)
    walls.heard(spent(0.1, 100_000))
    walls.look(1.0, turn_open=False)
    walls.look(2.0, turn_open=True)
    walls.heard(r.Metered(tokens=100_000))
    assert walls.usd == pytest.approx(0.2)


def test_a_session_without_a_budget_may_cost_whatever_it_costs() -> None:
    machine = at_work()
    assert machine << spent(1e5) == []
    assert machine << r.Metered(tokens=10**12) == []


def test_the_time_that_a_session_was_frozen_is_no_work() -> None:
    machine = at_work(working_s=400.0)
    machine.after(80)
    machine.after(FROZEN_S / 2)
    assert "thaw" in machine.renewed()
    assert alive(machine, 100) == []


def test_waiting_between_turns_is_no_work_on_the_runner() -> None:
    machine = at_work(working_s=400.0)
    alive(machine, 100)
    machine << IDLE
    machine << SAVED
    for _ in range(20):
        machine.after(LEASE_S / 2)
        machine.renewed()
    assert "deliver m2" in machine << news(input_("m2", 9))


def test_the_time_and_money_of_another_runner_count() -> None:
    machine = idle(input_("m1", 2), limits=limits(working_s=400.0, budget_usd=5.0), worked_s=390.0, usd=1.0)
    machine << r.Busy()
    machine << TOOK
    assert alive(machine, 10)[-1] == "interrupt"
    machine = Machine()
    machine << granted(input_("m1", 2), limits=limits(budget_usd=5.0), usd=5.5, tokens=10, turn=3)
    machine << HERE
    assert [error.code for error in machine.facts(f.Error)] == ["over_budget"]
    assert machine << SAVED == []


def test_a_raised_budget_goes_on_where_it_stopped() -> None:
    machine = at_work(input_("m2", 3), budget_usd=1.0)
    machine << spent(1.1)
    machine << r.Idle(result="interrupted")
    machine << SAVED
    assert machine << news(freed=2, walls=(2.0, DAY)) == ["deliver m2"]


def test_a_budget_that_is_raised_in_time_is_not_felt() -> None:
    machine = at_work(budget_usd=1.0)
    machine << spent(0.95)
    machine << news(walls=(10.0, DAY))
    assert machine << spent(1.0) == []


def test_a_runner_of_a_server_that_knows_no_walls_stops_nothing() -> None:
    machine = idle(input_("m1", 2), limits=limits(budget_usd=1.0), freed=None)
    machine << r.Busy()
    machine << TOOK
    assert machine << spent(3.0) == []
    machine << IDLE
    assert "deliver m2" in machine << news(input_("m2", 9))
    assert [lease.walls for lease in machine.runner.held()] == [None]


def test_a_machine_at_work_wakes_for_its_wall_and_not_before() -> None:
    machine = at_work(working_s=60.0)
    wake = machine.runner.next_wake()
    assert wake == pytest.approx(30.0)
    assert machine.after(30.0)[0].startswith("steer")
    assert machine.runner.next_wake() == pytest.approx(60.0)
    machine.after(30.0)
    after = machine.runner.next_wake()
    assert after is not None
    assert after > machine.now


def test_the_notice_is_never_more_than_half_of_the_time_and_never_longer_than_needed() -> None:
    assert (wrap_up_at(60), wrap_up_at(240), wrap_up_at(HOUR), wrap_up_at(DAY)) == (30, 120, HOUR - 360, DAY - 600)
