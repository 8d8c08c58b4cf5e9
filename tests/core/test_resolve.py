"""Doubt: whether the runtime got an input is looked up before anybody is asked, and then a person decides, once."""

from __future__ import annotations

from typing import Literal

import pytest
from msgspec.structs import replace

from bide.core import commands as c
from bide.core import effects as e
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.lease import job_of
from bide.core.limits import RECALL_S, RECALLED_S
from bide.core.session import in_doubt
from bide.core.words import words
from tests.core.playbook import DONE, LEASE_S, Story, began, cancel, rewind, say, uid, waiting
from tests.core.playrunner import IDLE, SAVED, Exit, Machine, Recalled, busy, granted, idle, input_, news

STOPPED = r.Idle(result="interrupted")
UNSURE = f.Receipt(input_id=uid("m"), status="unconfirmed", turn=2)


def resolve(choice: Literal["again", "delivered"], name: str = "m", by: str = "ann", key: str = "resolve") -> c.Resolve:
    return c.Resolve(id=uid(key), author=by, input_id=uid(name), choice=choice)


def doubting(*, saved: bool = False) -> Story:
    """A message was told in turn 2, and nobody knows whether it arrived."""
    story = waiting()
    story << say("m", "deploy")
    story << (began("m"), f.Receipt(input_id=uid("m"), status="delivered", turn=2), UNSURE, DONE)
    if saved:
        story << (story.saves(),)
    return story


# -- looked for first -------------------------------------------------------------------------------------------------


def test_an_input_in_doubt_is_looked_for_before_anybody_is_asked() -> None:
    machine = idle(input_("m1", 2), input_("m2", 3))
    assert machine << IDLE == ["recall"]
    assert machine.receipts("m1") == ["delivered"]
    assert "deliver m2" in machine << Recalled(("m1",))
    assert machine.receipts("m1") == ["delivered", "consumed"]


def test_what_stands_in_no_conversation_is_told_again_once_and_then_asked_about() -> None:
    machine = idle(input_("m1", 2))
    machine << IDLE
    assert machine << Recalled(()) == [], "it may be on its way"
    assert "deliver m1" in machine.after(RECALLED_S)
    machine << IDLE
    machine << Recalled(())
    assert "deliver m1" not in machine.after(RECALLED_S)
    assert machine.receipts("m1") == ["delivered", "accepted", "delivered", "unconfirmed"]


def test_a_conversation_that_cannot_be_read_leaves_the_doubt_to_a_person() -> None:
    machine = idle(input_("m1", 2))
    machine << IDLE
    assert "deliver m1" not in machine << Recalled(None)
    assert machine.receipts("m1") == ["delivered", "unconfirmed"]


def test_a_look_that_never_ends_holds_nothing_up() -> None:
    machine = idle(input_("m1", 2), input_("m2", 3))
    machine << IDLE
    assert machine.after(RECALL_S - 1) == []
    assert "deliver m2" in machine.after(1)
    assert machine << Recalled(("m1",)) == []
    assert machine.receipts("m1") == ["delivered", "unconfirmed"]


def test_a_look_that_took_too_long_says_nothing_about_the_turn_after_it() -> None:
    machine = idle(input_("m1", 2), input_("m2", 3))
    machine << IDLE
    late = machine.recall
    assert late is not None
    machine.after(RECALL_S)  # m1 is doubted, m2 is told
    assert machine << IDLE == ["recall"]
    assert machine.runner.recalled(late, frozenset(), machine.now) == []
    machine << Recalled(("m2",))
    assert machine.receipts("m2") == ["delivered", "consumed"]


def test_a_message_that_opens_a_turn_by_itself_is_not_told_again_and_ends_no_other_turn() -> None:
    machine = busy()
    machine << news(input_("s", 2, delivery="steer"), input_("m", 3))
    assert machine << IDLE == ["recall"]
    assert machine << Recalled(()) == []
    machine << r.Busy()
    machine << r.Consumed(input_id=uid("s"), alone=True)
    assert machine.after(RECALLED_S) == []
    assert machine.receipts("s") == ["delivered", "consumed"]
    assert "deliver m" in machine << IDLE
    machine << r.Consumed(input_id=uid("m"))
    machine << IDLE
    assert machine.receipts("m") == ["delivered", "consumed"]
    assert [fact.result for fact in machine.facts(f.TurnEnded)] == ["completed"] * 3


def test_what_an_interrupt_kept_from_the_runtime_is_not_told_again_by_itself() -> None:
    machine = idle(input_("m1", 2))
    machine << news(input_("i", 5, type="user.interrupt"))
    machine << STOPPED
    machine << Recalled(())
    assert "deliver m1" not in machine.after(RECALLED_S)
    assert machine.receipts("m1") == ["delivered", "unconfirmed"]


def test_a_runtime_that_dies_while_one_looks_has_ended_its_turn_all_the_same() -> None:
    machine = idle(input_("m1", 2))
    machine << IDLE
    machine << Exit(("m1",))
    assert machine.receipts("m1") == ["delivered", "consumed"]
    assert [x.result for x in machine.facts(f.TurnEnded)] == ["completed"]
    assert machine << Recalled(()) == []


def test_what_a_conversation_holds_that_was_saved_in_mid_delivery_is_not_called_left_behind() -> None:
    """Abandoned by a rewind to a checkpoint that does not name it, and yet the conversation that came back contains it."""
    machine = busy()
    machine << IDLE
    machine << SAVED
    saved = machine.facts(f.CheckpointSaved)[-1].checkpoint
    back = Machine()
    back << granted(checkpoint=replace(saved, told=(uid("m2"), uid("m3"))), resumed=True)
    back << e.Restored(source="checkpoint", workspace=f.Workspace(), memory=frozenset(map(uid, ("m1", "m2"))))
    assert (back.receipts("m1"), back.receipts("m2"), back.receipts("m3")) == ([], ["consumed"], [])


def test_a_checkpoint_begun_in_mid_delivery_names_what_was_on_its_way() -> None:
    machine = idle(input_("m1", 2))
    machine << r.Busy()
    machine.now += 700
    machine.renewed()
    assert "capture 2" in machine.after(1)
    machine << SAVED
    assert machine.facts(f.CheckpointSaved)[-1].checkpoint.told == (uid("m1"),)


def test_nothing_is_saved_or_parked_while_one_looks() -> None:
    machine = idle(input_("m1", 2))
    machine << IDLE
    assert machine << news(parking="it waited") == []
    assert "stop" in machine << Recalled(("m1",))


# -- a person decides -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("saved", [False, True], ids=["not saved yet", "settled by a checkpoint"])
def test_a_doubt_waits_for_a_person_and_says_so(saved: bool) -> None:
    story = doubting(saved=saved)
    assert [p.id for p in in_doubt(story.s)] == [uid("m")]
    assert (words(story.s).must_act, "bide resolve" in words(story.s).next_step) == ("human", True)


@pytest.mark.parametrize("saved", [False, True], ids=["not saved yet", "settled by a checkpoint"])
def test_it_was_delivered_is_never_told_again(saved: bool) -> None:
    story = doubting(saved=saved)
    assert story << resolve("delivered") == ["user.resolve", "user.receipt", "user.receipt"]
    assert (story.fate("m"), story.row("m").how) == ("consumed", "ann says that it was delivered")
    assert in_doubt(story.s) == ()
    story << (story.saves(),)
    story.after(LEASE_S)
    story.after(60)
    assert story.fate("m") == "consumed"


def test_it_was_delivered_is_told_again_after_a_rollback_to_before_it() -> None:
    story = doubting()
    story << resolve("delivered")
    story.after(LEASE_S)
    story.after(60)
    assert story.fate("m") == "accepted"


@pytest.mark.parametrize("saved", [False, True], ids=["not saved yet", "settled by a checkpoint"])
def test_delivered_again_waits_for_the_runner_that_has_the_session(saved: bool) -> None:
    story = doubting(saved=saved)
    assert story << resolve("again") == ["user.resolve", "user.receipt"]
    (order,) = [p for p in job_of(story.s).inputs if p.type == "user.resolve"]
    assert (order.text, order.target) == ("deploy", uid("m"))
    assert in_doubt(story.s) == (), "somebody has said it"
    story << (f.Receipt(input_id=uid("m"), status="accepted", code="again"),)
    assert (story.fate("m"), story.fate("resolve")) == ("accepted", "consumed")
    story << (began("m"), f.Receipt(input_id=uid("m"), status="delivered", turn=3))
    assert story.fate("m") == "delivered"


def test_delivered_again_wakes_a_parked_session() -> None:
    story = doubting(saved=True)
    story.after(60)
    story << (f.Parked(checkpoint=2),)
    assert story << resolve("again") == ["user.resolve", "user.receipt", "user.receipt", "session.queued"]
    assert [p.text for p in job_of(story.s).inputs] == ["deploy"]


@pytest.mark.parametrize("last", [f.Parked(checkpoint=1), f.Ended(outcome="completed")])
def test_delivered_again_is_not_lost_to_a_lease_that_ends(last: f.RunnerFact) -> None:
    story = doubting(saved=True)
    story << resolve("again")
    story << (last,)
    assert (story.s.lifecycle, story.fate("m"), story.fate("resolve")) == ("queued", "accepted", "consumed")


def test_two_people_resolve_and_one_counts() -> None:
    story = doubting()
    story << resolve("again")
    assert story << resolve("delivered", by="ben", key="other") == "no: already_changing"
    story << (f.Receipt(input_id=uid("m"), status="accepted", code="again"),)
    assert story << resolve("delivered", by="ben", key="other") == "no: not_unconfirmed"


def test_what_the_runner_finds_after_all_settles_the_doubt() -> None:
    story = doubting()
    story << resolve("again")
    story << (f.Receipt(input_id=uid("m"), status="consumed"),)
    assert (story.fate("m"), story.fate("resolve"), story.row("resolve").how) == (
        "consumed",
        "consumed",
        "it is consumed",
    )


def test_nobody_resolves_what_is_in_no_doubt() -> None:
    story = waiting()
    story << say("m")
    assert story << resolve("again") == "no: not_unconfirmed"
    assert story << resolve("again", "nothing", key="x") == "no: no_input"


def test_a_rewind_leaves_no_doubt_behind() -> None:
    story = doubting(saved=True)
    story << rewind(1)
    story << (story.saves(), f.Parked(checkpoint=3))
    assert (story.fate("m"), in_doubt(story.s)) == ("abandoned", ())


def test_a_session_that_is_cancelled_keeps_the_doubt_for_whoever_comes_back() -> None:
    story = doubting(saved=True)
    story << cancel()
    story << (f.Ended(outcome="cancelled"),)
    assert isinstance(story << resolve("again"), list)
    assert (story.s.lifecycle, [p.text for p in job_of(story.s).inputs]) == ("queued", ["deploy"])


# -- the runner's half ------------------------------------------------------------------------------------------------


def in_doubt_here() -> Machine:
    machine = idle(input_("m1", 2))
    machine << IDLE
    machine << Recalled(None)
    return machine


def test_delivered_again_reaches_the_runtime_that_still_runs() -> None:
    machine = in_doubt_here()
    machine << SAVED
    order = input_("resolve", 9, type="user.resolve", target=uid("m1"), target_seq=2, choice="again")
    assert "deliver resolve" in machine << news(order)
    assert machine.receipts("m1") == ["delivered", "unconfirmed", "accepted", "delivered"]


def test_what_was_found_meanwhile_is_not_delivered_again() -> None:
    machine = in_doubt_here()
    machine << r.Consumed(input_id=uid("m1"))
    order = input_("resolve", 9, type="user.resolve", target=uid("m1"), target_seq=2, choice="again")
    assert "deliver resolve" not in machine << news(order)
    assert machine.receipts("m1") == ["delivered", "unconfirmed", "consumed"]


def test_a_doubt_of_an_earlier_lease_is_delivered_again_by_this_one() -> None:
    machine = busy()
    order = input_("resolve", 9, type="user.resolve", target=uid("old"), target_seq=1, choice="again")
    machine << news(order)
    assert "deliver resolve" in machine << IDLE
    assert machine.receipts("old") == ["accepted", "delivered"]
