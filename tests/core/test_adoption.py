"""A runner's process dies and the next one finds the disk intact: nothing that was done or said is lost or done twice."""

from __future__ import annotations

import pytest

from bide.core import commands as c
from bide.core import facts as f
from bide.core.lease import granted as granted_lease
from bide.core.limits import TAKEUPS_MAX
from tests.core.playbook import (
    DONE,
    EDIT,
    LEASE_S,
    PROMPT,
    RESTORED,
    Story,
    answer,
    asks,
    began,
    cancel,
    grant,
    leased,
    park,
    qid,
    receipt,
    say,
    waiting,
    working,
)

# -- the server: who may come back ------------------------------------------------------------------------------------


def adopt(epoch: int = 1, of: int = 0, boot: str = "2", was: str = "1", runner: str = "r1") -> c.Adopt:
    return c.Adopt(
        runner=runner, runner_name=runner, boot=boot, epoch=epoch, of=of or epoch, was_boot=was, lease_s=LEASE_S
    )


def tail(story: Story, first: int, *facts: f.RunnerFact, of: int = 1) -> c.Report:
    """The last facts of an adopted epoch."""
    return c.Report(runner="r1", epoch=story.s.epoch, first=first, facts=facts, of=of)


def second_turn() -> Story:
    """Checkpoint 1 is saved; a second turn has begun."""
    story = waiting()
    story << say("m")
    story << (began("m"), receipt("m", "delivered"), receipt("m", "consumed"))
    return story


def adopted() -> tuple[Story, int]:
    """In the middle of its turn it was taken up by the next process of r1; the first fact that is still to be told."""
    story = working()
    first = story.s.n
    assert story << adopt() == ["session.leased"]
    return story, first


def test_a_session_taken_up_again_goes_on_in_the_turn_it_was_in() -> None:
    story, first = adopted()
    assert (story.s.epoch, story.s.turn.open, story.s.lifecycle) == (2, True, "active")
    assert story << tail(story, first, EDIT, DONE) == ["tool.call", "turn.ended"]
    assert [(e.epoch, e.n) for e in story.log()[-2:]] == [(1, first), (1, first + 1)]
    assert story << (RESTORED, began()) == ["environment.restored", "turn.started"]
    assert [(e.epoch, e.n) for e in story.log()[-2:]] == [(2, 0), (2, 1)]


def test_nothing_is_called_lost_of_a_session_taken_up_again() -> None:
    story, _ = adopted()
    told = {e.type for e in story.log()}
    assert not told & {"environment.rolled_back", "environment.lost", "turn.ended", "session.interrupted"}
    assert story.s.unsaved.turns


def test_a_runner_comes_back_in_the_recovery_window_too_and_not_after_it() -> None:
    story = working()
    story.after(LEASE_S)
    assert story << adopt() == ["session.leased"]
    late = working()
    late.after(LEASE_S)
    late.after(60)
    assert late << adopt() == "no: fenced"


def test_nobody_comes_back_once_another_lease_was_granted() -> None:
    story = second_turn()
    story << c.Disown(runner="r1", epoch=1, reason="its machine is gone")
    assert isinstance(story << grant("r2"), list)
    assert story << adopt() == "no: fenced"


@pytest.mark.parametrize(
    "stranger", [adopt(was="0"), adopt(runner="r2"), adopt(epoch=2)], ids=["process", "runner", "epoch"]
)
def test_only_the_runner_whose_process_held_it_takes_it_up(stranger: c.Adopt) -> None:
    assert working() << stranger == "no: fenced"


def test_a_repeated_offer_whose_answer_was_lost_makes_no_second_lease() -> None:
    story, first = adopted()
    assert story << adopt() == []
    grant = granted_lease(story.s, LEASE_S, LEASE_S)
    assert (grant.epoch, grant.adopted_from, grant.tail_n) == (2, 1, first)


def test_a_process_that_dies_before_it_hears_of_its_adoption_does_not_cost_the_work() -> None:
    story, first = adopted()
    assert story << adopt(boot="3", was="1") == ["session.leased"]
    grant = granted_lease(story.s, LEASE_S, LEASE_S)
    assert (grant.epoch, grant.adopted_from, grant.tail_n) == (3, 1, first)


def test_a_session_that_brings_down_whoever_takes_it_up_is_not_taken_up_for_ever() -> None:
    story, _ = adopted()
    for n in range(2, TAKEUPS_MAX + 1):
        story << (RESTORED,)
        assert story << adopt(epoch=story.s.epoch, boot=f"2{n:02}", was=story.s.last_boot) == ["session.leased"]
    story << (RESTORED,)
    assert story << adopt(epoch=story.s.epoch, boot="300", was=story.s.last_boot) == "no: fenced"


def test_a_tail_told_twice_stands_in_the_log_once() -> None:
    story, first = adopted()
    assert story << tail(story, first, EDIT, DONE) == ["tool.call", "turn.ended"]
    assert story << tail(story, first, EDIT, DONE) == []
    assert story << tail(story, first, EDIT, DONE, f.Note(text="new")) == ["note"]


def test_a_hole_in_the_tail_is_refused_with_where_to_begin() -> None:
    story, first = adopted()
    assert story << tail(story, first + 1, DONE) == "no: gap"
    assert story.refusal is not None
    assert story.refusal.more["next"] == first


def test_nothing_of_the_old_epoch_counts_once_the_new_one_has_spoken() -> None:
    story, first = adopted()
    story << (RESTORED,)
    assert story << tail(story, first, EDIT) == "no: fenced"


def test_a_word_of_the_dead_process_itself_is_fenced() -> None:
    story, first = adopted()
    assert story << c.Report(runner="r1", epoch=1, first=first, facts=(EDIT,)) == "no: fenced"


def test_an_epoch_that_was_not_adopted_has_no_tail() -> None:
    story = second_turn()
    story << c.Disown(runner="r1", epoch=1, reason="restarted")
    assert isinstance(story << grant("r1", boot="2"), list)
    assert story << tail(story, 0, EDIT) == "no: fenced"


def test_a_second_crash_in_the_middle_of_telling_goes_on_where_the_first_stopped() -> None:
    story, first = adopted()
    story << tail(story, first, EDIT)
    assert story << adopt(epoch=2, of=1, boot="3", was="2") == ["session.leased"]
    grant = granted_lease(story.s, LEASE_S, LEASE_S)
    assert (grant.epoch, grant.adopted_from, grant.tail_n) == (3, 1, first + 1)
    assert story << tail(story, first, EDIT, DONE) == ["turn.ended"]


def test_a_second_crash_before_anything_was_told_loses_nothing_of_the_tail() -> None:
    story, first = adopted()
    story << adopt(epoch=2, of=1, boot="3", was="2")
    assert story << tail(story, first, EDIT, DONE) == ["tool.call", "turn.ended"]


def test_a_crash_after_the_telling_adopts_the_epoch_that_has_spoken() -> None:
    story, first = adopted()
    story << tail(story, first, EDIT)
    story << (RESTORED, EDIT)
    assert story << adopt(epoch=2, of=1, boot="3", was="2") == "no: fenced"
    assert story << adopt(epoch=2, of=2, boot="3", was="2") == ["session.leased"]
    assert story << tail(story, 2, DONE, of=2) == ["turn.ended"]


def test_a_park_that_was_saved_but_not_told_is_not_done_again() -> None:
    story = waiting()
    first = story.s.n
    story << adopt()
    assert story << tail(story, first, f.Parked(checkpoint=1)) == ["session.parked"]
    assert story.s.lease is None


def test_an_answer_that_came_while_the_last_word_waited_to_be_told_wakes_the_session() -> None:
    story = waiting(asks("q"))
    first = story.s.n
    story << adopt()
    story << answer("a", "q")
    assert story << tail(story, first, f.Parked(checkpoint=1)) == ["session.parked", "session.queued"]


def test_a_checkpoint_in_the_tail_keeps_the_name_that_it_was_written_under() -> None:
    story = working()
    first, saved = story.s.n, story.saves("prompt")
    story << adopt()
    assert story << tail(story, first, saved) == ["checkpoint.saved"]
    assert story.s.checkpoint is not None
    assert (story.s.checkpoint.root, story.s.checkpoint.epoch) == (f"{story.id}/1-1", 1)


def test_work_after_a_checkpoint_of_the_tail_is_what_a_later_loss_names() -> None:
    story = working()
    first, saved = story.s.n, story.saves("prompt")
    story << adopt()
    story << tail(story, first, saved, DONE)
    story << (RESTORED,)
    story << say("m")
    story << (began("m"), receipt("m", "delivered"), receipt("m", "consumed"), EDIT)
    story << c.Disown(runner="r1", epoch=2, reason="its machine is gone")
    rolled = story.one(f.EnvironmentRolledBack)
    assert rolled.checkpoint == 1
    assert story.fate("m") == "accepted"
    assert story.fate("prompt") == "consumed"


def test_a_question_asked_in_the_tail_can_be_answered_and_survives_a_rollback_to_a_later_save() -> None:
    story = working()
    first = story.s.n
    story << adopt()
    story << tail(story, first, asks("q"), DONE)
    story << (RESTORED, story.saves("prompt"))
    story << c.Disown(runner="r1", epoch=2, reason="its machine is gone")
    assert [q.id for q in story.s.questions] == [qid("q")]
    assert isinstance(story << answer("a", "q"), list)


def test_a_question_of_a_tail_that_is_lost_afterwards_is_withdrawn() -> None:
    story = second_turn()
    first = story.s.n
    story << adopt()
    story << tail(story, first, asks("q"))
    story << c.Disown(runner="r1", epoch=2, reason="its machine is gone")
    assert story.s.questions == ()
    assert story << answer("a", "q") == "no: question_closed"


def test_a_cancel_that_came_meanwhile_holds() -> None:
    story, first = adopted()
    story << cancel()
    story << tail(story, first, EDIT)
    assert story << (RESTORED, DONE) == ["environment.restored", "turn.ended"]
    assert story << (f.Ended(outcome="cancelled"),) == ["user.receipt", "session.ended"]
    assert story.s.outcome == "cancelled"


def test_a_cancel_before_the_crash_is_told_to_the_process_that_takes_up() -> None:
    story = working()
    story << cancel()
    story << adopt()
    assert story.s.cancelling
    assert [p.type for p in granted_lease(story.s, LEASE_S, LEASE_S).job.inputs] == ["user.cancel"]


def test_a_start_that_never_came_to_a_workspace_is_taken_up_by_nobody_but_told_to_its_end() -> None:
    story = leased()
    assert story << adopt() == ["session.leased"]
    assert story << tail(story, 0, RESTORED) == ["environment.restored"]


def test_a_park_asked_for_before_the_crash_is_done_by_the_process_that_takes_up() -> None:
    story = waiting()
    story << park()
    story << adopt()
    assert story << (RESTORED,) == ["environment.restored", "session.parking"]


def test_a_runner_that_comes_back_hears_of_what_it_told_and_any_other_does_not() -> None:
    story = leased()
    story << (RESTORED, began("prompt"), receipt("prompt", "delivered"))
    assert granted_lease(story.s, LEASE_S, LEASE_S).job.inputs == ()
    story << adopt()
    assert [p.id for p in granted_lease(story.s, LEASE_S, LEASE_S).job.inputs] == [PROMPT]
