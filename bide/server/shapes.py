"""The API's shapes: names as in INTERFACES, times RFC 3339 in UTC, durations in `_s` fields."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

from bide.core import facts as f
from bide.core.bounds import Limit
from bide.core.drain import Line
from bide.core.placement import RunnerState
from bide.core.runtime import Runtime
from bide.core.words import Shown
from bide.server.settings import Value

T = TypeVar("T")


class Items(Struct, Generic[T], frozen=True, kw_only=True):
    """A list as every route answers it; `next` is the cursor of the rest, null at the end."""

    items: Sequence[T]
    next: str | None = None


class Turn(Struct, frozen=True, kw_only=True):
    """`state` is `working` or `waiting`."""

    n: int
    state: str
    waiting_for: str | None


class Environment(Struct, frozen=True, kw_only=True):
    """Workspace, home and toolchain on some runner."""

    id: str
    state: str
    reset_count: int
    resume_source: str | None


class Cost(Struct, frozen=True, kw_only=True):
    """What the session has spent so far."""

    usd: float
    tokens: int
    worked_s: float = 0.0  # with a turn under way, those that are over


class Checkpoint(Struct, frozen=True, kw_only=True):
    """One atomic, verified save. `bytes` are those of its files; holes in them take no room and are not counted."""

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
    verified_at: datetime | None
    saved_at: datetime | None
    kept: Sequence[str]
    not_kept: Sequence[str]
    root: str
    workspace: f.Workspace
    runtime_version: str
    after: int | None  # n of the one that it was built upon
    available: bool | None = None  # whether it can still be read; null where that was not looked at


class Session(Struct, frozen=True, kw_only=True):
    """A session. `runner` is its runner's id while it is leased; `reason` says why it is as it is.

    `rewound_to` is the checkpoint that it was last taken back to.
    """

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
    since: datetime
    must_act: str
    next_step: str
    reason: str
    pool: str
    labels: Sequence[str]
    runner: str | None
    runner_name: str | None
    epoch: int
    last_seq: int
    checkpoint: Checkpoint | None
    forked_from: f.ForkedFrom | None
    rewound_to: int | None
    workspace: f.Workspace
    limits: dict[str, float]
    on_loss: str
    cost: Cost
    expires_at: datetime | None
    unconfirmed: int  # inputs of which nobody knows whether they were delivered: a person has to say
    retry_at: datetime | None  # held because of an outage of its model: it goes on by itself then
    created_at: datetime


class Receipt(Struct, frozen=True, kw_only=True):
    """An input and what became of it."""

    id: str
    session_id: str
    type: str
    author: str
    text: str
    seq: int
    status: f.ReceiptStatus
    how: str | None
    turn: int | None
    code: str | None
    accepted_at: datetime
    delivered_at: datetime | None
    consumed_at: datetime | None


class Answer(Struct, frozen=True, kw_only=True):
    """The one answer that won."""

    text: str
    choices: Sequence[str]
    by: str
    at: datetime | None
    via: str
    sources: Sequence[str]


class Question(Struct, frozen=True, kw_only=True):
    """What a session asks a human."""

    id: str
    session_id: str
    question: str
    context: str
    options: Sequence[str]
    blocking: bool
    impact: f.Impact
    kind: f.QuestionKind
    status: f.QuestionStatus
    answer: Answer | None
    asked_at: datetime | None
    reason: str


class Event(Struct, frozen=True, kw_only=True):
    """One numbered fact of a session. `data` depends on the type."""

    id: str
    session_id: str
    seq: int
    epoch: int
    time: datetime
    type: str
    turn: int
    actor: str
    data: dict[str, Any]


class Runner(Struct, frozen=True, kw_only=True):
    """A runner as the server knows it. `disk_free` is bytes where its workspaces are, null when it does not say."""

    id: str
    name: str
    pool: str
    state: RunnerState
    slots: int
    slots_free: int
    root: str
    isolation: str
    protocol: int
    runtimes: Sequence[Runtime]
    labels: Sequence[str]
    disk_free: int | None
    warm: Sequence[str]
    last_seen_at: datetime | None


class Drain(Struct, frozen=True, kw_only=True):
    """How far a drain is. `drained`: nothing is left on the runner."""

    runner: str
    name: str
    state: Literal["draining", "drained"]
    asked_at: datetime
    deadline_at: datetime
    by: str
    sessions: Sequence[Line]


class Glimpse(Struct, frozen=True, kw_only=True):
    """Words of a runtime as it works, on a live stream that asked for them. Void once the next `assistant.message`,
    `assistant.thought`, `tool.call` or `turn.ended` is there: no place of the log is theirs, and nobody keeps them.
    """

    session_id: str
    turn: int
    kind: Literal["text", "thought", "tool", "progress"]
    text: str


class Output(Struct, frozen=True, kw_only=True):
    """What an event had no room for and is kept whole: `name` is the `blob` of that event."""

    name: str
    bytes: int
    stored_at: datetime


class FileEntry(Struct, frozen=True, kw_only=True):
    """One thing in a checkpoint. Paths are relative to the tree; `path_b64` (URL-safe base64) is set where the bytes of
    the path are not UTF-8, and `path` shows them escaped. `mode` is octal; `target` is a link's, `twin_of` the first
    name of a file that has several.
    """

    name: str
    path: str
    path_b64: str | None
    kind: Literal["file", "folder", "link"]
    mode: str
    mtime: datetime
    size: int
    target: str | None
    twin_of: str | None


class Files(Struct, frozen=True, kw_only=True):
    """What is at a path of a checkpoint: `kind` says what, `items` are what stands in a folder, or the thing itself."""

    checkpoint: int
    tree: str
    path: str
    kind: Literal["file", "folder", "link"]
    items: Sequence[FileEntry]
    next: str | None


class FileDiff(Struct, frozen=True, kw_only=True):
    """One path that differs. `patch` is in git's form and whole: none for a folder, where only bits of the mode differ that
    git does not know, and for what is `left_out`, since one side has too many bytes or too many lines differ.
    `patch_b64` has its bytes where they are not UTF-8. A folder that came or went with many `files` is one item.
    """

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


class Diff(Struct, frozen=True, kw_only=True):
    """What differs between two checkpoints. `since_is`: what the older one holds, the fresh clone, what the session was
    forked from, the first state that was saved (something may have changed before), or a later one.
    """

    since: int
    since_is: Literal["clone", "fork", "first", "later"]
    checkpoint: int
    tree: str
    items: Sequence[FileDiff]
    next: str | None


class Lost(Struct, frozen=True, kw_only=True):
    """One thing that cannot be brought back."""

    what: str
    bytes: int
    reason: str


class Checked(Struct, frozen=True, kw_only=True):
    """What was found out about one checkpoint, or about the `base` of a project, which is of no session. `state`: whole;
    damaged, with what is lost; or gone, as it is not kept any more.
    """

    session_id: str
    checkpoint: int
    base: str | None = None
    state: Literal["whole", "damaged", "gone"]
    bytes: int = 0
    seconds: float = 0.0
    lost: Sequence[Lost] = ()
    lost_more: int = 0


StrayKind = Literal["object", "key"]


class Stray(Struct, frozen=True, kw_only=True):
    """An object of the blob store that nobody can open, or (`key`) one that there is a key to and that is not there.
    Nothing that is kept needs it. `next` says what becomes of it, `due_at` when, where that is known.
    """

    what: StrayKind
    object: str
    state: Literal["underway", "unfinished", "condemned", "spare", "unknown"]
    due_at: datetime | None
    next: str


class Erased(Struct, frozen=True, kw_only=True):
    """Sessions that were erased, and the forks that still hold content of theirs. `session_id`: the one named, if any.
    `later`: what of the stored could not be deleted yet, as a sentence; empty for nothing.
    """

    session_id: str = ""
    type: Literal["erase"] = "erase"
    status: Literal["consumed"] = "consumed"
    deleted: Sequence[str]
    held_by: Sequence[str]
    later: str = ""


class Project(Struct, frozen=True, kw_only=True):
    """A project. `settings` are all that hold for it, `limits` say where each bound comes from."""

    name: str
    repository: str
    settings: dict[str, Value]
    limits: Sequence[Limit]
    created_at: datetime
