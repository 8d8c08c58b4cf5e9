"""How facts about the environment and its checkpoints change a session: a part of `evolve`."""

from __future__ import annotations

from msgspec.structs import replace

from bide.core import facts as f
from bide.core.limits import REPORT_LINES_MAX, REPORT_LOST_MAX, UNSURE_MAX
from bide.core.quantities import utc
from bide.core.session import (
    OVER_QUOTA,
    Environment,
    Pending,
    Session,
    Unsaved,
    kept_until,
    retimed,
    stopping,
    stopping_s,
    waits_for,
)
from bide.core.walls import BUDGET, LIFETIME


def environment_after(s: Session, e: f.Envelope) -> Session:
    """After a fact about the environment."""
    fact = e.fact
    match fact:
        case f.EnvironmentRestored(source=source):
            environment = replace(s.environment, state="ready", resume_source=source)
            s = replace(
                s,
                environment=environment,
                workspace=fact.workspace,
                phase_until=0.0,
                starts=0,
                since=e.time,
                flagged=(),
                too_much=False,
            )
            if stopping(s):
                s = replace(s, phase_until=e.time + stopping_s(s))
            return retimed(s, e.time)
        case f.EnvironmentLost(reason=reason):
            environment = Environment(
                id=s.environment.id, state="lost", reset_count=s.environment.reset_count, resume_source=""
            )
            words = (
                f"The saved workspace and conversation of this session are lost: {reason}.",
                *(f"Lost: {item.what} ({item.reason})." for item in fact.lost[:REPORT_LOST_MAX]),
                "You work in a fresh copy of the repository and in a new conversation.",
                *((f"The task was:\n{s.task}",) if s.task else ()),
            )
            return replace(
                s, environment=environment, reason=reason, report=words, flagged=(), unsaved=Unsaved(), unsure=()
            )
        case f.EnvironmentRolledBack(checkpoint=n, seconds=seconds):
            words = (
                f"Work was lost. The workspace and this conversation are back at checkpoint {n}; "
                f"about {seconds:.0f} s of work after it are gone:",
                *(f"- {item.what}: {item.recovery or 'not recoverable'}" for item in fact.lost[:REPORT_LOST_MAX]),
            )
            target = s.earlier if s.earlier and s.earlier.n == n else s.checkpoint
            environment = replace(s.environment, state="suspended")
            return replace(
                s,
                report=(*_untold(s), *words) if fact.lost else (),
                unsaved=Unsaved(),
                flagged=() if target is not s.checkpoint else s.flagged,
                checkpoint=target,
                runtime_session_id=conversation_of(target, s),
                environment=environment,
            )
        case f.EnvironmentExpired():
            environment = replace(s.environment, state="expired")
            return replace(
                s, environment=environment, checkpoint=None, earlier=None, unsaved=Unsaved(), report=(), unsure=()
            )
    raise AssertionError(fact)


def keeping_after(s: Session, e: f.Envelope) -> Session:
    """After a fact about how long the session is kept."""
    fact = e.fact
    if isinstance(fact, f.UserExtend):
        more = {name: value for name, value in ((BUDGET, fact.budget_usd), (LIFETIME, fact.working_s)) if value}
        s = replace(s, limits=s.limits | more) if more else s
        if fact.until < kept_until(s, e.time):
            return s
        return replace(kept(s, fact.until, e.time), extended_until=fact.until)
    assert isinstance(fact, f.Expiring)
    return replace(s, expires_at=fact.expires_at, warned_at=e.time)


def kept(s: Session, until: float, now: float) -> Session:
    """Kept until then: a new end has its own warnings, one that stands already keeps those it had."""
    return s if until == s.expires_at else replace(s, expires_at=until, kept_since=now, warned_at=0.0)


def checkpoint_after(s: Session, e: f.Envelope) -> Session:
    """After a fact about a checkpoint."""
    fact = e.fact
    if isinstance(fact, f.CheckpointFlagged):
        return replace(s, flagged=fact.what, reason=fact.reason)
    if isinstance(fact, f.CheckpointFailed):
        unsaved = replace(s.unsaved, why=fact.reason)
        s = replace(s, reason=fact.reason, too_much=fact.code == OVER_QUOTA, unsaved=unsaved)
        if s.parking and (fact.retry_at or s.too_much):
            environment = replace(s.environment, state="ready")
            until = e.time + stopping_s(s) if stopping(s) else 0.0  # it was to stop in any case
            s = replace(s, parking="", environment=environment, phase_until=until, since=e.time)
            return replace(s, window_until=0.0 if s.turn.open else fact.retry_at)
        return retimed(s, e.time) if s.too_much else s
    assert isinstance(fact, f.CheckpointSaved)
    saved = fact.checkpoint
    turns = tuple(t for t in s.unsaved.turns if t[1:] >= (saved.epoch, saved.at_n))
    if saved.turn_open:  # what came of that turn afterwards is unsaved, though it may be over by now
        turns = ((saved.turn, saved.epoch, saved.at_n), *turns)
    inputs = tuple(p for p in s.inputs if p.id not in saved.consumed and not _settled_by(saved, p))
    unsure = tuple(p for p in s.inputs if p.status == "unconfirmed" and _settled_by(saved, p))
    after = replace(
        s, checkpoint=saved, earlier=s.checkpoint or s.earlier, inputs=inputs, workspace=saved.workspace,
        unsure=(*s.unsure, *unsure)[-UNSURE_MAX:],
        checkpoint_n=max(s.checkpoint_n, saved.n), flagged=(), too_much=False, unsaved=Unsaved(turns=turns, since=e.time if turns else 0.0),
        reason="" if s.reason == s.unsaved.why else s.reason,
    )  # fmt: skip
    return retimed(after, e.time) if s.too_much else after


def begun_after(s: Session, begins: f.Checkpoint) -> Session:
    """A fork at its beginning: it stands on a checkpoint of another session, and is told so with its first prompt."""
    words = (
        f"This session is a fork: workspace and conversation are those of another session at its checkpoint {begins.n}, "
        f"saved {utc(begins.saved_at)}; what happened there afterwards is not in them.",
        *_midway(begins),
    )
    return replace(
        s, checkpoint=begins, checkpoint_n=begins.n, workspace=begins.workspace, report=words,
        turn=replace(s.turn, n=begins.turn), environment=replace(s.environment, state="suspended"),
    )  # fmt: skip


def rewound_after(s: Session, fact: f.Rewound, now: float) -> Session:
    """Back at a checkpoint, with no runner. What was to be told of other states has no meaning there, nor what was found
    damaged of them.
    """
    target, same = fact.target, s.checkpoint is not None and s.checkpoint.root == fact.target.root
    saved = f"checkpoint {target.n}, saved {utc(target.saved_at)}"
    words = (f"You are back at {saved}; what came after is not in your workspace or memory.", *_midway(target))
    return replace(
        kept(s, fact.expires_at, now), checkpoint=target, earlier=fact.before, rewound_to=target.n,
        workspace=target.workspace, runtime_session_id=conversation_of(target, s), unsaved=Unsaved(), report=words,
        environment=replace(s.environment, state="suspended"), flagged=s.flagged if same else (), too_much=False,
        turn=replace(s.turn, waiting_for=waits_for(s)), reason=f"went back to {saved}",
        outcome="", summary="", recovery_until=0.0, starts=0, takeups=0, retry_at=0.0, retries=0,
    )  # fmt: skip


def conversation_of(saved: f.Checkpoint | None, s: Session) -> str:
    """The id of the conversation that a checkpoint holds; one of an older release does not say."""
    return saved.runtime_session_id if saved and saved.runtime_session_id else s.runtime_session_id


def _midway(saved: f.Checkpoint) -> tuple[str, ...]:
    return ("It was saved in the middle of a turn: check what the last command did.",) if saved.turn_open else ()


def _untold(s: Session) -> tuple[str, ...]:
    """What of earlier losses the coding agent has not heard yet; the newest part, should it repeat itself."""
    return s.report[-REPORT_LINES_MAX:]


def _settled_by(saved: f.Checkpoint, p: Pending) -> bool:
    """Whether the checkpoint holds whatever came of an input that nobody is sure of: then a rollback to it does not deliver
    it again.
    """
    return (p.status == "unconfirmed" or p.resolved) and (
        p.turn < saved.turn or (p.turn == saved.turn and not saved.turn_open)
    )
