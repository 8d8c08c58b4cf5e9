"""The store as the server sees it: awaitable, with one thread that writes in groups and a few that read."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from msgspec import Struct

from bide.core import commands as c
from bide.core.facts import Checkpoint, Envelope, Question
from bide.core.handle import Done, handle
from bide.core.limits import STORE_GROUP_MAX, STORE_QUEUE_MAX, STORE_READERS, STORE_READS_MAX
from bide.core.placement import Runner
from bide.core.refusals import Unavailable
from bide.core.session import Session
from bide.store.base import Engine, Job, Page, Reader
from bide.store.others import Others
from bide.store.rows import InputRow, Place
from bide.store.wakeups import Hub, Subscription, rung_by

T = TypeVar("T")
WHAT = "the store"


class _Ask(Struct):
    """Something for the writing thread: a job for the next transaction, or a call of its own, `alone` or not."""

    answer: asyncio.Future[Any]
    job: Job | None = None
    call: Callable[[Engine], Any] | None = None
    alone: bool = False


_Told = tuple[asyncio.Future[Any], Any]  # who waits, and the result or the exception


class Store:
    """Made inside the event loop that uses it, and owner of the engine it is given.

    All methods raise `Unavailable` when the database is away, too much waits for it, or the store is closed. One that
    is cancelled has stopped waiting, nothing more: what it wanted may still happen.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._loop = engine, asyncio.get_running_loop()
        self._hub = Hub()
        self._asks: queue.SimpleQueue[_Ask | None] = queue.SimpleQueue()
        self._waiting = self._reading = 0
        # Hears of every transaction, in the thread that writes: how many jobs, how many seconds.
        self.on_commit: Callable[[int, float], None] = lambda jobs, seconds: None
        self._closed = False
        self._ended = asyncio.Event()
        self._idle: queue.SimpleQueue[Reader] = queue.SimpleQueue()
        self._readers = [reader for _ in range(STORE_READERS) if (reader := engine.reader()) is not None]
        for reader in self._readers:
            self._idle.put(reader)
        self._pool = ThreadPoolExecutor(STORE_READERS, "store-read") if self._readers else None
        self._writer = threading.Thread(target=self._write, name="store-write", daemon=True)
        self._writer.start()
        self._others = Others(engine, self._hub, self.last_seqs) if engine.shared else None

    async def close(self) -> None:
        """Performs what was accepted, lets listeners go, closes the engine. Closing twice is no error."""
        if not self._closed:
            self._closed = True
            self._hub.close()
            if self._others is not None:
                await self._others.close()
            self._asks.put(None)
        await self._ended.wait()

    # -- writing ------------------------------------------------------------------------------------------------------

    async def handle(self, session_id: str, command: c.Command) -> Done:
        """Decides and appends, durably. Raises `Refused`, with nothing written."""
        done: Done = await self._ask(job=lambda: handle(session_id, command))
        return done

    async def claim_due(self, now: float, limit: int, hold_s: float) -> list[str]:
        """Ids of sessions whose wake-up has come, longest overdue first; nobody else is given them for `hold_s`."""
        due: list[str] = await self._ask(call=lambda engine: engine.claim_due(now, limit, hold_s))
        return due

    async def put_runner(self, runner: Runner) -> None:
        """Writes one runner's row."""
        await self._ask(call=lambda engine: engine.put_runner(runner))

    async def hear(self, runner: Runner) -> bool:
        """Writes one runner's row if the same process of it is still the registered one (`boot`); whether it was."""
        same: bool = await self._ask(call=lambda engine: engine.hear(runner))
        return same

    async def put(self, kind: str, key: str, body: bytes) -> None:
        """Writes one document."""
        await self._ask(call=lambda engine: engine.put(kind, key, body))

    async def write(self, call: Callable[[Engine], T]) -> T:
        """Calls something with the engine, `alone`: a read and a write that must not be parted. It is done as a whole,
        or, where it raises, not at all.
        """
        result: T = await self._ask(call=call, alone=True)
        return result

    async def refile(self, limit: int) -> int:
        """Writes up to so many sessions anew that another release filed by its own rules; how many there were."""
        count: int = await self._ask(call=lambda engine: engine.refile(limit))
        return count

    async def contract(self, oldest: int) -> int:
        """Takes away what only releases before schema number `oldest` still needed; how many steps that were."""
        count: int = await self._ask(call=lambda engine: engine.contract(oldest))
        return count

    async def wipe(self) -> bool:
        """Sees to it that what was erased does not stay in the database's files; False: somebody reads, ask again."""
        done: bool = await self._ask(call=lambda engine: engine.wipe())
        return done

    async def answers(self) -> None:
        """Returns when the database has answered the one who writes; who reads has connections of its own."""
        await self._ask(call=lambda engine: engine.keys(""))

    @property
    def waiting(self) -> int:
        """Writes that wait for the one writer."""
        return self._waiting

    @property
    def schema(self) -> int:
        """Number of the newest step of the schema that this release knows."""
        return self._engine.schema

    @property
    def shared(self) -> bool:
        """Whether other servers may work on the same database."""
        return self._engine.shared

    # -- reading ------------------------------------------------------------------------------------------------------

    async def read(self, question: Callable[[Reader], T]) -> T:
        """Asks one or several things of the store as it stands at one moment."""

        def at_one_moment(reader: Reader) -> T:
            with reader.snapshot():
                return question(reader)

        return await self._one(at_one_moment)

    async def _one(self, question: Callable[[Reader], T]) -> T:
        """Asks one thing, which is one moment by itself."""
        if self._pool is None:
            result: T = await self._ask(call=question)
            return result
        self._check(self._reading, STORE_READS_MAX)
        self._reading += 1
        try:
            return await self._loop.run_in_executor(self._pool, self._read, question)
        finally:
            self._reading -= 1

    def now(self) -> float:
        """The store's clock."""
        return self._engine.now()

    async def session(self, session_id: str) -> Session | None:
        """The session as it stands."""
        return await self._one(lambda reader: reader.session(session_id))

    async def sessions(self, page: Page) -> list[Session]:
        """Sessions, newest first."""
        return await self._one(lambda reader: reader.sessions(page))

    async def queued(
        self, pool: str, runtimes: Collection[str], after: tuple[float, str] | None, limit: int
    ) -> list[Session]:
        """Sessions of the pool that wait for a runner with one of the runtimes, in queue order, after a place in it."""
        return await self._one(lambda reader: reader.queued(pool, runtimes, after, limit))

    async def leased_to(self, runner: str) -> list[Session]:
        """Sessions leased to this runner."""
        return await self._one(lambda reader: reader.leased_to(runner))

    async def last_seqs(self, sessions: Collection[str]) -> dict[str, int]:
        """How far the log of each session goes."""
        return await self._one(lambda reader: reader.last_seqs(sessions))

    async def events(self, session_id: str, after: int, limit: int) -> list[Envelope]:
        """Facts with seq > `after`, in order."""
        return await self._one(lambda reader: reader.events(session_id, after, limit))

    async def shown(self, session_id: str, after: int, limit: int) -> list[Envelope]:
        """The same for whoever only shows them: a damaged one says so, and hides no other."""
        return await self._one(lambda reader: reader.shown(session_id, after, limit))

    async def inputs(self, session_id: str) -> list[InputRow]:
        """All inputs of a session, in order of acceptance."""
        return await self._one(lambda reader: reader.inputs(session_id))

    async def input(self, session_id: str, input_id: str) -> InputRow | None:
        """One input."""
        return await self._one(lambda reader: reader.input(session_id, input_id))

    async def question(self, question_id: str) -> Question | None:
        """One question."""
        return await self._one(lambda reader: reader.question(question_id))

    async def questions(self, session_id: str) -> list[Question]:
        """Questions of a session, oldest first."""
        return await self._one(lambda reader: reader.questions(session_id))

    async def inbox(self, status: str, after: Place | None, limit: int) -> list[Question]:
        """Questions of all sessions, what holds up most first, after a place in that order."""
        return await self._one(lambda reader: reader.inbox(status, after, limit))

    async def questions_beginning(self, prefix: str, status: str, limit: int) -> list[Question]:
        """Questions whose ids begin so."""
        return await self._one(lambda reader: reader.questions_beginning(prefix, status, limit))

    async def checkpoints(self, session_id: str) -> list[Checkpoint]:
        """Checkpoints of a session, oldest first."""
        return await self._one(lambda reader: reader.checkpoints(session_id))

    async def runner(self, runner_id: str) -> Runner | None:
        """One runner."""
        return await self._one(lambda reader: reader.runner(runner_id))

    async def runners(self, pool: str = "") -> list[Runner]:
        """Every runner ever registered, of one pool or of all, by name."""
        return await self._one(lambda reader: reader.runners(pool))

    async def get(self, kind: str, key: str) -> bytes | None:
        """One document."""
        return await self._one(lambda reader: reader.get(kind, key))

    async def keys(self, kind: str) -> list[str]:
        """The keys of all documents of a kind, in order."""
        return await self._one(lambda reader: reader.keys(kind))

    # -- wake-ups -----------------------------------------------------------------------------------------------------

    def subscribe(self, *sessions: str) -> Subscription:
        """Listens to new facts of these sessions, or of all. Subscribe first, then read, then wait: nothing is missed."""
        return self._hub.subscribe(sessions)

    def changed(self, *names: str) -> None:
        """Wakes those who listen to these names, on every server, for changes that are no facts."""
        self._hub.ring(names)
        if self._others is not None and not self._closed:
            self._asks.put(_Ask(answer=self._hint(), call=lambda engine: engine.ring(names)))

    def wake(self) -> None:
        """Wakes everybody who listens here, so that they look around."""
        self._hub.ring_everything()

    def _hint(self) -> asyncio.Future[Any]:
        """For what nobody waits for, and may fail."""
        self._waiting += 1
        answer: asyncio.Future[Any] = self._loop.create_future()
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        return answer

    # -- the threads --------------------------------------------------------------------------------------------------

    def _check(self, waiting: int, bound: int) -> None:
        if self._closed:
            raise Unavailable(WHAT, "it is closed")
        if waiting >= bound:
            raise Unavailable(WHAT, f"{waiting} requests wait for it already")

    async def _ask(
        self, job: Job | None = None, call: Callable[[Engine], Any] | None = None, *, alone: bool = False
    ) -> Any:
        self._check(self._waiting, STORE_QUEUE_MAX)
        self._waiting += 1
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._asks.put(_Ask(answer=answer, job=job, call=call, alone=alone))
        return await answer

    def _write(self) -> None:
        going = True
        try:
            while going:
                group, going = self._group()
                if group:
                    self._loop.call_soon_threadsafe(self._tell, self._perform(group))
        finally:
            if self._pool is not None:
                self._pool.shutdown()
            for reader in self._readers:
                reader.close()
            self._engine.close()
            self._loop.call_soon_threadsafe(self._ended.set)

    def _group(self) -> tuple[list[_Ask], bool]:
        """Waits for something to do and takes what is there, up to the bound; False once there will be no more."""
        group: list[_Ask] = []
        while len(group) < STORE_GROUP_MAX:
            try:
                ask = self._asks.get(block=not group)
            except queue.Empty:
                break
            if ask is None:
                return group, False
            group.append(ask)
        return group, True

    def _perform(self, group: Sequence[_Ask]) -> list[_Told]:
        """In order; jobs that stand side by side share a transaction."""
        told: list[_Told] = []
        jobs: list[_Ask] = []
        for ask in group:
            if ask.job is not None:
                jobs.append(ask)
                continue
            told += self._commit(jobs)
            jobs = []
            told.append((ask.answer, _attempt(self._call, ask)))
        return told + self._commit(jobs)

    def _call(self, ask: _Ask) -> Any:
        assert ask.call is not None
        if not ask.alone:
            return ask.call(self._engine)
        with self._engine.alone():
            return ask.call(self._engine)

    def _commit(self, asks: Sequence[_Ask]) -> list[_Told]:
        if not asks:
            return []
        jobs = [ask.job for ask in asks if ask.job is not None]
        began = time.perf_counter()
        results = _attempt(self._engine.perform, jobs)
        seconds = time.perf_counter() - began
        _attempt(lambda count: self.on_commit(count, seconds), len(jobs))  # a count that fails must not end the thread
        if isinstance(results, Exception):
            results = [results] * len(asks)
        return [(ask.answer, result) for ask, result in zip(asks, results, strict=True)]

    def _read(self, question: Callable[[Reader], T]) -> T:
        reader = self._idle.get()
        try:
            return question(reader)
        except StopIteration as error:
            raise RuntimeError(f"it ran out: {error!r}") from error  # the one exception that no future can carry
        finally:
            self._idle.put(reader)

    def _tell(self, told: Iterable[_Told]) -> None:
        """In the loop's thread: results to those who still wait, then word to those who listen."""
        changed: set[str] = set()
        for answer, result in told:
            self._waiting -= 1
            if isinstance(result, Done):
                changed |= rung_by(result.told)
                for one in (result, result.fork):
                    if self._others is not None and one is not None and one.envelopes:
                        self._others.seen(one.session.id, one.session.last_seq)
            if answer.done():
                continue
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)
        self._hub.ring(changed)


def _attempt(call: Callable[[T], Any], given: T) -> Any:
    """The result, or the exception as one: nothing that one caller asks may end the thread that serves all."""
    try:
        return call(given)
    except StopIteration as error:
        return RuntimeError(f"it ran out: {error!r}")
    except Exception as error:  # noqa: BLE001 - handed to the one who asked
        return error
