"""What the server's answers hold, as types of plain dicts: what a newer server adds passes through untouched.

Times are RFC 3339 in UTC; names ending in `_s` are seconds.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypedDict, TypeVar

from bide.core.nouns import Impact, QuestionKind, QuestionStatus, ReceiptStatus

T = TypeVar("T")
Shown = Literal["queued", "starting", "working", "waiting", "parking", "parked", "resuming", "ended"]


class Items(TypedDict, Generic[T]):
    """One page of a list; `next` is the cursor of the rest, None at the end."""

    items: list[T]
    next: str | None


class Turn(TypedDict):
    """`state` is `working` or `waiting`."""

    n: int
    state: str
    waiting_for: str | None


class Environment(TypedDict):
    """Workspace, home and toolchain on some runner."""

    id: str
    state: str
    reset_count: int
    resume_source: str | None


class Cost(TypedDict):
    """What was spent so far."""

    usd: float
    tokens: int
    worked_s: float


class Workspace(TypedDict):
    """Where the session works."""

    repository: str
    branch: str
    head: str
    git_root: str
    cwd: str


class Checkpoint(TypedDict):
    """One atomic, verified save."""

    id: str
    n: int
    epoch: int
    turn: int
    input_cursor: str | None
    event_seq: int
    files: int
    bytes: int
    new_bytes: int
    seconds: float
    consistency: str
    verified_at: str | None
    saved_at: str | None
    kept: list[str]
    not_kept: list[str]
    root: str
    workspace: Workspace
    runtime_version: str
    after: int | None
    available: bool | None


class ForkedFrom(TypedDict):
    """The other session, and the number of its checkpoint that this one began with."""

    session: str
    checkpoint: int


class Session(TypedDict):
    """A session. `shown` is the one word for what it does; `reason` says why."""

    id: str
    project: str
    ticket: str | None
    title: str
    runtime: str
    runtime_session_id: str
    model: str
    lifecycle: str
    outcome: str | None
    summary: str
    turn: Turn
    environment: Environment
    shown: Shown
    since: str
    must_act: str
    next_step: str
    reason: str
    pool: str
    labels: list[str]
    runner: str | None
    runner_name: str | None
    epoch: int
    last_seq: int
    checkpoint: Checkpoint | None
    forked_from: ForkedFrom | None
    rewound_to: int | None
    workspace: Workspace
    limits: dict[str, float]
    on_loss: str
    cost: Cost
    expires_at: str | None
    unconfirmed: int  # inputs of which nobody knows whether they were delivered: a person has to say
    retry_at: str | None  # held because of an outage of its model: it goes on by itself then
    created_at: str


class Receipt(TypedDict):
    """An input and what became of it."""

    id: str
    session_id: str
    type: str
    author: str
    text: str
    seq: int
    status: ReceiptStatus
    how: str | None
    turn: int | None
    code: str | None
    accepted_at: str
    delivered_at: str | None
    consumed_at: str | None


class Answer(TypedDict):
    """The one answer that won."""

    text: str
    choices: list[str]
    by: str
    at: str | None
    via: str
    sources: list[str]


class Question(TypedDict):
    """What a session asks a human."""

    id: str
    session_id: str
    question: str
    context: str
    options: list[str]
    blocking: bool
    impact: Impact
    kind: QuestionKind
    status: QuestionStatus
    answer: Answer | None
    asked_at: str | None
    reason: str


class Event(TypedDict):
    """One numbered event of a session."""

    id: str
    session_id: str
    seq: int
    epoch: int
    time: str
    type: str
    turn: int
    actor: str
    data: dict[str, Any]


class RuntimeOnRunner(TypedDict):
    """A runtime as one runner has it; `problem` says why it cannot be used there."""

    name: str
    version: str
    capabilities: dict[str, Any]
    problem: str
    hint: str


class Runtime(RuntimeOnRunner):
    """A runtime, and where it is."""

    pools: list[str]
    runners: list[str]


class Runner(TypedDict):
    """A runner as the server knows it."""

    id: str
    name: str
    pool: str
    state: str
    slots: int
    slots_free: int
    root: str
    isolation: str
    protocol: int
    runtimes: list[RuntimeOnRunner]
    labels: list[str]
    disk_free: int | None
    warm: list[str]
    last_seen_at: str | None


class DrainLine(TypedDict):
    """What has become of one session: working, waiting or parking still; parked, moved, queued, ended or gone."""

    session: str
    title: str
    result: str
    sentence: str
    checkpoint: int


class Drain(TypedDict):
    """How far a drain is; `state` is `draining`, or `drained` when nothing is left on the runner."""

    runner: str
    name: str
    state: str
    asked_at: str
    deadline_at: str
    by: str
    sessions: list[DrainLine]


class Glimpse(TypedDict):
    """Words of a runtime as it works: void once an event says them, or something else."""

    session_id: str
    turn: int
    kind: Literal["text", "thought", "tool", "progress"]
    text: str


class Output(TypedDict):
    """What an event had no room for and is kept whole: `name` is the `blob` of that event."""

    name: str
    bytes: int
    stored_at: str


class FileEntry(TypedDict):
    """One thing in a checkpoint. `path_b64` (URL-safe base64) is set where the bytes of the path are not UTF-8."""

    name: str
    path: str
    path_b64: str | None
    kind: Literal["file", "folder", "link"]
    mode: str
    mtime: str
    size: int
    target: str | None
    twin_of: str | None


class Files(TypedDict):
    """What is at a path of a checkpoint: `items` are what stands in a folder, or the thing itself."""

    checkpoint: int
    tree: str
    path: str
    kind: Literal["file", "folder", "link"]
    items: list[FileEntry]
    next: str | None


class FileDiff(TypedDict):
    """One path that differs. `patch` is in git's form, `patch_b64` its bytes where they are not UTF-8."""

    path: str
    path_b64: str | None
    change: Literal["added", "removed", "changed"]
    kind: Literal["file", "folder", "link"]
    old_mode: str | None
    new_mode: str | None
    added: int
    removed: int
    size: int
    files: int
    binary: bool
    left_out: Literal["", "bytes", "lines"]
    patch: str | None
    patch_b64: str | None


class Diff(TypedDict):
    """What differs between two checkpoints. `since_is`: what the older one holds, the fresh clone, what the session was
    forked from, the first state that was saved (something may have changed before), or a later one.
    """

    since: int
    since_is: Literal["clone", "fork", "first", "later"]
    checkpoint: int
    tree: str
    items: list[FileDiff]
    next: str | None


class LostItem(TypedDict):
    """One thing that cannot be brought back."""

    what: str
    bytes: int
    reason: str


class Checked(TypedDict):
    """What was found out about one checkpoint, or about the `base` of a project: `state` is whole, damaged or gone."""

    session_id: str
    checkpoint: int
    base: str | None
    state: Literal["whole", "damaged", "gone"]
    bytes: int
    seconds: float
    lost: list[LostItem]
    lost_more: int


class Stray(TypedDict):
    """An object that nobody can open, or (`key`) one that is not there; nothing that is kept needs it. `next` says what
    becomes of it.
    """

    what: Literal["object", "key"]
    object: str
    state: Literal["underway", "unfinished", "condemned", "spare", "unknown"]
    due_at: str | None
    next: str


class Erased(TypedDict):
    """Sessions that were deleted, and the forks that still hold content of theirs. `session_id`: the one named, if any."""

    session_id: str
    type: str
    status: str
    deleted: list[str]
    held_by: list[str]
    later: str


class Limit(TypedDict):
    """One bound, and where its value comes from."""

    name: str
    value: float
    unit: str
    min: float
    max: float
    default: float
    origin: str
    kept: str


class Project(TypedDict):
    """A repository with its settings."""

    name: str
    repository: str
    settings: dict[str, float | str]
    limits: list[Limit]
    created_at: str


class Started(TypedDict):
    """A new session, the receipt of its first input, and the limits that hold for it."""

    session: Session
    inputs: list[Receipt]
    limits: list[Limit]


class SignInLink(TypedDict):
    """A link that signs one browser in: `path` is to be put after the server's address."""

    path: str
    expires_at: str
