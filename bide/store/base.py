"""What a store must do. An `Engine` is synchronous and used from one thread at a time; the server sees a `Store`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct

from bide.core.facts import Checkpoint, Envelope, Question
from bide.core.handle import Done, Work
from bide.core.placement import Runner
from bide.core.refusals import Refused
from bide.core.session import Lifecycle, Session
from bide.store.rows import InputRow, Place

Job = Callable[[], Work]
Clock = Callable[[], float]  # epoch seconds; the store's clock is the only one that judges leases


class Page(Struct, frozen=True, kw_only=True):
    """Which sessions to list: newest first, those created before `before` (an id), at most `limit`."""

    limit: int
    before: str = ""
    project: str = ""
    ticket: str = ""
    lifecycles: tuple[Lifecycle, ...] = ()


class Load(Struct, frozen=True, kw_only=True):
    """What one pool has to do: sessions that wait for a runner and since when the first of them does (epoch seconds,
    0 for none), and sessions that runners hold.
    """

    queued: int = 0
    held: int = 0
    oldest: float = 0.0


def load_of(rows: Iterable[tuple[str, int, int, float | None]]) -> dict[str, Load]:
    """The load of each pool from rows of parts of it: pool, queued, held, oldest."""
    loads: dict[str, Load] = {}
    for pool, queued, held, oldest in rows:
        before = loads.get(pool, Load())
        loads[pool] = Load(
            queued=before.queued + queued, held=before.held + held, oldest=before.oldest or oldest or 0.0
        )
    return loads


class Reader(Protocol):
    """What can be read, by one thread at a time. All methods block."""

    def now(self) -> float:
        """The store's clock."""

    def session(self, session_id: str) -> Session | None:
        """The session as it stands. Raises `Unreadable`; lists leave out what cannot be read."""

    def sessions(self, page: Page) -> list[Session]:
        """Sessions, newest first."""

    def queued(
        self, pool: str, runtimes: Collection[str], after: tuple[float, str] | None, limit: int
    ) -> list[Session]:
        """Sessions of the pool that wait for a runner with one of the runtimes, in queue order (`queued_at`, id): those
        after the place `after`, at most `limit`.
        """

    def ahead(self, pool: str, queued_at: float, session_id: str) -> int:
        """How many sessions of the pool wait before this place in the queue."""

    def load(self) -> dict[str, Load]:
        """What each pool has to do; no entry for one that has nothing."""

    def leased_to(self, runner: str) -> list[Session]:
        """Sessions leased to this runner."""

    def last_seqs(self, sessions: Collection[str]) -> dict[str, int]:
        """How far the log of each session goes; no entry for one that is not there."""

    def events(self, session_id: str, after: int, limit: int) -> list[Envelope]:
        """Facts with seq > `after`, in order. Raises where one of them is damaged: nothing is decided after it."""

    def shown(self, session_id: str, after: int, limit: int) -> list[Envelope]:
        """The same for whoever only shows them: a damaged one says so, and hides no other."""

    def inputs(self, session_id: str) -> list[InputRow]:
        """All inputs of a session, in order of acceptance."""

    def input(self, session_id: str, input_id: str) -> InputRow | None:
        """One input."""

    def question(self, question_id: str) -> Question | None:
        """One question."""

    def questions(self, session_id: str) -> list[Question]:
        """Questions of a session, oldest first."""

    def inbox(self, status: str, after: Place | None, limit: int) -> list[Question]:
        """Questions of all sessions with this status, or with any for "": what holds up most first, then the oldest;
        those after the place `after`, at most `limit`.
        """

    def questions_beginning(self, prefix: str, status: str, limit: int) -> list[Question]:
        """Questions whose ids begin so, with this status, or with any for "", in order of their ids."""

    def checkpoints(self, session_id: str) -> list[Checkpoint]:
        """Checkpoints of a session, oldest first."""

    def runner(self, runner_id: str) -> Runner | None:
        """One runner."""

    def runners(self, pool: str = "") -> list[Runner]:
        """Every runner ever registered, of one pool or of all, by name."""

    def get(self, kind: str, key: str) -> bytes | None:
        """Reads one document."""

    def keys(self, kind: str) -> list[str]:
        """The keys of all documents of a kind, in order."""

    def documents(self, kind: str, after: str, limit: int) -> list[tuple[str, bytes]]:
        """Documents of a kind with their keys, in order of these: those after the key `after`, at most `limit`."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Everything read inside shows the store at one moment, whoever writes meanwhile."""

    def close(self) -> None:
        """Releases files and locks."""


class Engine(Reader, Protocol):
    """One database connection that writes. All methods block; none keeps a transaction open when it returns.

    Any method raises `Unavailable` when the database is out of reach; nothing was changed then, or, where the answer
    was lost, everything: a repeat is safe.
    """

    shared: bool  # whether other servers may work on the same database
    schema: int  # number of the newest step of the schema that this release knows

    def perform(self, jobs: Sequence[Job]) -> Sequence[Done | Refused | Exception]:
        """Performs each job's steps; all of them in one transaction, durable when this returns.

        One result for each job, in order. A job that raises `Refused` has written nothing and does not disturb the
        others, nor does one that raises anything else: a bug of ours, whose exception stands in its place.
        """

    def claim_due(self, now: float, limit: int, hold_s: float) -> list[str]:
        """Ids of sessions whose wake-up has come, longest overdue first; nobody else is given them for `hold_s`.

        A session that was not dealt with by then comes up again.
        """

    def put_runner(self, runner: Runner) -> None:
        """Writes one runner's row."""

    def hear(self, runner: Runner) -> bool:
        """Writes one runner's row if the same process of it is still the registered one (`boot`); whether it was."""

    def forget_runner(self, runner: Runner) -> bool:
        """Removes one runner's row if it is still as given here; whether it was. Called `alone`."""

    def put(self, kind: str, key: str, body: bytes) -> None:
        """Writes one small document, e.g. a project or a token."""

    def delete(self, kind: str, key: str) -> None:
        """Removes one document; no error when there is none."""

    def erase(self, session_id: str, limit: int) -> int:
        """Removes a session with its inputs, questions and checkpoints, and the first `limit` facts of its log; how many
        facts those were. Called `alone`, again until there are none. Raises `Refused('not_at_rest')` while a runner
        holds it, with nothing removed.
        """

    def wipe(self) -> bool:
        """Sees to it that what was erased does not stay in the database's own files, as far as that is ours to do;
        False where somebody reads at this moment. Not called `alone`.
        """

    def alone(self) -> AbstractContextManager[None]:
        """Everything inside is one transaction, which an exception undoes. Documents stand still meanwhile and no runner
        is put, whichever server wants to, and no other `alone` runs. Of other servers, sessions and `hear` go on: a
        runner's row that is read inside and put back takes a heartbeat of that moment with it, until the next one.

        Not for `perform`, `claim_due`, `refile` and `contract`: each is a transaction of its own.
        """

    def refile(self, limit: int) -> int:
        """Writes up to so many sessions anew that another release filed by its own rules; how many there were. Fewer at
        once where their histories are long: others wait meanwhile.
        """

    def contract(self, oldest: int) -> int:
        """Takes away what only releases before schema number `oldest` still needed; how many steps that were."""

    def ring(self, names: Collection[str]) -> None:
        """Tells the other servers that something changed that is no fact."""

    def reader(self) -> Reader | None:
        """Another connection, that only reads, for another thread; None where there can be none."""

    def listener(self) -> Listener | None:
        """Another connection, that hears of other servers' changes; None where there are no other servers."""


class Listener(Protocol):
    """What other servers change, as a hint: some of it may get lost. Used from one thread, which `stop` lets go."""

    def wait(self, timeout_s: float) -> frozenset[str] | None:
        """Names that were rung, none when the time was up; None: too many to name.

        Raises `Unavailable` when the connection is lost, and with it what was rung meanwhile.
        """

    def stop(self) -> None:
        """Ends the present and every later wait at once; may be called from any thread."""

    def close(self) -> None:
        """Releases the connection."""


class Spoiled(Exception):
    """A job ended badly after it had written: its transaction has to go, and with it the others' in it."""

    def __init__(self, result: Exception) -> None:
        self.result = result


def held(session_id: str) -> Refused:
    """Why a session cannot be erased now."""
    return Refused("not_at_rest", f"A runner holds session {session_id}.")


def perform_one(engine: Engine, job: Job) -> Done:
    """One job in a transaction of its own; raises what it ended with, `Refused` or a bug."""
    (result,) = engine.perform([job])
    if isinstance(result, Exception):
        raise result
    return result
