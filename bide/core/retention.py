"""When people are warned that a session's time is nearly over, and when it is: pure arithmetic on moments."""

from __future__ import annotations

from bide.core.limits import WARN_LAST_S, WARN_SAME_S, WARN_SHARES


def warnings(since: float, until: float) -> tuple[float, ...]:
    """The moments of the warnings of one stretch of keeping, in order; there is always one."""
    span = until - since
    moments = (*(since + share * span for share in WARN_SHARES), until - WARN_LAST_S)
    return tuple(sorted(moment for moment in moments if moment > since)) or (until,)


def notice_s(since: float, until: float) -> float:
    """How long before the end the last warning comes: nothing ends with less notice."""
    return until - warnings(since, until)[-1]


def next_moment(since: float, until: float, warned_at: float) -> float:
    """The next warning, or the end when the last one was given."""
    return next((moment for moment in warnings(since, until) if moment > warned_at + WARN_SAME_S), until)
