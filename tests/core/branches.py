"""Sessions with several checkpoints, to fork and to take back."""

from __future__ import annotations

from bide.core import commands as c
from bide.core import facts as f
from bide.core.session import Lifecycle
from tests.core.playbook import DONE, EDIT, RESTORED, Story, began, grant, park, receipt, say, waiting

STOPPED = f.Ended(outcome="cancelled", summary="Cancelled.")


def turn(story: Story, name: str) -> None:
    """A message, its turn, and the checkpoint after it."""
    assert isinstance(story << say(name), list)
    if story.s.lifecycle is Lifecycle.QUEUED:
        assert isinstance(story << grant(), list)
        assert isinstance(story << (RESTORED,), list)
    assert isinstance(story << (began(name), receipt(name, "delivered"), receipt(name, "consumed"), DONE), list)
    assert story << (story.saves(name),) == ["checkpoint.saved"]


def at_rest(story: Story) -> Story:
    """Parked at its end."""
    assert isinstance(story << park(f"park {story.s.last_seq}"), list)
    assert isinstance(story << (f.Parked(checkpoint=story.s.checkpoint_n),), list)
    assert story.s.lifecycle is Lifecycle.PARKED
    return story


def three_turns() -> Story:
    """The prompt, m2 and m3, each with its checkpoint; parked."""
    story = waiting()
    turn(story, "m2")
    turn(story, "m3")
    return at_rest(story)


def forked(story: Story, command: c.Fork) -> Story:
    """The other session, as a story of its own."""
    assert story << command == ["user.fork", "session.forked", "user.receipt"]
    other = Story.__new__(Story)
    other.now, other.store, other.id, other.facts, other.refusal = story.now, story.store, command.session, [], None
    return other


def held() -> Story:
    """Two turns saved; the third works, unsaved."""
    story = waiting()
    turn(story, "m2")
    story << say("m3")
    story << (began("m3"), receipt("m3", "delivered"), receipt("m3", "consumed"), EDIT)
    return story
