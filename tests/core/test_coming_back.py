"""What people would lose of what they, or their coding agent, had asked for just when a runner's process died."""

from __future__ import annotations

from bide.core import commands as c
from bide.core import effects as e
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.limits import CALLS_MAX, FROZEN_S, MADE_MAX, RESEND_S
from tests.core.playbook import LEASE_S, Story, resume, uid, waiting, working
from tests.core.playrunner import IDLE, READY, SAVED, Exit, Machine, busy, feed, granted, input_, news

WARM = e.Restored(source="warm", workspace=f.Workspace(repository="repo"), memory=frozenset({uid("m1")}))
HALFWAY = e.Restored(source="checkpoint", workspace=f.Workspace(repository="repo"), memory=frozenset({uid("m1")}))


def test_a_turn_that_was_cut_off_goes_on_elsewhere_when_the_runner_that_took_it_up_drains() -> None:
    machine = busy()
    machine.restart()
    machine.adopted()
    machine.drain()
    assert feed(machine, (WARM, SAVED)) == ["release warm"]
    (parked,) = machine.facts(f.Parked)
    assert parked.go_on


def test_a_turn_that_was_cut_off_goes_on_elsewhere_when_the_drain_comes_while_its_runtime_starts() -> None:
    machine = busy()
    machine.restart()
    machine.adopted()
    feed(machine, (WARM, SAVED))
    assert machine.drain() == ["stop"]
    feed(machine, (Exit(memory=("m1",)), SAVED))
    (parked,) = machine.facts(f.Parked)
    assert parked.go_on


def test_a_restored_turn_without_an_end_goes_on_elsewhere_when_the_runner_drains() -> None:
    machine = Machine()
    machine << granted(input_("m1", 2))
    machine.drain()
    feed(machine, (HALFWAY, SAVED))
    (parked,) = machine.facts(f.Parked)
    assert parked.go_on


def test_a_park_that_was_asked_for_by_the_server_does_not_wake_the_session_again() -> None:
    machine = busy()
    machine.restart()
    machine.adopted()
    feed(machine, (WARM, SAVED, news(epoch=2, parking="asked by ann"), Exit(memory=("m1",)), SAVED))
    (parked,) = machine.facts(f.Parked)
    assert not parked.go_on


def test_a_session_that_had_finished_ends_though_its_runner_died_while_it_was_saved() -> None:
    machine = busy()
    feed(machine, (e.Finish(summary="All done."), IDLE))
    machine.restart()
    machine.adopted()
    feed(machine, (WARM, SAVED))
    (ended,) = machine.facts(f.Ended)
    assert (ended.outcome, ended.summary) == ("completed", "All done.")
    assert machine.runner.runs == {}


def test_a_finish_asked_for_in_a_turn_that_was_cut_off_does_not_end_the_session() -> None:
    machine = busy()
    machine << e.Finish(summary="All done.")
    machine.restart()
    machine.adopted()
    assert "spawn" in machine << WARM
    assert machine.facts(f.Ended) == []


def test_a_turn_that_a_person_stopped_while_its_runner_was_dead_stays_stopped() -> None:
    machine = busy()
    machine.restart()
    machine.adopted(input_("stop", 9, type="user.interrupt"))
    feed(machine, (WARM, SAVED, READY))
    assert not [effect for effect in machine.effects if isinstance(effect, e.Tell)], "it was told to go on"
    assert machine.receipts("stop") == ["consumed"]
    assert machine.facts(f.Receipt)[-1].how == "stopped turn 1"


def test_a_turn_that_a_drain_had_stopped_stays_so_when_a_person_stops_it_too() -> None:
    machine = busy()
    machine.drain()
    machine.runner.interrupt_all(machine.now)
    machine << r.Idle(result="interrupted")
    machine << news(input_("stop", 9, type="user.interrupt"))
    feed(machine, (Exit(memory=("m1",)), SAVED))
    (parked,) = machine.facts(f.Parked)
    assert not parked.go_on


def test_a_resume_that_waited_for_a_park_which_a_crash_undid_does_not_wake_the_session_later() -> None:
    story: Story = waiting()
    story.after(61)
    story << c.Wake()
    assert story.s.parking
    story << resume()
    assert [p.type for p in story.s.inputs] == ["user.resume"]
    adopt = c.Adopt(runner="r1", runner_name="r1", boot="2", epoch=1, of=1, was_boot="1", lease_s=LEASE_S)
    assert story << adopt == ["session.leased", "user.receipt"]
    assert not story.s.inputs


def test_only_the_runner_that_was_granted_a_lease_hears_of_it_again() -> None:
    story = waiting()
    story << c.Adopt(runner="r1", runner_name="r1", boot="2", epoch=1, of=1, was_boot="1", lease_s=LEASE_S)
    other = c.Adopt(runner="r2", runner_name="r2", boot="2", epoch=1, of=1, was_boot="1", lease_s=LEASE_S)
    assert story << other == "no: fenced"


def test_a_runner_that_never_heard_of_its_new_lease_may_ask_again_when_that_ran_out() -> None:
    story = working()
    adopt = c.Adopt(runner="r1", runner_name="r1", boot="2", epoch=1, of=1, was_boot="1", lease_s=LEASE_S)
    assert story << adopt == ["session.leased"]
    assert story.after(LEASE_S) == ["session.interrupted"]
    assert story << adopt == ["session.leased"]
    assert (story.s.epoch, story.s.adopted_from) == (3, 1)


def test_a_turn_that_was_cut_off_goes_on_though_its_runner_died_twice() -> None:
    machine = busy()
    machine.restart()
    machine.adopted()
    feed(machine, (WARM, SAVED))
    machine.restart()
    machine.adopted()
    feed(machine, (WARM, READY))
    assert "Check what the last command did, then go on." in machine.order().text


def test_what_was_saved_while_the_server_was_away_is_told_however_late_it_comes_back() -> None:
    machine = busy()
    feed(machine, (IDLE, SAVED, news(parking="the window is over"), Exit(memory=("m1",))))
    machine.away = True
    assert "freeze" in machine.after(LEASE_S)
    machine << SAVED
    assert machine.after(2 * FROZEN_S) == []
    machine.away = False
    assert machine.after(RESEND_S) == ["release warm"]
    assert machine.said[-1] == "session.parked"


def test_a_runtime_that_calls_tools_for_ever_does_not_make_each_word_cost_more_disk() -> None:
    machine = busy()
    for n in range(2 * CALLS_MAX):
        if n % MADE_MAX == 0:
            name = f"m{n + 2}"  # one turn records no more
            feed(machine, [IDLE, SAVED, news(input_(name, n + 9)), r.Consumed(input_id=uid(name))])
        machine << e.Assumed(key=f"call {n}", text="it is so")
    made = machine.made
    machine << e.Assumed(key=f"call {2 * CALLS_MAX - 1}", text="it is so")
    assert machine.made == made, "a repeated call makes nothing new"
    left = machine.spool.left()
    assert left is not None
    assert len(left.kept.made) == CALLS_MAX
