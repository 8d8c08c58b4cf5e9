"""When one lease saves its checkpoints, what each contains, and what becomes of those that fail."""

from __future__ import annotations

from math import inf

from bide.core import effects as e
from bide.core import facts as f
from bide.core import ids
from bide.core.hearing import clean
from bide.core.kept import Kept
from bide.core.limits import CLONE_SAVE_S, retry_wait_s
from bide.core.session import OVER_QUOTA, Pending


class Saver:
    """One capture at a time. `unsaved` while something may have changed since the last one began."""

    def __init__(
        self, session: str, epoch: int, last: f.Checkpoint | None, interval_s: float, now: float, used: int = 0
    ) -> None:
        """`used` is the highest number that a checkpoint of the session has."""
        self.session, self.epoch, self.interval_s = session, epoch, interval_s
        self.last = last
        # Of the newest attempt: a number is used once, even by one that failed, or by one that was left behind.
        self.n = max(used, last.n if last else 0)
        self.input_cursor = last.input_cursor if last else ""
        self.taken: list[str] = []  # inputs in the runtime's state, not yet in a saved checkpoint
        self.unsaved = False
        self.fresh = False  # its folder is a new clone
        self.saved_at = now
        self.told: dict[str, Pending] = {}  # inputs that the runtime was told, and may have taken
        self.may_hold: tuple[str, ...] = ()  # those of the capture under way
        self.under_way: e.Capture | None = None
        self.final = False  # nothing of the session ran when it began
        self.quiet = True
        self.failed = 0
        self.not_before = 0.0
        self.over = False  # the workspace holds more than may be saved, and that was told

    def adopt(self, kept: Kept) -> None:
        """Goes on after the captures of an earlier process."""
        self.n, self.taken = max(self.n, kept.attempts), list(kept.taken)
        self.unsaved = kept.unsaved or kept.turn_open

    def due(self, now: float, turn_open: bool) -> bool:
        """Whether to begin one now, with no goal in sight."""
        if self.under_way or not self.unsaved or now < self.not_before:
            return False
        return not turn_open or self.last is None or now >= self.saved_at + self.interval_s

    @property
    def holds_until(self) -> float:
        """Until when the first turn waits for the save of the fresh clone, so that it is of nothing else; 0: it does not."""
        waits = self.fresh and self.last is None and self.under_way is not None
        return self.saved_at + CLONE_SAVE_S if waits else 0.0

    def next_times(self, goal: str, turn_open: bool, running: bool) -> list[float]:
        """When a capture may next begin, given what its lease is at; none while one is under way."""
        if self.under_way or self.not_before == inf:
            return []
        if turn_open:
            return [max(self.not_before, self.saved_at + self.interval_s)] if goal in ("", "park") else []
        wanted = not running if goal else self.unsaved
        return [self.not_before] if self.not_before and wanted else []

    def begin(self, turn: int, turn_open: bool, at_n: int, final: bool = False) -> e.Capture:
        """The next capture; its runtime state is read before its files."""
        self.n += 1
        self.under_way = e.Capture(
            session=self.session, epoch=self.epoch, n=self.n, turn=turn, turn_open=turn_open,
            consumed=tuple(self.taken), at_n=at_n,
        )  # fmt: skip
        self.may_hold = tuple(self.told)
        self.quiet, self.unsaved, self.not_before, self.final = not turn_open, turn_open, 0.0, final
        return self.under_way

    def disturbed(self) -> None:
        """A turn began: what is being captured is only crash-consistent, and there is something new to save."""
        self.unsaved = True
        if self.under_way:
            self.quiet = False

    def turn_over(self) -> None:
        """A turn ended: what held too much may hold less now."""
        self.not_before = 0.0 if self.not_before == inf else self.not_before

    def saved(self, done: e.Captured, version: str, now: float, wall: float) -> f.CheckpointSaved:
        """The checkpoint that is now safe."""
        asked = self.under_way
        assert asked is not None
        self.under_way, self.failed, self.saved_at, self.over = None, 0, now, False
        self.taken = [i for i in self.taken if i not in asked.consumed]
        self.input_cursor = asked.consumed[-1] if asked.consumed else self.input_cursor
        spoken = (
            asked.turn or asked.turn_open or not self.quiet
        )  # else there is no conversation that a runtime could read
        before = self.last.runtime_version if self.last else ""
        self.last = f.Checkpoint(
            id=ids.mint(now + wall, self.session, self.epoch, "checkpoint", asked.n), n=asked.n, epoch=self.epoch,
            root=done.root, turn=asked.turn, turn_open=asked.turn_open, consumed=asked.consumed,
            told=self.may_hold, input_cursor=self.input_cursor, at_n=asked.at_n, files=done.files, bytes=done.bytes,
            new_bytes=done.new_bytes, seconds=done.seconds, consistency="quiet" if self.quiet else "crash",
            verified_at=done.verified_at, kept=done.kept, not_kept=done.not_kept, workspace=done.workspace,
            runtime_version=(version if spoken else "") or before, stopped=done.stopped, toolchain=done.toolchain,
        )  # fmt: skip
        return f.CheckpointSaved(checkpoint=self.last)

    def waits(self, why: str) -> f.CheckpointFailed:
        """The attempt goes on, but whoever waits for it should know why it takes so long."""
        return f.CheckpointFailed(code="blobs_unavailable", reason=clean(f"Saving waits. {why}"))

    def not_saved(self, why: e.NotCaptured, now: float, patient: bool) -> f.CheckpointFailed:
        """The attempt failed: nothing is freed, and it is tried again after a while. What holds too much holds as much
        until something works on it: a `patient` one waits for the end of the next turn.
        """
        self.under_way, self.unsaved, self.not_before = None, True, now + retry_wait_s(self.failed)
        self.failed += 1
        self.over = why.code == OVER_QUOTA
        if self.over and patient:
            self.not_before = inf
        return f.CheckpointFailed(code=why.code, reason=clean(why.reason))
