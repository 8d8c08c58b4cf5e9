"""The one vocabulary that UI, CLI, API and client show: what a session does, since when, who must act, what is next."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from bide.core.quantities import utc
from bide.core.session import Lifecycle, Session, deliverable, holding, in_doubt, rewinding, waits_for

Shown = Literal["queued", "starting", "working", "waiting", "parking", "parked", "resuming", "ended"]
SHOWN: tuple[Shown, ...] = ("queued", "starting", "working", "waiting", "parking", "parked", "resuming", "ended")


class Words(Struct, frozen=True, kw_only=True):
    """`must_act` is who (`human`, `runner`, `runtime`, `nobody`), `next_step` a sentence."""

    shown: Shown
    must_act: str
    next_step: str


_HELD = {
    "credentials": "Renew the model's credential on its runner, then answer “Try again” with `bide inbox`.",
    "budget": "Extend it with `bide extend`, or answer its question with `bide inbox`.",
    "approval": "See why with `bide logs`, then answer its question with `bide inbox`; a message tries again, too.",
}


def words(s: Session) -> Words:
    """The shown word of a session and what goes with it."""
    if s.lifecycle is Lifecycle.ENDED:
        return Words(shown="ended", must_act="nobody", next_step=_after_the_end(s))
    if s.lifecycle is Lifecycle.PARKED:
        return Words(shown="parked", must_act=_who(s), next_step=_awaited(s))
    if s.lifecycle is Lifecycle.QUEUED:
        if s.recovery_until and not s.revoked:
            return Words(
                shown="resuming", must_act="runner", next_step="Its runner may come back; else another goes on."
            )
        shown: Shown = "resuming" if s.epoch or s.checkpoint else "queued"
        return Words(shown=shown, must_act="runner", next_step="A free runner of its pool takes it.")
    if (back := rewinding(s)) is not None:
        next_step = f"It stops and is saved, then it goes back to checkpoint {back.checkpoint}."
        return Words(shown="parking", must_act="runner", next_step=next_step)
    if s.parking or s.environment.state == "saving":
        return Words(shown="parking", must_act="runner", next_step="Everything is saved, then its runner is free.")
    if s.environment.state == "restoring":
        if s.epoch > 1 or s.checkpoint:
            return Words(shown="resuming", must_act="runner", next_step="The workspace is restored.")
        return Words(shown="starting", must_act="runner", next_step="The repository is cloned.")
    if s.turn.open and s.quiet and not s.cancelling:
        return Words(shown="working", must_act="human", next_step=f"{s.quiet} Interrupt it, or wait.")
    if s.turn.open or deliverable(s) or s.cancelling:
        return Words(shown="working", must_act="runtime", next_step="Watch, send a message, or interrupt it.")
    return Words(shown="waiting", must_act=_who(s), next_step=_awaited(s))


def _who(s: Session) -> str:
    """An outage of the model is waited for by itself."""
    return "nobody" if s.retry_at and not s.questions and not in_doubt(s) else "human"


def _after_the_end(s: Session) -> str:
    if s.environment.state == "expired":
        return "It is no longer kept: begin a new session with its history as recap."
    if s.checkpoint is None and s.checkpoint_n:
        return "Its last state is lost: take it back to an earlier checkpoint with `bide rewind`."
    return "A message wakes it while it is kept." if s.checkpoint else "Start a new session."


def _awaited(s: Session) -> str:
    if any(q.kind == "loss" for q in s.questions):
        return "Its saved state is lost: say how to go on with `bide inbox`."
    if s.flagged:
        return "What was saved of it is damaged: see what with `bide show`."
    if holding(s):
        return _HELD.get(waits_for(s)) or f"It is tried again {utc(s.retry_at)}; `bide resume` tries it now."
    if any(q.blocking for q in s.questions):
        return "Answer its question with `bide inbox`."
    if in_doubt(s):
        return "Say whether a message was delivered: `bide show` names it, `bide resolve` settles it."
    if s.reason.startswith("The last turn failed"):
        return "Mend the cause and send it a message, or cancel it."
    return "Send it a message, or cancel it."
