"""What the runner machine wants done, and what comes back: the whole border between it and its shell."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from bide.core import facts as f
from bide.core.kept import Kept
from bide.core.runtime import Order
from bide.core.wire import Glimpse, Job

# -- effects: machine -> shell ----------------------------------------------------------------------------------------


class Restore(Struct, frozen=True, kw_only=True):
    """Make the workspace: clone it, bring back the checkpoint, or (`adopt`) take it up as an earlier process left it.

    Answered by `restored` or `not_restored`.
    """

    session: str
    epoch: int
    job: Job
    adopt: bool = False


class Spawn(Struct, frozen=True, kw_only=True):
    """Start the runtime's process on the workspace. Answered by its events, at last `exited`."""

    session: str
    epoch: int


class Tell(Struct, frozen=True, kw_only=True):
    """Say something to the runtime."""

    session: str
    epoch: int
    order: Order


class Recall(Struct, frozen=True, kw_only=True):
    """Look which of these inputs the runtime's own state contains, now that this turn is over. Answered by `recalled`."""

    session: str
    epoch: int
    turn: int
    inputs: tuple[str, ...]


class Stop(Struct, frozen=True, kw_only=True):
    """End the runtime: in order where it can, by force at last. Answered by `exited`."""

    session: str
    epoch: int
    force: bool = False


class Capture(Struct, frozen=True, kw_only=True):
    """Save a checkpoint, runtime state first. Answered by `captured` or `not_captured`."""

    session: str
    epoch: int
    n: int
    turn: int
    turn_open: bool
    consumed: tuple[str, ...]
    at_n: int


class Freeze(Struct, frozen=True, kw_only=True):
    """Stop every process of the session where it stands."""

    session: str
    epoch: int


class Thaw(Struct, frozen=True, kw_only=True):
    """Let a frozen session go on."""

    session: str
    epoch: int


class Post(Struct, frozen=True, kw_only=True):
    """Send facts to the server. Answered by `acked`, `missing` or `untakable`; sent again until then. `of`: they are an
    adopted epoch's. `lost`: so many before `first` will never come.
    """

    session: str
    epoch: int
    first: int
    facts: tuple[f.RunnerFact, ...]
    of: int = 0
    lost: int = 0


class Keep(Struct, frozen=True, kw_only=True):
    """Write to disk what a later process of the runner needs, before anything else of this moment is done.

    `facts` are new: numbers `at`, … of this epoch. Of all kept so far, those of epoch `telling` from number `first` on
    are not acknowledged; those before need not be kept any more. Unless `adopted`, nothing of an earlier epoch is.
    """

    session: str
    epoch: int
    adopted: bool
    at: int
    facts: tuple[f.RunnerFact, ...]
    telling: int
    first: int
    kept: Kept


class Store(Struct, frozen=True, kw_only=True):
    """Keep a text whole of which the log has only a part: written to disk before anything else of this moment is done, and
    brought to the server as soon as it can be. Answered by `stored`.

    It is `text`; else a `file` of the shell's own; else what the shell finds under this name.
    """

    session: str
    epoch: int
    name: str
    text: str = ""
    file: str = ""


class Release(Struct, frozen=True, kw_only=True):
    """Nothing of the session runs here any more. Its folder stays as `warm` cache, as `salvage`, or as it is, `left` to
    be taken up once the server is back.

    `root`: the checkpoint that the folder holds, where the shell knows nothing newer.
    """

    session: str
    epoch: int
    keep: Literal["warm", "salvage", "left"]
    root: str = ""


Effect = Restore | Spawn | Tell | Recall | Stop | Capture | Freeze | Thaw | Post | Keep | Store | Glimpse | Release

# -- results: shell -> machine ----------------------------------------------------------------------------------------


class Restored(Struct, frozen=True, kw_only=True):
    """The workspace is there. `memory` are the inputs that the runtime's saved state contains."""

    source: Literal["warm", "checkpoint", "fresh"]
    workspace: f.Workspace
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    kept: tuple[str, ...] = ()
    not_kept: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    memory: frozenset[str] | None = frozenset()  # None: it cannot be read
    moved: tuple[str, str] | None = None
    notes: tuple[str, ...] = ()  # more plain words for the coding agent
    found: tuple[str, ...] = ()  # and for people as well
    toolchain: dict[str, tuple[str, str]] = {}  # what is not as it was: name -> (then, now)
    isolation: str = ""
    unstored: tuple[str, ...] = ()  # whole outputs that an earlier process left here


class NotRestored(Struct, frozen=True, kw_only=True):
    """There is no workspace. `lost`: what was saved is gone or damaged; else the start failed for good."""

    lost: bool
    code: str
    sentence: str
    hint: str = ""
    items: tuple[f.Lost, ...] = ()


class Captured(Struct, frozen=True, kw_only=True):
    """The checkpoint was written and read back. The machine fills in what it knows itself."""

    root: str
    files: int = 0
    bytes: int = 0
    new_bytes: int = 0
    seconds: float = 0.0
    verified_at: float = 0.0
    kept: tuple[str, ...] = ()
    not_kept: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    workspace: f.Workspace = f.Workspace()
    toolchain: dict[str, str] = {}


class NotCaptured(Struct, frozen=True, kw_only=True):
    """The checkpoint failed; the machine tries again."""

    code: str
    reason: str


class Asked(Struct, frozen=True, kw_only=True):
    """The runtime called `ask_human`. `key` is the tool call's own id: asking twice for it is one question."""

    key: str
    question: str
    context: str = ""
    options: tuple[str, ...] = ()
    blocking: bool = True
    impact: f.Impact = "medium"
    replaces: str = ""  # the id of an earlier one


class Unasked(Struct, frozen=True, kw_only=True):
    """The runtime called `withdraw_question`."""

    key: str
    question_id: str
    reason: str


class Assumed(Struct, frozen=True, kw_only=True):
    """The runtime called `record_assumption`."""

    key: str
    text: str
    impact: f.Impact = "low"


class Finish(Struct, frozen=True, kw_only=True):
    """The runtime called `finish`: end as completed when this turn is over."""

    summary: str


ToolCall = Asked | Unasked | Assumed | Finish
