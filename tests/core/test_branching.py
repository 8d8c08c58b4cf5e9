"""Forks and rewinds as conversations: what was saved stays reachable, and nobody is told of what is not there."""

from __future__ import annotations

from msgspec.structs import replace

from bide.core import commands as c
from bide.core import facts as f
from bide.core.branching import kept, line
from bide.core.handle import handle
from bide.core.lease import job_of
from bide.core.refusals import Refused
from bide.core.saver import Saver
from bide.core.session import Lifecycle
from bide.core.words import words
from tests.core.branches import STOPPED, at_rest, forked, three_turns, turn
from tests.core.playbook import (
    DONE,
    EDIT,
    LEASE_S,
    RESTORED,
    answer,
    asks,
    began,
    ended,
    fork,
    grant,
    leased,
    qid,
    receipt,
    rewind,
    say,
    uid,
    waiting,
)

# -- forks ------------------------------------------------------------------------------------------------------------


def test_a_fork_begins_with_workspace_and_conversation_of_its_checkpoint_and_with_nothing_else() -> None:
    story = three_turns()
    story << (say("m4"))
    story.now += 720
    before = story.s
    other = forked(story, fork(checkpoint=2))
    s, saved = other.s, story.store.checkpoints(story.id)[1]
    assert (s.lifecycle, s.environment.state, words(s).shown) == (Lifecycle.PARKED, "suspended", "parked")
    assert s.checkpoint is not None
    assert (s.checkpoint.n, s.checkpoint.root, s.workspace) == (2, saved.root, saved.workspace)
    assert (s.turn.n, s.runtime_session_id, s.family) == (saved.turn, before.runtime_session_id, story.id)
    assert (s.limits, s.labels, s.runtime, s.pool, s.model) == (
        before.limits, before.labels, before.runtime, before.pool, before.model,
    )  # fmt: skip
    assert (s.inputs, s.questions, s.usd, s.tokens, s.epoch) == ((), (), 0.0, 0, 0)
    assert s.forked_from == f.ForkedFrom(session=story.id, checkpoint=2)
    assert s.reason == f"forked from {story.id}, checkpoint 2, saved 12m before"
    assert s.expires_at > story.now
    assert "its checkpoint 2" in s.report[0]
    assert other.store.checkpoints(other.id) == [s.checkpoint]
    assert other.store.inputs(other.id) == []
    assert replace(story.s, last_seq=before.last_seq) == before, "nothing of the parent changes"
    row = story.row("fork")
    assert (row.status, row.author) == ("consumed", "ben")
    assert row.how == f"forked as {other.id} from checkpoint 2, saved 12m ago"
    assert other.folded() == s


def test_a_fork_wakes_for_a_message_restores_the_others_root_and_saves_under_its_own_name() -> None:
    other = forked(three_turns(), fork(checkpoint=2))
    assert other << say("n1") == ["user.message", "session.queued"]
    assert words(other.s).shown == "resuming"
    assert other << grant("r2") == ["session.leased", "session.resuming"]
    job = job_of(other.s)
    assert job.checkpoint is not None
    assert job.checkpoint.root == "1-2" or job.checkpoint.root.endswith("/1-2")
    assert (job.resumed, job.turn, [p.text for p in job.inputs]) == (True, 2, ["n1"])
    assert job.report == other.s.report
    assert words(other.s).next_step == "The workspace is restored."
    other << (RESTORED, began("n1"), receipt("n1", "consumed"), DONE)
    other << (other.saves("n1"),)
    assert other.s.checkpoint is not None
    assert (other.s.checkpoint.n, other.s.checkpoint.after) == (3, 2)
    assert other.s.checkpoint.root == f"{other.id}/1-3"
    assert [one.n for one in other.store.checkpoints(other.id)] == [2, 3]
    assert other.s.turn.n == 3


def test_a_fork_with_a_first_message_goes_to_work_by_itself() -> None:
    story = three_turns()
    other = forked(story, fork(text="Try it the other way.", title="other way"))
    assert (other.s.lifecycle, other.s.title) == (Lifecycle.QUEUED, "other way")
    assert [p.text for p in other.s.inputs] == ["Try it the other way."]
    assert story << fork("empty", text="  ") == "no: bad_value"


def test_a_fork_of_a_working_session_is_of_its_last_checkpoint_and_says_how_old_that_is() -> None:
    story = waiting()
    story << say("m2")
    story << (began("m2"), receipt("m2", "consumed"), EDIT)
    story.now += 95
    story << c.Renew(runner="r1", runner_name="r1", boot="1", epoch=1, lease_s=LEASE_S)
    other = forked(story, fork())
    assert other.s.checkpoint is not None
    assert other.s.checkpoint.n == 1
    assert "saved 1m 35s ago" in story.row("fork").how
    assert story.s.turn.open, "the other goes on undisturbed"
    (told,) = [e.fact for e in story.log() if isinstance(e.fact, f.Forked)]
    assert (told.session, told.checkpoint, told.age_s) == (other.id, 1, 95.0)


def test_a_fork_of_a_checkpoint_in_mid_turn_is_told_so() -> None:
    story = waiting()
    story << say("m2")
    story << (began("m2"), receipt("m2", "consumed"), EDIT)
    story << (story.saves("m2"),)
    other = forked(story, fork())
    assert "in the middle of a turn" in other.s.report[-1]
    assert not other.s.turn.open


def test_an_ended_session_can_be_forked_while_it_is_kept_and_stays_ended() -> None:
    story = ended()
    other = forked(story, fork())
    assert (other.s.lifecycle, other.s.outcome, other.s.summary) == (Lifecycle.PARKED, "", "")
    assert story.s.lifecycle is Lifecycle.ENDED


def test_a_checkpoint_that_is_not_kept_is_refused_with_those_that_are() -> None:
    story = three_turns()
    assert story << fork(checkpoint=9) == "no: checkpoint_gone"
    assert story.refusal is not None
    assert story.refusal.sentence == "Checkpoint 9 of this session is not kept."
    assert (story.refusal.hint, story.refusal.more) == ("There are: 1, 2, 3.", {"checkpoints": [1, 2, 3]})
    assert story << rewind(9) == "no: checkpoint_gone"
    assert leased() << fork() == "no: checkpoint_gone"
    assert leased() << rewind(1) == "no: checkpoint_gone"


def test_older_checkpoints_than_are_kept_are_no_way_back_except_the_one_it_stands_on() -> None:
    story = waiting(limits=waiting().s.limits | {"checkpoints_kept": 2.0})
    for name in ("m2", "m3", "m4"):
        turn(story, name)
    saves = story.store.checkpoints(story.id)
    assert [one.n for one in kept(story.s, saves)] == [1, 3, 4], "the first is what all work is told from"
    assert story << fork(checkpoint=2) == "no: checkpoint_gone"
    at_rest(story)
    assert isinstance(story << rewind(3), list)
    for name in ("m5", "m6", "m7"):
        turn(story, name)
    assert [one.n for one in kept(story.s, story.store.checkpoints(story.id))] == [1, 6, 7]
    at_rest(story)
    story << rewind(6, "again")
    assert [one.n for one in kept(story.s, story.store.checkpoints(story.id))] == [1, 6, 7], (
        "what was dropped comes not back"
    )
    assert story.s.earlier is None


def test_the_last_save_before_a_rewind_does_not_push_its_target_out() -> None:
    story = waiting(limits=waiting().s.limits | {"checkpoints_kept": 2.0})
    turn(story, "m2")
    story << rewind(1)
    story << (story.saves(), story.saves(n=4), STOPPED)
    assert (story.s.rewound_to, story.fate("rewind")) == (1, "consumed")


def test_the_same_fork_asked_twice_is_one() -> None:
    story = three_turns()
    story << fork(checkpoint=2)
    (done,) = [story << replace(fork(checkpoint=2), session=uid("another"))]
    assert done == []
    assert story.store.session(uid("another")) is None
    assert story << fork(checkpoint=3) == "no: key_reused"
    turn(story, "m4")
    assert isinstance(story << fork("newest"), list)
    turn(story, "m5")
    assert story << fork("newest") == [], "which one the newest was was decided the first time"


def test_a_fork_that_comes_too_late_for_what_was_kept_for_it_is_asked_for_again() -> None:
    story = three_turns()
    late = replace(story.held(fork()), held_until=story.now)
    (done,) = story.store.perform([lambda: handle(story.id, late)])
    assert isinstance(done, Refused)
    assert done.code == "timed_out"
    assert story.store.session(late.session) is None


def test_a_fork_that_loses_its_runner_goes_back_to_where_it_began() -> None:
    other = forked(three_turns(), fork(checkpoint=2))
    other << say("n1")
    other << grant("r2")
    other << (RESTORED, began("n1"), receipt("n1", "consumed"), asks("q"), EDIT)
    other << c.Disown(runner="r2", epoch=1, reason="r2 was restarted")
    back = other.one(f.EnvironmentRolledBack)
    assert back.checkpoint == 2
    assert back.lost
    assert (other.s.lifecycle, other.fate("n1")) == (Lifecycle.QUEUED, "accepted")
    assert other.s.questions == (), "asked in work that is lost"
    assert other.s.checkpoint is not None
    assert other.s.checkpoint.n == 2


def test_a_fork_can_be_forked_and_all_of_them_share_their_packs() -> None:
    story = three_turns()
    second = forked(forked(story, fork(checkpoint=2)), fork("deeper"))
    assert second.s.family == story.id
    assert second.s.checkpoint is not None
    assert second.s.checkpoint.n == 2


def test_a_fork_takes_its_recap_and_title_along() -> None:
    story = three_turns()
    other = forked(story, fork())
    assert (other.s.task, other.s.title, other.s.author) == ("Fix it.", "t (fork)", "ben")


# -- rewinds ----------------------------------------------------------------------------------------------------------


def test_a_rewind_of_a_parked_session_abandons_what_came_after_and_waits_there() -> None:
    story = three_turns()
    story.now += 60
    said = story << rewind(1)
    assert said == ["user.rewind", "session.rewound", *["user.receipt"] * 3]
    s = story.s
    assert (s.lifecycle, s.environment.state, words(s).must_act) == (Lifecycle.PARKED, "suspended", "human")
    assert s.checkpoint is not None
    assert (s.checkpoint.n, s.rewound_to, s.checkpoint_n, s.turn.n) == (1, 1, 3, 3)
    assert [story.fate(name) for name in ("prompt", "m2", "m3", "rewind")] == [
        "consumed", "abandoned", "abandoned", "consumed",
    ]  # fmt: skip
    assert story.one(f.Rewound).abandoned == (uid("m2"), uid("m3"))
    assert story.row("rewind").how.startswith("back at checkpoint 1, saved 2027-01-15 ")
    assert s.report[0].startswith("You are back at checkpoint 1, saved ")
    assert s.report[0].endswith("what came after is not in your workspace or memory.")
    assert [one.n for one in story.store.checkpoints(story.id)] == [1, 2, 3], "the abandoned line stays listed"
    assert not [e for e in story.log() if isinstance(e.fact, f.EnvironmentRolledBack)], "all of it was saved"


def test_after_a_rewind_a_new_turn_and_a_new_checkpoint_have_numbers_of_their_own() -> None:
    story = three_turns()
    story << rewind(1)
    story << say("n1")
    assert isinstance(story << grant("r2"), list)
    job = job_of(story.s)
    assert job.checkpoint is not None
    assert (job.checkpoint.n, job.checkpoint_n, job.turn) == (1, 3, 3)
    assert [p.text for p in job.inputs] == ["n1"], "what was abandoned is not told again"
    assert job.report == story.s.report
    story << (RESTORED, began("n1"), receipt("n1", "consumed"), DONE)
    assert story.s.report == (), "it was told"
    story << (story.saves("n1"),)
    assert story.s.checkpoint is not None
    assert (story.s.checkpoint.n, story.s.checkpoint.after, story.s.turn.n) == (4, 1, 4)
    assert story.s.earlier is not None
    assert story.s.earlier.n == 1


def test_a_runner_counts_on_from_the_highest_number_ever_used() -> None:
    story = three_turns()
    first = story.store.checkpoints(story.id)[0]
    assert Saver("s", 7, first, 600.0, 0.0, used=3).begin(4, turn_open=False, at_n=0).n == 4


def test_a_number_that_a_runner_uses_again_is_not_taken_from_it() -> None:
    story = three_turns()
    story << rewind(1)
    story << say("n1")
    story << grant("r2")
    story << (RESTORED, began("n1"), receipt("n1", "consumed"), DONE, story.saves("n1", n=2))
    assert story.s.checkpoint is not None
    assert story.s.checkpoint.n == 4
    assert story.s.checkpoint.root == f"{story.id}/2-2", "where the runner has written it"


def test_back_and_forth_between_two_lines_loses_neither() -> None:
    story = three_turns()
    story << rewind(1)
    turn(story, "n1")
    at_rest(story)
    assert [one.n for one in line(story.store.checkpoints(story.id), story.s.checkpoint)] == [4, 1]
    assert isinstance(story << rewind(3, "forward"), list)
    forward = story.one(f.Rewound)
    assert (forward.abandoned, forward.restored) == ((uid("n1"),), (uid("m2"), uid("m3")))
    assert [story.fate(name) for name in ("prompt", "m2", "m3", "n1")] == [
        "consumed", "consumed", "consumed", "abandoned",
    ]  # fmt: skip
    assert story.row("m2").how == "contained in checkpoint 3"
    assert story.s.checkpoint is not None
    assert story.s.earlier is not None
    assert (story.s.checkpoint.n, story.s.earlier.n) == (3, 2)
    assert isinstance(story << rewind(4, "back"), list)
    assert [story.fate(name) for name in ("m2", "m3", "n1")] == ["abandoned", "abandoned", "consumed"]
    assert isinstance(story << rewind(2, "half way"), list)
    assert [story.fate(name) for name in ("m2", "m3", "n1")] == ["consumed", "abandoned", "abandoned"]


def test_a_rewind_to_where_it_stands_abandons_nothing_that_is_saved() -> None:
    story = three_turns()
    story << rewind(3)
    assert story.one(f.Rewound).abandoned == ()
    assert story.s.lifecycle is Lifecycle.PARKED


def test_undelivered_inputs_stay_queued_and_are_the_next_to_be_told() -> None:
    story = waiting()
    turn(story, "m2")
    at_rest(story)
    story << say("m3")
    assert story.s.lifecycle is Lifecycle.QUEUED
    assert story << rewind(1) == [
        "user.rewind", "session.rewound", "user.receipt", "user.receipt", "session.queued",
    ]  # fmt: skip
    assert [story.fate(name) for name in ("m2", "m3")] == ["abandoned", "accepted"]
    assert story.s.lifecycle is Lifecycle.QUEUED
    story << grant()
    assert [p.text for p in job_of(story.s).inputs] == ["m3"]


def test_questions_asked_later_are_withdrawn_and_earlier_ones_stay_open() -> None:
    story = waiting(asks("early"))
    story << say("m2")
    story << (began("m2"), receipt("m2", "consumed"), asks("late"), DONE)
    story << (story.saves("m2"),)
    at_rest(story)
    story << rewind(1)
    assert [q.id for q in story.s.questions] == [qid("early")]
    assert story << answer("a", "late") == "no: question_closed"
    assert story.refusal is not None
    assert "went back to checkpoint 1" in story.refusal.sentence
    assert isinstance(story << answer("b", "early"), list)
    assert story.s.lifecycle is Lifecycle.QUEUED


def test_an_answer_that_came_later_is_abandoned_with_the_turn_that_it_began() -> None:
    story = waiting(asks("early"))
    story << answer("a", "early")
    story << (began("a"), receipt("a", "consumed"), DONE)
    story << (story.saves("a"),)
    at_rest(story)
    story << rewind(1)
    assert story.fate("a") == "abandoned"


def test_an_unconfirmed_input_is_abandoned_with_the_line_that_may_contain_it() -> None:
    story = waiting()
    turn(story, "m2")
    story << say("m3")
    story << (began("m3"), receipt("m3", "delivered"), receipt("m3", "unconfirmed"), DONE, f.Parked(checkpoint=2))
    assert story.fate("m3") == "unconfirmed"
    story << rewind(1)
    assert [story.fate(name) for name in ("m2", "m3")] == ["abandoned", "abandoned"]
    assert story.s.inputs == ()


def test_a_rewind_wakes_an_ended_session_to_the_point_where_it_waits() -> None:
    story = ended()
    assert story << rewind(1) == ["user.rewind", "session.reopened", "session.rewound", "user.receipt"]
    assert (story.s.lifecycle, story.s.outcome, story.s.summary) == (Lifecycle.PARKED, "", "")
