"""A session that is held: who is asked how it goes on, when it is tried again by itself, and how it is let go."""

from __future__ import annotations

from bide.core import commands as c
from bide.core import facts as f
from bide.core import ids
from bide.core.bounds import LIMITS, value_of
from bide.core.draft import Draft
from bide.core.keeping import require_kept
from bide.core.quantities import amount
from bide.core.recovery import END, queue_if_parked, say
from bide.core.refusals import Refused
from bide.core.session import Lifecycle, Session, holding, stopping, undelivered
from bide.core.troubles import AS_MUCH, OF_RUNNERS, OF_TURNS, Trouble
from bide.core.walls import BUDGET, LIFETIME

TRIES_AGAIN = "Your last turn was cut off, and is taken up again. Check what the last command did, then go on."
MORE_ALLOWED = (
    "This session had used up what it may cost, and was allowed more. Check what the last command did, then go on."
)
AGAIN = "it is tried again"
ALLOWED = "allowed"


def hold_if_needed(d: Draft, fact: f.RunnerFact) -> None:
    """After what a runner told. A turn that failed may hold what comes next (until when it does by itself, the state says),
    and so may an error after which its runner does nothing more. A turn that began all the same is one of a runner of an
    older release, which knows nothing of holding.
    """
    match fact:
        case f.TurnStarted():
            _withdraw(d, "a turn began all the same")
        case f.TurnEnded(result="failed", code=code) if code in OF_TURNS and not d.s.retry_at:
            _ask(d, OF_TURNS[code], fact.detail)
        case f.Error(code=code) if code in OF_RUNNERS:
            _ask(d, OF_RUNNERS[code], fact.sentence)
    s = d.s
    waits = next((q.kind for q in s.questions if q.kind in ("credentials", "budget")), "")
    idle = s.lifecycle is Lifecycle.ACTIVE and s.environment.state == "ready" and not s.turn.open
    if waits and idle and not s.parking and not stopping(s):  # its runner is of no use until a person did something
        d.add(f.Parking(reason=f"it waits for {waits}"))


def try_again(d: Draft) -> None:
    """An outage has had its time: bide goes on by itself."""
    resume = ids.mint(d.now, d.session_id, "try again", d.s.last_seq)
    d.add(f.UserResume(id=resume))
    d.add(f.Receipt(input_id=resume, status="consumed", how=AGAIN))
    let_go(d, "it is tried again by itself")


def somebody_came(d: Draft) -> None:
    """Whoever says something to a session that waits to be tried again wants just that. A login is not mended by it."""
    _withdraw(d, "somebody went on with it", ("approval",))


def let_go(d: Draft, why: str) -> None:
    """It is tried again: with what waits, or with a word of bide's own."""
    _withdraw(d, why)
    _go_on(d, TRIES_AGAIN)


def require_allowed(s: Session) -> None:
    """Refuses to go on with a session that may cost nothing more."""
    if any(q.kind == "budget" for q in s.questions):
        hint = f"Allow it more with `bide extend {s.id} --budget USD` or `--lifetime D`, or answer its question."
        raise Refused("over_budget", "It has used up what it may cost.", hint)


# -- more money, more time --------------------------------------------------------------------------------------------


def allow(d: Draft, command: c.Extend) -> None:
    """Sets what the session may cost in all. What it was held for is over with that."""
    require_kept(d.s)
    if not (command.budget_usd or command.working_s):
        raise Refused("bad_value", "Nothing is said of what is to be extended.", "Name until, budget_usd or working_s.")
    _check(d.s, BUDGET, command.budget_usd, d.s.usd)
    _check(d.s, LIFETIME, command.working_s, d.s.worked_s)
    d.add(f.UserExtend(id=command.id, budget_usd=command.budget_usd, working_s=command.working_s), actor=command.author)
    d.add(f.Receipt(input_id=command.id, status="consumed", how=ALLOWED))
    if any(q.kind == "budget" for q in d.s.questions):
        _withdraw(d, f"{command.author} allowed more", ("budget",))
        _go_on(d, MORE_ALLOWED)


def as_much_again(d: Draft, choice: str, author: str) -> None:
    """The answer to the question for more."""
    s, name = d.s, AS_MUCH[choice]
    most, used = value_of(s.limits, name), s.usd if name == BUDGET else s.worked_s
    now = min(LIMITS[name].max, max(most, used) + most)
    extend = ids.mint(d.now, d.session_id, "extend", s.last_seq)
    budget_usd, working_s = (now, 0.0) if name == BUDGET else (0.0, now)
    d.add(f.UserExtend(id=extend, budget_usd=budget_usd, working_s=working_s), actor=author)
    d.add(f.Receipt(input_id=extend, status="consumed", how=ALLOWED))
    _go_on(d, MORE_ALLOWED)


def _check(s: Session, name: str, wanted: float, used: float) -> None:
    limit, most = LIMITS[name], value_of(s.limits, name)
    low = max(limit.min, most, used)
    if not wanted or (low <= wanted <= limit.max and wanted > used):
        return
    between = f"{amount(low, limit.unit)} to {amount(limit.max, limit.unit)}"
    raise Refused(
        "bad_value",
        f"{name} can be {between} now, not {amount(wanted, limit.unit)}.",
        f"It has used {amount(used, limit.unit)} of {amount(most, limit.unit)}; what it may cost can only grow.",
    )


# -- the parts --------------------------------------------------------------------------------------------------------


def _go_on(d: Draft, text: str) -> None:
    if holding(d.s) or stopping(d.s):
        return
    if not undelivered(d.s):
        say(d, "go on", text)
    queue_if_parked(d, AGAIN)


def _withdraw(d: Draft, why: str, kinds: tuple[f.QuestionKind, ...] = ("approval", "credentials")) -> None:
    for question in d.s.questions:
        if question.kind in kinds:
            d.add(f.QuestionWithdrawn(question_id=question.id, reason=why))


def _ask(d: Draft, trouble: Trouble, context: str) -> None:
    s = d.s
    if stopping(s) or any(q.kind == trouble.kind for q in s.questions):
        return
    question = f.Question(
        id=ids.mint(d.now, d.session_id, "held", s.last_seq), session_id=d.session_id, question=trouble.question,
        context=context, options=(trouble.again, END), impact="high", kind=trouble.kind, asked_at=d.now,
    )  # fmt: skip
    d.add(f.QuestionAsked(question=question))
