"""How facts change a session: pure, total over `NEXT`, and the only place where its state changes."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from bide.core import facts as f
from bide.core import ids
from bide.core.evolve_inputs import about_another, edited, receipted
from bide.core.evolve_saved import begun_after, checkpoint_after, environment_after, keeping_after, kept, rewound_after
from bide.core.limits import (
    ANSWERED_MAX,
    CANCELLING_S,
    CLOSED_MAX,
    FILES_NOTED_MAX,
    PARKING_S,
    STARTING_S,
    TASK_CHARS,
)
from bide.core.patience import QUIET
from bide.core.session import (
    BIDE,
    NEXT,
    RUNTIME_INPUTS,
    Answered,
    Environment,
    EnvironmentState,
    Lease,
    Lifecycle,
    Pending,
    Session,
    Turn,
    Unsaved,
    retimed,
    stopping,
    stopping_s,
)  # fmt: skip
from bide.core.troubles import about_session, retry_s


class Illegal(AssertionError):
    """A fact met a lifecycle that forbids it: our bug."""


def created(session_id: str, fact: f.Created, now: float) -> Session:
    """The session right after its first fact, which has seq 1."""
    s = Session(
        id=session_id,
        project=fact.project,
        title=fact.title,
        ticket=fact.ticket,
        runtime=fact.runtime,
        runtime_session_id=fact.runtime_session_id,
        model=fact.model,
        pool=fact.pool,
        labels=fact.labels,
        care=fact.care,
        author=fact.author,
        limits=fact.limits,
        on_loss=fact.on_loss,
        on_rollback=fact.on_rollback,
        workspace=f.Workspace(repository=fact.repository, branch=fact.branch),
        environment=Environment(id=fact.environment_id),
        created_at=now,
        since=now,
        queued_at=now,
        last_seq=1,
        family=fact.family,
        forked_from=fact.forked_from,
        task=fact.task,
    )
    return s if fact.checkpoint is None else begun_after(s, fact.checkpoint)


# Facts that change nothing of a session but its counters: most of a transcript.
COUNTED: frozenset[type[f.Fact]] = frozenset(
    (
        f.AssistantMessage,
        f.AssistantThought,
        f.ToolResult,
        f.AssumptionRecorded,
        f.EnvironmentChanged,
        f.Raw,
        f.Note,
        f.Gap,
    )
)


def require_legal(s: Session, fact: f.Fact | f.Opaque) -> Lifecycle:
    """The lifecycle that the fact leads to; raises `Illegal` where there is none."""
    after = None if isinstance(fact, f.Opaque) else NEXT[s.lifecycle].get(type(fact))
    if after is None:
        kind = fact.kind if isinstance(fact, f.Opaque) else f.tag_of(type(fact))
        raise Illegal(f"{kind} while {s.lifecycle} (session {s.id}, seq {s.last_seq + 1})")
    return after


def evolve(s: Session, e: f.Envelope) -> Session:
    """The session after one more fact. Pure, total over `NEXT`, and the only place where state changes."""
    after = require_legal(s, e.fact)
    since = s.since if after == s.lifecycle else e.time
    n, tail_n = s.n, s.tail_n
    if e.n >= 0 and e.epoch == s.epoch:
        n = e.n + 1
    elif e.n >= 0:
        tail_n = e.n + 1
    moved = replace(s, lifecycle=after, last_seq=e.seq, since=since, n=n, tail_n=tail_n)
    return moved if type(e.fact) in COUNTED else _apply(moved, e)


def _apply(s: Session, e: f.Envelope) -> Session:
    fact = e.fact
    match fact:
        case (
            f.UserMessage() | f.UserInterrupt() | f.UserAnswer() | f.UserCancel() | f.UserPark() | f.UserResume()
            | f.UserRewind() | f.UserEdit() | f.UserWithdraw() | f.UserResolve()
        ):  # fmt: skip
            return _accepted(s, e)
        case f.UserEdited():
            return edited(s, fact)
        case f.Receipt():
            return retimed(receipted(s, fact), e.time)
        case (
            f.QuestionAsked() | f.QuestionAnswered() | f.QuestionDeclined() | f.QuestionWithdrawn()
            | f.QuestionSuperseded()
        ):  # fmt: skip
            return _questioned(s, e)
        case f.TurnStarted() | f.TurnEnded() | f.ToolCall() | f.Cost():
            return _worked(s, e)
        case f.Leased() | f.Interrupted() | f.Queued() | f.Parked() | f.Ended() | f.Parking() | f.Resuming():
            return _moved(s, e)
        case f.EnvironmentRestored() | f.EnvironmentLost() | f.EnvironmentRolledBack() | f.EnvironmentExpired():
            return environment_after(s, e)
        case f.CheckpointSaved() | f.CheckpointFailed() | f.CheckpointFlagged():
            return checkpoint_after(s, e)
        case f.RuntimeStarted(runtime_session_id=chosen) | f.RuntimeResumed(runtime_session_id=chosen):
            return replace(s, runtime_session_id=chosen or s.runtime_session_id)
        case f.UserExtend() | f.Expiring():
            return keeping_after(s, e)
        case f.Rewound():
            return rewound_after(_at_rest(s), fact, e.time)
        case f.Error(code=code) if code in QUIET:
            return replace(s, quiet=fact.sentence if s.turn.open else "")
        case f.Error():
            return replace(s, reason=fact.sentence)
    return s


def _accepted(s: Session, e: f.Envelope) -> Session:
    fact = e.fact
    assert isinstance(
        fact,
        f.UserMessage | f.UserInterrupt | f.UserAnswer | f.UserCancel | f.UserPark | f.UserResume | f.UserRewind
        | f.UserEdit | f.UserWithdraw | f.UserResolve,
    )  # fmt: skip
    pending = Pending(
        id=fact.id,
        type=e.type,
        author=e.actor,
        seq=e.seq,
        text=getattr(fact, "text", ""),
        delivery=getattr(fact, "delivery", None) or "next_turn",
        question_id=getattr(fact, "question_id", ""),
        drop_queued=getattr(fact, "drop_queued", False),
        checkpoint=getattr(fact, "checkpoint", 0),
        turn=getattr(fact, "turn", 0),
    )
    if isinstance(fact, f.UserAnswer):
        pending = replace(pending, text=answer_text(s, fact, e.actor))
    elif isinstance(fact, f.UserEdit | f.UserWithdraw | f.UserResolve):
        pending = about_another(s, fact, pending)
    if not s.task and isinstance(fact, f.UserMessage):
        s = replace(s, task=fact.text[:TASK_CHARS])
    s = _tried(s, e)
    if isinstance(fact, f.UserAnswer) and any(q.id == fact.question_id and about_session(q) for q in s.questions):
        return s  # decides about the session; the runtime never hears it
    s = replace(s, inputs=(*s.inputs, pending))
    if isinstance(fact, f.UserCancel):
        s = replace(s, cancelling=True, phase_until=e.time + CANCELLING_S)
    if isinstance(fact, f.UserRewind) and s.lease is not None and not s.parking:
        s = replace(s, phase_until=e.time + stopping_s(s))
    return retimed(s, e.time)


def _tried(s: Session, e: f.Envelope) -> Session:
    """An outage of the model is over when its time is, or as soon as a person has something to say."""
    by_hand = e.actor != BIDE
    if isinstance(e.fact, f.UserResume) or (by_hand and e.type in RUNTIME_INPUTS):
        return replace(s, retry_at=0.0, retries=0 if by_hand else s.retries)
    return s


def answer_text(s: Session, fact: f.UserAnswer, by: str) -> str:
    """What the runtime is told: the answer with its question, so that it stands alone even in a new conversation."""
    asked = next((q.question for q in s.questions if q.id == fact.question_id), "")
    said = "; ".join(part for part in (", ".join(fact.choices), fact.text) if part)
    if fact.withdraw:
        said = f"The question was withdrawn by {by}: decide by yourself or leave it open." + (
            f" {said}" if said else ""
        )
    elif fact.decline:
        said = "The question was declined: decide by yourself or leave it open." + (f" {said}" if said else "")
    return f"Answer to your question “{asked}”:\n{said}"


def _questioned(s: Session, e: f.Envelope) -> Session:
    fact = e.fact
    match fact:
        case f.QuestionAsked(question=question):
            s = _open(s, question, (e.epoch, e.n))
        case f.QuestionAnswered(question_id=question_id, by=by):
            s = _closed(_remembered(s, question_id, fact.input_id), question_id, "answered", by)
        case f.QuestionDeclined(question_id=question_id, by=by):
            s = _closed(_remembered(s, question_id, fact.input_id), question_id, "declined", by)
        case f.QuestionWithdrawn(question_id=question_id, reason=reason):
            s = _closed(s, question_id, "withdrawn", reason)
        case f.QuestionSuperseded(question_id=question_id, reason=reason):
            s = _closed(s, question_id, "superseded", reason)
    return retimed(s, e.time)


def _open(s: Session, question: f.Question, at: tuple[int, int]) -> Session:
    """One that is opened again, and not by its runner, was asked when it was."""
    closed = {k: v for k, v in s.closed.items() if k != question.id}
    asked_at = {**s.asked_at_n, question.id: s.asked_at_n.get(question.id, at) if at[1] < 0 else at}
    return replace(s, questions=(*s.questions, question), closed=closed, asked_at_n=asked_at)


def _remembered(s: Session, question_id: str, input_id: str) -> Session:
    found = (
        Answered(question=q, input_id=input_id) for q in s.questions if q.id == question_id and not about_session(q)
    )
    return replace(s, answered=(*s.answered, *found)[-ANSWERED_MAX:])


def _closed(s: Session, question_id: str, status: str, why: str) -> Session:
    closed = {**s.closed, question_id: (status, why)}
    for oldest in list(closed)[: max(0, len(closed) - CLOSED_MAX)]:
        del closed[oldest]
    # Of closed ones, too: an answer may be on its way, and where it belongs is told by where its question was asked.
    asked_at = {k: v for k, v in s.asked_at_n.items() if k in closed or any(q.id == k for q in s.questions)}
    return replace(
        s, questions=tuple(q for q in s.questions if q.id != question_id), closed=closed, asked_at_n=asked_at
    )


def _worked(s: Session, e: f.Envelope) -> Session:
    fact, bill = e.fact, s.unsaved
    match fact:
        case f.TurnStarted():
            n = s.turn.n + 1
            turns = (*bill.turns, (n, e.epoch, e.n))
            s = replace(s, unsaved=replace(bill, turns=turns, since=bill.since or e.time))
            s = replace(s, turn=Turn(n=n, open=True, waiting_for=""), turn_since=e.time, retry_at=0.0)
            return retimed(replace(s, since=e.time, reason="", quiet="", too_much=False), e.time)
        case f.TurnEnded():
            turn = replace(s.turn, open=False, waiting_for="message")
            s = replace(_worked_until(s, e.time), turn=turn, since=e.time, quiet="")
            if fact.result == "completed":
                s = replace(s, report=(), takeups=0, retries=0)
            if fact.result == "failed":
                s = replace(s, reason=f"The last turn failed: {fact.detail or 'the runtime did not say why'}")
                if wait_s := retry_s(fact.code, s.retries, fact.retry_after_s):
                    s = replace(s, retry_at=e.time + wait_s, retries=s.retries + 1)
            return retimed(s, e.time)
        case f.ToolCall():
            files = dict.fromkeys((*bill.files, *paths_in(fact.input)))
            return replace(
                s, quiet="", unsaved=replace(bill, tools=bill.tools + 1, files=tuple(files)[-FILES_NOTED_MAX:])
            )
        case f.Cost(usd=usd, tokens=tokens):
            return replace(s, usd=s.usd + usd, tokens=s.tokens + tokens)
    raise AssertionError(fact)


def _moved(s: Session, e: f.Envelope) -> Session:
    fact, now = e.fact, e.time
    match fact:
        case f.Leased():
            revived = s.lease is None and fact.epoch == s.epoch
            lease = Lease(
                runner=fact.runner, runner_name=fact.runner_name, boot=fact.boot, epoch=fact.epoch, since=now, until=now
            )
            s = replace(
                s, lease=lease, epoch=fact.epoch, recovery_until=0.0, last_runner=fact.runner,
                last_runner_name=fact.runner_name, last_boot=fact.boot,
                reason="", turn_since=s.turn_since or (now if s.turn.open else 0.0),
            )  # fmt: skip
            if revived:
                return retimed(replace(s, phase_until=_phase_until(s, now)), now)
            until = now + (stopping_s(s) if stopping(s) else STARTING_S)
            s = replace(_entering(s, now), phase_until=until, held_until=0.0, revoked=False)
            if not fact.adopts:
                return replace(s, n=0, adopted_from=0, tail_n=0)
            tail_n = s.tail_n if fact.adopts == s.adopted_from else s.n
            return replace(
                s, n=0, adopted_from=fact.adopts, tail_n=tail_n, parking="", window_until=0.0, takeups=s.takeups + 1
            )
        case f.Resuming():
            return s
        case f.Parking(reason=reason):
            environment = replace(s.environment, state="saving")
            return replace(
                s, parking=reason, environment=environment, since=now, phase_until=now + PARKING_S,
                window_until=0.0, reason="",  # what comes now is about the park
            )  # fmt: skip
        case f.Interrupted(reason=reason):
            window = s.limits["recovery_window_s"] if s.unsaved.turns and not fact.revoked else 0.0
            # A holder that may not come back is still waited for: until then it believes in its lease.
            recovery_until = max(now + window, fact.held_until)
            return replace(
                _worked_until(s, now), lease=None, starts=s.starts + (s.environment.state == "restoring"), recovery_until=recovery_until,
                held_until=fact.held_until, revoked=fact.revoked, reason=reason, queued_at=now, window_until=0.0,
                phase_until=0.0,
            )  # fmt: skip
        case f.Queued(reason=reason):
            expires_at = s.extended_until if s.extended_until > now else 0.0
            return replace(
                _at_rest(s), reason=reason, queued_at=now, recovery_until=0.0, outcome="", summary="",
                expires_at=expires_at,
            )  # fmt: skip
        case f.Parked():
            state: EnvironmentState = "lost" if s.environment.state == "lost" else "suspended"
            environment = replace(s.environment, state=state)
            return replace(
                kept(_at_rest(s), fact.expires_at, now), environment=environment, reason=fact.reason or s.parking,
                recovery_until=0.0, starts=0, takeups=0,
            )  # fmt: skip
        case f.Ended(outcome=outcome, summary=summary):
            state = "suspended" if s.checkpoint else "expired" if s.environment.state == "expired" else "lost"
            return replace(
                kept(_at_rest(s), fact.expires_at, now), environment=replace(s.environment, state=state),
                outcome=outcome, summary=summary, recovery_until=0.0, starts=0, takeups=0, retry_at=0.0, retries=0,
            )  # fmt: skip
    raise AssertionError(fact)


def _worked_until(s: Session, now: float) -> Session:
    """A turn is over, or nobody knows any more what became of it: its time counts."""
    return replace(s, worked_s=s.worked_s + max(0.0, now - s.turn_since), turn_since=0.0) if s.turn_since else s


def _phase_until(s: Session, now: float) -> float:
    """The deadline of the transitional state that a revived lease goes on in; 0 when it is in none."""
    if stopping(s):
        return now + stopping_s(s)
    if s.parking:
        return now + PARKING_S
    return now + STARTING_S if s.environment.state == "restoring" else 0.0


def _entering(s: Session, now: float) -> Session:
    """The environment of a new lease: the saved one, or a fresh one where the old is lost."""
    if s.environment.state != "lost":
        return replace(s, environment=replace(s.environment, state="restoring"))
    environment = Environment(
        id=ids.mint(now, s.id, "environment", s.epoch), state="restoring", reset_count=s.environment.reset_count + 1
    )
    return replace(s, environment=environment, checkpoint=None, earlier=None, unsaved=Unsaved())


def _at_rest(s: Session) -> Session:
    """No runner holds it; nothing transitional is under way."""
    turn = replace(s.turn, open=False) if s.turn.open else s.turn
    return replace(
        s, lease=None, parking="", cancelling=False, phase_until=0.0, window_until=0.0, turn=turn, turn_since=0.0, quiet=""
    )  # fmt: skip


def paths_in(tool_input: str) -> tuple[str, ...]:
    """The file a tool call names, where its input is JSON that names one: for the bill of a loss, nothing else."""
    try:
        given = msgspec.json.decode(tool_input)
    except (msgspec.DecodeError, UnicodeError):
        return ()
    if not isinstance(given, dict):
        return ()
    return tuple(v for k, v in given.items() if k in ("file_path", "path", "notebook_path") and isinstance(v, str))
