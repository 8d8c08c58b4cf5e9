"""The oracle: a store in plain dicts that every durable store is compared with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from bide.core import facts as f
from bide.core.handle import Answer, Append, Done, Known, Lock, Locked, Recall, Work
from bide.core.placement import Runner
from bide.core.refusals import Refused
from bide.core.session import Lifecycle, Session, wake_at
from bide.store.base import Clock, Job, Load, Page, held
from bide.store.rows import InputRow, Place, check_storable, place_of, project


class MemoryStore:
    """An `Engine` that forgets everything at the end of the process."""

    shared = False
    schema = 0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._wakes: dict[str, float | None] = {}
        self._log: dict[str, list[f.Envelope]] = {}
        self._inputs: dict[tuple[str, str], InputRow] = {}
        self._questions: dict[str, f.Question] = {}
        self._checkpoints: dict[str, list[f.Checkpoint]] = {}
        self._runners: dict[str, Runner] = {}
        self._documents: dict[tuple[str, str], bytes] = {}

    # -- writing ------------------------------------------------------------------------------------------------------

    def perform(self, jobs: Sequence[Job]) -> list[Done | Refused | Exception]:
        """Each job in turn; a refused or broken one has written nothing, because it appends last."""
        return [self._perform(job) for job in jobs]

    def _perform(self, job: Job) -> Done | Refused | Exception:
        try:
            return self._steps(job())
        except Exception as ended:  # noqa: BLE001 - a bug in one job is that job's result
            return ended

    def _steps(self, work: Work) -> Done:
        answer: Answer = None
        while True:
            try:
                step = work.send(answer)
            except StopIteration as done:
                result: Done = done.value
                return result
            answer = None
            if isinstance(step, Lock):
                answer = self._lock(step)
            elif isinstance(step, Recall):
                answer = tuple(self.checkpoints(step.session))
            else:
                self._append(step)

    def _lock(self, step: Lock) -> Locked:
        row = self._inputs.get((step.session, step.input_id))
        known: Known | None = row.known if row else None
        return Locked(session=self._sessions.get(step.session), now=self.now(), known=known)

    def _append(self, step: Append) -> None:
        s = step.session
        check_storable(step)
        log = self._log.setdefault(s.id, [])
        assert s.last_seq == len(log) + len(step.envelopes), "the log has no holes"
        log.extend(step.envelopes)
        self._sessions[s.id] = s
        self._wakes[s.id] = wake_at(s)
        for envelope in step.envelopes:
            project(envelope, self)

    def put_input(self, row: InputRow) -> None:
        """Writes one input's row."""
        self._inputs[row.session_id, row.id] = row

    def put_question(self, row: f.Question) -> None:
        """Writes one question's row."""
        self._questions[row.id] = row

    def put_checkpoint(self, session_id: str, row: f.Checkpoint) -> None:
        """Writes one checkpoint's row."""
        self._checkpoints.setdefault(session_id, []).append(row)

    def claim_due(self, now: float, limit: int, hold_s: float) -> list[str]:
        """Longest overdue first."""
        waiting = sorted((at, session_id) for session_id, at in self._wakes.items() if at is not None and at <= now)
        due = [session_id for _, session_id in waiting[:limit]]
        self._wakes |= dict.fromkeys(due, now + hold_s)
        return due

    def put_runner(self, runner: Runner) -> None:
        """Writes one runner's row."""
        self._runners[runner.id] = runner

    def hear(self, runner: Runner) -> bool:
        """Whether it is the process that registered last."""
        known = self._runners.get(runner.id)
        if known is None or known.boot != runner.boot:
            return False
        self._runners[runner.id] = runner
        return True

    def forget_runner(self, runner: Runner) -> bool:
        """Whether it is as it was."""
        if self._runners.get(runner.id) != runner:
            return False
        del self._runners[runner.id]
        return True

    def put(self, kind: str, key: str, body: bytes) -> None:
        """Writes one document."""
        self._documents[kind, key] = body

    def delete(self, kind: str, key: str) -> None:
        """Removes one document."""
        self._documents.pop((kind, key), None)

    def erase(self, session_id: str, limit: int) -> int:
        """All rows at once, the log bit by bit."""
        s = self._sessions.get(session_id)
        if s is not None and s.lease is not None:
            raise held(session_id)
        self._sessions.pop(session_id, None)
        self._wakes.pop(session_id, None)
        self._checkpoints.pop(session_id, None)
        self._inputs = {place: row for place, row in self._inputs.items() if place[0] != session_id}
        self._questions = {i: q for i, q in self._questions.items() if q.session_id != session_id}
        log = self._log.get(session_id, [])
        count, left = min(limit, len(log)), log[limit:]
        if left:
            self._log[session_id] = left
        else:
            self._log.pop(session_id, None)
        return count

    def wipe(self) -> bool:
        """There are no files."""
        return True

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One thread does everything; an exception undoes it."""
        names = ("_sessions", "_wakes", "_log", "_inputs", "_questions", "_checkpoints", "_runners", "_documents")
        before = {name: getattr(self, name).copy() for name in names}
        try:
            yield
        except BaseException:
            self.__dict__.update(before)
            raise

    def refile(self, limit: int) -> int:
        """Nothing of another release is here."""
        return 0

    def contract(self, oldest: int) -> int:
        """There is no schema."""
        return 0

    def ring(self, names: Collection[str]) -> None:
        """There are no other servers."""

    def reader(self) -> None:
        """None: one thread does everything."""

    def listener(self) -> None:
        """None: there is nobody to hear of."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Nobody writes while its one thread reads."""
        return nullcontext()

    def close(self) -> None:
        """Nothing to release."""

    # -- reading ------------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """The clock it was given."""
        return self._clock()

    def session(self, session_id: str) -> Session | None:
        """The session as it stands."""
        return self._sessions.get(session_id)

    def sessions(self, page: Page) -> list[Session]:
        """Newest first."""
        found = [
            s
            for s in sorted(self._sessions.values(), key=lambda s: s.id, reverse=True)
            if (not page.before or s.id < page.before)
            and (not page.project or s.project == page.project)
            and (not page.ticket or s.ticket == page.ticket)
            and (not page.lifecycles or s.lifecycle in page.lifecycles)
        ]
        return found[: page.limit]

    def queued(
        self, pool: str, runtimes: Collection[str], after: tuple[float, str] | None, limit: int
    ) -> list[Session]:
        """In queue order."""
        waiting = [
            s
            for s in self._waiting()
            if s.pool == pool and s.runtime in runtimes and (after is None or (s.queued_at, s.id) > after)
        ]
        return sorted(waiting, key=lambda s: (s.queued_at, s.id))[:limit]

    def ahead(self, pool: str, queued_at: float, session_id: str) -> int:
        """Those before this place."""
        place = (queued_at, session_id)
        return sum(s.pool == pool and (s.queued_at, s.id) < place for s in self._waiting())

    def load(self) -> dict[str, Load]:
        """By pool."""
        held = [s for s in self._sessions.values() if s.lease is not None]
        queued = self._waiting()
        return {
            pool: Load(
                queued=sum(s.pool == pool for s in queued),
                held=sum(s.pool == pool for s in held),
                oldest=min((s.queued_at for s in queued if s.pool == pool), default=0.0),
            )
            for pool in {s.pool for s in (*queued, *held)}
        }

    def _waiting(self) -> list[Session]:
        return [s for s in self._sessions.values() if s.lifecycle is Lifecycle.QUEUED]

    def leased_to(self, runner: str) -> list[Session]:
        """By id."""
        held = [s for s in self._sessions.values() if s.lease is not None and s.lease.runner == runner]
        return sorted(held, key=lambda s: s.id)

    def last_seqs(self, sessions: Collection[str]) -> dict[str, int]:
        """By session."""
        return {i: self._sessions[i].last_seq for i in sessions if i in self._sessions}

    def events(self, session_id: str, after: int, limit: int) -> list[f.Envelope]:
        """Facts with seq > `after`."""
        return self._log.get(session_id, [])[max(0, after) : max(0, after) + limit]

    def shown(self, session_id: str, after: int, limit: int) -> list[f.Envelope]:
        """Nothing is damaged here."""
        return self.events(session_id, after, limit)

    def inputs(self, session_id: str) -> list[InputRow]:
        """In order of acceptance."""
        return sorted((r for r in self._inputs.values() if r.session_id == session_id), key=lambda r: r.seq)

    def input(self, session_id: str, input_id: str) -> InputRow | None:
        """One input."""
        return self._inputs.get((session_id, input_id))

    def question(self, question_id: str) -> f.Question | None:
        """One question."""
        return self._questions.get(question_id)

    def questions(self, session_id: str) -> list[f.Question]:
        """Oldest first."""
        found = [q for q in self._questions.values() if q.session_id == session_id]
        return sorted(found, key=lambda q: (q.asked_at, q.id))

    def inbox(self, status: str, after: Place | None, limit: int) -> list[f.Question]:
        """By place."""
        found = [q for q in self._asked(status) if after is None or place_of(q) > after]
        return sorted(found, key=place_of)[:limit]

    def questions_beginning(self, prefix: str, status: str, limit: int) -> list[f.Question]:
        """By id."""
        found = [q for q in self._asked(status) if q.id.startswith(prefix)]
        return sorted(found, key=lambda q: q.id)[:limit]

    def _asked(self, status: str) -> list[f.Question]:
        return [q for q in self._questions.values() if not status or q.status == status]

    def checkpoints(self, session_id: str) -> list[f.Checkpoint]:
        """Oldest first."""
        return list(self._checkpoints.get(session_id, ()))

    def runner(self, runner_id: str) -> Runner | None:
        """One runner."""
        return self._runners.get(runner_id)

    def runners(self, pool: str = "") -> list[Runner]:
        """By name."""
        found = [r for r in self._runners.values() if not pool or r.pool == pool]
        return sorted(found, key=lambda r: (r.name, r.id))

    def get(self, kind: str, key: str) -> bytes | None:
        """One document."""
        return self._documents.get((kind, key))

    def keys(self, kind: str) -> list[str]:
        """In order."""
        return sorted(key for k, key in self._documents if k == kind)

    def documents(self, kind: str, after: str, limit: int) -> list[tuple[str, bytes]]:
        """By key."""
        return sorted((key, body) for (k, key), body in self._documents.items() if k == kind and key > after)[:limit]
