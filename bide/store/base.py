"""What a store must do. An `Engine` is synchronous and used from one thread at a time; the server sees a `Store`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct

from bide.core.facts import Checkpoint, Envelope, Question
from bide.core.handle import Done, Work
from bide.core.placement import Runner
from bide.core.refusals import Refused
from bide.core.session import Lifecycle, Session
from bide.store.rows import InputRow

Job = Callable[[], Work]
Clock = Callable[[], float]  # epoch seconds; the store's clock is the only one that judges leases


class Page(Struct, frozen=True, kw_only=True):
    """Which sessions to list: newest first, those created before `before` (an id), at most `limit`."""

    limit: int
    before: str = ""
    project: str = ""
    ticket: str = ""
    lifecycles: tuple[Lifecycle, ...] = ()


class Reader(Protocol):
    """What can be read, by one thread at a time. All methods block."""

    def now(self) -> float:
        """The store's clock."""

    def session(self, session_id: str) -> Session | None:
        """The session as it stands."""

    def sessions(self, page: Page) -> list[Session]:
        """Sessions, newest first."""

    def due(self, now: float, limit: int) -> list[str]:
        """Ids of sessions whose `wake_at` has come, longest overdue first."""

    def queued(self) -> list[Session]:
        """Sessions that wait for a runner, in queue order."""

    def leased_to(self, runner: str) -> list[Session]:
        """Sessions leased to this runner."""

    def events(self, session_id: str, after: int, limit: int) -> list[Envelope]:
        """Facts with seq > `after`, in order."""

    def inputs(self, session_id: str) -> list[InputRow]:
        """All inputs of a session, in order of acceptance."""

    def input(self, session_id: str, input_id: str) -> InputRow | None:
        """One input."""

    def question(self, question_id: str) -> Question | None:
        """One question."""

    def questions(self, session_id: str = "", status: str = "") -> list[Question]:
        """Questions, oldest first; of one session, or with one status, or all."""

    def checkpoints(self, session_id: str) -> list[Checkpoint]:
        """Checkpoints of a session, oldest first."""

    def runners(self) -> list[Runner]:
        """Every runner ever registered, by name."""

    def get(self, kind: str, key: str) -> bytes | None:
        """Reads one document."""

    def keys(self, kind: str) -> list[str]:
        """The keys of all documents of a kind, in order."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Everything read inside shows the store at one moment, whoever writes meanwhile."""

    def close(self) -> None:
        """Releases files and locks."""


class Engine(Reader, Protocol):
    """One database connection that writes. All methods block; none keeps a transaction open when it returns.

    Any method raises `Unavailable` when the database is out of reach; nothing was changed then.
    """

    def perform(self, jobs: Sequence[Job]) -> Sequence[Done | Refused | Exception]:
        """Performs each job's steps; all of them in one transaction, durable when this returns.

        One result for each job, in order. A job that raises `Refused` has written nothing and does not disturb the
        others, nor does one that raises anything else: a bug of ours, whose exception stands in its place.
        """

    def put_runner(self, runner: Runner) -> None:
        """Writes one runner's row."""

    def put(self, kind: str, key: str, body: bytes) -> None:
        """Writes one small document, e.g. a project or a token."""

    def delete(self, kind: str, key: str) -> None:
        """Removes one document; no error when there is none."""

    def reader(self) -> Reader | None:
        """Another connection, that only reads, for another thread; None where there can be none."""


def perform_one(engine: Engine, job: Job) -> Done:
    """One job in a transaction of its own; raises what it ended with, `Refused` or a bug."""
    (result,) = engine.perform([job])
    if isinstance(result, Exception):
        raise result
    return result
