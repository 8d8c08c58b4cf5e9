"""No clock of a runner or a coding agent orders anything that people read."""

from __future__ import annotations

from bide.core import facts as f
from bide.core import ids
from tests.core.playbook import DONE, RESTORED, SESSION, START, began, leased

LATER, EARLIER = (ids.mint(START + offset, "asked") for offset in (3600.0, -3600.0))


def asked(question_id: str, text: str) -> f.QuestionAsked:
    return f.QuestionAsked(question=f.Question(id=question_id, session_id="", question=text, asked_at=START - 9999))


def test_a_runner_whose_clock_runs_backwards_reorders_nothing() -> None:
    story = leased()
    story << (RESTORED, began(), asked(LATER, "first"), asked(EARLIER, "second"), DONE)
    assert [q.question for q in story.store.inbox("open", None, 10)] == ["first", "second"]
    assert [q.question for q in story.store.questions(SESSION)] == ["first", "second"]
    assert [q.question for q in story.s.questions] == ["first", "second"]
    for n in range(1, 5):
        saved = story.saves("prompt", n=n).checkpoint
        backwards = f.Checkpoint(
            id=ids.mint(START - n, "save"), n=n, epoch=1, root="x", turn=1, verified_at=START - n, saved_at=START - n,
            consumed=saved.consumed if n == 1 else (),
        )  # fmt: skip
        story << (f.CheckpointSaved(checkpoint=backwards),)
    assert [one.n for one in story.store.checkpoints(SESSION)] == [1, 2, 3, 4]
    assert story.s.checkpoint is not None
    assert (story.s.checkpoint.n, story.s.checkpoint.saved_at) == (4, story.now)
    times = [e.time for e in story.log()]
    assert times == sorted(times), "the clock of the store"
