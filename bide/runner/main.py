"""The runner as a process: takes its root, finds what is here, registers, and asks for work until it is told to go."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import structlog

from bide.core import ids
from bide.core.limits import (
    DRAIN_POLL_S,
    DRAIN_S,
    LEAVE_S,
    NAME_TAKEN_S,
    POLL_S,
    RESEND_S,
    UPLOAD_TRIES_S,
    UPLOADS_END_S,
)
from bide.core.refusals import Refused, Unavailable
from bide.core.servers import Servers, patience_s, wait_s
from bide.core.wire import Register, Registered, Sync, SyncReply
from bide.drivers.base import Driver
from bide.runner import inventory
from bide.runner.draining import Draining
from bide.runner.gateway import Gateway
from bide.runner.layout import lock_root
from bide.runner.link import Link
from bide.runner.loop import Loop, uploads_end
from bide.runner.sandbox import Choice, probe
from bide.runner.snapshots import Served
from bide.runner.spool import Spools, kernel
from bide.runner.sweep import sweep
from bide.runner.workspace import Workspaces
from bide.snapshots.engine import Engine

LOG = structlog.get_logger()
MODEL_URL = "https://api.anthropic.com"
ADOPTS = 2  # the first protocol whose servers say what becomes of what they are offered
Ready = Callable[[dict[str, object]], None]


def run(
    *,
    servers: Iterable[str],
    token: str,
    name: str,
    pool: str,
    root: Path,
    slots: int,
    labels: tuple[str, ...] = (),
    isolation: str = "",
    drain_s: float = DRAIN_S,
    on_ready: Ready | None = None,
) -> int:
    """Runs until SIGTERM or SIGINT, which drain; gives the exit code. A second signal ends it at once.

    `drain_s` is how long working sessions may then go on. Code 1: sessions are left, which the next process on the same
    root takes up; the log names them. Raises `Refused` when this machine or the server will not have it.
    """
    _log_to_stderr()
    lock = lock_root(root)
    try:
        for session in sweep(root):
            LOG.warning("swept", session=session)
        choice, found = probe(root, isolation), inventory.drivers()
        hello = Register(
            name=name, pool=pool, slots=slots, root=str(root), isolation=choice.isolation, labels=labels,
            runtimes=inventory.runtimes(found), boot=_boot(root), home=_home(root),
        )  # fmt: skip
        daemon = _Daemon(Link(Servers(servers), token), hello, root, found, choice, drain_s, on_ready)
        code = asyncio.run(daemon.run())
        if not uploads_end(UPLOADS_END_S):  # the interpreter would wait for them
            sys.stdout.flush()
            os._exit(code)
        return code
    finally:
        if uploads_end(0.0):  # what works in its folders still, does so under the lock
            lock.release()


def _log_to_stderr() -> None:
    """Lines for people. A traceback shows no locals: they hold tokens and what sessions wrote."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=False),
        ],
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )


class _Daemon:
    def __init__(
        self,
        link: Link,
        hello: Register,
        root: Path,
        drivers: dict[str, Driver],
        choice: Choice,
        drain_s: float,
        on_ready: Ready | None,
    ) -> None:
        self._link, self._hello, self._root, self._on_ready = link, hello, root, on_ready
        self._choice, self._drivers, self._drain_s = choice, drivers, drain_s
        self._away = 0  # syncs in a row that nobody answered

    async def run(self) -> int:
        self._going = asyncio.Event()
        self._watch_signals()
        self._spools = Spools(self._root, self._hello.boot, kernel())
        left = self._spools.found()
        if (registered := await self._register()) is None:
            return self._leave(each.session for each in left)
        self._engine = Engine()
        snapshots = Served(self._engine, self._link.servers, registered.token)
        self._workspaces = Workspaces(self._root, snapshots, self._choice)
        await asyncio.to_thread(self._workspaces.shelf.tidy, [each.session for each in left])
        self._loop = loop = Loop(self._link, self._workspaces, self._drivers, self._choice, self._spools, left)
        self._drain = Draining(loop, self._going, self._drain_s)
        loop.gateway = gateway = Gateway(
            loop.called, loop.heard, os.environ.get("BIDE_MODEL_URL") or MODEL_URL,
            os.environ.get("ANTHROPIC_API_KEY", ""),
        )  # fmt: skip
        listener = socket.create_server(("127.0.0.1", 0))
        serving = asyncio.create_task(gateway.serve(listener), name="gateway")
        ticking = asyncio.create_task(loop.tick_for_ever(), name="tick")
        watching = asyncio.create_task(loop.watch.live(), name="watch")
        self._say_ready(registered)
        asking = asyncio.create_task(self._ask_for_work(), name="sync")
        try:
            done, _ = await asyncio.wait({serving, ticking, asking}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {asking}:  # without clock or gateway a runner must not go on believing its leases
                LOG.error("runner_failed", part=task.get_name(), exc_info=task.exception())
                return 1
            await asking
            self._drain.tell_results(self._workspaces.shelf.warm())
            return self._leave([*loop.machine.runs, *loop.machine.left])
        finally:
            self._engine.close()
            await loop.freeze()  # with neither clock nor warden nothing may act; it ends with this process
            gateway.stop()
            for task in (ticking, asking, watching):
                task.cancel()
            await asyncio.gather(serving, ticking, asking, watching, return_exceptions=True)
            loop.close()
            await self._link.close()

    def _leave(self, left: Iterable[str]) -> int:
        """The last thing: what is left here is made to outlive the machine, and named."""
        self._spools.close()
        named = sorted(left)
        for session in named:
            LOG.error("left_here", session=session, folder=str(self._root / session), hint="the next runner goes on")
        return 1 if named else 0

    async def _register(self) -> Registered | None:
        """The server may come later than the runner, and another of its name may go. Any other no is final.

        None when it was told to go meanwhile.
        """
        tries = 0
        while not self._going.is_set():
            try:
                return await self._link.register(self._hello)
            except Unavailable as away:
                LOG.warning("server_away", why=away.why)
                pause_s = UPLOAD_TRIES_S[min(tries, 2)]
                tries += 1
            except Refused as refused:
                if refused.code != "name_taken":
                    raise
                LOG.warning("name_taken", sentence=refused.sentence, hint=refused.hint)
                pause_s = NAME_TAKEN_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._going.wait(), pause_s)
        return None

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_go)

    def _told_to_go(self) -> None:
        if self._going.is_set():
            os._exit(1)
        self._going.set()

    def _say_ready(self, registered: Registered) -> None:
        LOG.info("ready", runner=registered.id, isolation=self._choice.isolation, rung=self._choice.rung)
        if self._on_ready is not None:
            hello = self._hello
            self._on_ready(
                {
                    "id": registered.id, "name": hello.name, "pool": hello.pool, "slots": hello.slots,
                    "root": hello.root, "isolation": hello.isolation, "protocol": hello.protocol,
                    "runtimes": msgspec.to_builtins(hello.runtimes),
                }
            )  # fmt: skip

    async def _ask_for_work(self) -> None:
        """One sync after the other. While it drains it asks on, so that leases live until their sessions are parked."""
        machine, drain = self._loop.machine, self._drain
        said_goodbye = False
        while not (said_goodbye and not machine.runs and not machine.left):
            drain.look()
            if drain.over:
                self._loop.perform(machine.leave(self._loop.now()))
                await self._loop.runtimes_ended(LEAVE_S)
                return
            # The last word overtakes a question that still waits: what that one was given comes back with this one.
            said_goodbye = await self._sync_once() and self._going.is_set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._loop.settle(), RESEND_S)

    def _question(self, patience: float) -> Sync:
        machine, drain = self._loop.machine, self._drain
        held = len(machine.runs) + len(machine.left)
        often = self._going.is_set() or (drain.on and held)
        return Sync(
            boot=self._hello.boot,
            leases=machine.held(),
            adopt=machine.adoptable(),
            returned=tuple(machine.returned.values()),
            free_slots=0
            if drain.on or self._loop.clock() < self._loop.unwell_until
            else max(0, self._hello.slots - held),
            disk_free=self._disk_free(),
            wait_s=wait_s(DRAIN_POLL_S if often else POLL_S, patience),
            draining=drain.on,
            ordered=drain.ordered,
            leaving=self._going.is_set() and not held,
            warm=self._workspaces.shelf.warm(),
            keeps=self._loop.keeps(),
        )

    def _disk_free(self) -> int:
        with contextlib.suppress(OSError):  # a disk that fails costs what is on it, not the other sessions' leases
            return shutil.disk_usage(self._root).free
        return 0

    async def _sync_once(self) -> bool:
        """One sync; whether the runner's last word was heard."""
        asked_at, drain, machine = self._loop.clock(), self._drain, self._loop.machine
        patience = min(self._lease_patience_s(asked_at), drain.patience_s)
        ask = self._question(patience)
        within_s = patience if len(self._link.servers) > 1 else drain.patience_s
        syncing = asyncio.create_task(self._link.sync(ask, within_s))
        try:
            await self._until_done_or_told_to_go(syncing)
            if not syncing.done():
                syncing.cancel()
                return False
            self._synced(syncing.result(), asked_at)
            for back in ask.returned:
                machine.returned.pop(back.session, None)
            await self._let_go_on(syncing.result())
            return ask.leaving
        except Unavailable as away:
            LOG.warning("server_away", why=away.why)
            if ask.leaving:
                return True  # nobody is there to hear it
            drain.unheard()
            await self._pause()
        except Refused as refused:
            LOG.error("sync_refused", code=refused.code, sentence=refused.sentence)
            if refused.code in ("unauthenticated", "forbidden", "wrong_protocol", "fenced", "no_runner"):
                raise
            await self._pause()
        return False

    def _synced(self, reply: SyncReply, asked_at: float) -> None:
        machine = self._loop.machine
        self._away = 0
        self._loop.synced(reply, asked_at)
        if reply.protocol < ADOPTS and machine.left:
            self._loop.perform(machine.let_go_of_left())
        self._drain.heard(reply)

    async def _let_go_on(self, reply: SyncReply) -> None:
        if any(grant.session not in self._loop.machine.runs for grant in reply.grants):
            await self._pause()  # granted again what this process let go: it runs out by itself

    def _lease_patience_s(self, now: float) -> float:
        """How long an answer may take: leases must not run out over it, and those that have are to be renewed soon."""
        return patience_s(min((run.deadline for run in self._loop.machine.runs.values()), default=math.inf) - now)

    async def _until_done_or_told_to_go(self, syncing: asyncio.Task[SyncReply]) -> None:
        """A sync in flight is overtaken when the runner is told to go."""
        stopping = asyncio.create_task(self._going.wait())
        waited: set[asyncio.Task[Any]] = {syncing} if self._going.is_set() else {syncing, stopping}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()

    async def _pause(self) -> None:
        """Before the next try; none where there is another server that was not asked yet."""
        self._away += 1
        if self._away % len(self._link.servers):
            return
        if self._going.is_set():
            await asyncio.sleep(DRAIN_POLL_S)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._going.wait(), UPLOAD_TRIES_S[0])


def _home(root: Path) -> str:
    """Names the root for ever: another machine has another one, also under the same path."""
    path = root / ".home"
    known = path.read_text().strip() if path.exists() else ""
    if not ids.is_id(known):
        known = ids.mint(time.time(), os.urandom(16).hex())
        path.write_text(known)
    return known


def _boot(root: Path) -> str:
    """Names this process; greater than the names of earlier ones on this root, even when the clock went back."""
    path = root / ".boot"
    before = path.read_text().strip() if path.exists() else ""
    now = max(time.time(), ids.moment(before) + 1 if ids.is_id(before) else 0.0)
    boot = ids.mint(now, os.getpid(), os.urandom(8).hex())
    path.write_text(boot)
    return boot
