"""Between the machine's orders and a runtime's process: what a stopped turn began is gone before anything else happens.

Runtimes end the tools they wait for. What a tool left behind itself (a daemon, a double fork, a process that ignores
TERM) nobody ends but us. The exact set is known, because while it is ended nothing new is begun: orders wait, and the
end of the turn is not told.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from functools import partial

import structlog

from bide.core import runtime as r
from bide.core.limits import CLEAR_LATE_S, CLEAR_LOOK_S, CLEAR_SOON_S, INTERRUPT_S
from bide.runner import procfs
from bide.runner.process import Process, apart
from bide.runner.procfs import Ident, Running
from bide.runner.sweep import end_all

LOG = structlog.get_logger()


class Clearing:
    """One for each process. `noted` hears of what could not be ended."""

    def __init__(self, process: Process, noted: Callable[[r.Noted], None]) -> None:
        self._process, self._noted = process, noted
        self._own: frozenset[Ident] | None = None  # lived before the first turn: the runtime's, not a tool's
        self._before: frozenset[Ident] = frozenset()  # lived when the turn began
        self._turn = False  # the machine knows of one that is not over
        self._quiet = True  # the runtime works on none
        self._orders: asyncio.Queue[tuple[r.Order, bytes, bool]] = asyncio.Queue()
        self._unclear = 0  # interrupts of which something may still live
        self._clear = asyncio.Event()
        self._clear.set()
        self._task = asyncio.create_task(self._follow(), name="orders of a runtime")

    def order(self, order: r.Order, said: bytes) -> None:
        """Writes the bytes of an order, after those before it have had their effect."""
        if isinstance(order, r.Deliver):
            self._turn, self._quiet = True, False
        elif isinstance(order, r.Interrupt):
            self._unclear += 1
            self._clear.clear()
        self._orders.put_nowait((order, said, self._turn))

    def busy(self) -> None:
        """The runtime began a turn, whoever asked for it."""
        self._turn, self._quiet = True, False

    async def idle(self) -> tuple[Running, ...]:
        """The runtime ended its turn: returns once nothing of it lives that was to be stopped, with what runs on."""
        self._quiet = True
        await self._clear.wait()
        self._turn = False
        return await apart(self._left_running)

    def close(self) -> None:
        """The process is gone, or going."""
        self._task.cancel()
        self._clear.set()

    async def _follow(self) -> None:
        try:
            while True:
                order, said, in_turn = await self._orders.get()
                if isinstance(order, r.Deliver):
                    self._before = await apart(self._process.others)
                    self._own = self._before if self._own is None else self._own
                self._process.write(said)
                if isinstance(order, r.Interrupt):
                    await self._end_what_was_begun(self._before if in_turn else self._own or frozenset(), in_turn)
                    self._unclear -= 1
                    if not self._unclear:
                        self._clear.set()
        except Exception as error:
            LOG.error("orders_failed", exc_info=error)
            self._clear.set()
            await self._process.kill()  # deaf to its orders it must not look as if it worked

    async def _end_what_was_begun(self, spared: frozenset[Ident], in_turn: bool) -> None:
        """TERM to what lost its parent, for the runtime asks only those below it; at last everything is killed."""
        loop = asyncio.get_running_loop()
        began, asked = loop.time(), set[Ident]()
        while not self._process.ended and (since := loop.time() - began) < INTERRUPT_S:
            if self._process.frozen:  # it does not have this time, and nothing of it is to change
                began += CLEAR_LOOK_S
            elif not (left := await apart(partial(self._begun_since, spared))):
                if self._quiet or not in_turn:
                    return
            elif since >= CLEAR_LATE_S:
                spared |= await self._kill(spared)
            elif since >= CLEAR_SOON_S or not in_turn:
                asked |= await apart(partial(self._ask, frozenset(left) - asked, in_turn))
            await asyncio.sleep(CLEAR_LOOK_S)

    def _ask(self, who: frozenset[Ident], in_turn: bool) -> frozenset[Ident]:
        """TERM to these; in a turn only to what is nobody's child, and all below that."""
        if in_turn and self._process.init is not None:
            alone = who & frozenset(procfs.children(self._process.init))
            who &= alone.union(*map(procfs.tree, alone))
        for each in who:
            procfs.send(each, signal.SIGTERM)
        return who

    async def _kill(self, spared: frozenset[Ident]) -> frozenset[Ident]:
        """Ends all that is not spared, and tells of what hangs in the kernel."""
        stuck = await apart(partial(end_all, partial(self._begun_since, spared)))
        if stuck:
            names = ", ".join(map(described, procfs.describe(stuck))) or f"process {stuck[0].pid}"
            self._noted(r.Noted(f"This could not be ended and still runs: {names}", "not_cleared"))
        return frozenset(stuck)

    def _begun_since(self, spared: frozenset[Ident]) -> list[Ident]:
        """What lives and is neither spared nor begun by what is: a server of an earlier turn may have new workers."""
        if self._process.runtime is None:  # never seen: it could be any of them
            return []
        others = self._process.others()
        kept = {below for each in spared & others for below in procfs.tree(each)}
        return [each for each in others - spared if each not in kept]

    def _left_running(self) -> tuple[Running, ...]:
        return procfs.describe(self._begun_since(self._own or frozenset()))


def described(each: Running) -> str:
    """A process as people read it."""
    ports = ", ".join(map(str, each.ports))
    return f"`{' '.join(each.argv)}`" + (f" on port {ports}" if ports else "")
