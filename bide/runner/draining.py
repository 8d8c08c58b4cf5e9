"""Why this runner takes nothing more, and how long what it holds may still take: told to go, or ordered by the server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable

import structlog

from bide.core.limits import DRAIN_ALONE_S, DRAIN_SAVE_S, SYNC_PATIENCE_S_MIN
from bide.core.wire import SyncReply
from bide.runner.loop import Loop

LOG = structlog.get_logger()


class Draining:
    """Both at once are one drain, with the earlier deadline; only an order can be taken back."""

    def __init__(self, loop: Loop, going: asyncio.Event, deadline_s: float) -> None:
        """`going` is set when the process is told to end."""
        self._loop, self._going, self._deadline_s = loop, going, deadline_s
        self.ordered = False
        self._turns_until = {"ordered": math.inf, "going": math.inf}  # then turns are stopped
        self._end = math.inf  # then the process goes, whatever is left
        self._alone_until = math.inf  # the server is away: then it goes without its word
        self._interrupted = False
        self._held: set[str] = set()

    @property
    def on(self) -> bool:
        return self.ordered or self._going.is_set()

    def heard(self, reply: SyncReply) -> None:
        """The server answered, and says whether it wants a drain."""
        self._alone_until = math.inf
        if reply.drain:
            self.ordered = True
            self._begin("ordered", self._loop.clock() + reply.drain_s)
        elif self.ordered:
            self.ordered, self._turns_until["ordered"] = False, math.inf
            if not self._going.is_set():
                LOG.info("drain_taken_back")
                self._interrupted = False
                self._loop.machine.go_on_taking()

    def _begin(self, why: str, turns_until: float) -> None:
        self._turns_until[why] = turns_until
        self._held |= self._loop.machine.runs.keys()
        if not self._loop.machine.draining:
            turns_s = round(turns_until - self._loop.clock())
            LOG.info("draining", why=why, sessions=sorted(self._held), turns_end_within_s=turns_s)
            self._loop.perform(self._loop.machine.drain(self._loop.now()))

    def unheard(self) -> None:
        """The server is away. With nobody to save to, waiting long helps nobody."""
        if self._going.is_set():
            alone_s = min(DRAIN_ALONE_S, self._deadline_s)
            self._alone_until = min(self._alone_until, self._loop.clock() + alone_s)

    def look(self) -> None:
        """Begins where the process was told to end, and stops the turns that still run at the deadline."""
        if self._going.is_set() and self._end == math.inf:
            turns_until = self._loop.clock() + self._deadline_s
            self._end = turns_until + DRAIN_SAVE_S
            self._begin("going", turns_until)
        if self._loop.clock() >= min(self._turns_until.values()) and not self._interrupted:
            self._interrupted = True
            self._loop.perform(self._loop.machine.interrupt_all(self._loop.now()))

    @property
    def patience_s(self) -> float:
        """How long the server's answer may be waited for: a server that hangs must not hold up what is due, seconds."""
        if not self._going.is_set():
            return math.inf
        due = min(self._end, self._alone_until, math.inf if self._interrupted else self._turns_until["going"])
        return max(min(DRAIN_ALONE_S, self._deadline_s, due - self._loop.clock()), SYNC_PATIENCE_S_MIN)

    @property
    def over(self) -> bool:
        """Whether the process has to go with what is left."""
        return self._loop.clock() >= min(self._end, self._alone_until)

    def tell_results(self, warm: Iterable[str]) -> None:
        """One line in the log for each session that was held: saved, left here, or given up to another runner."""
        saved, left = set(warm), {*self._loop.machine.runs, *self._loop.machine.left}
        for session in sorted(self._held | left):
            result = "left" if session in left else "saved" if session in saved else "given_up"
            LOG.info("drained", session=session, result=result)
