"""Performs what the runner machine wants, and tells it what came of it. One event loop, one machine, no thoughts."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import structlog
from msgspec.structs import replace

from bide.core import effects as e
from bide.core import runtime as r
from bide.core.kept import Left
from bide.core.limits import IDLE_TICK_S, KEEPS_TOLD_MAX, SNAPSHOT_THREADS, TICK_MIN_S, UNWELL_S, retry_wait_s
from bide.core.refusals import Refused, Unavailable
from bide.core.runner import Runner
from bide.core.wire import FactsPost, Glimpse, Gone, SyncReply
from bide.drivers.base import Driver
from bide.runner.gateway import Gateway
from bide.runner.glimpses import Glimpses
from bide.runner.hosted import Hosted
from bide.runner.link import Link
from bide.runner.outputs import Outputs
from bide.runner.sandbox import Choice
from bide.runner.spool import Spools
from bide.runner.warden import Froze, boot_clock
from bide.runner.watch import Watch
from bide.runner.workspace import Workspaces

LOG = structlog.get_logger()
T = TypeVar("T")
UPLOADS = "snapshot"
# It is this process that is not heard, and no word about the session: the next sync says so, and ends the process.
NOT_HEARD = ("unauthenticated", "forbidden", "wrong_protocol")


def uploads_end(within_s: float) -> bool:
    """Whether the threads that work for sessions, or wait for the blob store, end by then."""
    end = time.monotonic() + within_s
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(UPLOADS)]
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


class Loop:
    """The shell around `bide.core.runner.Runner`."""

    def __init__(
        self,
        link: Link,
        workspaces: Workspaces,
        drivers: dict[str, Driver],
        choice: Choice,
        spools: Spools,
        left: Iterable[Left] = (),
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self._link, self._workspaces, self._drivers, self._choice = link, workspaces, drivers, choice
        self._spools = spools
        self._outputs, self._glimpses = Outputs(workspaces.root, link), Glimpses(link)
        left = tuple(left)
        self._outputs.tidy({each.session for each in left})
        self.watch = Watch(self._froze)
        self.gateway: Gateway | None = None
        self.clock = clock
        self.machine = Runner(wall=time.time() - clock(), left=left, boot=spools.boot)
        self.unwell_until = 0.0  # new sessions are left to others until then
        self._forgotten: set[str] = set()
        self._hosted: dict[tuple[str, int], Hosted] = {}
        self._folders: dict[str, asyncio.Lock] = {}  # one piece of work on a session's folder at a time
        self._pool = ThreadPoolExecutor(SNAPSHOT_THREADS, thread_name_prefix=UPLOADS)  # uploads may wait long
        self._tasks: set[asyncio.Task[None]] = set()
        self._nudge = asyncio.Event()

    # -- what comes in ------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """The time, after the machine has looked at it.

        A process that was stopped wakes to words of the past; a lease that ran out meanwhile must not act on them.
        """
        now = self.clock()
        if (wake := self.machine.next_wake()) is not None and now >= wake:
            self.perform(self.machine.tick(now))
        return now

    def synced(self, reply: SyncReply, asked_at: float) -> None:
        """The server's answer."""
        now = self.now()
        for gone in reply.lost:
            self.perform(self.machine.gone(gone))
        for renewal in reply.renewed:
            self.perform(self.machine.renewed(renewal, asked_at, now))
        for news in reply.commands:
            self.perform(self.machine.news(news, now))
        for grant in reply.grants:
            self.perform(self.machine.granted(grant, asked_at, now))
        for session in reply.forget:
            self._forget(session)
        self._guard()
        self._nudge.set()  # what came may have to be frozen sooner than the clock would look

    def keeps(self) -> tuple[str, ...]:
        """Sessions at rest of which anything lies on the disk; those that were to be forgotten are not named again."""
        at_work = {*self.machine.runs, *self.machine.left, *self._forgotten}
        return tuple(i for i in self._workspaces.shelf.keeps() if i not in at_work)[:KEEPS_TOLD_MAX]

    def _forget(self, session: str) -> None:
        """It was deleted. What cannot be removed is tried again by the next process: asking on would be for nothing."""
        if session in self.machine.runs or session in self.machine.left:
            return
        self._forgotten.add(session)

        async def forget() -> None:
            async with self._folder(session):
                self._outputs.forget(session)
                await self._threaded(self._workspaces.shelf.forget, session)
            LOG.info("forgotten", session=session)

        task = asyncio.create_task(forget(), name=f"forget {session}")
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def called(self, session: str, epoch: int, call: e.ToolCall) -> str | None:
        """A tool call from the gateway."""
        made, effects = self.machine.called(session, epoch, call, self.now())
        self.perform(effects)
        return made

    def heard(self, session: str, epoch: int, event: r.RuntimeEvent) -> None:
        """A word of a runtime."""
        self.perform(self.machine.heard(session, epoch, event, self.now()))

    def exited(self, session: str, epoch: int, reason: str, memory: frozenset[str] | None) -> None:
        """The end of a runtime."""
        self.perform(self.machine.exited(session, epoch, reason, memory, self.now()))
        self._guard()

    def _guard(self) -> None:
        """Tells the warden which processes are believed to be ours until when."""
        held = ((self.machine.runs.get(session), hosted) for (session, _), hosted in self._hosted.items())
        wards = (hosted.ward(run.deadline) for run, hosted in held if run is not None and run.epoch == hosted.epoch)
        self.watch.set(ward for ward in wards if ward is not None)

    def _froze(self, froze: Froze) -> None:
        self.now()  # what the warden saw first, the machine is told before anything is thawed
        hosted = self._hosted.get((froze.session, froze.epoch))
        LOG.warning("frozen_by_warden", session=froze.session, processes=len(froze.who))
        if hosted is not None:
            task = asyncio.create_task(hosted.stopped_by_warden(froze.who), name=f"warden's {froze.session}")
            self._tasks.add(task)
            task.add_done_callback(self._finished)

    async def tick_for_ever(self) -> None:
        """Tells the machine the time, when it wants to know it."""
        while True:
            self.perform(self.machine.tick(self.clock()))
            wake = self.machine.next_wake()
            wait = IDLE_TICK_S if wake is None else min(IDLE_TICK_S, max(TICK_MIN_S, wake - self.clock()))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._nudge.wait(), wait)
            self._nudge.clear()

    # -- what is to be done -------------------------------------------------------------------------------------------

    def perform(self, effects: list[e.Effect]) -> None:
        """Does each, in order; what takes time goes on by itself. One that fails costs its own session only."""
        for effect in effects:
            try:
                self._one(effect)
            except Exception as error:
                LOG.error("effect_failed", effect=type(effect).__name__, session=effect.session, exc_info=error)
                self._abandon(effect)

    def _abandon(self, effect: e.Effect) -> None:
        """What cannot be performed must not look as if it went on: the lease is let go, the folder kept."""
        gone = Gone(session=effect.session, epoch=effect.epoch, reason="this runner failed")
        self.perform([each for each in self.machine.gone(gone) if each != effect])

    def _one(self, effect: e.Effect) -> None:
        hosted = self._hosted.get((effect.session, effect.epoch))
        match effect:
            case e.Keep():
                self._spools.keep(effect)
            case e.Restore():
                self._begin(self._restore(effect, self._host(effect)), effect)
            case Glimpse():
                self._glimpses.add(effect)
            case e.Store():
                self._begin(self._store(effect, self._outputs.keep(effect)), effect)
            case e.Post():
                self._begin(self._post(effect), effect)
            case e.Capture() if hosted:
                self._begin(self._capture(effect, hosted), effect)
            case e.Release():
                if effect.keep != "left":
                    self._spools.drop(effect.session, effect.epoch)
                self._outputs.release(effect.session, effect.epoch, keep=effect.keep == "left")
                self._glimpses.release(effect.session)
                self._begin(self._release(effect, hosted), effect)
            case e.Spawn() if hosted:
                hosted.start()
            case e.Tell(order=order) if hosted:
                hosted.tell(order)
            case e.Recall() if hosted:
                self._begin(self._recall(effect, hosted), effect)
            case e.Stop(force=force) if hosted:
                hosted.stop(force)
            case e.Freeze() | e.Thaw() if hosted:
                self._begin(hosted.hold(isinstance(effect, e.Freeze)), effect)

    def _host(self, effect: e.Restore) -> Hosted | None:
        driver = self._drivers.get(effect.job.runtime)
        if driver is None or self.gateway is None:
            return None
        hosted = Hosted(
            effect.session, effect.epoch, effect.job, driver, self._workspaces.layout(effect.session), self._choice,
            self.gateway, self.heard, self.exited, self._guard, self._outputs.spill(effect.session, effect.epoch),
        )  # fmt: skip
        self._hosted[effect.session, effect.epoch] = hosted
        return hosted

    def _folder(self, session: str) -> asyncio.Lock:
        return self._folders.setdefault(session, asyncio.Lock())

    def _threaded(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    def _begin(self, work: Coroutine[Any, Any, None], effect: e.Effect) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"{type(effect).__name__} {effect.session}")
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            LOG.error("effect_failed", effect=task.get_name(), exc_info=error)

    async def _restore(self, effect: e.Restore, hosted: Hosted | None) -> None:
        done: e.Restored | e.NotRestored
        if hosted is None:
            sentence = f"this runner has no driver for {effect.job.runtime}"
            done = e.NotRestored(lost=False, code="no_runtime", sentence=sentence)
        else:
            try:
                async with self._folder(effect.session):
                    done = await self._make(effect, hosted)
            except Exception as error:
                LOG.error("restore_failed", session=effect.session, exc_info=error)
                self._give_back(effect, f"{type(error).__name__}: {error}")
                return
            if isinstance(done, e.Restored) and effect.job.checkpoint:
                hosted.root = effect.job.checkpoint.root
            if isinstance(done, e.Restored) and effect.adopt:
                done = replace(done, unstored=self._outputs.found(effect.session))
        LOG.info("restored", session=effect.session, epoch=effect.epoch, outcome=getattr(done, "source", "no"))
        self.perform(self.machine.restored(effect.session, effect.epoch, done, self.now()))

    async def _make(self, effect: e.Restore, hosted: Hosted) -> e.Restored | e.NotRestored:
        """Blobs that are out of reach are waited for: the server's deadline for starting bounds it."""
        tries = 0
        while not hosted.unwanted.is_set():
            try:
                if effect.adopt:
                    return await self._threaded(self._workspaces.take_up, effect, hosted.driver)
                return await self._threaded(self._workspaces.make, effect, hosted.driver, hosted.unwanted)
            except Unavailable as away:
                LOG.warning("restore_waits", session=effect.session, why=str(away))
                await asyncio.sleep(retry_wait_s(tries))
                tries += 1
        return e.NotRestored(lost=False, code="stopped", sentence="It was stopped before its workspace was here.")

    def _give_back(self, effect: e.Restore, why: str) -> None:
        """Its disk is full, or fails: another machine may have more luck with the session."""
        self.unwell_until = self.clock() + UNWELL_S
        self.perform(self.machine.give_back(effect.session, effect.epoch, why))

    async def _capture(self, effect: e.Capture, hosted: Hosted) -> None:
        done: e.Captured | e.NotCaptured
        loop = asyncio.get_running_loop()

        def waits(why: str) -> None:
            self.perform(self.machine.capture_waits(effect.session, effect.epoch, why, self.now()))

        try:
            carried = hosted.driver.carried(hosted.runtime_session_id)
            async with self._folder(effect.session):
                done = await self._threaded(
                    self._workspaces.save,
                    effect,
                    carried,
                    hosted.job.repository,
                    hosted.root,
                    hosted.stopped,
                    hosted.job.care,
                    hosted.job.limits,
                    lambda why: loop.call_soon_threadsafe(waits, why),
                )
        except Exception as error:
            LOG.error("capture_failed", session=effect.session, exc_info=error)
            done = e.NotCaptured(code="capture_failed", reason=f"{type(error).__name__}: {error}")
        if isinstance(done, e.Captured):
            hosted.root = done.root
        elif done.code == "read_back_failed":
            hosted.root = ""  # what the damaged one shares with its parent is written anew
        self.perform(self.machine.captured(effect.session, effect.epoch, done, self.now()))

    async def _recall(self, effect: e.Recall, hosted: Hosted) -> None:
        memory = await hosted.recall(effect.inputs)
        self.perform(self.machine.recalled(effect, memory, self.now()))

    async def _store(self, effect: e.Store, problem: str) -> None:
        why_not = problem or await self._outputs.bring(effect)
        if why_not:
            LOG.warning("output_not_kept", session=effect.session, output=effect.name, why=why_not)
        self.perform(self.machine.stored(effect.session, effect.epoch, effect.name, why_not, self.now()))

    async def _post(self, effect: e.Post) -> None:
        post = FactsPost(
            session=effect.session, epoch=effect.epoch, first=effect.first, facts=effect.facts, of=effect.of,
            lost=effect.lost,
        )  # fmt: skip
        try:
            reply = await self._link.post(post)
        except Unavailable:
            return  # sent again when its time comes
        except Refused as refused:
            self._not_taken(effect, refused)
            return
        self.perform(self.machine.acked(effect.session, effect.epoch, reply.next, self.now(), effect.of))

    def _not_taken(self, effect: e.Post, refused: Refused) -> None:
        now, what = self.now(), {"session": effect.session, "sentence": refused.sentence}
        match refused.code:
            case "fenced":
                self.perform(self.machine.fenced(effect.session, effect.epoch))
            case "gap":
                LOG.error("facts_missing", **what)
                if isinstance(next_n := refused.more.get("next"), int):
                    self.perform(self.machine.missing(effect, next_n, now))
            case code if code not in ("lease_over", *NOT_HEARD):  # no repetition would make it better
                LOG.error("facts_refused", code=code, **what)
                self.perform(self.machine.untakable(effect, code, now))

    async def _release(self, effect: e.Release, hosted: Hosted | None) -> None:
        """`hosted` is None where no runtime of that lease ever ran in this process."""
        if hosted is not None:
            hosted.close()
        async with self._folder(effect.session):  # after what still works on it, before a newer lease's restore
            try:
                if hosted is not None:
                    await hosted.ended()
                root = hosted.root if hosted is not None else effect.root
                if effect.keep == "warm" and root:
                    await self._threaded(self._workspaces.keep_warm, effect.session, root)
                elif effect.keep != "left":
                    await self._threaded(self._workspaces.put_aside, effect.session, effect.epoch)
            finally:
                if hosted is not None:
                    hosted.close()
                self._hosted.pop((effect.session, effect.epoch), None)
        LOG.info("released", session=effect.session, epoch=effect.epoch, keep=effect.keep)

    async def runtimes_ended(self, within_s: float) -> None:
        """Returns once no runtime is left, or the time is up."""
        if ending := [asyncio.ensure_future(hosted.ended()) for hosted in self._hosted.values()]:
            await asyncio.wait(ending, timeout=within_s)

    async def freeze(self) -> None:
        """Nothing of any session acts any more, until this process ends, and all of it with it."""
        held = (hosted.hold(frozen=True) for hosted in self._hosted.values())
        await asyncio.gather(*held, return_exceptions=True)

    def close(self) -> None:
        """Nothing more is begun; threads end when what they do ends."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def settle(self) -> None:
        """Waits for what is under way; nothing new begins because nothing is held any more."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))
