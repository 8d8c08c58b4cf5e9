"""What a session may cost: at the end of it, it waits for people with all its work saved, and only they allow it more."""

from __future__ import annotations

from typing import Any

import pytest

from bide.core import commands as c
from bide.core import facts as f
from bide.core.bounds import LIMITS
from bide.core.lease import job_of, news_for
from bide.core.limits import DAY
from bide.core.session import Lifecycle, deliverable, undelivered
from bide.core.walls import Walls
from bide.core.wire import Held
from bide.core.words import words
from tests.core.playbook import (
    DONE,
    LEASE_S,
    TOTAL,
    Story,
    answer,
    asks,
    began,
    fork,
    renew,
    resume,
    rewind,
    say,
    uid,
    waiting,
    working,
)

MONEY, TIME = "Allow as much money again", "Allow as much time again"


def limits(**more: float) -> dict[str, float]:
    return TOTAL | more


def stopped(code: str = "over_budget", **more: Any) -> Story:
    """Its turn was stopped at the wall, and it parked."""
    given = {"budget_usd": 5.0, "working_s": DAY}
    story = working(limits=limits(**given), **more)
    told = story << (f.Cost(usd=5.2, tokens=1000, model="m"), f.Error(code=code, sentence="It is used up."))
    assert told == ["cost", "error", "question.asked"]
    assert story << (f.TurnEnded(result="interrupted"),) == ["turn.ended", "session.parking"]
    assert story << (story.saves("prompt"), f.Parked(checkpoint=1)) == ["checkpoint.saved", "session.parked"]
    return story


def answers(story: Story, choice: str) -> list[str] | str:
    (question,) = story.s.questions
    return story << c.Answer(id=uid("answered"), author="ann", question_id=question.id, choices=(choice,))


def test_a_session_at_the_wall_is_parked_and_waits_for_budget_and_does_not_go_on_by_itself() -> None:
    story = stopped()
    assert (story.s.turn.waiting_for, words(story.s).must_act) == ("budget", "human")
    assert story.s.questions[0].options == (MONEY, "End the session")
    assert story << say("m1") == ["user.message"]
    assert story.after(7200) == []
    assert story << resume() == "no: over_budget"


@pytest.mark.parametrize(("code", "choice", "name", "now"), [
    ("over_budget", MONEY, "budget_usd", 10.2), ("over_lifetime", TIME, "working_s", 2 * DAY),
])  # fmt: skip
def test_as_much_again_goes_on_with_a_word_of_bides_own(code: str, choice: str, name: str, now: float) -> None:
    story = stopped(code)
    assert answers(story, choice)[-2:] == ["user.message", "session.queued"]
    assert story.s.limits[name] == pytest.approx(now)
    assert "allowed more" in deliverable(story.s)[0].text


def test_more_is_allowed_by_hand_and_what_waited_is_told() -> None:
    story = stopped()
    story << say("m1")
    told = story << c.Extend(id=uid("more"), author="ben", budget_usd=20)
    assert told == ["user.extend", "user.receipt", "question.withdrawn", "session.queued"]
    assert [p.text for p in deliverable(story.s)] == ["m1"]
    assert job_of(story.s).limits["budget_usd"] == 20
    assert job_of(story.s).usd == pytest.approx(5.2)


@pytest.mark.parametrize("wanted", [3.0, 5.1, 2e5])
def test_nobody_sets_a_budget_below_what_there_is_or_what_was_spent(wanted: float) -> None:
    assert stopped() << c.Extend(id=uid("more"), author="ben", budget_usd=wanted) == "no: bad_value"


def test_an_extension_says_what_it_extends() -> None:
    assert waiting() << c.Extend(id=uid("more"), author="ben") == "no: bad_value"


def test_a_session_without_a_budget_can_be_given_one() -> None:
    story = waiting()
    assert story << c.Extend(id=uid("more"), author="ben", budget_usd=3) == ["user.extend", "user.receipt"]
    assert story.s.limits["budget_usd"] == 3


def test_the_same_extension_sent_twice_is_one() -> None:
    story = stopped()
    more = c.Extend(id=uid("more"), author="ben", budget_usd=20)
    story << more
    assert story << more == []
    assert story << c.Extend(id=uid("more"), author="ben", budget_usd=21) == "no: key_reused"


def test_an_extended_budget_does_not_end_its_keeping() -> None:
    story = stopped()
    story << c.Answer(id=uid("no"), author="ben", question_id=story.s.questions[0].id, decline=True)
    before = story.s.expires_at, story.s.extended_until
    story << c.Extend(id=uid("time"), author="ben", working_s=2 * DAY)
    assert (story.s.extended_until, before[0] > story.now) == (before[1], True)


def test_only_people_allow_more() -> None:
    story = stopped()
    story << say("m1")
    for _ in range(5):
        story.after(DAY)
    assert (story.s.lifecycle, story.s.limits["budget_usd"]) == (Lifecycle.PARKED, 5.0)
    assert [p.text for p in undelivered(story.s)] == ["m1"]


def test_the_end_of_a_session_whose_budget_is_used_up_keeps_its_work() -> None:
    story = stopped()
    answers(story, "End the session")
    assert (story.s.lifecycle, story.s.outcome) == (Lifecycle.ENDED, "cancelled")


def test_waiting_for_people_uses_up_no_lifetime() -> None:
    story = waiting()
    worked = story.s.worked_s
    story.now += 50
    story << renew(1)
    assert story.s.worked_s == worked
    story << say("m1")
    story << (began("m1"),)
    story.now += 30
    story << (DONE,)
    assert story.s.worked_s == pytest.approx(worked + 30)


def test_a_turn_whose_runner_is_out_of_contact_works_until_then_and_again_once_it_is_back() -> None:
    story = working()
    assert story.after(LEASE_S) == ["session.interrupted"]
    assert story.s.worked_s == pytest.approx(LEASE_S)
    story.now += 30
    story << renew(1)
    story.now += 10
    story << (DONE,)
    assert story.s.worked_s == pytest.approx(LEASE_S + 10)


def test_a_turn_that_is_lost_has_cost_its_time() -> None:
    story = working()
    story.now += 40
    story << c.Disown(runner="r1", epoch=1, reason="it was restarted")
    assert story.s.worked_s == pytest.approx(40)
    assert story.s.turn_since == 0


def test_a_holder_hears_what_was_allowed_meanwhile() -> None:
    story = waiting(limits=limits(budget_usd=5.0))
    held = Held(session=story.id, epoch=1, cursor=1000, walls=(5.0, story.s.limits["working_s"]))
    assert news_for(story.s, held) is None
    story << c.Extend(id=uid("more"), author="ben", budget_usd=20)
    fresh = news_for(story.s, held)
    assert fresh is not None
    assert fresh.walls == (20.0, story.s.limits["working_s"])
    assert news_for(story.s, Held(session=story.id, epoch=1, cursor=1000)) is None


def test_a_fork_begins_with_nothing_spent() -> None:
    story = stopped()
    assert isinstance(story << fork(), list)
    other = story.store.session(uid(("fork", "session")))
    assert other is not None
    assert (other.usd, other.worked_s, other.questions) == (0, 0, ())


def test_going_back_earns_no_money() -> None:
    story = stopped()
    story << rewind(1)
    assert ([q.kind for q in story.s.questions], story.s.usd) == (["budget"], 5.2)


def test_a_question_of_its_own_waits_beside_that_for_money() -> None:
    story = working(limits=limits(budget_usd=5.0))
    story << (asks("q"), f.Error(code="over_budget", sentence="used up"), f.TurnEnded(result="interrupted"))
    story << (f.Parked(checkpoint=0),)
    assert story << answer("a1", "q") == ["user.answer", "question.answered"]
    story << c.Extend(id=uid("more"), author="ben", budget_usd=20)
    assert story.s.lifecycle is Lifecycle.QUEUED
    assert [p.type for p in deliverable(story.s)] == ["user.answer"]


def test_a_session_older_than_the_walls_has_the_usual_ones() -> None:
    old = {name: value for name, value in TOTAL.items() if name not in ("budget_usd", "working_s")}
    story = waiting(limits=old)
    assert job_of(story.s).limits == old
    assert Walls(old, 0.0, 0, 0.0).limits == (LIMITS["budget_usd"].default, LIMITS["working_s"].default)
