"""Why a lease is to be left, and what is said last."""

from __future__ import annotations

from typing import Literal

from bide.core import effects as e
from bide.core import facts as f
from bide.core.nouns import Outcome
from bide.core.outbox import Outbox
from bide.core.saver import Saver
from bide.core.turns import Turns
from bide.core.wire import News

TOO_MUCH = "Delete what can be made again, such as build outputs and caches."
Goal = Literal["", "park", "finish", "cancel", "fail"]
_RANK: tuple[Goal, ...] = ("", "park", "finish", "fail", "cancel")
_OUTCOMES: dict[Goal, Outcome] = {"finish": "completed", "cancel": "cancelled", "fail": "failed"}


class Leaving:
    """A `goal` means: stop the runtime, save, say the last word. `parking`, `cancelling`: the server asks for it."""

    def __init__(self, outbox: Outbox, saver: Saver, turns: Turns) -> None:
        self._outbox, self._saver, self._turns = outbox, saver, turns
        self.goal: Goal = ""
        self.text = ""
        self.since = 0.0  # when the runtime was told to stop for it
        self.parking = self.cancelling = False

    def want(self, goal: Goal, text: str) -> None:
        """Cancel beats everything, everything beats park."""
        if _RANK.index(goal) > _RANK.index(self.goal) and not self._outbox.closed:
            self.goal, self.text, self._saver.not_before = goal, text, 0.0

    def hear(self, news: News) -> None:
        """Whether the server wants the session parked, or cancelled."""
        if news.parking and not self.parking:
            self.want("park", news.parking)
        elif not news.parking and self.parking and self.goal == "park" and not self._outbox.closed:
            self.goal = ""  # the server gave this park up; it will be asked for again
        self.parking, self.cancelling = bool(news.parking), news.cancelling
        if news.cancelling:
            self.want("cancel", "Cancelled.")

    def finish_if_asked(self, summary: str | None, *, early: bool) -> None:
        """A turn is over in which `finish` was called, or (None) was not; `early`: there is more to do."""
        if summary is None:
            return
        if early:
            self._outbox.record(f.Note(text=f"Finish was asked too early: {summary}", code="not_finished"))
        else:
            self.want("finish", summary)

    def not_saved(self, failed: e.NotCaptured, now: float) -> tuple[str, ...]:
        """A checkpoint failed; what the coding agent is to be told. Too much in the workspace is told once, and again
        where somebody asked for a park.
        """
        saver, told = self._saver, self._saver.over
        parks = self.goal == "park" and self.parking
        fact = saver.not_saved(failed, now, patient=parks or self.goal in ("", "finish"))
        if not (saver.over and told) or parks:
            self._outbox.record(fact)
        if saver.over and self.goal == "finish":
            self.goal = ""
            text = f"It does not end before it can be saved: {self.text}"
            self._outbox.record(f.Note(text=text, code="not_finished"))
        return (f"{failed.reason} {TOO_MUCH}",) if saver.over and not told else ()

    def last_word(self, checkpoint: int, now: float) -> f.RunnerFact:
        """What the lease came to, saved as this checkpoint."""
        if self.goal in _OUTCOMES:
            return f.Ended(outcome=_OUTCOMES[self.goal], summary=self.text)
        go_on = self._turns.cut_short or (self._turns.resumed_midway and not self.parking)
        return f.Parked(
            checkpoint=checkpoint, seconds=round(now - self.since, 3), reason=self.text, go_on=go_on
        )  # fmt: skip
