"""Rewinds of sessions that a runner holds: it stops and saves first, and whatever happens meanwhile loses nothing."""

from __future__ import annotations

from bide.core import commands as c
from bide.core import facts as f
from bide.core.lease import job_of, news_for
from bide.core.limits import PARKING_S
from bide.core.session import Lifecycle, wake_at
from bide.core.wire import Held
from bide.core.words import words
from tests.core.branches import STOPPED, held, three_turns, turn
from tests.core.playbook import (
    DONE,
    LEASE_S,
    RESTORED,
    WINDOW_S,
    cancel,
    grant,
    interrupt,
    park,
    resume,
    rewind,
    say,
    waiting,
)


def test_a_working_session_is_stopped_and_saved_first_so_that_the_line_it_leaves_is_whole() -> None:
    story = held()
    assert story << rewind(1) == ["user.rewind"]
    assert words(story.s).shown == "parking"
    assert "checkpoint 1" in words(story.s).next_step
    told = news_for(story.s, Held(session=story.id, epoch=1, cursor=story.s.last_seq))
    assert told is not None
    assert told.cancelling, "its runner stops, saves and says the last word"
    story << (f.TurnEnded(result="interrupted"), story.saves("m3"))
    assert story << (STOPPED,) == [
        "session.parked", "session.rewound", "user.receipt", "user.receipt", "user.receipt",
    ]  # fmt: skip
    assert story.s.checkpoint is not None
    assert (story.s.lifecycle, story.s.checkpoint.n, story.s.checkpoint_n) == (Lifecycle.PARKED, 1, 3)
    assert [story.fate(name) for name in ("m2", "m3", "rewind")] == ["abandoned", "abandoned", "consumed"]
    assert not [e for e in story.log() if isinstance(e.fact, f.EnvironmentRolledBack)]
    story << rewind(3, "forward")
    assert [story.fate(name) for name in ("m2", "m3")] == ["consumed", "consumed"]


def test_saved_and_last_word_may_come_in_one_batch() -> None:
    story = held()
    story << rewind(1)
    story << (f.TurnEnded(result="interrupted"), story.saves("m3"), STOPPED)
    assert [story.fate(name) for name in ("m2", "m3")] == ["abandoned", "abandoned"]
    assert [one.n for one in story.store.checkpoints(story.id)] == [1, 2, 3]


def test_a_message_sent_after_the_order_to_go_back_is_told_only_there() -> None:
    story = held()
    story << say("before")
    story << rewind(1)
    story << say("after")
    told = news_for(story.s, Held(session=story.id, epoch=1, cancelling=True))
    assert told is None, "this holder hears nothing more"
    assert [p.type for p in job_of(story.s, adopted=True).inputs if p.type == "user.message"] == []
    story << (f.TurnEnded(result="interrupted"), story.saves("m3"), STOPPED)
    assert (story.s.lifecycle, story.fate("before"), story.fate("after")) == (Lifecycle.QUEUED, "accepted", "accepted")
    story << grant()
    assert [p.text for p in job_of(story.s).inputs] == ["before", "after"]


def test_a_waiting_session_and_one_that_restores_go_back_as_soon_as_their_runner_has_let_go() -> None:
    story = waiting()
    turn(story, "m2")
    assert story << rewind(1) == ["user.rewind"]
    assert story.s.window_until == 0
    story << (story.saves(), STOPPED)
    assert story.s.checkpoint is not None
    assert (story.s.lifecycle, story.s.checkpoint.n) == (Lifecycle.PARKED, 1)
    story << resume("r")
    story << grant()
    assert story << rewind(2, "again") == ["user.rewind"]
    assert story << (RESTORED, story.saves(), STOPPED)
    assert story.s.checkpoint is not None
    assert (story.s.lifecycle, story.s.checkpoint.n) == (Lifecycle.PARKED, 2)


def test_a_park_under_way_is_the_stop_that_a_rewind_waits_for() -> None:
    story = waiting()
    turn(story, "m2")
    assert story.after(WINDOW_S) == ["session.parking"]
    story << rewind(1)
    story << say("m3")
    assert "session.rewound" in (story << (f.Parked(checkpoint=2),))
    assert (story.s.lifecycle, story.fate("m3")) == (Lifecycle.QUEUED, "accepted")


def test_a_session_that_finishes_while_it_is_to_go_back_goes_back() -> None:
    story = held()
    story << rewind(1)
    story << (DONE, story.saves("m3"), f.Ended(outcome="completed", summary="done"))
    assert (story.s.lifecycle, story.s.outcome) == (Lifecycle.PARKED, "")


def test_a_runner_that_does_not_stop_in_time_costs_what_it_had_not_saved_and_says_so() -> None:
    story = held()
    story << rewind(1)
    for _ in range(int(PARKING_S // 60)):
        story.now += 60
        story << c.Renew(runner="r1", runner_name="r1", boot="1", epoch=1, lease_s=LEASE_S)
    said = story.after(1)
    assert isinstance(said, list)
    assert said[:3] == ["session.interrupted", "turn.ended", "environment.rolled_back"]
    assert "session.rewound" in said
    (lost,) = [fact for fact in story.facts if isinstance(fact, f.EnvironmentRolledBack)]
    assert lost.lost
    assert story.s.checkpoint is not None
    assert (story.s.lifecycle, story.s.checkpoint.n) == (Lifecycle.PARKED, 1)
    assert [story.fate(name) for name in ("m2", "m3")] == ["abandoned", "abandoned"]
    assert story << c.Renew(runner="r1", runner_name="r1", boot="1", epoch=1, lease_s=LEASE_S) == "no: fenced"


def test_a_runner_out_of_contact_may_still_come_back_and_save_what_is_left_behind() -> None:
    story = held()
    story << rewind(1)
    assert story.after(LEASE_S) == ["session.interrupted"]
    assert wake_at(story.s) is not None
    assert isinstance(
        story << c.Renew(runner="r1", runner_name="r1", boot="1", epoch=1, lease_s=LEASE_S), list
    ), "it was only the network"  # fmt: skip
    assert story.s.phase_until > story.now
    story << (f.TurnEnded(result="interrupted"), story.saves("m3"), STOPPED)
    assert [one.n for one in story.store.checkpoints(story.id)] == [1, 2, 3]


def test_a_runner_that_stays_away_is_waited_for_no_longer_than_usual() -> None:
    story = held()
    story.after(LEASE_S)
    assert story << rewind(1) == ["user.rewind"], "its own runner may still come back with everything"
    said = story.after(story.s.limits["recovery_window_s"])
    assert isinstance(said, list)
    assert "environment.rolled_back" in said
    assert "session.rewound" in said
    assert "session.queued" not in said
    assert story.s.lifecycle is Lifecycle.PARKED
    assert [story.fate(name) for name in ("m2", "m3")] == ["abandoned", "abandoned"]


def test_a_lost_checkpoint_is_no_obstacle_to_going_back_before_it() -> None:
    story = three_turns()
    story << resume("r")
    story << grant()
    story << (f.EnvironmentLost(reason="its blobs are gone"),)
    assert [q.kind for q in story.s.questions] == ["loss"]
    story << rewind(2)
    assert story.s.questions == ()
    assert story.s.checkpoint is not None
    assert (story.s.lifecycle, story.s.environment.state, story.s.checkpoint.n) == (Lifecycle.PARKED, "suspended", 2)
    assert [story.fate(name) for name in ("m2", "m3")] == ["consumed", "abandoned"]


def test_a_rewind_of_a_session_whose_state_turns_out_to_be_lost_goes_on_to_its_checkpoint() -> None:
    story = three_turns()
    story << resume("r")
    story << grant()
    story << rewind(1)
    said = story << (f.EnvironmentLost(reason="its blobs are gone"),)
    assert isinstance(said, list)
    assert "question.asked" not in said
    assert story.s.checkpoint is not None
    assert story.s.checkpoint.n == 1


def test_the_last_of_several_rewinds_is_the_one_that_counts() -> None:
    story = held()
    story << rewind(1)
    assert story << rewind(2, "better") == ["user.rewind", "user.receipt"]
    assert story.fate("rewind") == "withdrawn"
    story << (f.TurnEnded(result="interrupted"), story.saves("m3"), STOPPED)
    assert story.s.checkpoint is not None
    assert (story.s.checkpoint.n, story.fate("better")) == (2, "consumed")


def test_a_cancel_beats_a_rewind_and_a_cancelled_session_goes_back_once_it_has_ended() -> None:
    story = held()
    story << rewind(1)
    story << cancel()
    assert story << rewind(2, "late") == "no: not_waiting"
    story << (f.TurnEnded(result="interrupted"), story.saves("m3"), STOPPED)
    assert (story.s.lifecycle, story.fate("rewind")) == (Lifecycle.ENDED, "refused")
    assert isinstance(story << rewind(1, "now"), list)
    assert story.s.lifecycle is Lifecycle.PARKED


def test_a_resume_asked_for_meanwhile_brings_the_session_back_at_its_checkpoint() -> None:
    story = held()
    story << rewind(1)
    story << resume("go")
    story << (f.TurnEnded(result="interrupted"), story.saves("m3"), STOPPED)
    assert (story.s.lifecycle, story.fate("go")) == (Lifecycle.QUEUED, "consumed")
    assert story.s.checkpoint is not None
    assert story.s.checkpoint.n == 1


def test_orders_to_a_runner_that_goes_are_settled() -> None:
    story = held()
    story << interrupt("stop")
    story << park("p")
    story << rewind(1)
    story << (f.TurnEnded(result="interrupted"), story.saves("m3"), STOPPED)
    assert [story.fate(name) for name in ("stop", "p")] == ["consumed", "consumed"]
    assert story.s.inputs == ()


def test_the_same_rewind_twice_is_one_and_its_id_means_no_other() -> None:
    story = three_turns()
    story << rewind(1)
    assert story << rewind(1) == []
    assert story << rewind(2) == "no: key_reused"
