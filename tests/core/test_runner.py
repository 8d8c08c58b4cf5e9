"""The runner's machine: it believes its lease less than the server does, and says everything once, in order."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core import effects as e
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.limits import FROZEN_S, INTERRUPT_S, RESEND_S, SPAWN_S
from tests.core.playbook import LEASE_S, uid
from tests.core.playrunner import (
    HERE,
    IDLE,
    READY,
    SAVED,
    Exit,
    Machine,
    Recalled,
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
WARM = e.Restored(source="warm", workspace=f.Workspace(), memory=frozenset({uid("m1")}))


# -- leases -----------------------------------------------------------------------------------------------------------


def test_a_grant_starts_one_session_and_a_doubled_one_nothing() -> None:
    machine = Machine()
    assert machine << granted() == ["restore"]
    assert machine << granted() == []


def test_a_late_grant_of_an_old_epoch_never_raises_a_second_runtime() -> None:
    machine = idle(epoch=2)
    assert machine.gone() == ["stop by force", "release salvage"]
    assert machine << granted(epoch=1) == []
    assert machine << granted(epoch=2) == []
    assert machine << granted(epoch=3) == ["restore"]


def test_a_grant_that_travelled_too_long_is_dead_on_arrival_because_time_counts_from_the_question() -> None:
    machine = Machine()
    machine.now = 1000.0
    assert machine.granted(granted(), ago=80) == []
    assert machine.granted(granted(), ago=79) == ["restore"]
    assert machine.after(1) == ["freeze"]


def test_a_newer_grant_ends_what_ran_under_the_older_one_first() -> None:
    machine = idle()
    assert machine << granted(epoch=2) == ["stop by force", "release salvage", "restore"]


def test_a_session_in_doubt_freezes_well_before_the_server_could_give_it_away() -> None:
    machine = busy()
    assert machine.after(79) == []
    assert machine.after(1) == ["freeze"]
    assert machine.after(1) == []


def test_a_renewal_before_the_end_keeps_it_going() -> None:
    machine = busy()
    machine.after(70)
    machine.renewed(ago=5)
    assert machine.after(74) == []
    assert machine.after(1) == ["freeze"]


def test_a_frozen_session_thaws_with_nothing_lost_when_its_lease_is_renewed() -> None:
    machine = busy()
    machine.after(80)
    assert machine.renewed() == ["thaw"]
    machine << IDLE
    assert machine.said[-2:] == ["turn.ended", "checkpoint.saved"] or machine.said[-1] == "turn.ended"


def test_a_renewal_that_came_too_late_to_believe_thaws_nothing() -> None:
    machine = busy()
    machine.after(80)
    assert machine.renewed(ago=LEASE_S) == []


def test_a_frozen_session_does_nothing_new_until_it_is_thawed() -> None:
    machine = idle()
    machine.after(80)
    assert machine << news(input_("m2", 5)) == []
    assert machine << PARK == []
    assert machine.renewed() == ["thaw", "stop"]


def test_another_runners_lease_ends_it_and_keeps_the_folder() -> None:
    machine = busy()
    machine.after(80)
    assert machine.gone() == ["stop by force", "release salvage"]
    assert machine << TOOK == []
    assert machine << SAVED == []


def test_a_word_about_another_epoch_changes_nothing() -> None:
    machine = idle(epoch=2)
    machine.epoch = 1
    assert machine.gone() == []
    assert machine << news(input_("m", 9), epoch=1) == []
    assert machine << SAVED == []
    assert machine << Exit() == []


def test_a_frozen_session_is_not_kept_in_memory_for_ever() -> None:
    machine = busy()
    machine.after(80)
    assert machine.after(FROZEN_S)[-2:] == ["stop by force", "release left"]


def test_a_server_that_was_away_for_a_day_costs_a_frozen_session_nothing_but_its_runtime() -> None:
    machine = busy()
    machine.away = True
    machine << r.Spoke(text="nobody heard this yet")
    machine.after(80)
    machine.after(FROZEN_S)
    machine.away = False
    assert not machine.runner.held()
    machine.adopted()
    machine << WARM
    assert [fact.text for fact in machine.facts(f.AssistantMessage)] == ["nobody heard this yet"]
    assert [fact.result for fact in machine.facts(f.TurnEnded)] == ["interrupted"]


def test_a_runner_that_cannot_make_a_workspace_gives_the_lease_back_with_the_reason() -> None:
    machine = Machine()
    machine << granted(input_("m1", 2))
    assert machine._done(machine.runner.give_back("s", 1, "its disk is full"))[-1] == "release salvage"
    assert [back.reason for back in machine.runner.returned.values()] == ["its disk is full"]
    assert machine._done(machine.runner.give_back("s", 1, "again")) == []


def test_a_reason_in_bytes_that_are_no_text_does_not_end_the_talk_with_the_server() -> None:
    machine = Machine()
    machine << granted(input_("m1", 2))
    machine._done(machine.runner.give_back("s", 1, "no room for caf\udce9.txt"))
    assert b"no room for caf" in msgspec.json.encode(tuple(machine.runner.returned.values()))


def test_a_fenced_report_ends_the_runtime() -> None:
    machine = busy()
    assert machine._done(machine.runner.fenced("s", 1)) == ["stop by force", "release salvage"]


# -- facts ------------------------------------------------------------------------------------------------------------


def test_unacknowledged_facts_are_sent_again_and_arrive_once() -> None:
    machine = busy()
    machine.deaf = True
    machine << r.Spoke(text="hello")
    machine << r.Spoke(text="again")
    machine.after(RESEND_S)
    machine.deaf = False
    machine.after(RESEND_S)
    assert [fact.text for fact in machine.facts(f.AssistantMessage)] == ["hello", "again"]


def posts(effects: list[e.Effect]) -> list[e.Post]:
    return [effect for effect in effects if isinstance(effect, e.Post)]


def test_one_batch_is_under_way_at_a_time() -> None:
    machine = busy()
    (first,) = posts(machine.runner.heard("s", 1, r.Spoke(text="a"), 0.0))
    assert posts(machine.runner.heard("s", 1, r.Spoke(text="b"), 0.0)) == []
    (post,) = posts(machine.runner.acked("s", 1, first.first + 1, 0.0))
    assert [fact.text for fact in post.facts if isinstance(fact, f.AssistantMessage)] == ["b"]


def test_an_acknowledgement_of_part_of_a_batch_leaves_the_rest_to_be_sent() -> None:
    machine = busy()
    machine.deaf = True
    (first,) = posts(machine.runner.heard("s", 1, r.Spoke(text="a"), 0.0))
    for text in ("b", "c"):
        machine << r.Spoke(text=text)
    (post,) = posts(machine.runner.acked("s", 1, first.first + 2, 0.0))
    assert (post.first, len(post.facts)) == (first.first + 2, 1)


# -- delivery ---------------------------------------------------------------------------------------------------------


def test_messages_are_delivered_one_at_a_time_in_order() -> None:
    machine = idle(input_("m1", 2), input_("m2", 3))
    assert [fact.input_ids for fact in machine.facts(f.TurnStarted)] == [(uid("m1"),)]
    machine << TOOK
    assert machine << IDLE == ["capture 2", "deliver m2"]
    assert machine.receipts("m1") == ["delivered", "consumed"]
    assert machine.receipts("m2") == ["delivered"]


def test_a_message_during_a_turn_waits_for_its_end() -> None:
    machine = busy()
    assert machine << news(input_("m2", 5)) == []
    assert "deliver m2" in machine << IDLE


def test_redirects_go_before_steers_and_steers_before_the_rest() -> None:
    machine = Machine()
    machine << granted(input_("late", 2), input_("steer", 3, "steer"), input_("redirect", 4, "interrupt"))
    machine << HERE
    machine << SAVED
    order = [*(machine << replace(READY, capabilities=r.Capabilities(steer=False)))]
    for name in ("redirect", "steer"):
        machine << r.Consumed(input_id=uid(name))
        order += [word for word in machine << IDLE if word.startswith("deliver")]
    assert order == ["deliver redirect", "deliver steer", "deliver late"]


def test_a_steer_joins_the_running_turn_where_the_runtime_can() -> None:
    machine = busy()
    assert machine << news(input_("s", 5, "steer")) == ["steer s"]
    machine << r.Consumed(input_id=uid("s"))
    (delivered, _) = [x for x in machine.facts(f.Receipt) if x.input_id == uid("s")]
    assert delivered.how == "steer"


def test_a_steer_waits_for_the_turns_end_where_the_runtime_cannot_and_the_receipt_says_so() -> None:
    machine = idle(input_("m1", 2))
    machine.runner.runs["s"].can = r.Capabilities(steer=False)
    machine << TOOK
    assert machine << news(input_("s", 5, "steer")) == []
    assert "deliver s" in machine << IDLE
    (delivered,) = [x for x in machine.facts(f.Receipt) if x.input_id == uid("s")]
    assert delivered.how == "next_turn"


def test_a_redirect_stops_the_turn_and_is_the_next_word() -> None:
    machine = busy()
    machine << news(input_("later", 4))
    assert machine << news(input_("redirect", 5, "interrupt")) == ["interrupt"]
    assert "deliver redirect" in machine << r.Idle(result="interrupted")
    assert machine.facts(f.TurnEnded)[0].result == "interrupted"


def test_an_interrupt_stops_the_turn_and_what_is_queued_stays() -> None:
    machine = busy()
    machine << news(input_("m2", 5))
    assert machine << news(input_("i", 6, type="user.interrupt")) == ["interrupt"]
    assert "deliver m2" in machine << r.Idle(result="interrupted")
    assert machine.receipts("i") == ["delivered", "consumed"]


def test_an_interrupt_can_drop_what_was_queued_before_it() -> None:
    machine = busy()
    machine << news(input_("m2", 5), input_("i", 6, type="user.interrupt", drop_queued=True), input_("m3", 7))
    assert machine.receipts("m2") == ["withdrawn"]
    assert "deliver m3" in machine << r.Idle(result="interrupted")


def test_an_interrupt_of_an_idle_runtime_is_settled_at_once() -> None:
    machine = idle()
    assert machine << news(input_("i", 6, type="user.interrupt")) == []
    assert machine.receipts("i") == ["consumed"]


def test_a_runtime_that_ignores_an_interrupt_is_ended() -> None:
    machine = busy()
    machine << news(input_("i", 6, type="user.interrupt"))
    assert machine.after(INTERRUPT_S) == ["stop by force"]
    assert machine << Exit(("m1",)) == ["capture 2", "spawn"]
    assert machine.receipts("i") == ["delivered", "consumed"]
    assert machine.facts(f.TurnEnded)[0].result == "interrupted"


def test_news_heard_twice_is_one_input() -> None:
    machine = busy()
    machine << news(input_("m2", 5))
    machine << news(input_("m2", 5))
    machine << IDLE
    machine << r.Consumed(input_id=uid("m2"))
    assert "deliver m2" not in machine << IDLE


# -- the runtime dies -------------------------------------------------------------------------------------------------


def test_an_input_told_to_a_runtime_that_died_before_taking_it_is_told_again() -> None:
    machine = idle(input_("m1", 2))
    assert machine << Exit(()) == ["capture 2", "spawn"]
    assert machine << SAVED == []
    assert machine << READY == ["deliver m1"]
    assert machine.receipts("m1") == ["delivered", "accepted", "delivered"]


def test_an_input_that_the_dead_runtime_had_taken_is_never_told_again() -> None:
    machine = idle(input_("m1", 2))
    machine << Exit(("m1",))
    assert "deliver m1" not in machine << READY
    assert machine.receipts("m1") == ["delivered", "consumed"]


def test_an_input_whose_fate_cannot_be_read_is_shown_as_unconfirmed_and_not_replayed() -> None:
    machine = idle(input_("m1", 2))
    machine << Exit(None)
    assert "deliver m1" not in machine << READY
    assert machine.receipts("m1") == ["delivered", "unconfirmed"]


def test_a_turn_whose_runtime_never_showed_the_input_leaves_it_unconfirmed() -> None:
    machine = idle(input_("m1", 2))
    machine << IDLE
    machine << Recalled(None)
    assert machine.receipts("m1") == ["delivered", "unconfirmed"]


def dies_again_and_again(**more: Any) -> Machine:
    machine = idle(input_("m1", 2), **more)
    for _ in range(2):
        assert "spawn" in machine << Exit(())
        machine << READY
    assert machine << Exit((), reason="segfault") == []
    machine << SAVED
    assert machine << SAVED == ["release warm"]
    assert machine.facts(f.Error)[0].code == "runtime_failed"
    return machine


def test_a_runtime_that_keeps_dying_parks_the_session_with_the_reason_and_leaves_its_message_untold() -> None:
    machine = dies_again_and_again()
    assert "segfault" in machine.facts(f.Parked)[0].reason
    assert machine.receipts("m1")[-1] == "accepted"


def test_a_runtime_that_keeps_dying_fails_the_session_where_the_server_would_give_it_out_again_at_once() -> None:
    ended = dies_again_and_again(freed=None).facts(f.Ended)[0]
    assert (ended.outcome, "segfault" in ended.summary) == ("failed", True)


def test_a_turn_that_works_forgets_earlier_deaths() -> None:
    machine = idle(input_("m1", 2))
    for _ in range(2):
        machine << Exit(())
        machine << READY
    feed(machine, [TOOK, IDLE, Exit(("m1",))])
    assert machine.facts(f.Ended) == []


def test_a_runtime_that_does_not_start_is_ended_and_started_again() -> None:
    machine = Machine()
    feed(machine, [granted(input_("m1", 2)), HERE, SAVED])
    assert machine.after(SPAWN_S) == ["stop by force"]
    assert machine << Exit(()) == ["spawn"]


def test_the_late_word_of_a_dead_runtime_is_not_heard() -> None:
    machine = Machine()
    machine << granted()
    assert machine << r.Spoke(text="from beyond") == []
    assert machine.log == []
