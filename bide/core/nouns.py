"""The things that facts, sessions and the API speak of: plain values with a name."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Delivery = Literal["next_turn", "steer", "interrupt"]
Impact = Literal["low", "medium", "high"]
Outcome = Literal["completed", "cancelled", "failed", "expired"]
ReceiptStatus = Literal[
    "accepted", "withdrawing", "delivered", "consumed", "refused", "withdrawn", "abandoned", "unconfirmed"
]
Resolution = Literal["again", "delivered"]  # of an input in doubt: deliver it again, or it was delivered
OnLoss = Literal["continue", "ask", "fail"]
QuestionStatus = Literal["open", "planner", "answered", "declined", "withdrawn", "superseded"]
QuestionKind = Literal["ask", "loss", "approval", "budget", "credentials"]


class Lost(Struct, frozen=True, kw_only=True):
    """One thing that is gone, and the way back to it if there is one."""

    what: str
    bytes: int = 0
    reason: str = ""
    recovery: str = ""


class Workspace(Struct, frozen=True, kw_only=True):
    """Where the session works; enough to resume it by its id alone."""

    repository: str = ""
    branch: str = ""
    head: str = ""
    git_root: str = ""
    cwd: str = ""


class Care(Struct, frozen=True, kw_only=True):
    """How the project wants its workspaces saved and brought back.

    `exclude` and `include` are patterns of paths below the workspace: what the first leave out, the second keep all the
    same. `resume_hook` is a shell command that runs in the workspace after each resume, before the runtime starts.
    """

    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    resume_hook: str = ""


class Answer(Struct, frozen=True, kw_only=True):
    """The one answer that won, and where it came from."""

    text: str = ""
    choices: tuple[str, ...] = ()
    by: str = ""
    at: float = 0.0
    via: str = ""
    sources: tuple[str, ...] = ()


class Question(Struct, frozen=True, kw_only=True):
    """What a session asks a human."""

    id: str
    session_id: str
    question: str
    context: str = ""
    options: tuple[str, ...] = ()
    blocking: bool = True
    impact: Impact = "medium"
    kind: QuestionKind = "ask"
    status: QuestionStatus = "open"
    answer: Answer | None = None
    asked_at: float = 0.0
    reason: str = ""  # why it was withdrawn or superseded


class ForkedFrom(Struct, frozen=True, kw_only=True):
    """Where a session comes from: another session's checkpoint, by its n."""

    session: str
    checkpoint: int


class Checkpoint(Struct, frozen=True, kw_only=True):
    """One atomic, verified save. `consumed` are the inputs the saved conversation contains since the one before."""

    id: str
    n: int
    epoch: int
    root: str
    turn: int
    turn_open: bool = False
    input_cursor: str = ""
    consumed: tuple[str, ...] = ()
    told: tuple[str, ...] = ()  # inputs on their way when it was begun: the saved conversation may contain them, too
    at_n: int = 0  # runner facts before this n are covered
    event_seq: int = 0
    files: int = 0
    bytes: int = 0
    new_bytes: int = 0
    seconds: float = 0.0
    consistency: Literal["quiet", "crash"] = "quiet"
    verified_at: float = 0.0
    saved_at: float = 0.0
    kept: tuple[str, ...] = ()
    not_kept: tuple[str, ...] = ()
    workspace: Workspace = Workspace()
    runtime_version: str = ""
    runtime_session_id: str = ""  # the conversation that it holds
    after: int = 0  # n of the checkpoint that it was built upon; 0: none. They form lines, and a rewind begins another
    stopped: tuple[str, ...] = ()  # what ran in the background and ended with the runtime
    toolchain: dict[str, str] = {}  # what the runner had: name -> version
