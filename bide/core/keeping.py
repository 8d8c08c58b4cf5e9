"""How long a session is kept: warnings, the end of it, what a person may change about that, and how much fits in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from bide.core import commands as c
from bide.core import facts as f
from bide.core.bounds import value_of
from bide.core.draft import Draft
from bide.core.limits import WORKSPACE_NEAR_SHARE
from bide.core.quantities import size, span, utc
from bide.core.recovery import end
from bide.core.refusals import Refused
from bide.core.retention import next_moment, notice_s
from bide.core.session import Lifecycle, Session, at_rest, is_kept, kept_until

KEPT_LONGER = "kept longer"
FORGOTTEN = "Nobody came back to it while it was kept; its workspace and conversation are deleted."


def time_passes(d: Draft, outage_until: float) -> None:
    """Warns, or ends the keeping, where it is time. Only the latest of several warnings that are due is given.

    Nothing ends during an outage or unannounced: whoever was away at the last warning is given it now, and its notice.
    """
    s, now = d.s, d.now
    if not is_kept(s):
        return
    due = next_moment(s.kept_since, s.expires_at, s.warned_at)
    if now < due:
        return
    if due < s.expires_at:
        notice = notice_s(s.kept_since, s.expires_at)
        until = s.expires_at if s.expires_at - now > notice / 2 else now + notice
        d.add(f.Expiring(expires_at=until, left_s=round(until - now, 3)))
    elif now >= outage_until:
        d.add(f.EnvironmentExpired(at=now))
        if s.lifecycle is Lifecycle.PARKED:
            end(d, "expired", FORGOTTEN)


def require_kept(s: Session) -> None:
    """Refuses what needs something saved of a session of which nothing is there any more, or never was."""
    if s.environment.state == "expired":
        raise Refused(
            "expired",
            f"Session {s.id} was kept until {utc(s.expires_at)}; its workspace and conversation are deleted.",
            f"Begin a new session with its history as recap: `bide run --recap {s.id}`.",
        )
    if s.lifecycle is Lifecycle.ENDED and not s.checkpoint_n:
        raise Refused(
            "ended",
            f"The session ended as {s.outcome} before anything of it was saved.",
            "Start a new session with `bide run`.",
        )


def require_state(s: Session) -> None:
    """Refuses to wake a session without the state that it would go on with."""
    require_kept(s)
    if s.lifecycle is Lifecycle.ENDED and s.checkpoint is None:
        raise Refused(
            "ended",
            f"The session ended as {s.outcome}, and the state that it would go on with is lost.",
            f"Take it back to an earlier checkpoint with `bide rewind {s.id}`; `bide show` lists them.",
        )


def extend(d: Draft, command: c.Extend) -> None:
    """Moves the end of the keeping further away, never nearer: who wants it kept for less has that already."""
    require_kept(d.s)
    s, longest = d.s, value_of(d.s.limits, "retention_max_s")
    kept = kept_until(s, d.now)
    if command.until <= d.now:
        raise Refused("bad_value", f"{utc(command.until)} is over.", "Name a later time.")
    if command.until > d.now + longest:
        raise Refused(
            "bad_value",
            f"It can be kept until {utc(d.now + longest)} at the latest: {span(longest)} from now.",
            "That is retention_max_s of its project; see `bide limits`.",
        )
    how = KEPT_LONGER
    if command.until < kept:
        usual = "already" if at_rest(s) else "in any case: it runs, and its retention begins when it parks or ends"
        how = f"it is kept until {utc(kept)} {usual}"
    d.add(f.UserExtend(id=command.id, until=command.until), actor=command.author)
    d.add(f.Receipt(input_id=command.id, status="consumed", how=how))


# -- how much ---------------------------------------------------------------------------------------------------------


class Quota(Struct, frozen=True, kw_only=True):
    """Whether so much can be saved, in a word and in a sentence (empty for `ok`)."""

    state: Literal["ok", "near", "over"]
    sentence: str = ""


def quota(limits: Mapping[str, float], bytes: float) -> Quota:
    """What it means that workspace and home hold so many bytes, with the limits of their session."""
    most = value_of(limits, "workspace_bytes")
    if bytes > most:
        return Quota(
            state="over",
            sentence=f"Workspace and home hold {size(bytes)}; at most {size(most)} can be saved (workspace_bytes). "
            "Nothing newer is saved until there is less.",
        )
    if bytes >= most * WORKSPACE_NEAR_SHARE:
        return Quota(
            state="near",
            sentence=f"Workspace and home hold {size(bytes)} of the {size(most)} that can be saved (workspace_bytes). "
            "Above that nothing newer is saved: delete what can be made again.",
        )
    return Quota(state="ok")
