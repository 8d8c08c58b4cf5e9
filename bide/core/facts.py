"""What has happened: one frozen struct per fact. Its tag is the event type of the API, its fields are the event's data.

Facts marked (runner) are reported by a runner under its epoch; all others come out of `decide`.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from bide.core.nouns import (
    Answer,
    Checkpoint,
    Delivery,
    Impact,
    Lost,
    Outcome,
    Question,
    QuestionKind,
    QuestionStatus,
    ReceiptStatus,
    Workspace,
)

__all__ = [
    "Answer",
    "Checkpoint",
    "Delivery",
    "Impact",
    "Lost",
    "Outcome",
    "Question",
    "QuestionKind",
    "QuestionStatus",
    "ReceiptStatus",
    "Workspace",
]  # the nouns that come with the facts


class _Fact(Struct, frozen=True, kw_only=True, tag_field="type"):
    """The tag is the event type."""


# -- the session ------------------------------------------------------------------------------------------------------


class Created(_Fact, frozen=True, kw_only=True, tag="session.created"):
    project: str
    runtime: str
    title: str
    ticket: str
    pool: str
    repository: str
    branch: str
    model: str
    runtime_session_id: str
    environment_id: str
    author: str
    limits: dict[str, float]
    on_loss: Literal["continue", "ask", "fail"] = "ask"
    labels: tuple[str, ...] = ()  # a runner must have them all


class Queued(_Fact, frozen=True, kw_only=True, tag="session.queued"):
    reason: str
    position: int = 0


class Leased(_Fact, frozen=True, kw_only=True, tag="session.leased"):
    runner: str
    epoch: int
    runner_name: str
    boot: str
    adopts: int = 0  # the epoch whose facts may still come: the same runner goes on in the same folder


class Resuming(_Fact, frozen=True, kw_only=True, tag="session.resuming"):
    runner: str
    checkpoint: int


class Parking(_Fact, frozen=True, kw_only=True, tag="session.parking"):
    reason: str


class Parked(_Fact, frozen=True, kw_only=True, tag="session.parked"):
    """(runner) The checkpoint is verified and current, the runner is free."""

    checkpoint: int = 0
    seconds: float = 0.0
    expires_at: float = 0.0
    reason: str = ""
    go_on: bool = False  # the park cut a turn short that nobody wanted stopped


class Interrupted(_Fact, frozen=True, kw_only=True, tag="session.interrupted"):
    """`held_until`: until then the former holder may still act. `revoked`: it may not come back to it."""

    reason: str
    runner: str
    held_until: float = 0.0
    revoked: bool = False


class Ended(_Fact, frozen=True, kw_only=True, tag="session.ended"):
    """(runner, or decided when no runner holds the session)"""

    outcome: Outcome
    summary: str = ""
    expires_at: float = 0.0


class Reopened(_Fact, frozen=True, kw_only=True, tag="session.reopened"):
    input_id: str


# -- turns and the runtime's own words (runner) -----------------------------------------------------------------------


class TurnStarted(_Fact, frozen=True, kw_only=True, tag="turn.started"):
    input_ids: tuple[str, ...] = ()


class TurnEnded(_Fact, frozen=True, kw_only=True, tag="turn.ended"):
    result: Literal["completed", "interrupted", "failed", "lost"]
    detail: str = ""


class AssistantMessage(_Fact, frozen=True, kw_only=True, tag="assistant.message"):
    text: str


class AssistantThought(_Fact, frozen=True, kw_only=True, tag="assistant.thought"):
    text: str


class ToolCall(_Fact, frozen=True, kw_only=True, tag="tool.call"):
    id: str
    name: str
    input: str


class ToolResult(_Fact, frozen=True, kw_only=True, tag="tool.result"):
    id: str
    ok: bool
    output: str
    cut: bool = False
    bytes: int = 0
    blob: str = ""


# -- inputs -----------------------------------------------------------------------------------------------------------


class UserMessage(_Fact, frozen=True, kw_only=True, tag="user.message"):
    id: str
    text: str
    delivery: Delivery = "next_turn"
    attachments: tuple[str, ...] = ()


class UserInterrupt(_Fact, frozen=True, kw_only=True, tag="user.interrupt"):
    id: str
    drop_queued: bool = False


class UserAnswer(_Fact, frozen=True, kw_only=True, tag="user.answer"):
    id: str
    question_id: str
    text: str = ""
    choices: tuple[str, ...] = ()
    decline: bool = False


class UserCancel(_Fact, frozen=True, kw_only=True, tag="user.cancel"):
    id: str


class UserPark(_Fact, frozen=True, kw_only=True, tag="user.park"):
    id: str


class UserResume(_Fact, frozen=True, kw_only=True, tag="user.resume"):
    id: str


class UserExtend(_Fact, frozen=True, kw_only=True, tag="user.extend"):
    id: str
    until: float


class Receipt(_Fact, frozen=True, kw_only=True, tag="user.receipt"):
    """(runner, or decided) What became of an input."""

    input_id: str
    status: ReceiptStatus
    how: str = ""
    turn: int = 0
    code: str = ""


# -- questions and assumptions ----------------------------------------------------------------------------------------


class QuestionAsked(_Fact, frozen=True, kw_only=True, tag="question.asked"):
    """(runner, or decided for a loss)"""

    question: Question


class QuestionAnswered(_Fact, frozen=True, kw_only=True, tag="question.answered"):
    question_id: str
    input_id: str
    by: str
    via: str = ""
    sources: tuple[str, ...] = ()
    text: str = ""
    choices: tuple[str, ...] = ()


class QuestionDeclined(_Fact, frozen=True, kw_only=True, tag="question.declined"):
    question_id: str
    input_id: str
    by: str
    via: str = ""
    text: str = ""


class QuestionWithdrawn(_Fact, frozen=True, kw_only=True, tag="question.withdrawn"):
    question_id: str
    reason: str


class AssumptionRecorded(_Fact, frozen=True, kw_only=True, tag="assumption.recorded"):
    """(runner)"""

    id: str
    text: str
    impact: Impact = "low"


# -- environment, runtime, checkpoint ---------------------------------------------------------------------------------


class EnvironmentRestored(_Fact, frozen=True, kw_only=True, tag="environment.restored"):
    """(runner)"""

    source: Literal["warm", "checkpoint", "fresh"]
    checkpoint: int = 0
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    kept: tuple[str, ...] = ()
    not_kept: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    workspace: Workspace = Workspace()


class EnvironmentMoved(_Fact, frozen=True, kw_only=True, tag="environment.moved"):
    """(runner) The workspace's absolute path changed."""

    source: str = field(name="from")
    target: str = field(name="to")


class EnvironmentRolledBack(_Fact, frozen=True, kw_only=True, tag="environment.rolled_back"):
    checkpoint: int
    turns: int
    seconds: float
    lost: tuple[Lost, ...]


class EnvironmentLost(_Fact, frozen=True, kw_only=True, tag="environment.lost"):
    """(runner, or decided)"""

    reason: str
    lost: tuple[Lost, ...] = ()


class RuntimeStarted(_Fact, frozen=True, kw_only=True, tag="runtime.started"):
    """(runner)"""

    runtime: str
    version: str
    pid: int = 0
    isolation: str = ""
    runtime_session_id: str = ""


class RuntimeResumed(_Fact, frozen=True, kw_only=True, tag="runtime.resumed"):
    """(runner)"""

    rung: Literal["native", "replayed", "fresh"]
    reason: str = ""
    version: str = ""
    runtime_session_id: str = ""


class RuntimeExited(_Fact, frozen=True, kw_only=True, tag="runtime.exited"):
    """(runner)"""

    reason: str


class CheckpointSaved(_Fact, frozen=True, kw_only=True, tag="checkpoint.saved"):
    """(runner)"""

    checkpoint: Checkpoint


class CheckpointFailed(_Fact, frozen=True, kw_only=True, tag="checkpoint.failed"):
    """(runner, or decided at a deadline)"""

    code: str
    reason: str
    retry_at: float = 0.0


class Cost(_Fact, frozen=True, kw_only=True, tag="cost"):
    """(runner)"""

    usd: float
    tokens: int
    model: str


class Note(_Fact, frozen=True, kw_only=True, tag="note"):
    text: str
    code: str = ""


class Error(_Fact, frozen=True, kw_only=True, tag="error"):
    code: str
    sentence: str
    hint: str = ""


class Raw(_Fact, frozen=True, kw_only=True, tag="raw"):
    """(runner) A frame the driver does not know."""

    runtime: str
    frame: str


class Gap(_Fact, frozen=True, kw_only=True, tag="gap"):
    """Something is missing from the log, and why."""

    source: int = field(name="from")
    target: int = field(name="to")
    reason: str


RunnerFact = (
    Parked | Ended | TurnStarted | TurnEnded | AssistantMessage | AssistantThought | ToolCall | ToolResult | Receipt
    | QuestionAsked | AssumptionRecorded | EnvironmentRestored | EnvironmentMoved | EnvironmentLost | RuntimeStarted
    | RuntimeResumed | RuntimeExited | CheckpointSaved | CheckpointFailed | Cost | Note | Error | Raw | Gap
)  # fmt: skip
DecidedFact = (
    Created | Queued | Leased | Resuming | Parking | Interrupted | Reopened | UserMessage | UserInterrupt | UserAnswer
    | UserCancel | UserPark | UserResume | UserExtend | QuestionAnswered | QuestionDeclined | QuestionWithdrawn
    | EnvironmentRolledBack
)  # fmt: skip
Fact = RunnerFact | DecidedFact


class Opaque(Struct, frozen=True, kw_only=True):
    """A fact that a newer release has written. It can be shown and passed on; nothing can be decided after it."""

    kind: str
    body: dict[str, Any]


class Envelope(Struct, frozen=True, kw_only=True):
    """One numbered fact of one session. `time` is the store's clock, epoch seconds; `n` is the runner's own count."""

    id: str
    session_id: str
    seq: int
    epoch: int
    time: float
    turn: int
    actor: str
    fact: Fact | Opaque
    n: int = -1  # -1: decided, not reported by a runner

    @property
    def type(self) -> str:
        """The event type, e.g. `turn.started`."""
        return self.fact.kind if isinstance(self.fact, Opaque) else tag_of(type(self.fact))


def tag_of(kind: type[Struct]) -> str:
    """The event type of a fact's class."""
    tag = kind.__struct_config__.tag
    assert isinstance(tag, str)
    return tag
