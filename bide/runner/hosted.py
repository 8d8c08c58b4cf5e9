"""One leased session as it really runs here: its dialogue and process, in the order the machine asked for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog
from msgspec.structs import replace

from bide.core import runtime as r
from bide.core.limits import CLOSE_S
from bide.core.refusals import Refused
from bide.core.wire import Job as LeaseJob
from bide.drivers.base import Dialogue, Driver, Job
from bide.runner.clearing import Clearing, described
from bide.runner.gateway import Gateway
from bide.runner.hook import hooked, outcome
from bide.runner.layout import Layout
from bide.runner.outputs import Spill
from bide.runner.process import Process, apart, spawn
from bide.runner.procfs import Ident
from bide.runner.sandbox import Choice, binary_inside
from bide.runner.warden import Ward

LOG = structlog.get_logger()
INSTRUCTIONS = """
You work in a session of bide. People are not watching all the time; they read what you write later and answer when they can.
- To ask people something, call the tool `ask_human`. It returns at once; after a blocking question end your turn, and the
  answer arrives as your next message, maybe hours later. Your workspace and this conversation are kept meanwhile.
  When you need no answer any more, call `withdraw_question`.
- Assume or ask: what is reversible and low in impact, decide yourself and call `record_assumption`. What is irreversible,
  high in impact or ambiguous, ask first. Never take the absence of an answer for consent.
- When the task is done, call `finish` with a short summary.
- What you leave running in the background stays until the session pauses, and is told to you when you go on. When people
  interrupt you, all that the interrupted turn began is ended, also in the background.
""".strip()


class Hosted:
    """A session's shell. `heard` and `exited` pass on what the runtime says and that it ended."""

    def __init__(
        self,
        session: str,
        epoch: int,
        job: LeaseJob,
        driver: Driver,
        layout: Layout,
        choice: Choice,
        gateway: Gateway,
        heard: Callable[[str, int, r.RuntimeEvent], None],
        exited: Callable[[str, int, str, frozenset[str] | None], None],
        entered: Callable[[], None],
        spill: Spill,
    ) -> None:
        self.session, self.epoch, self.job, self.driver = session, epoch, job, driver
        self.layout, self._choice, self._gateway = layout, choice, gateway
        self._heard, self._exited, self._entered = heard, exited, entered
        self._spill = spill
        self.runtime_session_id = job.runtime_session_id
        self.process: Process | None = None
        self._entering: Process | None = None  # it exists, but takes no orders yet
        self.dialogue: Dialogue | None = None
        self.stopped: tuple[str, ...] = ()
        self.root = ""  # the newest checkpoint that the folder is known to hold
        self.frozen = False
        self._hook = job.care.resume_hook if job.resumed else ""
        self._holding = asyncio.Lock()
        self.unwanted = threading.Event()  # the lease is over, or its session cancelled: no workspace is to be made
        self._wanted_end = False
        self._force = False
        self._clearing: Clearing | None = None  # as long as there is a process
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    # -- what the machine asks for ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts a runtime; its words and its end are reported."""
        self._wanted_end = self._force = False
        self.stopped = ()
        self._task = asyncio.create_task(self._live(), name=f"runtime of {self.session}")

    def tell(self, order: r.Order) -> None:
        """Writes an order to the runtime."""
        if self.dialogue is not None and self._clearing is not None:
            self._clearing.order(order, self.dialogue.say(order))

    def stop(self, force: bool) -> None:
        """Ends the runtime, in order or by force; also one that is just starting, or whose workspace is just made."""
        self.unwanted.set()
        self._wanted_end = True
        self._force = self._force or force
        if self.process is not None:
            self._ending = asyncio.create_task(self._end(), name=f"end of {self.session}")

    async def hold(self, frozen: bool) -> None:
        """Freezes or thaws. Only the latest wish counts: a thaw is never undone by the freeze before it."""
        self.frozen = frozen
        async with self._holding:
            process = self.process
            if process is None or process.ended:
                return
            if self.frozen:
                await process.freeze()
            elif process.frozen:
                await process.thaw()

    async def ended(self) -> None:
        """Returns once nothing of the session runs here any more."""
        if self._task is not None:
            await self._task

    # -- the runtime's life -------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """However it goes, its end is reported: a session must never look busy with nothing behind it."""
        try:
            process, dialogue = await self._spawn()
        except Refused as refused:
            reason = f"it could not be started: {refused.sentence}"
        except Exception as error:
            LOG.error("spawn_failed", session=self.session, exc_info=error)
            reason = f"it could not be started: {type(error).__name__}: {error}"
        else:
            try:
                reason = await self._talk(process, dialogue)
            except Exception as error:
                LOG.error("dialogue_failed", session=self.session, exc_info=error)
                reason = f"bide could not follow it: {type(error).__name__}: {error}"
                await process.kill()
                process.discard()
        self._spill.begin()
        if self._clearing is not None:
            self._clearing.close()
        self.process = self.dialogue = self._entering = self._clearing = None
        self._exited(self.session, self.epoch, reason, await self.recall(()))

    async def _spawn(self) -> tuple[Process, Dialogue]:
        token, seat = self._gateway.admit(self.session, self.epoch)
        host_binary = Path(self.driver.binary())
        inside = await asyncio.to_thread(binary_inside, self._choice, self.layout, host_binary)
        job = Job(
            session_id=self.session,
            runtime_session_id=self.runtime_session_id,
            places=self.layout.places(self._choice.stable_paths),
            home_on_host=self.layout.home,
            gateway=self._gateway.url,
            token=token,
            instructions=INSTRUCTIONS,
            model=self.job.model,
            binary=inside,
        )
        dialogue = await asyncio.to_thread(self.driver.open, job)
        launch = dialogue.launch()
        if self._hook:
            launch = hooked(launch, self._hook, job.places.state)
        seat.ends_turn, seat.call_key = launch.ends_turn, launch.call_key
        process = await spawn(self._choice, self.layout, launch, host_binary, entered=self._enters)
        self.process, self.dialogue = process, dialogue
        self._clearing = Clearing(process, lambda noted: self._heard(self.session, self.epoch, noted))
        if self._wanted_end:
            self._ending = asyncio.create_task(self._end())
        return process, dialogue

    def _enters(self, process: Process) -> None:
        self._entering = process
        self._entered()

    def ward(self, until: float) -> Ward | None:
        """What the warden has to know; None while nothing runs."""
        process = self.process or self._entering
        return process.ward(self.session, self.epoch, until) if process is not None else None

    async def stopped_by_warden(self, who: Iterable[Ident]) -> None:
        """The warden stopped these, maybe too late: a lease that was renewed meanwhile goes on."""
        process = self.process or self._entering
        if process is not None:
            process.stopped_by_warden(who)
        await self.hold(self.frozen)

    async def _talk(self, process: Process, dialogue: Dialogue) -> str:
        await self.hold(self.frozen)
        process.write(dialogue.hello())
        async for chunk in process.stdout():
            self._spill.feed(chunk)
            await self._pass_on(dialogue.feed(chunk))
            if reply := dialogue.replies():
                process.write(reply)
        self._spill.close()
        await self._pass_on(dialogue.eof())
        code = (await process.end(CLOSE_S)).code  # one that closed its stdout and stays will never say more
        if self._wanted_end:
            return "it was ended"
        words = process.stderr_tail.strip().splitlines()
        return f"it exited with code {code}" + (f": {words[-1][:300]}" if words else "")

    async def _pass_on(self, events: list[r.RuntimeEvent]) -> None:
        for event in events:
            self._heard(self.session, self.epoch, await self._seen(event))

    async def _seen(self, event: r.RuntimeEvent) -> r.RuntimeEvent:
        """The event with what only the runner knows of it; the end of a stopped turn once nothing of it lives."""
        match event:
            case r.Ready():
                return await self._located(event)
            case r.Returned(whole=path) if path:
                home = self.layout.places(self._choice.stable_paths).home
                below = path.removeprefix(f"{home}/")
                file, size, lost = await asyncio.to_thread(self._spill.copy, self.layout.home, below)
                return replace(event, file=file, bytes=size, lost=lost)
            case r.Overlong():
                file, lost = self._spill.next()
                return replace(event, file=file, lost=lost)
            case r.Busy() if self._clearing:
                self._clearing.busy()
            case r.Idle() if self._clearing:
                return replace(event, left=tuple(map(described, await self._clearing.idle())))
        return event

    async def _located(self, ready: r.Ready) -> r.Ready:
        self.runtime_session_id = ready.runtime_session_id or self.runtime_session_id
        notes = await asyncio.to_thread(outcome, self._hook, self.layout.state) if self._hook else ()
        return replace(ready, pid=(self.process and self.process.pid) or 0, notes=notes)

    async def _end(self) -> None:
        process, dialogue = self.process, self.dialogue
        if process is None or dialogue is None:
            return
        if self._force:
            await process.kill()
            process.discard()
            return
        self.stopped = tuple(map(described, await apart(process.running)))
        process.write(dialogue.say(r.Close()))
        await process.end(CLOSE_S)

    async def recall(self, inputs: Iterable[str]) -> frozenset[str] | None:
        """The inputs that the runtime's conversation contains, these among others; None when nobody can tell."""
        dialogue = self.dialogue
        seen = frozenset(each for each in inputs if dialogue is not None and dialogue.contains(each))
        try:
            memory = await asyncio.to_thread(self._memory)
        except Exception as error:
            LOG.error("memory_unreadable", session=self.session, exc_info=error)
            memory = None
        return memory if memory is None else memory | seen

    def _memory(self) -> frozenset[str] | None:
        memory = self.driver.memory(self.layout.home, self.runtime_session_id)
        return None if memory.problem else memory.inputs

    def close(self) -> None:
        """The lease is over: its token dies, and nothing waits for it any more."""
        self.unwanted.set()
        self._gateway.dismiss(self.session)
