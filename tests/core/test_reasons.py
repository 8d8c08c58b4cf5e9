"""A failure that is over is not shown as if it were not: people would look for a cause that is gone."""

from __future__ import annotations

from bide.core import facts as f
from tests.core.playbook import waiting

AWAY = f.CheckpointFailed(code="store", reason="the blob store is away")


def test_a_save_that_works_takes_back_what_the_failed_one_said() -> None:
    story = waiting()
    story << (AWAY,)
    assert story.s.reason == "the blob store is away"
    story << (story.saves(),)
    assert story.s.reason == ""


def test_a_save_that_works_does_not_hide_another_failure() -> None:
    story = waiting()
    story << (AWAY, f.Error(code="quota", sentence="The model is out of reach.", hint=""), story.saves())
    assert story.s.reason == "The model is out of reach."
