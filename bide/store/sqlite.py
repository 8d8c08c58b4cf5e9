"""The embedded store: facts, row and wake-up time in one transaction of one SQLite file."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import apsw
import msgspec

from bide.core import facts as f
from bide.core.codec import encode_session
from bide.core.handle import Answer, Append, Done, Lock, Locked, Recall
from bide.core.limits import REFILE_FACTS
from bide.core.placement import Runner
from bide.core.refusals import Refused, Unavailable
from bide.core.session import VERSION, Session, wake_at
from bide.store.base import Clock, Job, Spoiled, held
from bide.store.rows import InputRow, Unreadable, event_rows, project
from bide.store.sqlite_file import connect, hold, inspect, migrate, outage
from bide.store.sqlite_reader import SQL, SqliteReader, listed
from bide.store.statements import posts, steps

STEPS, POSTS = steps("sqlite"), posts("sqlite")

_encode = msgspec.json.Encoder().encode


class SqliteStore(SqliteReader):
    """The `Engine`: the one connection that writes. Where several jobs share a transaction, so do their states:
    each session is read once and written once, whatever happened to it in between.
    """

    shared = False

    def __init__(self, path: Path | Literal[":memory:"], clock: Clock) -> None:
        """Raises `Refused`: `store_taken`, `store_damaged`, `store_newer`, `store_unavailable`."""
        self._path = Path(path) if path != ":memory:" else None
        self.schema = len(STEPS)
        self._held = hold(self._path) if self._path else -1
        self._columns: dict[str, tuple[Any, ...] | None] = {}  # what the row was found by; None: there is no row
        self._states: dict[str, Session | None] = {}
        self._changed: dict[str, Session] = {}
        self._events: list[tuple[Any, ...]] = []
        self._unreadable: set[str] = set()
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
        except Spoiled:
            return [self._alone(job) for job in jobs]

    def _alone(self, job: Job) -> Done | Refused | Exception:
        try:
            with self._transaction():
                return self._run(job)
        except Spoiled as spoiled:
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
            answer: Answer = None
            while True:
                step = work.send(answer)
                answer = None
                if isinstance(step, Lock):
                    answer = self._lock(step)
                elif isinstance(step, Recall):
                    answer = tuple(self.checkpoints(step.session))
                else:
                    events = event_rows(step, self._current(step.session.id))
                    wrote = True
                    self._append(step, events)
        except StopIteration as stopped:
            done: Done = stopped.value
            return done
        except (Unavailable, apsw.Error):
            raise
        except Exception as ended:
            if wrote:
                raise Spoiled(ended) from ended
            return ended

    def _lock(self, step: Lock) -> Locked:
        """The transaction has locked the whole file already."""
        known = self.input(step.session, step.input_id) if step.input_id else None
        return Locked(session=self._current(step.session), now=self.now(), known=known.known if known else None)

    def _current(self, session_id: str) -> Session | None:
        if session_id not in self._states:
            row = self._one("session", (session_id,))
            s = None if row is None else self._state(session_id, *row[:4])
            self._states[session_id] = s
            # A row of another version was filed by other rules: it is filed anew whatever it says. The wake-up is read,
            # because a claim has moved it.
            self._columns[session_id] = None if s is None else (*_columns(s)[:-1], row[4]) if row[0] == VERSION else ()
        return self._states[session_id]

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
                name = "session_add" if before is None else "session_move"
                self._execute(SQL[name], (VERSION, *columns, until, s.last_seq, body, s.id))
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
        self._execute(SQL["runner_put"], (runner.id, runner.name, runner.pool, runner.boot, _encode(runner)))

    def hear(self, runner: Runner) -> bool:
        """Whether it is the process that registered last."""
        row = (runner.name, runner.pool, _encode(runner), runner.id, runner.boot)
        return bool(self._execute(SQL["runner_hear"], row))

    def forget_runner(self, runner: Runner) -> bool:
        """Whether it is as it was."""
        same = self.runner(runner.id) == runner
        if same:
            self._execute(SQL["runner_delete"], (runner.id,))
        return same

    def put(self, kind: str, key: str, body: bytes) -> None:
        """Writes one document."""
        self._execute(SQL["document_put"], (kind, key, body))

    def delete(self, kind: str, key: str) -> None:
        """Removes one document."""
        self._execute(SQL["document_delete"], (kind, key))

    def erase(self, session_id: str, limit: int) -> int:
        """The rows' bytes are overwritten: `secure_delete`."""
        if (self._one("session_lease", (session_id,)) or (None,))[0] is not None:
            raise held(session_id)
        self._execute(SQL["session_erase"], {"session": session_id})
        return len(self._execute(SQL["events_erase"], {"session": session_id, "limit": limit}))

    def wipe(self) -> bool:
        """Copies the write-ahead log into the file and cuts it to nothing."""
        if self._path is None:
            return True
        try:
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except (apsw.BusyError, apsw.LockedError):
            return False
        except apsw.Error as error:
            raise outage(error) from error
        return True

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The one writer's one transaction."""
        with self._transaction():
            yield

    def claim_due(self, now: float, limit: int, hold_s: float) -> list[str]:
        """Longest overdue first. Nothing is written where nothing is due."""
        due = [session_id for (session_id,) in self._all("due", (now, limit))]
        if due:
            self._execute(SQL["due_claim"], (now + hold_s, listed(due)))
        return due

    def refile(self, limit: int) -> int:
        """A row whose facts cannot be read by this release stays as it is."""
        asked = {"version": VERSION, "limit": limit + len(self._unreadable)}
        with self._transaction():
            found, facts = [i for (i,) in self._all("misfiled", asked) if i not in self._unreadable], 0
            for session_id in found[:limit]:
                if facts >= REFILE_FACTS:
                    break
                try:
                    s = self._current(session_id)
                except Unreadable:
                    self._unreadable.add(session_id)
                    continue
                assert s is not None
                self._changed[session_id] = s
                facts += s.last_seq
            return len(self._changed)

    def contract(self, oldest: int) -> int:
        """Each step in a transaction of its own."""
        contracted, _ = self._one("form")
        steps = [step for step in POSTS if contracted < step.number <= oldest]
        for step in steps:
            with self._transaction():
                self._execute(step.sql)
                self._execute(SQL["form_contracted"], (step.number,))
        return len(steps)

    def ring(self, names: Collection[str]) -> None:
        """There are no other servers."""

    def listener(self) -> None:
        """None: there is nobody to hear of."""

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
    return s.lifecycle.value, s.project, s.ticket, s.pool, s.runtime, runner, s.queued_at, wake_at(s)
