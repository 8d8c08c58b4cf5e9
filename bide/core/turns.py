"""The turns of one lease: which is under way, what people stopped of it, and whether it has to be taken up again."""

from __future__ import annotations

from typing import Literal

from bide.core import facts as f
from bide.core.limits import LEFT_NAMED_MAX
from bide.core.outbox import Outbox
from bide.core.saver import Saver
from bide.core.troubles import OF_TURNS

Result = Literal["completed", "interrupted", "failed"]


class Turns:
    """`n` counts the turns of the session; `open` while the last of them runs. `freed` is what the server says of holding."""

    def __init__(self, outbox: Outbox, saver: Saver, n: int, freed: int | None = None) -> None:
        self._outbox, self._saver = outbox, saver
        self.n, self.open = n, False
        self.stopping = False  # the runtime was told to stop it
        self.interrupts: list[str] = []  # whose receipts wait for its end
        self.left: tuple[str, ...] = ()  # what it and those before it left running
        self.redirect = ""  # the message that takes its place
        self.cut_short = False  # a drain stopped it: it goes on elsewhere by itself
        self.resumed_midway = False  # the restored conversation holds an input whose turn never ended
        self.silent = ""  # why it is stopped: nothing was heard of it for too long
        self.worked = False  # one came to its end in this lease
        self.trouble = ""  # what the runtime met in it, if that holds what comes next
        self.retry_after_s = 0.0  # and for how long the model wants to be left alone
        self.can_hold = freed is not None
        self.held = n + 1 if freed is not None and freed <= n else 0  # this turn does not begin before it is freed

    @property
    def by_people(self) -> bool:
        """Whether somebody stops it."""
        return bool(self.interrupts or self.redirect)

    def begin(self, input_ids: tuple[str, ...]) -> None:
        """The next one, with these inputs."""
        self.n, self.open, self.trouble, self.silent = self.n + 1, True, "", ""
        self.retry_after_s = 0.0
        self._saver.disturbed()
        self._outbox.record(f.TurnStarted(input_ids=input_ids))

    def close(self, result: Result, detail: str = "") -> None:
        """It is over: those who stopped it are told."""
        self.open = self.stopping = False
        self.worked = self.worked or result != "failed"
        how = f"stopped turn {self.n}" if result == "interrupted" else f"turn {self.n} ended by itself"
        for input_id in self.interrupts:
            self._outbox.receipt(input_id, "consumed", how=how, turn=self.n)
        self.interrupts.clear()
        if self.silent and result != "completed":
            result, detail = "failed", self.silent
        self.silent = ""
        failed, code = result == "failed", self.trouble if result == "failed" else ""
        after_s = self.retry_after_s if code else 0.0
        self._outbox.record(
            f.TurnEnded(result=result, detail=detail if failed else "", code=code, retry_after_s=after_s)
        )
        if code:
            self.hold()
        self._saver.turn_over()

    def leaves(self, running: tuple[str, ...]) -> None:
        """What its tools left running: told when it is something else than before."""
        if running and running != self.left:
            named, more = ", ".join(running[:LEFT_NAMED_MAX]), len(running) - LEFT_NAMED_MAX
            self._outbox.record(
                f.Note(text=f"Left running: {named}{f' and {more} more' * (more > 0)}", code="left_running")
            )
        self.left = running

    def clear(self) -> str:
        """What an interrupt between turns comes to: what was left is ended by it."""
        ended, self.left = len(self.left), ()
        return f"; {ended} background process{'es' * (ended > 1)} ended" * (ended > 0)

    def stopped_by(self, input_id: str) -> None:
        """A person stops it: it does not go on by itself, and its end settles the receipt."""
        self.cut_short = self.resumed_midway = False
        if self.open:
            self.interrupts.append(input_id)

    def met(self, code: str) -> bool:
        """A trouble was told of. The last that may hold the turn counts; whether it was that already, and is known."""
        known = code == self.trouble
        if code in OF_TURNS:
            self.trouble = code
        return known

    def hold(self) -> None:
        """Nothing more is told to the runtime until the server says so."""
        self.held = self.n + 1 if self.can_hold else 0

    def leave_off(self) -> None:
        """It ends with its runtime, by nobody's wish."""
        self.cut_short = self.cut_short or (self.open and not self.stopping)
