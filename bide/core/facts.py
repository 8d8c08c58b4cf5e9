"""What has happened: one frozen struct per fact. Its tag is the event type of the API, its fields are the event's data.

Facts marked (runner) are reported by a runner under its epoch; all others come out of `decide`.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from bide.core.happened import Happened
from bide.core.nouns import (
    Answer,
    Care,
    Checkpoint,
    Delivery,
    ForkedFrom,
    Impact,
    Lost,
    OnLoss,
    Outcome,
    Question,
    QuestionKind,
    QuestionStatus,
    ReceiptStatus,
    Resolution,
    Workspace,
)
from bide.core.said import (
    AssumptionRecorded,
    QuestionAnswered,
    QuestionAsked,
    QuestionDeclined,
    QuestionSuperseded,
    QuestionWithdrawn,
    Receipt,
    UserAnswer,
    UserCancel,
    UserEdit,
    UserEdited,
    UserExtend,
    UserFork,
    UserInterrupt,
    UserMessage,
    UserPark,
    UserResolve,
    UserResume,
    UserRewind,
    UserWithdraw,
)
from bide.core.saved import (
    CheckpointFailed,
    CheckpointFlagged,
    CheckpointSaved,
    EnvironmentChanged,
    EnvironmentExpired,
    EnvironmentLost,
    EnvironmentMoved,
    EnvironmentRestored,
    EnvironmentRolledBack,
    RuntimeExited,
    RuntimeResumed,
    RuntimeStarted,
)

__all__ = [
    "Answer",
    "AssistantMessage",
    "AssistantThought",
    "AssumptionRecorded",
    "Care",
    "Checkpoint",
    "CheckpointFailed",
    "CheckpointFlagged",
    "CheckpointSaved",
    "Cost",
    "Created",
    "DecidedFact",
    "Delivery",
    "Ended",
    "Envelope",
    "EnvironmentChanged",
    "EnvironmentExpired",
    "EnvironmentLost",
    "EnvironmentMoved",
    "EnvironmentRestored",
    "EnvironmentRolledBack",
    "Error",
    "Expiring",
    "Fact",
    "Forked",
    "ForkedFrom",
    "Gap",
    "Impact",
    "Interrupted",
    "Leased",
    "Lost",
    "Note",
    "OnLoss",
    "Opaque",
    "Outcome",
    "Parked",
    "Parking",
    "Question",
    "QuestionAnswered",
    "QuestionAsked",
    "QuestionDeclined",
    "QuestionKind",
    "QuestionStatus",
    "QuestionSuperseded",
    "QuestionWithdrawn",
    "Queued",
    "Raw",
    "Receipt",
    "ReceiptStatus",
    "Reopened",
    "Resolution",
    "Resuming",
    "Rewound",
    "RunnerFact",
    "RuntimeExited",
    "RuntimeResumed",
    "RuntimeStarted",
    "ToolCall",
    "ToolResult",
    "TurnEnded",
    "TurnStarted",
    "UserAnswer",
    "UserCancel",
    "UserEdit",
    "UserEdited",
    "UserExtend",
    "UserFork",
    "UserInterrupt",
    "UserMessage",
    "UserPark",
    "UserResolve",
    "UserResume",
    "UserRewind",
    "UserWithdraw",
    "Workspace",
    "tag_of",
]


# -- the session ------------------------------------------------------------------------------------------------------


class Created(Happened, frozen=True, kw_only=True, tag="session.created"):
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
    on_loss: OnLoss = "ask"  # of the saved workspace
    on_rollback: OnLoss = "continue"  # to the last checkpoint
    labels: tuple[str, ...] = ()  # a runner must have them all
    care: Care = Care()
    # Of a fork only:
    forked_from: ForkedFrom | None = None
    family: str = ""  # whose packs it shares
    checkpoint: Checkpoint | None = None  # what it begins with
    task: str = ""  # of the session that it comes from


class Queued(Happened, frozen=True, kw_only=True, tag="session.queued"):
    reason: str
    position: int = 0


class Leased(Happened, frozen=True, kw_only=True, tag="session.leased"):
    runner: str
    epoch: int
    runner_name: str
    boot: str
    adopts: int = 0  # the epoch whose facts may still come: the same runner goes on in the same folder


class Resuming(Happened, frozen=True, kw_only=True, tag="session.resuming"):
    runner: str
    checkpoint: int


class Parking(Happened, frozen=True, kw_only=True, tag="session.parking"):
    reason: str


class Parked(Happened, frozen=True, kw_only=True, tag="session.parked"):
    """(runner) The checkpoint is verified and current, the runner is free."""

    checkpoint: int = 0
    seconds: float = 0.0
    expires_at: float = 0.0
    reason: str = ""
    go_on: bool = False  # the park cut a turn short that nobody wanted stopped


class Interrupted(Happened, frozen=True, kw_only=True, tag="session.interrupted"):
    """`held_until`: until then the former holder may still act. `revoked`: it may not come back to it."""

    reason: str
    runner: str
    held_until: float = 0.0
    revoked: bool = False


class Ended(Happened, frozen=True, kw_only=True, tag="session.ended"):
    """(runner, or decided when no runner holds the session)"""

    outcome: Outcome
    summary: str = ""
    expires_at: float = 0.0


class Expiring(Happened, frozen=True, kw_only=True, tag="session.expiring"):
    """A warning: `left_s` from now its workspace and conversation are deleted, unless somebody comes back to it."""

    expires_at: float
    left_s: float


class Reopened(Happened, frozen=True, kw_only=True, tag="session.reopened"):
    input_id: str


class Forked(Happened, frozen=True, kw_only=True, tag="session.forked"):
    """Another session, `session`, begins with this one's checkpoint. `age_s`: how long before it was saved."""

    session: str
    checkpoint: int
    age_s: float = 0.0


class Rewound(Happened, frozen=True, kw_only=True, tag="session.rewound"):
    """The session is parked with a checkpoint of its past, or of a line that it left before.

    `abandoned` are inputs that the conversation holds no more, `restored` those that it holds again.
    """

    checkpoint: int
    abandoned: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    expires_at: float = 0.0
    target: Checkpoint = field(name="to")
    before: Checkpoint | None = None  # the one that it was built upon


# -- turns and the runtime's own words (runner) -----------------------------------------------------------------------


class TurnStarted(Happened, frozen=True, kw_only=True, tag="turn.started"):
    input_ids: tuple[str, ...] = ()


class TurnEnded(Happened, frozen=True, kw_only=True, tag="turn.ended"):
    """`detail` and `code` say why it failed. `retry_after_s`: for so long its model does not want to be asked again."""

    result: Literal["completed", "interrupted", "failed", "lost"]
    detail: str = ""
    code: str = ""
    retry_after_s: float = 0.0


# Where `cut`, a text has its beginning and its end here, with a mark between; whole it has `bytes` bytes, and `blob` is the
# name under which the session's outputs have it: empty where it was not kept.


class AssistantMessage(Happened, frozen=True, kw_only=True, tag="assistant.message"):
    text: str
    cut: bool = False
    bytes: int = 0
    blob: str = ""


class AssistantThought(Happened, frozen=True, kw_only=True, tag="assistant.thought"):
    text: str
    cut: bool = False
    bytes: int = 0
    blob: str = ""


class ToolCall(Happened, frozen=True, kw_only=True, tag="tool.call"):
    id: str
    name: str
    input: str
    cut: bool = False
    bytes: int = 0
    blob: str = ""


class ToolResult(Happened, frozen=True, kw_only=True, tag="tool.result"):
    id: str
    ok: bool
    output: str
    cut: bool = False
    bytes: int = 0
    blob: str = ""


class Cost(Happened, frozen=True, kw_only=True, tag="cost"):
    """(runner)"""

    usd: float
    tokens: int
    model: str


class Note(Happened, frozen=True, kw_only=True, tag="note"):
    text: str
    code: str = ""


class Error(Happened, frozen=True, kw_only=True, tag="error"):
    code: str
    sentence: str
    hint: str = ""


class Raw(Happened, frozen=True, kw_only=True, tag="raw"):
    """(runner) A frame the driver does not know, or a line that is too long for one."""

    runtime: str
    frame: str
    cut: bool = False
    bytes: int = 0
    blob: str = ""


class Gap(Happened, frozen=True, kw_only=True, tag="gap"):
    """Something is missing from the log, and why: the numbers `from` to `to` of the runner's own count in this epoch. Those
    of the log itself have no hole.
    """

    source: int = field(name="from")
    target: int = field(name="to")
    reason: str


RunnerFact = (
    Parked | Ended | TurnStarted | TurnEnded | AssistantMessage | AssistantThought | ToolCall | ToolResult | Receipt
    | QuestionAsked | QuestionWithdrawn | QuestionSuperseded | AssumptionRecorded | EnvironmentRestored | EnvironmentMoved | EnvironmentChanged | EnvironmentLost | RuntimeStarted
    | RuntimeResumed | RuntimeExited | CheckpointSaved | CheckpointFailed | Cost | Note | Error | Raw | Gap
)  # fmt: skip
DecidedFact = (
    Created | Queued | Leased | Resuming | Parking | Interrupted | Reopened | UserMessage | UserInterrupt | UserAnswer
    | UserCancel | UserPark | UserResume | UserExtend | UserFork | UserRewind | UserEdit | UserEdited | UserWithdraw | UserResolve | Forked | Rewound | QuestionAnswered
    | QuestionDeclined | EnvironmentRolledBack | EnvironmentExpired | CheckpointFlagged | Expiring
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
