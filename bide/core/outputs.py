"""What events have no room for: which of a lease's outputs are kept whole, and which of them are still on their way.

An output is named after the fact that cuts it, `<epoch>-<n>`: nobody else can name one so, and no later lease can.
"""

from __future__ import annotations

import re

from bide.core import effects as e
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.hearing import fact_of, whole_of
from bide.core.limits import OUTPUT_PATIENCE_S, OUTPUT_REASONS_MAX, RAWS_MAX
from bide.core.outbox import Outbox
from bide.core.wire import Glimpse

NAME = r"(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,15})"


def epoch_of(name: str) -> int:
    """The epoch whose runner may bring an output of this name; -1 for what names none."""
    found = re.fullmatch(NAME, name)
    return int(found[1]) if found else -1


class Outputs:
    """Those of one lease. Its last word waits for them, for a while."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.waiting: dict[str, None] = {}  # in the order of their telling
        self.until = 0.0  # how long the last word waits; 0: nobody has wanted to say it
        self._fresh: list[e.Store] = []
        self._told: set[str] = set()
        self._raws = (0, 0)  # the turn, and how many lines that are no frames it had

    def hear(self, event: r.RuntimeEvent, runtime: str, turn: int) -> None:
        """Records what the runtime said, and has it kept where its event cuts it."""
        if isinstance(event, r.Unknown) and not self._is_bearable(turn):
            return
        name = f"{self._outbox.epoch}-{self._outbox.n}"
        fact = fact_of(event, runtime, name)
        if fact is None or self._outbox.closed:
            return
        whole = whole_of(event)
        if _blob(fact) == name:
            self._add(name, whole.text, whole.file)
        self._outbox.record(fact)
        if whole.lost:
            self._not_kept(name, whole.lost)

    def _is_bearable(self, turn: int) -> bool:
        """Whether there is room for another line that means nothing."""
        self._raws = (turn, self._raws[1] + 1 if self._raws[0] == turn else 1)
        if self._raws[1] == RAWS_MAX + 1:
            text = f"The runtime wrote more than {RAWS_MAX} lines that are no frames of it; the others of this turn are left out."
            self._outbox.record(f.Note(text=text, code="raw_left_out"))
        return self._raws[1] <= RAWS_MAX

    def glimpse(self, event: r.Glimpsed, turn: int) -> Glimpse:
        """What the runtime says while it is not done saying it."""
        box = self._outbox
        return Glimpse(session=box.session, epoch=box.epoch, n=box.n, turn=turn, kind=event.kind, text=event.text)

    def again(self, name: str) -> None:
        """One that an earlier process of the runner left on its disk."""
        self._add(name, "", "")

    def _add(self, name: str, text: str, file: str) -> None:
        box = self._outbox
        self.waiting[name], self.until = None, 0.0
        self._fresh.append(e.Store(session=box.session, epoch=box.epoch, name=name, text=text, file=file))

    def taken(self) -> list[e.Store]:
        """What is new for the shell. Once for each."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def stored(self, name: str, why_not: str) -> None:
        """One is kept, or cannot be."""
        if name in self.waiting:
            del self.waiting[name]
            self.until = self.until if self.waiting else 0.0
            if why_not:
                self._not_kept(name, why_not)

    def settled(self, now: float) -> bool:
        """Whether the last word may be said: nothing is on its way, or it was waited for long enough."""
        if self.waiting and not self.until:
            self.until = now + OUTPUT_PATIENCE_S
        if self.waiting and now >= self.until:
            first, *others = self.waiting
            self.waiting.clear()
            self.until = 0.0
            more = f", and {len(others)} more," if others else ""
            self._not_kept(f"{first}{more}", "it could not be brought to the server in time")
        return not self.waiting

    def _not_kept(self, name: str, why: str) -> None:
        """Told once for each reason: where one fails, others do as well."""
        if why in self._told or len(self._told) >= OUTPUT_REASONS_MAX:
            return
        self._told.add(why)
        text = f"What was cut as {name} is not kept whole: {why}. Others may be missing for the same reason."
        self._outbox.record(f.Note(text=text, code="output_not_kept"))


def _blob(fact: f.RunnerFact) -> str:
    return str(getattr(fact, "blob", ""))
