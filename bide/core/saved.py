"""Facts about the environment, its runtime and its checkpoints. Those marked (runner) are reported by a runner."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from bide.core.happened import Happened
from bide.core.nouns import Checkpoint, Lost, Workspace


class CheckpointFlagged(Happened, frozen=True, kw_only=True, tag="checkpoint.flagged"):
    """A saved checkpoint was looked at and is damaged; with nothing in `what` it is whole again."""

    checkpoint: int
    what: tuple[Lost, ...]
    reason: str


class EnvironmentRestored(Happened, frozen=True, kw_only=True, tag="environment.restored"):
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


class EnvironmentMoved(Happened, frozen=True, kw_only=True, tag="environment.moved"):
    """(runner) The workspace's absolute path changed."""

    source: str = field(name="from")
    target: str = field(name="to")


class EnvironmentChanged(Happened, frozen=True, kw_only=True, tag="environment.changed"):
    """(runner) The tools are not those that the workspace was saved with: name -> (then, now), empty for none."""

    toolchain: dict[str, tuple[str, str]]


class EnvironmentRolledBack(Happened, frozen=True, kw_only=True, tag="environment.rolled_back"):
    checkpoint: int
    turns: int
    seconds: float
    lost: tuple[Lost, ...]


class EnvironmentLost(Happened, frozen=True, kw_only=True, tag="environment.lost"):
    """(runner, or decided)"""

    reason: str
    lost: tuple[Lost, ...] = ()


class EnvironmentExpired(Happened, frozen=True, kw_only=True, tag="environment.expired"):
    """Its retention is over: workspace and conversation are deleted, the log stays."""

    at: float


class RuntimeStarted(Happened, frozen=True, kw_only=True, tag="runtime.started"):
    """(runner)"""

    runtime: str
    version: str
    pid: int = 0
    isolation: str = ""
    runtime_session_id: str = ""


class RuntimeResumed(Happened, frozen=True, kw_only=True, tag="runtime.resumed"):
    """(runner)"""

    rung: Literal["native", "replayed", "fresh"]
    reason: str = ""
    version: str = ""
    runtime_session_id: str = ""


class RuntimeExited(Happened, frozen=True, kw_only=True, tag="runtime.exited"):
    """(runner)"""

    reason: str


class CheckpointSaved(Happened, frozen=True, kw_only=True, tag="checkpoint.saved"):
    """(runner)"""

    checkpoint: Checkpoint


class CheckpointFailed(Happened, frozen=True, kw_only=True, tag="checkpoint.failed"):
    """(runner, or decided at a deadline)"""

    code: str
    reason: str
    retry_at: float = 0.0
