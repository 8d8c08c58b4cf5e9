"""What a reader is told besides events: which sessions have changed, named at most so often. A hint, never the truth."""

from __future__ import annotations

import msgspec

from bide.core import ids
from bide.core.limits import CHANGES_S, WAKEUPS_MAX
from bide.store.wakeups import Wakeup

_encode = msgspec.json.Encoder().encode


class Hints:
    """Changes that one reader has not been told of yet, each session once. Times are of any clock that only goes on."""

    def __init__(self) -> None:
        self._changed: set[str] = set()
        self._everything = True  # who has just come knows nothing of what changed before
        self._told_at = float("-inf")

    def take(self, wakeup: Wakeup) -> None:
        """Notes what a wake-up names; queues and orders for runners ring with names that are no sessions."""
        if wakeup.everything:
            self._everything = True
        else:
            self._changed.update(filter(ids.is_id, wakeup.sessions))
        if self._everything or len(self._changed) > WAKEUPS_MAX:
            self._changed.clear()
            self._everything = True

    def within_s(self, now: float) -> float | None:
        """How long the reader has yet to wait for the next frame; None where there is nothing to tell."""
        if not (self._changed or self._everything):
            return None
        return max(0.0, self._told_at + CHANGES_S - now)

    def frame(self, now: float) -> bytes:
        """The frame that is due, empty if none is. It has no id: the reader's place in the log stays what it was."""
        if self.within_s(now) != 0.0:
            return b""
        told: dict[str, object] = {"everything": True} if self._everything else {"sessions": sorted(self._changed)}
        self._changed.clear()
        self._everything = False
        self._told_at = now
        return b"event: changes\ndata: %b\n\n" % _encode(told)
