"""Where forks and rewinds end: nothing begins with what is deleted, damaged or lost, and whoever asks hears what there is."""

from __future__ import annotations

from bide.core import commands as c
from bide.core import facts as f
from bide.core.branching import kept, require
from bide.core.limits import PARKING_S
from bide.core.refusals import Refused
from bide.core.session import Lifecycle, wake_at
from bide.core.words import words
from tests.core.branches import STOPPED, at_rest, forked, held, three_turns, turn
from tests.core.playbook import (
    DONE,
    LEASE_S,
    RESTORED,
    Story,
    answer,
    asks,
    began,
    cancel,
    ended,
    forgotten,
    fork,
    grant,
    receipt,
    renew,
    resume,
    rewind,
    say,
    uid,
    waiting,
)

LOST = f.EnvironmentLost(reason="its blobs are gone")
TOO_MUCH = f.CheckpointFailed(code="over_quota", reason="Workspace and home hold 2 GiB; at most 1 GiB can be saved.")
DAMAGE = f.Lost(what="workspace/app.py", bytes=7, reason="its object is missing")


def refusal(story: Story, command: c.Command) -> Refused:
    assert str(story << command).startswith("no: ")
    assert story.refusal is not None
    return story.refusal


def looked_at(story: Story, n: int) -> str:
    """What somebody hears who wants to look into a checkpoint."""
    try:
        require(story.s, story.store.checkpoints(story.id), n)
    except Refused as refused:
        return refused.code
    return ""


def started_over_and_ended() -> Story:
    """Three checkpoints; the last was lost, a person chose to start over, and it was cancelled before anything was saved."""
    story = three_turns()
    story << resume("r")
    story << grant()
    story << (LOST,)
    (question,) = story.s.questions
    story << c.Answer(
        id=uid("over"), author="ann", question_id=question.id, choices=("Start over from the repository",)
    )
    story << grant("r2")
    story << (RESTORED,)
    story << cancel()
    story << (STOPPED,)
    assert (story.s.lifecycle, story.s.checkpoint) == (Lifecycle.ENDED, None)
    return story


# -- no longer kept ---------------------------------------------------------------------------------------------------


def test_an_expired_session_is_neither_forked_nor_taken_back_nor_looked_into_and_says_what_else_can_be_done() -> None:
    for story in (forgotten(three_turns()), forgotten(ended())):
        for command in (fork(), fork("one", checkpoint=1), rewind(1)):
            said = refusal(story, command)
            assert said.code == "expired"
            assert "workspace and conversation are deleted" in said.sentence
            assert f"bide run --recap {story.id}" in said.hint
        assert [looked_at(story, n) for n in (0, 1)] == ["expired", "expired"]


def test_a_fork_outlives_the_session_that_it_came_from() -> None:
    story = three_turns()
    story.now = story.s.expires_at - 60
    other = forked(story, fork())
    assert other.s.expires_at - other.now == other.s.limits["retention_s"], "its own retention begins with it"
    forgotten(story)
    other.now = story.now
    assert other.s.checkpoint is not None
    assert isinstance(other << say("n1"), list)
    assert other.s.lifecycle is Lifecycle.QUEUED


def test_what_was_saved_before_a_session_started_over_is_kept_as_long_as_everything_else() -> None:
    story = started_over_and_ended()
    assert story.s.expires_at == story.now + story.s.limits["retention_s"]
    assert wake_at(story.s) is not None
    assert "bide rewind" in words(story.s).next_step
    said = refusal(story, say("go on"))
    assert (said.code, "bide rewind" in said.hint) == ("ended", True)
    assert refusal(story, resume("again")).code == "ended"
    assert refusal(story, fork()).hint == "There are: 1, 2, 3."
    assert isinstance(story << rewind(2), list)
    assert story.s.checkpoint is not None
    assert (story.s.lifecycle, story.s.checkpoint.n) == (Lifecycle.PARKED, 2)
    assert isinstance(story << say("on we go"), list)


def test_and_is_not_kept_for_ever_where_nobody_comes_back() -> None:
    story = forgotten(started_over_and_ended())
    assert kept(story.s, story.store.checkpoints(story.id)) == ()
    assert wake_at(story.s) is None
    assert story.after(1e9) == []


def test_a_session_of_which_nothing_was_ever_saved_has_nothing_to_go_back_to() -> None:
    story = Story()
    story << cancel()
    said = refusal(story, rewind(1))
    assert (said.code, "before anything of it was saved" in said.sentence) == ("ended", True)
    assert looked_at(story, 0) == "ended"


# -- damaged or lost --------------------------------------------------------------------------------------------------


def test_a_damaged_checkpoint_begins_nothing_and_those_before_it_do() -> None:
    story = three_turns()
    story << c.Flag(checkpoint=3, what=(DAMAGE,), reason="1 file is damaged")
    for command in (fork(), fork("by number", checkpoint=3), rewind(3)):
        said = refusal(story, command)
        assert said.code == "checkpoint_damaged"
        assert said.sentence == (
            "Checkpoint 3 cannot be brought back: workspace/app.py is damaged: its object is missing."
        )
        assert said.hint == "Choose another: 1, 2."
    assert forked(story, fork("earlier", checkpoint=2)).s.checkpoint is not None
    story << rewind(2, "back")
    assert (story.s.flagged, story.s.questions) == ((), ())
    story << c.Flag(checkpoint=2, what=(DAMAGE,), reason="1 file is damaged")
    assert story.s.flagged, "what was found damaged before hides nothing that is found now"


def test_a_lost_checkpoint_begins_nothing() -> None:
    story = three_turns()
    story << resume("r")
    story << grant()
    story << (LOST,)
    said = refusal(story, fork())
    assert (said.code, said.sentence) == (
        "checkpoint_damaged", "Checkpoint 3 cannot be brought back: what was saved is lost.",
    )  # fmt: skip


# -- more than can be saved -------------------------------------------------------------------------------------------


def test_a_rewind_that_could_not_save_what_it_leaves_is_refused_before_anything_stops() -> None:
    story = held()
    story << (TOO_MUCH, DONE)
    said = refusal(story, rewind(1))
    assert (said.code, TOO_MUCH.reason in said.sentence) == ("over_quota", True)
    assert "cancel it first" in said.hint
    assert forked(story, fork()).s.checkpoint is not None, "what is saved can be forked"


def test_one_that_finds_out_too_late_says_what_was_lost_and_why() -> None:
    story = held()
    story << rewind(1)
    story << (f.TurnEnded(result="interrupted"), TOO_MUCH)
    for _ in range(int(PARKING_S // 60)):
        story.now += 60
        story << renew(1)
    story.after(1)
    assert story.one(f.EnvironmentRolledBack).lost
    assert "more than can be saved" in story.one(f.Interrupted).reason
    assert story.fate("rewind") == "consumed"


def test_a_park_that_fails_leaves_the_rewind_that_waits_for_it_a_deadline() -> None:
    for order in (rewind(1), cancel()):
        story = waiting()
        turn(story, "m2")
        assert story.after(60) == ["session.parking"]
        story << order
        story << (f.CheckpointFailed(code="store", reason="away", retry_at=story.now + 60),)
        assert story.s.phase_until > story.now, "nothing waits for ever"
        for _ in range(int(PARKING_S // 60) + 1):
            story.now += 60
            story << renew(1)
        assert isinstance(story.after(1), list)
        assert story.s.lease is None


# -- questions and answers --------------------------------------------------------------------------------------------


def asked_late() -> Story:
    """Checkpoint 1 without, checkpoint 2 with an open question; parked."""
    story = waiting()
    story << say("m2")
    story << (began("m2"), receipt("m2", "consumed"), asks("late"), DONE)
    story << (story.saves("m2"),)
    return at_rest(story)


def test_an_answer_that_was_not_told_yet_goes_with_its_question_and_wakes_nobody() -> None:
    story = asked_late()
    story << answer("a", "late")
    assert story.s.lifecycle is Lifecycle.QUEUED
    story << rewind(1)
    assert (story.s.lifecycle, story.fate("a")) == (Lifecycle.PARKED, "abandoned")
    assert story.row("a").how == "its question is gone: the session went back to checkpoint 1, where it was not asked"
    assert uid("a") in story.one(f.Rewound).abandoned


def test_an_answer_to_a_question_that_was_asked_before_is_told_there() -> None:
    story = asked_late()
    story << answer("a", "late")
    story << grant("r2")
    story << (RESTORED,)
    story << (began("a"), receipt("a", "consumed"), DONE)
    story << (story.saves("a"),)
    at_rest(story)
    story << rewind(2)
    assert story.fate("a") == "abandoned", "it was told on the line that was left"
    again = asked_late()
    again << answer("a", "late")
    again << rewind(2)
    assert (again.s.lifecycle, again.fate("a")) == (Lifecycle.QUEUED, "accepted")


def test_a_session_back_where_its_question_is_open_waits_for_the_answer() -> None:
    story = asked_late()
    turn(story, "m3")
    at_rest(story)
    story << rewind(2)
    assert len(story.s.questions) == 1
    assert (story.s.turn.waiting_for, words(story.s).must_act) == ("answer", "human")
    story << rewind(1, "further")
    s = story.s
    assert (len(s.questions), s.turn.waiting_for) == (0, "message")


def test_a_rewind_while_its_runner_is_out_of_contact_loses_nothing_that_the_runner_still_brings() -> None:
    story = asked_late()
    story << answer("a", "late")
    story << grant()
    story << (RESTORED, began("a"), receipt("a", "consumed"))
    story.after(LEASE_S)
    story << rewind(1)
    story << renew(story.s.epoch)
    story << (f.TurnEnded(result="interrupted"), story.saves("a"), STOPPED)
    assert (story.fate("a"), [one.n for one in story.store.checkpoints(story.id)]) == ("abandoned", [1, 2, 3])
