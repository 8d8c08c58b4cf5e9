"""The embedded store: facts, row and wake-up time in one transaction of one SQLite file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import apsw
import msgspec

from bide.core import facts as f
from bide.core.codec import FACTS_VERSION, decode_fact, decode_session, encode_fact, encode_session
from bide.core.handle import Append, Done, Lock, Locked
from bide.core.placement import Runner
from bide.core.refusals import Refused, Unavailable
from bide.core.session import VERSION, Lifecycle, Session, wake_at
from bide.store.base import Clock, Job, Page
from bide.store.rows import InputRow, project, session_of
from bide.store.sqlite_file import connect, hold, inspect, migrate, outage
from bide.store.statements import statements, steps

STEPS = steps("sqlite")
SQL = statements("sqlite")
AFTER_EVERY_ID = "\U0010ffff"

_encode = msgspec.json.Encoder().encode
_input = msgspec.json.Decoder(InputRow)
_question = msgspec.json.Decoder(f.Question)
_checkpoint = msgspec.json.Decoder(f.Checkpoint)
_runner = msgspec.json.Decoder(Runner)


class SqliteReader:
    """A `Reader` on a connection of its own."""

    def __init__(self, db: apsw.Connection, clock: Clock) -> None:
        self._db, self._clock = db, clock

    def now(self) -> float:
        """The clock it was given."""
        return self._clock()

    def session(self, session_id: str) -> Session | None:
        """The session as it stands."""
        row = self._one("session", (session_id,))
        return None if row is None else self._state(session_id, *row)

    def sessions(self, page: Page) -> list[Session]:
        """Newest first."""
        name = "sessions_of_ticket" if page.ticket else "sessions_of_project" if page.project else "sessions"
        given = {
            "before": page.before or AFTER_EVERY_ID, "limit": page.limit, "project": page.project, "ticket": page.ticket,
        }  # fmt: skip
        words = dict.fromkeys(page.lifecycles or Lifecycle)
        found = [row for word in words for row in self._all(name, {**given, "lifecycle": word.value})]
        newest = sorted(found, key=lambda row: row[0], reverse=True)[: page.limit]
        return [self._state(*row) for row in newest]

    def due(self, now: float, limit: int) -> list[str]:
        """Longest overdue first."""
        return [session_id for (session_id,) in self._all("due", (now, limit))]

    def queued(self) -> list[Session]:
        """In queue order."""
        return [self._state(*row) for row in self._all("queued")]

    def leased_to(self, runner: str) -> list[Session]:
        """By id."""
        return [self._state(*row) for row in self._all("leased_to", (runner,))]

    def events(self, session_id: str, after: int, limit: int) -> list[f.Envelope]:
        """Facts with seq > `after`."""
        return [
            f.Envelope(
                id=event_id, session_id=session, seq=seq, epoch=epoch, time=time, turn=turn, actor=actor, n=n,
                fact=decode_fact(body, version),
            )
            for event_id, session, seq, epoch, time, turn, actor, n, version, body in self._all(
                "events", (session_id, after, limit)
            )
        ]  # fmt: skip

    def inputs(self, session_id: str) -> list[InputRow]:
        """In order of acceptance."""
        return [_input.decode(body) for (body,) in self._all("inputs", (session_id,))]

    def input(self, session_id: str, input_id: str) -> InputRow | None:
        """One input."""
        row = self._one("input", (session_id, input_id))
        return None if row is None else _input.decode(row[0])

    def question(self, question_id: str) -> f.Question | None:
        """One question."""
        row = self._one("question", (question_id,))
        return None if row is None else _question.decode(row[0])

    def questions(self, session_id: str = "", status: str = "") -> list[f.Question]:
        """Oldest first."""
        if session_id:
            rows = self._all("questions_of_session", {"session": session_id, "status": status})
        elif status:
            rows = self._all("questions_by_status", (status,))
        else:
            rows = self._all("questions")
        return [_question.decode(body) for (body,) in rows]

    def checkpoints(self, session_id: str) -> list[f.Checkpoint]:
        """Oldest first."""
        return [_checkpoint.decode(body) for (body,) in self._all("checkpoints", (session_id,))]

    def runners(self) -> list[Runner]:
        """By name."""
        return [_runner.decode(body) for (body,) in self._all("runners")]

    def get(self, kind: str, key: str) -> bytes | None:
        """One document."""
        row = self._one("document", (kind, key))
        return None if row is None else bytes(row[0])

    def keys(self, kind: str) -> list[str]:
        """In order."""
        return [key for (key,) in self._all("documents", (kind,))]

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """What is read inside stands still."""
        self._execute("begin")
        try:
            yield
        finally:
            if self._db.in_transaction:
                self._execute("rollback")

    def close(self) -> None:
        """Closes the connection; closing twice is no error."""
        self._db.close()

    def _state(self, session_id: str, version: int, lease_until: float | None, last_seq: int, body: bytes) -> Session:
        stored = decode_session(body) if version == VERSION else None
        if stored is not None:
            return stored
        return session_of(self.events(session_id, 0, last_seq), lease_until)

    def _all(self, name: str, bindings: Any = ()) -> list[Any]:
        return self._execute(SQL[name], bindings)

    def _one(self, name: str, bindings: Any = ()) -> Any:
        rows = self._execute(SQL[name], bindings)
        return rows[0] if rows else None

    def _execute(self, sql: str, bindings: Any = ()) -> list[Any]:
        try:
            return self._db.execute(sql, bindings).fetchall()
        except apsw.Error as error:
            raise outage(error) from error


class _Spoiled(Exception):
    """A job ended badly after it had written: its transaction has to go, and with it the others' in it."""

    def __init__(self, result: Exception) -> None:
        self.result = result


class SqliteStore(SqliteReader):
    """The `Engine`: the one connection that writes. Where several jobs share a transaction, so do their states:
    each session is read once and written once, whatever happened to it in between.
    """

    def __init__(self, path: Path | Literal[":memory:"], clock: Clock) -> None:
        """Raises `Refused`: `store_taken`, `store_damaged`, `store_newer`, `store_unavailable`."""
        self._path = Path(path) if path != ":memory:" else None
        self._held = hold(self._path) if self._path else -1
        self._columns: dict[str, tuple[Any, ...] | None] = {}  # what the row was found by; None: there is no row
        self._states: dict[str, Session | None] = {}
        self._changed: dict[str, Session] = {}
        self._events: list[tuple[Any, ...]] = []
        try:
            if self._path:
                inspect(self._path, STEPS)
            super().__init__(connect(self._path, write=True), clock)
            migrate(self._db, STEPS)
        except BaseException:
            self._release()
            raise

    # -- transactions -------------------------------------------------------------------------------------------------

    def perform(self, jobs: Sequence[Job]) -> list[Done | Refused | Exception]:
        """All jobs in one transaction. Where one breaks after it wrote, each gets a transaction of its own."""
        try:
            with self._transaction():
                return [self._run(job) for job in jobs]
        except _Spoiled:
            return [self._alone(job) for job in jobs]

    def _alone(self, job: Job) -> Done | Refused | Exception:
        try:
            with self._transaction():
                return self._run(job)
        except _Spoiled as spoiled:
            return spoiled.result
        except Unavailable as away:
            return away

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._execute("begin immediate")
            yield
            self._flush()
            self._execute("commit")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("rollback")
            raise
        finally:
            for kept in (self._columns, self._states, self._changed, self._events):
                kept.clear()

    def _run(self, job: Job) -> Done | Refused | Exception:
        """Drives one job through its steps; nothing is written before its first `Append`."""
        wrote = False
        try:
            work = job()
            answer: Locked | None = None
            while True:
                step = work.send(answer)
                answer = None
                if isinstance(step, Lock):
                    answer = self._lock(step)
                else:
                    events = self._checked(step)
                    wrote = True
                    self._append(step, events)
        except StopIteration as stopped:
            done: Done = stopped.value
            return done
        except (Unavailable, apsw.Error):
            raise
        except Exception as ended:
            if wrote:
                raise _Spoiled(ended) from ended
            return ended

    def _lock(self, step: Lock) -> Locked:
        """The transaction has locked the whole file already."""
        known = self.input(step.session, step.input_id) if step.input_id else None
        return Locked(session=self._current(step.session), now=self.now(), known=known.known if known else None)

    def _current(self, session_id: str) -> Session | None:
        if session_id not in self._states:
            row = self._one("session", (session_id,))
            s = None if row is None else self._state(session_id, *row)
            self._states[session_id] = s
            # A row of another version was filed by other rules: it is filed anew whatever it says.
            self._columns[session_id] = None if s is None else _columns(s) if row[0] == VERSION else ()
        return self._states[session_id]

    def _checked(self, step: Append) -> list[tuple[Any, ...]]:
        """The rows of the facts; whatever cannot be stored is found here, before anything is written."""
        s, before = step.session, self._current(step.session.id)
        assert s.last_seq == (before.last_seq if before else 0) + len(step.envelopes), "the log has no holes"
        return [
            (s.id, e.seq, e.id, e.epoch, e.n, e.time, e.type, e.turn, e.actor, FACTS_VERSION, encode_fact(e.fact))
            for e in step.envelopes
        ]

    def _append(self, step: Append, events: list[tuple[Any, ...]]) -> None:
        self._events += events
        self._states[step.session.id] = self._changed[step.session.id] = step.session
        for envelope in step.envelopes:
            project(envelope, self)

    def _flush(self) -> None:
        for s in self._changed.values():
            before, columns = self._columns[s.id], _columns(s)
            body, until = encode_session(s), s.lease.until if s.lease else None
            if before == columns:
                self._execute(SQL["session_set"], (VERSION, until, s.last_seq, body, s.id))
            else:
                *first, queued_at, wake = columns
                name = "session_add" if before is None else "session_move"
                self._execute(SQL[name], (VERSION, *first, until, queued_at, wake, s.last_seq, body, s.id))
        try:
            self._db.executemany(SQL["event_add"], self._events)
        except apsw.Error as error:
            raise outage(error) from error

    # -- rows, inside the transaction ---------------------------------------------------------------------------------

    def put_input(self, row: InputRow) -> None:
        """Writes one input's row."""
        self._execute(SQL["input_put"], (row.session_id, row.id, row.seq, _encode(row)))

    def put_question(self, row: f.Question) -> None:
        """Writes one question's row."""
        self._execute(SQL["question_put"], (row.id, row.session_id, row.status, row.asked_at, _encode(row)))

    def put_checkpoint(self, session_id: str, row: f.Checkpoint) -> None:
        """Writes one checkpoint's row."""
        self._execute(SQL["checkpoint_add"], (session_id, _encode(row)))

    # -- rows of their own --------------------------------------------------------------------------------------------

    def put_runner(self, runner: Runner) -> None:
        """Writes one runner's row."""
        self._execute(SQL["runner_put"], (runner.id, runner.name, _encode(runner)))

    def put(self, kind: str, key: str, body: bytes) -> None:
        """Writes one document."""
        self._execute(SQL["document_put"], (kind, key, body))

    def delete(self, kind: str, key: str) -> None:
        """Removes one document."""
        self._execute(SQL["document_delete"], (kind, key))

    def reader(self) -> SqliteReader | None:
        """Another connection; None for a database in memory, which has only one."""
        return SqliteReader(connect(self._path, write=False), self._clock) if self._path else None

    def close(self) -> None:
        """Copies the log into the file, where nobody reads any more, and lets the next server have it."""
        super().close()
        self._release()

    def _release(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


def _columns(s: Session) -> tuple[Any, ...]:
    """What a session's row is found by."""
    runner = s.lease.runner if s.lease else None
    return s.lifecycle.value, s.project, s.ticket, runner, s.queued_at, wake_at(s)
