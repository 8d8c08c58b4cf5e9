"""What a lease keeps beside its folder, so that a later process of the same runner can take the session up."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from bide.core.facts import Checkpoint, RunnerFact
from bide.core.session import Pending


class Kept(Struct, frozen=True, kw_only=True):
    """All of a lease that its folder and the server do not know."""

    place: Literal["telling", "restoring", "here", "leaving"]
    closed: bool  # the last word is said
    turn: int
    turn_open: bool
    cut_short: bool  # a drain stopped the last turn, or it has still to be taken up again
    finish: str | None = None  # the summary: only the saving lacks
    untaken: tuple[Pending, ...]  # told to the runtime, not found in its state yet
    interrupts: tuple[str, ...]
    told: tuple[str, ...]
    preamble: tuple[str, ...]
    checkpoint: Checkpoint | None
    attempts: int  # captures so far: the name of a root is used once
    taken: tuple[str, ...]  # inputs in the runtime's state that no checkpoint holds yet
    unsaved: bool
    made: dict[str, str]  # calls of our tools, answered
    version: str
    conversation: str  # the runtime's own id of it
    held: int = 0  # the turn that is held back


class Left(Struct, frozen=True, kw_only=True):
    """What an earlier process left behind of one session: its lease, and the facts `first`, … of epoch `of` to tell."""

    session: str
    epoch: int
    boot: str
    of: int
    first: int
    facts: tuple[RunnerFact, ...]
    kept: Kept

    @property
    def whole(self) -> bool:
        """Whether there is a workspace to take up, or at least a last word to say."""
        return self.kept.place == "here" or self.kept.closed or (self.kept.place == "telling" and self.of < self.epoch)

    @property
    def saved(self) -> bool:
        """Whether the folder holds nothing that its last checkpoint lacks."""
        kept = self.kept
        return kept.checkpoint is not None and kept.place != "restoring" and not kept.unsaved and not kept.turn_open
