"""Steering: who says stop stops what they saw, nothing a person decided is dropped, and words reach a turn one by one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bide.core import commands as c
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.lease import job_of
from bide.core.limits import INPUTS_MAX
from bide.core.session import Pending
from tests.core.playbook import LEASE_S, PROMPT, Story, answer, asks, interrupt, leased, parked, say, uid, waiting
from tests.core.playrunner import IDLE, Machine, busy, granted, idle, input_, news

TOOK = r.Consumed(input_id=uid("m1"))
STOPPED = r.Idle(result="interrupted")


def redirect(name: str, **more: object) -> c.Say:
    return replace(say(name, delivery="interrupt"), **more)


def answered(name: str, seq: int) -> Pending:
    return input_(name, seq, type="user.answer", question_id="q")


# -- an answer is never dropped ---------------------------------------------------------------------------------------


def test_an_interrupt_that_drops_messages_never_drops_an_answer() -> None:
    story = parked(asks("q"))
    story << answer("a", "q")
    story << say("m")
    story << interrupt("i", drop=True)
    assert (story.fate("m"), story.fate("a")) == ("withdrawn", "accepted")


def test_an_interrupt_that_drops_messages_never_drops_an_answer_at_the_runner() -> None:
    machine = busy()
    machine << news(answered("a", 5), input_("m2", 6), input_("i", 7, type="user.interrupt", drop_queued=True))
    assert (machine.receipts("m2"), machine.receipts("a")) == (["withdrawn"], [])
    assert "deliver a" in machine << STOPPED


# -- a redirect that takes the place of all that waits ----------------------------------------------------------------


def test_a_redirect_that_drops_what_waits_is_one_order() -> None:
    story = waiting()
    story << say("m")
    assert story << redirect("now", drop_queued=True) == ["user.interrupt", "user.message"]
    machine = Machine()
    machine << granted(*job_of(story.s).inputs)
    assert (machine.receipts("m"), machine.receipts("now")) == (["withdrawn"], [])


@pytest.mark.parametrize("make", [Story, parked])
def test_a_redirect_that_drops_what_waits_does_so_at_once_where_no_runner_has_the_session(make: type[Story]) -> None:
    story = make()
    story << say("m")
    story << redirect("now", drop_queued=True)
    assert (story.fate("m"), story.fate("now")) == ("withdrawn", "accepted")


def test_a_redirect_that_drops_what_waits_is_taken_when_the_queue_is_full_of_it() -> None:
    story = Story()
    for n in range(INPUTS_MAX - 1):
        story << say(f"m{n}")
    assert story << redirect("plain") == "no: too_many"
    assert isinstance(story << redirect("now", drop_queued=True), list)
    assert [p.id for p in story.s.inputs] == [uid("now")]


def test_a_redirect_sent_twice_stops_and_drops_once() -> None:
    story = waiting()
    story << redirect("now", drop_queued=True)
    assert story << redirect("now", drop_queued=True) == []
    assert story << redirect("now") == "no: key_reused"


def test_only_a_redirect_drops_what_waits() -> None:
    assert waiting() << replace(say("m"), drop_queued=True) == "no: bad_value"


# -- the turn that was meant ------------------------------------------------------------------------------------------


def test_an_interrupt_of_a_turn_that_is_over_never_stops_the_next_one() -> None:
    machine = busy(input_("m2", 3))
    assert "deliver m2" in machine << IDLE
    assert machine << news(input_("i", 5, type="user.interrupt", turn=1)) == []
    (receipt,) = [x for x in machine.facts(f.Receipt) if x.input_id == uid("i")]
    assert (receipt.status, receipt.how) == ("consumed", "turn 1 had ended already")


def test_an_interrupt_of_the_turn_that_runs_stops_it() -> None:
    machine = busy()
    assert machine << news(input_("i", 5, type="user.interrupt", turn=1)) == ["interrupt"]


def test_an_interrupt_says_which_turn_it_means_until_its_runner_hears_it() -> None:
    story = leased()
    story << c.Interrupt(id=uid("i"), author="ann", turn=3)
    assert [p.turn for p in job_of(story.s).inputs if p.type == "user.interrupt"] == [3]
    assert story << interrupt("i") == "no: key_reused"


# -- a redirect while the runner drains -------------------------------------------------------------------------------


def test_a_redirect_stops_the_turn_also_while_its_runner_drains() -> None:
    machine = busy()
    machine.drain()
    assert machine << news(input_("now", 5, "interrupt")) == ["interrupt"]
    assert machine << STOPPED == ["stop"]
    assert machine.receipts("now") == [], "it goes with the session to its next runner"


def test_a_steer_joins_the_last_turn_of_a_runner_that_drains() -> None:
    machine = busy()
    machine.drain()
    assert machine << news(input_("s", 5, "steer")) == ["steer s"]


# -- one word after the other -----------------------------------------------------------------------------------------


def test_steers_are_told_one_after_the_other_and_never_before_the_turns_first_word() -> None:
    machine = idle(input_("m1", 2))
    assert machine << news(input_("s1", 5, "steer"), input_("s2", 6, "steer")) == []
    assert machine << TOOK == ["steer s1"]
    assert machine << r.Spoke(text="working") == []
    assert machine << r.Consumed(input_id=uid("s1")) == ["steer s2"]


def test_a_steer_that_the_turn_never_got_is_the_next_one() -> None:
    machine = busy()
    machine << news(input_("s1", 5, "steer"), input_("s2", 6, "steer"))
    machine << r.Consumed(input_id=uid("s1"))
    machine << r.Consumed(input_id=uid("s2"), alone=True)
    receipts = [x for x in machine.facts(f.Receipt) if x.input_id == uid("s2")]
    assert [(x.status, x.how, x.code) for x in receipts] == [
        ("delivered", "steer", ""), ("consumed", "next_turn", "own_turn"),
    ]  # fmt: skip


# -- what receipts say ------------------------------------------------------------------------------------------------


def hows(machine: Machine, name: str) -> list[str]:
    return [x.how for x in machine.facts(f.Receipt) if x.input_id == uid(name) and x.status == "delivered"]


def test_the_receipt_of_a_redirect_says_that_it_stopped_a_turn() -> None:
    machine = busy()
    machine << news(input_("now", 5, "interrupt"))
    machine << STOPPED
    assert hows(machine, "now") == ["interrupt"]


def test_the_receipt_of_a_redirect_that_met_no_turn_says_so() -> None:
    machine = idle()
    machine << news(input_("now", 5, "interrupt"))
    assert hows(machine, "now") == ["next_turn"]


def told(story: Story, *receipts: tuple[str, str, str]) -> None:
    """Receipts of the prompt: status, how, code."""
    story << tuple(f.Receipt(input_id=PROMPT, status=s, how=how, code=code) for s, how, code in receipts)  # type: ignore[arg-type]


def test_a_receipt_forgets_how_it_was_told_once_that_is_rolled_back() -> None:
    story = leased()
    told(story, ("delivered", "next_turn", ""), ("consumed", "", ""))
    assert story.row("prompt").how == "next_turn"
    story.after(LEASE_S)
    story.after(60)
    assert "delivered again" in story.row("prompt").how
    story << c.Grant(runner="r2", runner_name="r2", boot="1", lease_s=LEASE_S)
    told(story, ("consumed", "found in the restored conversation", ""))
    assert story.row("prompt").how == "found in the restored conversation"


def test_a_receipt_of_what_was_in_doubt_says_how_it_was_found_after_all() -> None:
    story = leased()
    told(story, ("delivered", "next_turn", ""), ("unconfirmed", "its state does not show it", ""))
    told(story, ("consumed", "", ""))
    assert story.row("prompt").how == ""


def test_a_receipt_says_that_a_steer_had_a_turn_of_its_own() -> None:
    story = leased()
    told(story, ("delivered", "steer", ""), ("consumed", "next_turn", "own_turn"))
    assert (story.row("prompt").how, story.row("prompt").code) == ("next_turn", "own_turn")
