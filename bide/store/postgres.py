"""The store of a fleet: facts, row and wake-up time in one transaction of one PostgreSQL, which many servers share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from bide.core import facts as f
from bide.core.codec import encode_session
from bide.core.handle import Answer, Append, Done, Known, Lock, Locked, Recall, Step, Work
from bide.core.limits import REFILE_FACTS, STORE_BUILD_S, STORE_TRIES_MAX
from bide.core.placement import Runner
from bide.core.refusals import Refused, Unavailable
from bide.core.session import VERSION, Session, wake_at
from bide.store.base import Clock, Job, Spoiled, held
from bide.store.postgres_link import WHAT, Link, place
from bide.store.postgres_listener import PostgresListener, packed
from bide.store.postgres_reader import SQL, DatabaseClock, PostgresReader, decode_runner
from bide.store.rows import EVENT, Ledger, Unreadable, event_rows, kept, known_by, project, rank, storable
from bide.store.statements import posts, steps
from bide.store.wakeups import rung_by

STEPS, POSTS = steps("postgres"), posts("postgres")
# Keys of advisory locks: "bide" for all of ours, and what for.
_OURS, _SCHEMA, _ALONE = 0x62696465, 1, 2

_encode = msgspec.json.Encoder().encode


class _Overtaken(Exception):
    """Another server has created a session meanwhile that was to be created here."""


class _Begun:
    """A job that has said what it locks, or has ended already."""

    def __init__(self, job: Job) -> None:
        self.lock: Lock | None = None
        self.result: Done | Refused | Exception | None = None
        try:
            self.work: Work = job()
            step = self.work.send(None)
            assert isinstance(step, Lock), "a job locks before it appends"
            self.lock = step
        except StopIteration as stopped:
            self.result = stopped.value
        except Exception as ended:  # noqa: BLE001 - a bug in one job is that job's result
            self.result = ended


class _Group:
    """What the jobs of one transaction know and change, until it is written."""

    def __init__(self) -> None:
        self.now = 0.0
        self.states: dict[str, Session | None] = {}
        self.unreadable: dict[str, Unreadable] = {}
        self.created: set[str] = set()
        self.changed: dict[str, Session] = {}
        self.known: dict[tuple[str, str], Known] = {}
        self.events: list[tuple[Any, ...]] = []
        self.kept: list[f.Envelope] = []
        self.rung: set[str] = set()

    def locked(self, lock: Lock) -> Locked:
        """The session as the jobs before have left it."""
        if lock.session in self.unreadable:
            raise self.unreadable[lock.session]
        known = self.known.get((lock.session, lock.input_id))
        return Locked(session=self.states.get(lock.session), now=self.now, known=known)

    def saves(self, session_id: str) -> list[f.Checkpoint]:
        """Checkpoints that the jobs before have saved; they are not written yet."""
        facts = [e.fact for e in self.kept if e.session_id == session_id]
        return [
            fact.checkpoint for fact in facts if isinstance(fact, f.CheckpointSaved | f.Created) and fact.checkpoint
        ]

    def append(self, step: Append, events: list[tuple[Any, ...]]) -> None:
        """Takes what a job writes."""
        s = step.session
        if self.states.get(s.id) is None:
            self.created.add(s.id)
        self.states[s.id] = self.changed[s.id] = s
        changing = kept(step.envelopes)
        self.known |= known_by(changing)
        self.kept += changing
        self.events += events
        self.rung |= rung_by(step.envelopes)


class PostgresStore(PostgresReader):
    """The `Engine`. Sessions are locked in id order, so that two servers never wait for each other in a circle; jobs of
    one group run on states in memory, and everything that they changed is written at the end, by few statements.
    """

    shared = True

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        """Without a clock of its own the database's is the one that judges leases.

        Raises `Refused`: `bad_setting`, `store_unavailable`, `store_newer`.
        """
        self._url, self.schema = url, len(STEPS)
        self._unreadable: set[str] = set()
        self._database = DatabaseClock()
        super().__init__(Link(url), clock or self._database)
        try:
            self._migrate()
            self._database.read(self._one("clock")[0])
        except Unavailable as away:
            self.close()
            raise Refused(
                "store_unavailable",
                f"The database at {place(url)} cannot be used: {away.why}.",
                "Check its address, user and password, and that it runs.",
            ) from away
        except BaseException:
            self.close()
            raise

    # -- transactions -------------------------------------------------------------------------------------------------

    def perform(self, jobs: Sequence[Job]) -> list[Done | Refused | Exception]:
        """All jobs in one transaction. Where one breaks after it wrote, each gets a transaction of its own."""
        for _ in range(STORE_TRIES_MAX):
            try:
                return self._perform(jobs)
            except Spoiled:
                return [self._apart(job) for job in jobs]
            except _Overtaken:
                continue
        raise Unavailable(WHAT, "other servers wrote the same at the same time")

    def _apart(self, job: Job) -> Done | Refused | Exception:
        for _ in range(STORE_TRIES_MAX):
            try:
                return self._perform([job])[0]
            except Spoiled as spoiled:
                return spoiled.result
            except Unavailable as away:
                return away
            except _Overtaken:
                continue
        return Unavailable(WHAT, "other servers wrote the same at the same time")

    def _perform(self, jobs: Sequence[Job]) -> list[Done | Refused | Exception]:
        begun = [_Begun(job) for job in jobs]
        locks = [one.lock for one in begun if one.lock is not None]
        group = _Group()
        if not locks:
            return [self._run(group, one) for one in begun]
        with self._link.transaction():
            self._lock(group, locks)
            results = [self._run(group, one) for one in begun]
            if group.changed:
                self._flush(group)
        return results

    def _lock(self, group: _Group, locks: Sequence[Lock]) -> None:
        *rows, clock = self._all("session_lock", sorted({lock.session for lock in locks if storable(lock.session)}))
        for row in rows:
            try:
                group.states[row[0]] = self._state(*row[:5])
            except Unreadable as unreadable:
                group.unreadable[row[0]] = unreadable
        self._database.read(clock[5])
        group.now = self.now()
        # A statement of its own: the one that locked shows what was there before it waited for another server.
        asked = {(lock.session, lock.input_id) for lock in locks if lock.input_id}
        group.known = {(row.session_id, row.id): row.known for row in self._inputs(asked)}

    def _run(self, group: _Group, begun: _Begun) -> Done | Refused | Exception:
        """Drives one job on from its first lock."""
        step: Step | None = begun.lock
        if step is None:
            assert begun.result is not None
            return begun.result
        wrote = False
        try:
            while True:
                answer: Answer = None
                if isinstance(step, Lock):
                    answer = group.locked(step)
                elif isinstance(step, Recall):
                    answer = (*self.checkpoints(step.session), *group.saves(step.session))
                else:
                    events = event_rows(step, group.states.get(step.session.id))
                    wrote = True
                    group.append(step, events)
                step = begun.work.send(answer)
        except StopIteration as stopped:
            done: Done = stopped.value
            return done
        except Exception as ended:
            if wrote:
                raise Spoiled(ended) from ended
            return ended

    def _flush(self, group: _Group) -> None:
        fresh = [s for s in group.changed.values() if s.id in group.created]
        if fresh and len(self._put_sessions("session_add", fresh)) < len(fresh):
            raise _Overtaken
        self._put_sessions("session_set", [s for s in group.changed.values() if s.id not in group.created])
        self._put_rows(group.kept)
        if group.events:
            self._link.copy("event", EVENT, group.events)
            self._link.fetch(SQL["notify"], packed(group.rung))

    def _put_sessions(self, statement: str, sessions: Iterable[Session]) -> list[Any]:
        rows = [_row(s) for s in sorted(sessions, key=lambda s: s.id)]
        return self._link.fetch(SQL[statement], *zip(*rows, strict=True)) if rows else []

    def _put_rows(self, envelopes: Sequence[f.Envelope]) -> None:
        ledger = Ledger()
        inputs, questions = ledger.wants(envelopes)
        ledger.read(self._inputs(inputs), self._questions(questions))
        for e in envelopes:
            project(e, ledger)
        if rows := [(row.session_id, row.id, row.seq, _encode(row)) for row in ledger.inputs.values()]:
            self._link.fetch(SQL["input_put"], *zip(*rows, strict=True))
        if asked := [_question_row(q) for q in ledger.questions.values()]:
            self._link.fetch(SQL["question_put"], *zip(*asked, strict=True))
        if saved := [(session_id, _encode(one)) for session_id, one in ledger.checkpoints]:
            self._link.fetch(SQL["checkpoint_add"], *zip(*saved, strict=True))

    def erase(self, session_id: str, limit: int) -> int:
        """The rows' bytes go with the database's own vacuum."""
        if any(row[0] is not None for row in self._all("session_lease", session_id)):
            raise held(session_id)
        self._link.fetch(SQL["session_erase"], session_id)
        return int(self._one("events_erase", session_id, limit)[0])

    def wipe(self) -> bool:
        """Its files are the database's own."""
        return True

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Kept from all other servers by an advisory lock."""
        with self._link.transaction():
            self._database.read(self._link.fetch(SQL["alone"], _OURS, _ALONE)[0][1])
            yield

    # -- rows of their own --------------------------------------------------------------------------------------------

    def claim_due(self, now: float, limit: int, hold_s: float) -> list[str]:
        """Longest overdue first. Sessions that are being written at this moment come up the next time."""
        return [session_id for _, session_id in sorted(map(tuple, self._all("due_claim", now, limit, now + hold_s)))]

    def put_runner(self, runner: Runner) -> None:
        """Writes one runner's row."""
        row = (runner.id, runner.name, runner.pool, runner.boot, _encode(runner))
        self._link.fetch(SQL["runner_put"], *row, _OURS, _ALONE)

    def hear(self, runner: Runner) -> bool:
        """Whether it is the process that registered last."""
        row = (runner.name, runner.pool, _encode(runner), runner.id, runner.boot)
        return bool(self._link.fetch(SQL["runner_hear"], *row))

    def forget_runner(self, runner: Runner) -> bool:
        """Its row is locked first: a heartbeat either comes before, and is seen here, or finds no row any more."""
        rows = self._all("runner_lock", runner.id)
        same = [decode_runner(row[0]) for row in rows] == [runner]
        if same:
            self._link.fetch(SQL["runner_delete"], runner.id)
        return same

    def put(self, kind: str, key: str, body: bytes) -> None:
        """Writes one document."""
        self._link.fetch(SQL["document_put"], kind, key, body, _OURS, _ALONE)

    def delete(self, kind: str, key: str) -> None:
        """Removes one document."""
        self._link.fetch(SQL["document_delete"], kind, key, _OURS, _ALONE)

    def ring(self, names: Collection[str]) -> None:
        """Tells the other servers."""
        self._link.fetch(SQL["notify"], packed(names))

    def reader(self) -> PostgresReader:
        """Another connection, made when it is first used."""
        return PostgresReader(Link(self._url), self._clock)

    def listener(self) -> PostgresListener:
        """Hears of what other processes than this one change."""
        return PostgresListener(self._url, lambda: self._link.pid)

    # -- from release to release --------------------------------------------------------------------------------------

    def _migrate(self) -> None:
        if self._one("form_made")[0] and self._require_usable() >= len(STEPS):
            return
        with self._link.transaction():
            self._lock_schema()
            if not self._one("form_made")[0]:
                self._link.execute(SQL["form_make"])
            for step in STEPS[self._require_usable() :]:
                self._link.execute(step.sql, STORE_BUILD_S)
            self._link.fetch(SQL["form_applied"], len(STEPS))

    def _require_usable(self) -> int:
        """The newest step that the database has."""
        applied, _, oldest = self._one("form")
        if oldest > len(STEPS):
            raise Refused(
                "store_newer",
                f"The database at {place(self._url)} is for a newer bide (form {oldest} and later, ours is {len(STEPS)}).",
                "Start the newer release of bide; the database was left as it is.",
            )
        return int(applied)

    def contract(self, oldest: int) -> int:
        """Each step in a transaction of its own."""
        count = 0
        for step in POSTS:
            with self._link.transaction():
                self._lock_schema()
                if self._one("form")[1] < step.number <= oldest:
                    self._link.execute(step.sql, STORE_BUILD_S)
                    self._link.fetch(SQL["form_contracted"], step.number)
                    count += 1
        return count

    def _lock_schema(self) -> None:
        """One server at a time changes the schema; another may take its time over it."""
        self._link.execute("set local lock_timeout = 0")
        self._link.fetch(SQL["alone"], _OURS, _SCHEMA, timeout_s=STORE_BUILD_S)
        self._link.execute("set local lock_timeout to default")

    def refile(self, limit: int) -> int:
        """A row whose facts cannot be read by this release stays as it is."""
        with self._link.transaction():
            found: dict[str, Session] = {}
            facts = 0
            for row in self._misfiled(limit):
                if facts >= REFILE_FACTS:
                    break
                try:
                    found[row[0]] = s = self._state(*row)
                    facts += s.last_seq
                except Unreadable:
                    self._unreadable.add(row[0])
            self._put_sessions("session_set", found.values())
            return len(found)

    def _misfiled(self, limit: int) -> Iterator[Any]:
        for name in ("misfiled_older", "misfiled_newer"):
            rows = self._all(name, VERSION, list(self._unreadable), limit)
            limit -= len(rows)
            yield from rows


def _question_row(q: f.Question) -> tuple[Any, ...]:
    return q.id, q.session_id, q.status, rank(q), q.asked_at, _encode(q)


def _row(s: Session) -> tuple[Any, ...]:
    """A session's state and what it is found by."""
    runner, until = (s.lease.runner, s.lease.until) if s.lease else (None, None)
    return (
        s.id, VERSION, s.lifecycle.value, s.project, s.ticket, s.pool, s.runtime, runner, s.queued_at, wake_at(s), until,
        s.last_seq, encode_session(s),
    )  # fmt: skip
