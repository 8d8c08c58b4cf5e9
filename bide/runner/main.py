"""The runner as a process: takes its root, finds what is here, registers, and asks for work until it is told to go."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import structlog

from bide.core import ids
from bide.core.limits import DRAIN_ALONE_S, DRAIN_POLL_S, DRAIN_S, POLL_S, RESEND_S, UPLOAD_TRIES_S
from bide.core.refusals import Refused, Unavailable
from bide.core.wire import Register, Registered, Sync, SyncReply
from bide.runner import inventory
from bide.runner.gateway import Gateway
from bide.runner.layout import lock_root
from bide.runner.link import Link
from bide.runner.loop import Loop
from bide.runner.sandbox import Choice, probe
from bide.runner.sweep import sweep
from bide.runner.workspace import Workspaces
from bide.snapshots.blobs.http import HttpBlobs
from bide.snapshots.blobs.layers import Retrying

LOG = structlog.get_logger()
MODEL_URL = "https://api.anthropic.com"
Ready = Callable[[dict[str, object]], None]


def run(
    *,
    server: str,
    token: str,
    name: str,
    pool: str,
    root: Path,
    slots: int,
    isolation: str = "",
    on_ready: Ready | None = None,
) -> int:
    """Runs until SIGTERM or SIGINT, which drain; gives the exit code. A second signal ends it at once.

    Raises `Refused` when this machine or the server will not have it.
    """
    _log_to_stderr()
    lock = lock_root(root)
    try:
        for session in sweep(root):
            LOG.warning("swept", session=session)
        choice = probe(root, isolation)
        return asyncio.run(_Daemon(server, token, name, pool, root, slots, choice, on_ready).run())
    finally:
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
        server: str,
        token: str,
        name: str,
        pool: str,
        root: Path,
        slots: int,
        choice: Choice,
        on_ready: Ready | None,
    ) -> None:
        self._link = Link(server, token)
        self._server, self._root, self._slots, self._on_ready = server, root, slots, on_ready
        self._drivers = inventory.drivers()
        self._hello = Register(
            name=name, pool=pool, slots=slots, root=str(root), isolation=choice.isolation,
            runtimes=inventory.runtimes(self._drivers), boot=_boot(root),
        )  # fmt: skip
        self._choice = choice
        self._stop = asyncio.Event()
        self._alone_until = math.inf  # while it drains and the server is away: when to go without its word

    async def run(self) -> int:
        registered = await self._register()
        blobs = Retrying(HttpBlobs(self._server, registered.token))
        self._workspaces = Workspaces(self._root, blobs, self._choice)
        self._loop = loop = Loop(self._link, self._workspaces, self._drivers, self._choice)
        loop.gateway = gateway = Gateway(
            loop.called, os.environ.get("BIDE_MODEL_URL") or MODEL_URL, os.environ.get("ANTHROPIC_API_KEY", "")
        )
        listener = socket.create_server(("127.0.0.1", 0))
        serving = asyncio.create_task(gateway.serve(listener), name="gateway")
        ticking = asyncio.create_task(loop.tick_for_ever(), name="tick")
        self._watch_signals()
        self._say_ready(registered)
        asking = asyncio.create_task(self._ask_for_work(), name="sync")
        try:
            done, _ = await asyncio.wait({serving, ticking, asking}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {asking}:  # without clock or gateway a runner must not go on believing its leases
                LOG.error("runner_failed", part=task.get_name(), exc_info=task.exception())
                return 1
            await asking
        finally:
            gateway.stop()
            for task in (ticking, asking):
                task.cancel()
            await asyncio.gather(serving, ticking, asking, return_exceptions=True)
            await self._link.close()
        left = sorted(loop.machine.runs)
        for session in left:
            LOG.error("left_behind", session=session, folder=str(self._root / session))
        return 1 if left else 0

    async def _register(self) -> Registered:
        """The server may come later than the runner; a no is final."""
        tries = 0
        while True:
            try:
                return await self._link.register(self._hello)
            except Unavailable as away:
                LOG.warning("server_away", why=away.why)
                await asyncio.sleep(UPLOAD_TRIES_S[min(tries, 2)])
                tries += 1

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)

    def _signalled(self) -> None:
        if self._stop.is_set():
            os._exit(1)
        LOG.info("draining", sessions=sorted(self._loop.machine.runs))
        self._stop.set()
        self._drain_until = self._loop.clock() + DRAIN_S
        self._loop.perform(self._loop.machine.drain(self._loop.clock()))

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
        machine = self._loop.machine
        interrupted = said_goodbye = False
        while not (said_goodbye and not machine.runs):
            if self._stop.is_set() and not interrupted and self._loop.clock() >= self._drain_until:
                interrupted = True
                self._loop.perform(machine.interrupt_all(self._loop.clock()))
            if self._stop.is_set() and self._loop.clock() >= min(self._drain_until + DRAIN_S, self._alone_until):
                break  # what is left goes on from its last save; its folder stays
            # The last word overtakes a question that still waits: what that one was given comes back with this one.
            said_goodbye = await self._sync_once() and self._stop.is_set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._loop.settle(), RESEND_S)

    async def _sync_once(self) -> bool:
        """One sync; whether the runner's last word was heard."""
        asked_at, machine = self._loop.clock(), self._loop.machine
        ask = Sync(
            boot=self._hello.boot,
            leases=machine.held(),
            free_slots=0 if self._stop.is_set() else max(0, self._slots - len(machine.runs)),
            wait_s=DRAIN_POLL_S if self._stop.is_set() else POLL_S,
            draining=self._stop.is_set(),
            leaving=self._stop.is_set() and not machine.runs,
            warm=self._workspaces.warm(),
        )
        syncing = asyncio.create_task(self._link.sync(ask))
        try:
            await self._until_done_or_stopped(syncing)
            if syncing.done():
                reply = syncing.result()
                self._loop.synced(reply, asked_at)
                if any(grant.session not in machine.runs for grant in reply.grants):
                    await self._pause()  # granted again what this process let go: it runs out by itself
                self._alone_until = math.inf
                return ask.leaving
            syncing.cancel()
        except Unavailable as away:
            LOG.warning("server_away", why=away.why)
            if ask.leaving:
                return True  # nobody is there to hear it
            if self._stop.is_set():
                self._alone_until = min(self._alone_until, self._loop.clock() + DRAIN_ALONE_S)
            await self._pause()
        except Refused as refused:
            LOG.error("sync_refused", code=refused.code, sentence=refused.sentence)
            if refused.code in ("unauthenticated", "forbidden", "wrong_protocol", "fenced"):
                raise
            await self._pause()
        return False

    async def _until_done_or_stopped(self, syncing: asyncio.Task[SyncReply]) -> None:
        """A sync in flight is overtaken when the runner is told to go."""
        stopping = asyncio.create_task(self._stop.wait())
        waited: set[asyncio.Task[Any]] = {syncing} if self._stop.is_set() else {syncing, stopping}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()

    async def _pause(self) -> None:
        if self._stop.is_set():
            await asyncio.sleep(DRAIN_POLL_S)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), UPLOAD_TRIES_S[0])


def _boot(root: Path) -> str:
    """Names this process; greater than the names of earlier ones on this root, even when the clock went back."""
    path = root / ".boot"
    before = path.read_text().strip() if path.exists() else ""
    now = max(time.time(), ids.moment(before) + 1 if ids.is_id(before) else 0.0)
    boot = ids.mint(now, os.getpid(), os.urandom(8).hex())
    path.write_text(boot)
    return boot
