"""Does to a fleet what the plan says, undoes it, and tells the story of it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

import httpx2

from chaos.fleet import Fleet, Part
from chaos.plan import Fault

STOP_S = 90.0  # a runner that is told to end saves its sessions first; past this it is killed
DRAIN = {"deadline_s": 3.0}
LOOK_S = 0.3
UP_S = 20.0  # a server that ends so soon after its start found no database: whatever started it starts it again

Tell = Callable[[str], None]
Do = Callable[[Fault], Awaitable[None]]


class Havoc:
    """Breaks and mends. `wrong` is what a process did that nothing was done to."""

    def __init__(self, fleet: Fleet, tell: Tell) -> None:
        self.fleet, self.tell = fleet, tell
        self._client = fleet.client(min(fleet.servers))
        self.counts: Counter[str] = Counter()
        self.kills = 0
        self.wrong: list[str] = []
        self._busy: set[str] = set()
        self._kinds: dict[str, Do] = {
            "kill server": self._killed, "restart server": self._restarted,
            "freeze server": self._freeze, "freeze daemon": self._freeze,
            "kill daemon": self._killed, "kill daemon for long": self._killed,
            "lose machine": self._lose_machine, "restart runner": self._restarted, "drain": self._drain,
            "cut people off": self._cut, "cut database off": self._cut, "cut runner off": self._cut,
            "hang people": self._hang, "hang database": self._hang, "hang runner": self._hang,
            "lose answers": self._hang, "lose requests": self._hang,
            "freeze database": self._freeze_database, "stop database": self._stop_database,
            "kill database": self._stop_database,
        }  # fmt: skip

    async def follow(self, plan: Iterable[Fault]) -> None:
        """Everything in it, each at its time; returns when the last of it is undone."""
        began, doing = asyncio.get_running_loop().time(), set[asyncio.Task[None]]()
        for fault in plan:
            await asyncio.sleep(max(0.0, began + fault.at - asyncio.get_running_loop().time()))
            doing.add(asyncio.create_task(self._do(fault)))
        await asyncio.gather(*doing)

    async def watch(self) -> None:
        """Until it is cancelled: starts again whatever ends by itself, as everybody's process keeper does."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            for part in self.fleet.parts:
                if part.down or part.alive:
                    continue
                if part.name in self.fleet.runners or loop.time() - part.began > UP_S:
                    assert part.process is not None
                    words = part.tail().strip().splitlines()[-1:]
                    self.wrong.append(f"{part.name} ended by itself with {part.process.returncode}: {words}")
                self.counts["started again"] += 1
                self._start(part)

    async def away(self, seconds: float) -> None:
        """The database is stopped for so long."""
        self.tell(f"the database is away for {seconds:g} s")
        await self.fleet.on_database(self.fleet.postgres.stop)
        await asyncio.sleep(seconds)
        await self.fleet.on_database(self.fleet.postgres.start)
        self.tell("the database is back")

    async def _do(self, fault: Fault) -> None:
        if fault.place in self._busy:
            self.tell(f"{fault.kind} {fault.target}: left out, it has not come back from the last time")
            return
        self._busy.add(fault.place)
        self.counts[fault.kind] += 1
        self.tell(f"{fault.kind} {fault.target}, {fault.for_s:g} s")
        try:
            await self._kinds[fault.kind](fault)
        finally:
            self._busy.discard(fault.place)
        self.tell(f"    {fault.kind} {fault.target}: over")

    # -- processes ----------------------------------------------------------------------------------------------------

    def _part(self, name: str) -> Part:
        return self.fleet.servers.get(name) or self.fleet.runners[name]

    def _start(self, part: Part) -> None:
        if part.name in self.fleet.servers:
            self.fleet.serve(part.name)
        else:
            self.fleet.run(part.name)

    async def _killed(self, fault: Fault) -> None:
        part = self._part(fault.target)
        self.kills += 1
        await part.kill()
        await asyncio.sleep(fault.for_s)
        self._start(part)

    async def _lose_machine(self, fault: Fault) -> None:
        self.kills += 1
        await self.fleet.lose(fault.target)
        await asyncio.sleep(fault.for_s)
        self.fleet.run(fault.target)

    async def _restarted(self, fault: Fault) -> None:
        part = self._part(fault.target)
        part.down = True
        part.send(signal.SIGTERM)
        code = await part.ended(STOP_S)
        if code is None:
            self.wrong.append(f"{part.name} did not end within {STOP_S:g} s of SIGTERM")
            self.kills += 1
            await part.kill()
        self.counts[f"{'server' if part.name in self.fleet.servers else 'runner'} ended with {code}"] += 1
        await asyncio.sleep(fault.for_s)
        self._start(part)

    async def _freeze(self, fault: Fault) -> None:
        part = self._part(fault.target)
        part.send(signal.SIGSTOP)
        await asyncio.sleep(fault.for_s)
        part.send(signal.SIGCONT)

    async def _drain(self, fault: Fault) -> None:
        """By order of a server, taken back after a while."""
        path = f"/v1/runners/{fault.target}/drain"
        answer = await self._asked(lambda: self._client.post(path, json=DRAIN))
        self.counts[f"drain answered {answer.status_code}"] += 1
        await asyncio.sleep(fault.for_s)
        await self._asked(lambda: self._client.delete(path))

    async def _asked(self, ask: Callable[[], Awaitable[httpx2.Response]]) -> httpx2.Response:
        """The answer, once the server is there to give one."""
        while True:
            with contextlib.suppress(httpx2.HTTPError):
                answer = await ask()
                if answer.status_code < 500:
                    return answer
            await asyncio.sleep(LOOK_S)

    # -- lines --------------------------------------------------------------------------------------------------------

    def _ends(self, fault: Fault) -> list[tuple[str, str]]:
        """Which lines it is about: a runner may lose one server or both."""
        if fault.kind.endswith(("people", "people off")):
            return [("people", fault.target)]
        if "database" in fault.kind:
            return [(fault.target, "database")]
        servers = sorted(self.fleet.servers)
        return [(fault.target, server) for server in (servers if fault.chance < 0.6 else servers[:1])]

    async def _cut(self, fault: Fault) -> None:
        for ends in self._ends(fault):
            self.fleet.lines[ends].cut()
        await asyncio.sleep(fault.for_s)
        for ends in self._ends(fault):
            self.fleet.lines[ends].heal()

    async def _hang(self, fault: Fault) -> None:
        """What was held arrives late, or never, as chance has it."""
        for ends in self._ends(fault):
            if fault.kind != "lose requests":
                self.fleet.lines[ends].hold("back")
            if fault.kind != "lose answers":
                self.fleet.lines[ends].hold("there")
        await asyncio.sleep(fault.for_s)
        for ends in self._ends(fault):
            self.fleet.lines[ends].heal(late=fault.chance * 10 % 1 < 0.5)

    # -- the database -------------------------------------------------------------------------------------------------

    async def _freeze_database(self, fault: Fault) -> None:
        frozen = self.fleet.postgres.frozen()
        await self.fleet.on_database(frozen.__enter__)
        await asyncio.sleep(fault.for_s)
        await self.fleet.on_database(lambda: frozen.__exit__(None, None, None))

    async def _stop_database(self, fault: Fault) -> None:
        killed = fault.kind.startswith("kill")
        self.kills += killed
        await self.fleet.on_database(self.fleet.postgres.kill if killed else self.fleet.postgres.stop)
        await asyncio.sleep(fault.for_s)
        await self.fleet.on_database(self.fleet.postgres.start)
