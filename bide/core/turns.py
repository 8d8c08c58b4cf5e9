"""The turns of one lease: which is under way, what people stopped of it, and whether it has to be taken up again."""

from __future__ import annotations

from typing import Literal

from bide.core import facts as f
from bide.core.outbox import Outbox
from bide.core.saver import Saver

Result = Literal["completed", "interrupted", "failed"]


class Turns:
    """`n` counts the turns of the session; `open` while the last of them runs."""

    def __init__(self, outbox: Outbox, saver: Saver, n: int) -> None:
        self._outbox, self._saver = outbox, saver
        self.n, self.open = n, False
        self.stopping = False  # the runtime was told to stop it
        self.interrupts: list[str] = []  # whose receipts wait for its end
        self.cut_short = False  # a drain stopped it: it goes on elsewhere by itself
        self.resumed_midway = False  # the restored conversation holds an input whose turn never ended

    def begin(self, input_ids: tuple[str, ...]) -> None:
        """The next one, with these inputs."""
        self.n, self.open = self.n + 1, True
        self._saver.disturbed()
        self._outbox.record(f.TurnStarted(input_ids=input_ids))

    def close(self, result: Result, detail: str = "") -> None:
        """It is over: those who stopped it are told."""
        self.open = self.stopping = False
        for input_id in self.interrupts:
            self._outbox.receipt(input_id, "consumed", how=f"stopped turn {self.n}", turn=self.n)
        self.interrupts.clear()
        self._outbox.record(f.TurnEnded(result=result, detail=detail if result == "failed" else ""))
        self._saver.turn_over()

    def stopped_by(self, input_id: str) -> None:
        """A person stops it: it does not go on by itself, and its end settles the receipt."""
        self.cut_short = self.resumed_midway = False
        if self.open:
            self.interrupts.append(input_id)

    def leave_off(self) -> None:
        """It ends with its runtime, by nobody's wish."""
        self.cut_short = self.cut_short or (self.open and not self.stopping)
