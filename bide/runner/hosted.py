"""One leased session as it really runs here: its dialogue and process, in the order the machine asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog
from msgspec.structs import replace

from bide.core import runtime as r
from bide.core.limits import CLOSE_S, SWEEP_LATE_S, SWEEP_SOON_S
from bide.core.refusals import Refused
from bide.core.wire import Job as LeaseJob
from bide.drivers.base import Dialogue, Driver, Job
from bide.runner.gateway import Gateway
from bide.runner.hook import hooked, outcome
from bide.runner.layout import Layout
from bide.runner.process import Process, apart, spawn
from bide.runner.procfs import Ident, Running
from bide.runner.sandbox import Choice, binary_inside
from bide.runner.warden import Ward

LOG = structlog.get_logger()
INSTRUCTIONS = """
You work in a session of bide. People are not watching all the time; they read what you write later and answer when they can.
- To ask people something, call the tool `ask_human`. It returns at once; after a blocking question end your turn, and the
  answer arrives as your next message, maybe hours later. Your workspace and this conversation are kept meanwhile.
- Assume or ask: what is reversible and low in impact, decide yourself and call `record_assumption`. What is irreversible,
  high in impact or ambiguous, ask first. Never take the absence of an answer for consent.
- When the task is done, call `finish` with a short summary.
- Nothing that runs in the background survives a pause; what was running is told to you when you go on.
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
    ) -> None:
        self.session, self.epoch, self.job, self.driver = session, epoch, job, driver
        self.layout, self._choice, self._gateway = layout, choice, gateway
        self._heard, self._exited, self._entered = heard, exited, entered
        self.runtime_session_id = job.runtime_session_id
        self.process: Process | None = None
        self._entering: Process | None = None  # it exists, but takes no orders yet
        self.dialogue: Dialogue | None = None
        self.stopped: tuple[str, ...] = ()
        self.root = ""  # the newest checkpoint that the folder is known to hold
        self.frozen = False
        self._hook = job.care.resume_hook if job.resumed else ""
        self._holding = asyncio.Lock()
        self.released = False
        self._wanted_end = False
        self._force = False
        self._before_turn: frozenset[Ident] = frozenset()
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None

    # -- what the machine asks for ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts a runtime; its words and its end are reported."""
        self._wanted_end = self._force = False
        self.stopped = ()
        self._task = asyncio.create_task(self._live(), name=f"runtime of {self.session}")

    def tell(self, order: r.Order) -> None:
        """Writes an order to the runtime."""
        if self.dialogue is None or self.process is None:
            return
        if isinstance(order, r.Deliver):
            self._before_turn = self.process.others()
        self.process.write(self.dialogue.say(order))
        if isinstance(order, r.Interrupt):
            begun = self.process.others() - self._before_turn
            self._sweeping = asyncio.create_task(self._sweep(self.process, begun), name=f"sweep of {self.session}")

    def stop(self, force: bool) -> None:
        """Ends the runtime, in order or by force; also one that is just starting."""
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
        self.process = self.dialogue = self._entering = None
        try:
            memory = await asyncio.to_thread(self._memory)
        except Exception as error:
            LOG.error("memory_unreadable", session=self.session, exc_info=error)
            memory = None
        self._exited(self.session, self.epoch, reason, memory)

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
            await self._pass_on(dialogue.feed(chunk))
            if reply := dialogue.replies():
                process.write(reply)
        await self._pass_on(dialogue.eof())
        code = (await process.end(CLOSE_S)).code  # one that closed its stdout and stays will never say more
        if self._wanted_end:
            return "it was ended"
        words = process.stderr_tail.strip().splitlines()
        return f"it exited with code {code}" + (f": {words[-1][:300]}" if words else "")

    async def _pass_on(self, events: list[r.RuntimeEvent]) -> None:
        for event in events:
            located = await self._located(event) if isinstance(event, r.Ready) else event
            self._heard(self.session, self.epoch, located)

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
        self.stopped = tuple(_described(each) for each in await apart(process.running))
        process.write(dialogue.say(r.Close()))
        await process.end(CLOSE_S)

    def _memory(self) -> frozenset[str] | None:
        memory = self.driver.memory(self.layout.home, self.runtime_session_id)
        return None if memory.problem else memory.inputs

    async def _sweep(self, process: Process, begun: frozenset[Ident]) -> None:
        """Ends what an interrupted turn left behind: daemons soon, whatever ignored TERM a little later."""
        before = self._before_turn
        await asyncio.sleep(SWEEP_SOON_S)
        process.end_these(
            (process.orphans() - before) & (begun if self._before_turn is not before else process.others())
        )
        await asyncio.sleep(SWEEP_LATE_S - SWEEP_SOON_S)
        process.end_these(process.others() & begun)

    def close(self) -> None:
        """The lease is over: its token dies, and nothing waits for it any more."""
        self.released = True
        self._gateway.dismiss(self.session)
        if self._sweeping is not None:
            self._sweeping.cancel()


def _described(each: Running) -> str:
    ports = ", ".join(map(str, each.ports))
    return f"`{' '.join(each.argv)}`" + (f" on port {ports}" if ports else "")
