"""What a session is, which facts may meet it, and when it next wants to be told the time. `evolve` applies the facts.

`NEXT` is the law: a fact that is not in the row of the present lifecycle is a bug of ours, never a state.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from bide.core import facts as f
from bide.core.limits import CANCELLING_S, PARKING_S
from bide.core.retention import next_moment
from bide.core.troubles import HELD

BIDE = "bide"  # the actor of what nobody asked for by name
VERSION = 4  # of the stored form of `Session`; another version is rebuilt from its facts


class Lifecycle(StrEnum):
    """The first axis; the persisted words are for ever."""

    QUEUED = "queued"
    ACTIVE = "active"
    PARKED = "parked"
    ENDED = "ended"


WaitingFor = Literal["", "answer", "message", "approval", "credentials", "budget"]
EnvironmentState = Literal["pending", "restoring", "ready", "saving", "suspended", "expired", "lost"]
ResumeSource = Literal["", "warm", "checkpoint", "fresh"]


class Turn(Struct, frozen=True, kw_only=True):
    """The second axis. `open` while the runtime works."""

    n: int = 0
    open: bool = False
    waiting_for: WaitingFor = "message"


class Environment(Struct, frozen=True, kw_only=True):
    """The third axis."""

    id: str
    state: EnvironmentState = "pending"
    reset_count: int = 0
    resume_source: ResumeSource = ""


class Lease(Struct, frozen=True, kw_only=True):
    """One runner's right to the session. `until` moves without a fact: it is bookkeeping, not history."""

    runner: str
    runner_name: str
    boot: str
    epoch: int
    since: float
    until: float


class Pending(Struct, frozen=True, kw_only=True):
    """An input that no committed checkpoint contains yet. `seq` is its place in the log."""

    id: str
    type: str
    author: str
    seq: int
    text: str = ""
    delivery: f.Delivery = "next_turn"
    question_id: str = ""
    drop_queued: bool = False
    checkpoint: int = 0  # where a rewind goes
    status: f.ReceiptStatus = "accepted"
    turn: int = 0  # the one it was told in; of an interrupt, the only one that it means
    resolved: bool = False  # a person says that it was delivered
    # Of an order about another input, which it holds as it is to be:
    target: str = ""
    target_seq: int = 0
    blocking: bool = False  # an answer: its question waits again when it is taken back
    choice: str = ""


class Unsaved(Struct, frozen=True, kw_only=True):
    """What has happened since the last checkpoint: the bill, should the runner be lost."""

    since: float = 0.0
    turns: tuple[tuple[int, int, int], ...] = ()  # (turn, epoch and n of the fact that opened it)
    tools: int = 0
    files: tuple[str, ...] = ()
    why: str = ""  # the last try to save it failed


class Answered(Struct, frozen=True, kw_only=True):
    """A question that was closed by an answer or declined, should its session go back to before that."""

    question: f.Question
    input_id: str


class Session(Struct, frozen=True, kw_only=True):
    """Everything a decision about a session needs, and nothing else."""

    id: str
    project: str
    title: str
    ticket: str
    runtime: str
    runtime_session_id: str
    model: str
    pool: str
    author: str
    limits: dict[str, float]
    on_loss: f.OnLoss
    workspace: f.Workspace
    environment: Environment
    created_at: float
    labels: tuple[str, ...] = ()  # what its runner must have
    care: f.Care = f.Care()
    on_rollback: f.OnLoss = "continue"
    family: str = ""  # of the session it was forked from, whose packs it shares; empty: its own
    forked_from: f.ForkedFrom | None = None
    rewound_to: int = 0  # the checkpoint that it was last taken back to; 0: it never was
    lifecycle: Lifecycle = Lifecycle.QUEUED
    outcome: str = ""
    summary: str = ""
    turn: Turn = Turn()
    since: float = 0.0  # of the shown word
    reason: str = ""
    lease: Lease | None = None
    epoch: int = 0
    n: int = 0  # the next runner fact of this epoch
    adopted_from: int = 0  # the epoch whose last facts may come before the first of this one
    tail_n: int = 0  # the next of those
    last_seq: int = 0
    version: int = VERSION
    inputs: tuple[Pending, ...] = ()
    questions: tuple[f.Question, ...] = ()  # open ones
    asked_at_n: dict[str, tuple[int, int]] = {}  # question -> (epoch, n) of its asking
    closed: dict[str, tuple[str, str]] = {}  # question -> (status, who or why); the latest CLOSED_MAX
    answered: tuple[Answered, ...] = ()  # the latest ANSWERED_MAX, oldest first
    unsure: tuple[
        Pending, ...
    ] = ()  # unconfirmed when a checkpoint was saved that may hold them; the latest UNSURE_MAX
    checkpoint: f.Checkpoint | None = None
    checkpoint_n: int = 0  # the highest ever saved: a number is never used again, whatever it goes back to
    earlier: f.Checkpoint | None = None  # the one before, should the blobs of the last be lost
    flagged: tuple[f.Lost, ...] = ()  # what of the checkpoint was found damaged
    unsaved: Unsaved = Unsaved()
    quiet: str = ""  # its turn goes on, but something of it has been silent for long: what, as a sentence
    too_much: bool = False  # its workspace holds more than may be saved, and nothing worked on it since that was said
    parking: str = ""  # why it parks
    cancelling: bool = False
    phase_until: float = 0.0  # deadline of a transitional state
    window_until: float = 0.0  # end of the online window while it waits
    recovery_until: float = 0.0  # interrupted, and its own runner may still come back, or still believes in its lease
    revoked: bool = False  # it may not: it was given up on
    held_until: float = 0.0  # a former holder may believe in its lease until then; nobody else is granted one
    starts: int = 0  # failed in a row
    retry_at: float = 0.0  # its last turn failed because the model was away: it goes on by itself then; 0: it does not
    retries: int = 0  # so often in a row it was to
    takeups: int = 0  # by restarted runners, since a turn last came to its end
    queued_at: float = 0.0
    last_runner: str = ""
    last_runner_name: str = ""
    last_boot: str = ""
    task: str = ""  # the first prompt, cut to TASK_CHARS: the recap of last resort
    expires_at: float = 0.0  # the end of its keeping, while it is parked or ended; 0: none
    kept_since: float = 0.0  # since when that end stands
    warned_at: float = 0.0  # of that end
    extended_until: float = 0.0  # a person wants it kept at least until then
    report: tuple[str, ...] = ()  # plain words the coding agent gets with its next prompt
    usd: float = 0.0
    tokens: int = 0
    worked_s: float = 0.0  # with a turn under way, those that are over
    turn_since: float = 0.0  # when the one under way began, or its runner came back; 0: none runs


Q, A, P, E = Lifecycle.QUEUED, Lifecycle.ACTIVE, Lifecycle.PARKED, Lifecycle.ENDED

_EVERYWHERE: tuple[type[f.Fact], ...] = (
    f.UserMessage, f.UserInterrupt, f.UserAnswer, f.UserCancel, f.UserPark, f.UserResume, f.UserExtend, f.UserFork,
    f.UserRewind, f.UserEdit, f.UserEdited, f.UserWithdraw, f.UserResolve, f.Receipt, f.Forked, f.QuestionAsked, f.QuestionAnswered, f.QuestionDeclined, f.QuestionWithdrawn, f.QuestionSuperseded, f.Note, f.Error, f.Gap,
)  # fmt: skip
_WHILE_ACTIVE: tuple[type[f.Fact], ...] = (
    f.TurnStarted, f.TurnEnded, f.AssistantMessage, f.AssistantThought, f.ToolCall, f.ToolResult,
    f.AssumptionRecorded, f.EnvironmentRestored, f.EnvironmentMoved, f.EnvironmentChanged, f.EnvironmentLost, f.RuntimeStarted,
    f.RuntimeResumed, f.RuntimeExited, f.CheckpointSaved, f.CheckpointFailed, f.Cost, f.Raw, f.Parking, f.Resuming,
)  # fmt: skip

# lifecycle x fact -> lifecycle. A missing entry is illegal. Docs draw the diagram from it, the table walk tests it.
NEXT: dict[Lifecycle, dict[type[f.Fact], Lifecycle]] = {
    Q: {
        **dict.fromkeys(_EVERYWHERE, Q),
        f.Queued: Q, f.Leased: A, f.Parked: P, f.Ended: E, f.EnvironmentRolledBack: Q, f.EnvironmentLost: Q,
        f.TurnEnded: Q, f.CheckpointFlagged: Q, f.Rewound: P,
    },
    A: {
        **dict.fromkeys(_EVERYWHERE, A), **dict.fromkeys(_WHILE_ACTIVE, A),
        f.Parked: P, f.Ended: E, f.Interrupted: Q, f.Leased: A,
    },
    P: {
        **dict.fromkeys(_EVERYWHERE, P), f.Queued: Q, f.Ended: E, f.EnvironmentLost: P, f.EnvironmentRolledBack: P,
        f.CheckpointFlagged: P, f.Rewound: P, f.Expiring: P, f.EnvironmentExpired: P,
    },
    E: {
        **dict.fromkeys(_EVERYWHERE, E), f.Reopened: E, f.CheckpointFlagged: E, f.Queued: Q, f.Rewound: P, f.Expiring: E,
        f.EnvironmentExpired: E,
    },
}  # fmt: skip


# -- questions about a session, answered from its state ---------------------------------------------------------------

RUNTIME_INPUTS = ("user.message", "user.answer")
# Codes of receipts. What was told as a steer found no turn to join; a runner carried out a wish; a person settled a doubt.
OWN_TURN, EDITED, TAKEN_BACK, AGAIN, RESOLVED = "own_turn", "edited", "taken_back", "again", "resolved"

_DELIVERY_RANK: dict[f.Delivery, int] = {"interrupt": 0, "steer": 1, "next_turn": 2}


def delivery_order(p: Pending) -> tuple[int, int]:
    """The key that sorts inputs as they are delivered: redirects, steers, then the rest, each as accepted."""
    return _DELIVERY_RANK[p.delivery], p.seq


def holding(s: Session) -> bool:
    """Whether nothing is told to the runtime, because its model, its login or itself cannot take it."""
    return s.retry_at > 0 or any(q.kind in HELD for q in s.questions)


def freed(s: Session) -> int:
    """A runner holds back the turn after one that failed; those up to this number it may begin all the same."""
    return s.turn.n if s.turn.open or holding(s) else s.turn.n + 1


def undelivered(s: Session) -> tuple[Pending, ...]:
    """Inputs that the runtime has still to get, in the order of delivery."""
    waiting = [p for p in s.inputs if p.type in RUNTIME_INPUTS and p.status == "accepted"]
    return tuple(sorted(waiting, key=delivery_order))


def deliverable(s: Session) -> tuple[Pending, ...]:
    """Those of them that it can get now."""
    return () if holding(s) else undelivered(s)


def known_input(s: Session, input_id: str) -> Pending | None:
    """The input of this id, while something of it is open."""
    return next((p for p in (*s.inputs, *s.unsure) if p.id == input_id), None)


def in_doubt(s: Session) -> tuple[Pending, ...]:
    """Inputs of which nobody knows whether they were delivered, and nobody has said yet."""
    orders = {p.target for p in s.inputs if p.type == "user.resolve"}
    return tuple(p for p in (*s.unsure, *s.inputs) if p.status == "unconfirmed" and p.id not in orders)


def rewinding(s: Session) -> Pending | None:
    """The rewind that waits for the session's runner to stop and save; of several the last one asked for."""
    return next((p for p in reversed(s.inputs) if p.type == "user.rewind"), None)


OVER_QUOTA = "over_quota"  # why a checkpoint failed that only less in the workspace makes possible


def stopping(s: Session) -> bool:
    """Whether its runner is to stop whatever it does, save, and say its last word."""
    return s.cancelling or rewinding(s) is not None


def stopping_s(s: Session) -> float:
    """How long that may take. What a rewind leaves is worth as much time to save as a park is."""
    return CANCELLING_S if s.cancelling else PARKING_S


def blocked(s: Session) -> bool:
    """Whether a blocking question is open."""
    return any(q.blocking for q in s.questions)


def waits_for(s: Session) -> WaitingFor:
    """What a session waits for whose turn is over."""
    held: WaitingFor
    for held in ("credentials", "budget", "approval"):
        if any(q.kind == held for q in s.questions):
            return held
    return "answer" if blocked(s) else "message"


def tries_at(s: Session) -> float:
    """When a session that is held goes on by itself; 0: it does not, or something else comes first."""
    waits = s.lifecycle is Lifecycle.ACTIVE or s.lifecycle is Lifecycle.PARKED
    return s.retry_at if waits and not s.parking and not stopping(s) else 0.0


def at_rest(s: Session) -> bool:
    """Whether it is parked or has ended: no runner has it, and none is wanted."""
    return s.lifecycle is Lifecycle.PARKED or s.lifecycle is Lifecycle.ENDED


def kept_until(s: Session, now: float) -> float:
    """Until when it is kept without another word; of one that runs, when it parks at this moment."""
    return s.expires_at if at_rest(s) else max(s.extended_until, now + s.limits["retention_s"])


def is_kept(s: Session) -> bool:
    """Whether something is kept of it only until its retention is over."""
    something = s.lifecycle is Lifecycle.PARKED or (s.checkpoint_n > 0 and s.environment.state != "expired")
    return s.expires_at > 0 and at_rest(s) and something


def retimed(s: Session, now: float) -> Session:
    """Sets what an idle session waits for, and starts or stops its online window."""
    if s.lifecycle is not Lifecycle.ACTIVE or s.environment.state != "ready" or s.turn.open:
        return replace(s, window_until=0.0) if s.window_until else s
    waiting = waits_for(s)
    if s.turn.waiting_for != waiting:
        s = replace(s, turn=replace(s.turn, waiting_for=waiting))
    if deliverable(s) or stopping(s) or s.too_much:
        return replace(s, window_until=0.0)
    return s if s.window_until else replace(s, window_until=now + s.limits["online_window_s"])


def wake_at(s: Session) -> float | None:
    """When the session next needs a `Wake`, epoch seconds; None: never. The whole timer service."""
    times = [at] if (at := tries_at(s)) else []
    if s.lease is not None:
        times.append(s.lease.until)
        times += [t for t in (s.phase_until, s.window_until) if t]
    elif s.lifecycle is Lifecycle.QUEUED and s.recovery_until:
        times.append(s.recovery_until)
    elif is_kept(s):
        times.append(next_moment(s.kept_since, s.expires_at, s.warned_at))
    return min(times, default=None)
