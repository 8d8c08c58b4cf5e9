"""The store as the server sees it: awaitable, with one thread that writes in groups and a few that read."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
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
from bide.store.rows import InputRow
from bide.store.wakeups import Hub, Subscription

T = TypeVar("T")
WHAT = "the store"


class _Ask(Struct):
    """Something for the writing thread: a job for the next transaction, or a call of its own."""

    answer: asyncio.Future[Any]
    job: Job | None = None
    call: Callable[[Engine], Any] | None = None


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
        self._closed = False
        self._ended = asyncio.Event()
        self._idle: queue.SimpleQueue[Reader] = queue.SimpleQueue()
        self._readers = [reader for _ in range(STORE_READERS) if (reader := engine.reader()) is not None]
        for reader in self._readers:
            self._idle.put(reader)
        self._pool = ThreadPoolExecutor(STORE_READERS, "store-read") if self._readers else None
        self._writer = threading.Thread(target=self._write, name="store-write", daemon=True)
        self._writer.start()

    async def close(self) -> None:
        """Performs what was accepted, lets listeners go, closes the engine. Closing twice is no error."""
        if not self._closed:
            self._closed = True
            self._hub.close()
            self._asks.put(None)
        await self._ended.wait()

    # -- writing ------------------------------------------------------------------------------------------------------

    async def handle(self, session_id: str, command: c.Command) -> Done:
        """Decides and appends, durably. Raises `Refused`, with nothing written."""
        done: Done = await self._ask(job=lambda: handle(session_id, command))
        return done

    async def put_runner(self, runner: Runner) -> None:
        """Writes one runner's row."""
        await self._ask(call=lambda engine: engine.put_runner(runner))

    async def put(self, kind: str, key: str, body: bytes) -> None:
        """Writes one document."""
        await self._ask(call=lambda engine: engine.put(kind, key, body))

    async def delete(self, kind: str, key: str) -> None:
        """Removes one document; no error when there is none."""
        await self._ask(call=lambda engine: engine.delete(kind, key))

    async def write(self, call: Callable[[Engine], T]) -> T:
        """Calls something with the engine, between transactions: a read and a write that must not be parted."""
        result: T = await self._ask(call=call)
        return result

    # -- reading ------------------------------------------------------------------------------------------------------

    async def read(self, question: Callable[[Reader], T]) -> T:
        """Asks one or several things of the store as it stands at one moment."""
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
        return await self.read(lambda reader: reader.session(session_id))

    async def sessions(self, page: Page) -> list[Session]:
        """Sessions, newest first."""
        return await self.read(lambda reader: reader.sessions(page))

    async def due(self, now: float, limit: int) -> list[str]:
        """Ids of sessions whose `wake_at` has come, longest overdue first."""
        return await self.read(lambda reader: reader.due(now, limit))

    async def queued(self) -> list[Session]:
        """Sessions that wait for a runner, in queue order."""
        return await self.read(lambda reader: reader.queued())

    async def leased_to(self, runner: str) -> list[Session]:
        """Sessions leased to this runner."""
        return await self.read(lambda reader: reader.leased_to(runner))

    async def events(self, session_id: str, after: int, limit: int) -> list[Envelope]:
        """Facts with seq > `after`, in order."""
        return await self.read(lambda reader: reader.events(session_id, after, limit))

    async def inputs(self, session_id: str) -> list[InputRow]:
        """All inputs of a session, in order of acceptance."""
        return await self.read(lambda reader: reader.inputs(session_id))

    async def input(self, session_id: str, input_id: str) -> InputRow | None:
        """One input."""
        return await self.read(lambda reader: reader.input(session_id, input_id))

    async def question(self, question_id: str) -> Question | None:
        """One question."""
        return await self.read(lambda reader: reader.question(question_id))

    async def questions(self, session_id: str = "", status: str = "") -> list[Question]:
        """Questions, oldest first; of one session, or with one status, or all."""
        return await self.read(lambda reader: reader.questions(session_id, status))

    async def checkpoints(self, session_id: str) -> list[Checkpoint]:
        """Checkpoints of a session, oldest first."""
        return await self.read(lambda reader: reader.checkpoints(session_id))

    async def runners(self) -> list[Runner]:
        """Every runner ever registered, by name."""
        return await self.read(lambda reader: reader.runners())

    async def get(self, kind: str, key: str) -> bytes | None:
        """One document."""
        return await self.read(lambda reader: reader.get(kind, key))

    async def keys(self, kind: str) -> list[str]:
        """The keys of all documents of a kind, in order."""
        return await self.read(lambda reader: reader.keys(kind))

    # -- wake-ups -----------------------------------------------------------------------------------------------------

    def subscribe(self, *sessions: str) -> Subscription:
        """Listens to new facts of these sessions, or of all. Subscribe first, then read, then wait: nothing is missed."""
        return self._hub.subscribe(sessions)

    def changed(self, *sessions: str) -> None:
        """Wakes the listeners of these sessions, for changes that are not facts or come from another process."""
        self._hub.ring(sessions)

    # -- the threads --------------------------------------------------------------------------------------------------

    def _check(self, waiting: int, bound: int) -> None:
        if self._closed:
            raise Unavailable(WHAT, "it is closed")
        if waiting >= bound:
            raise Unavailable(WHAT, f"{waiting} requests wait for it already")

    async def _ask(self, job: Job | None = None, call: Callable[[Engine], Any] | None = None) -> Any:
        self._check(self._waiting, STORE_QUEUE_MAX)
        self._waiting += 1
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._asks.put(_Ask(answer=answer, job=job, call=call))
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
            assert ask.call is not None
            told.append((ask.answer, _attempt(ask.call, self._engine)))
        return told + self._commit(jobs)

    def _commit(self, asks: Sequence[_Ask]) -> list[_Told]:
        if not asks:
            return []
        jobs = [ask.job for ask in asks if ask.job is not None]
        results = _attempt(self._engine.perform, jobs)
        if isinstance(results, Exception):
            results = [results] * len(asks)
        return [(ask.answer, result) for ask, result in zip(asks, results, strict=True)]

    def _read(self, question: Callable[[Reader], T]) -> T:
        reader = self._idle.get()
        try:
            with reader.snapshot():
                return question(reader)
        except StopIteration as error:
            raise RuntimeError(f"it ran out: {error!r}") from error  # the one exception that no future can carry
        finally:
            self._idle.put(reader)

    def _tell(self, told: Iterable[_Told]) -> None:
        """In the loop's thread: results to those who still wait, then word to those who listen."""
        changed: dict[str, None] = {}
        for answer, result in told:
            self._waiting -= 1
            if isinstance(result, Done) and result.envelopes:
                changed[result.session.id] = None
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
