"""Troubles that hold a session: a model, a login or a runtime that cannot work is fed nothing more."""

from __future__ import annotations

from msgspec import Struct

from bide.core.limits import MODEL_TRIES_S, RETRY_AFTER_S_MAX
from bide.core.nouns import Question, QuestionKind

TRY_AGAIN = "Try again"
# The choice that allows more, and the limit that it moves.
AS_MUCH: dict[str, str] = {"Allow as much money again": "budget_usd", "Allow as much time again": "working_s"}
HELD: tuple[QuestionKind, ...] = ("approval", "credentials", "budget")


class Trouble(Struct, frozen=True, kw_only=True):
    """`kind` is what the session waits for then, `again` the choice with which it goes on. Before that it is tried again by
    itself, after each of `tries_s`.
    """

    kind: QuestionKind
    question: str
    again: str = TRY_AGAIN
    tries_s: tuple[float, ...] = ()


_OUTAGE = Trouble(
    kind="approval",
    question="The model could not be reached for a long time. How should the session go on?",
    tries_s=MODEL_TRIES_S,
)
# By the code of a turn that failed.
OF_TURNS: dict[str, Trouble] = {
    "model_unauthenticated": Trouble(
        kind="credentials",
        question="The model refuses the credential of this session's runner. Renew it there; how should the session go on?",
    ),
    "model_overloaded": _OUTAGE,
    "model_rate_limited": _OUTAGE,
    "model_unreachable": _OUTAGE,
}
_ENDS = Trouble(
    kind="approval", question="The runtime ends again and again, or stays mute. How should the session go on?"
)
_MONEY, _TIME = AS_MUCH
# By the code of an error with which a runner stops whatever it does.
OF_RUNNERS: dict[str, Trouble] = {
    "runtime_failed": _ENDS,
    "resume_failed": _ENDS,
    "over_budget": Trouble(
        kind="budget", question="The budget of this session is used up. How should it go on?", again=_MONEY
    ),
    "over_lifetime": Trouble(
        kind="budget", question="The time that this session may work is used up. How should it go on?", again=_TIME
    ),
}


def retry_s(code: str, tried: int, asked_s: float = 0.0) -> float:
    """How long after a turn that failed with this code the session goes on by itself; 0: somebody has to say so.

    `asked_s`: the model itself wants to be left alone for so long.
    """
    tries_s = OF_TURNS[code].tries_s if code in OF_TURNS else ()
    return max(tries_s[tried], min(asked_s, RETRY_AFTER_S_MAX)) if tried < len(tries_s) else 0.0


def about_session(question: Question) -> bool:
    """Whether its answer decides about the session; the runtime never hears it."""
    return question.kind != "ask"
