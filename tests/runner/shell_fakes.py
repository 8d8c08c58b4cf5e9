"""Stand-ins around the runner's loop whose every step a test can hold up: folders, a runtime's process, the server."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bide.core import effects as e
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.refusals import Refused
from bide.core.wire import FactsPost, FactsReply, Gone, Granted, News, SyncReply
from bide.drivers.base import Carried, Driver, Job, Launch, Memory
from bide.runner.gateway import Gateway
from bide.runner.layout import Layout
from bide.runner.link import Link
from bide.runner.loop import Loop
from bide.runner.process import Ended
from bide.runner.spool import Spools
from bide.runner.workspace import WANTED, Workspaces
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.engine import Waits
from tests.runner.shell_parts import CHOICE, SESSION, Direct, job


class GatedFolders(Workspaces):
    """Work on folders that begins, waits until it is let through, and remembers who was in a folder together."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, Direct(LocalBlobs(root / ".blobs"), root / ".keys"), CHOICE)
        self.begun: list[str] = []
        self.done: list[str] = []
        self.clashes: list[str] = []
        self.parents: list[str] = []
        self.make_fails: list[Exception] = []
        self.save_says: list[e.NotCaptured] = []
        self._inside: dict[str, list[str]] = defaultdict(list)
        self._closed: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    @contextmanager
    def closed(self, what: str) -> Iterator[Callable[[], None]]:
        """Whoever begins this work for `SESSION` waits until the gate is opened."""
        gate = self._closed[what] = threading.Event()
        try:
            yield gate.set
        finally:
            gate.set()

    def _work(self, what: str, session: str, epoch: str = "") -> None:
        word = f"{what} {epoch}".strip()
        with self._lock:
            self.begun.append(word)
            if self._inside[session]:
                self.clashes.append(f"{word} beside {self._inside[session]}")
            self._inside[session].append(word)
        gate = self._closed.get(word) or self._closed.get(what)
        if gate and session == SESSION:
            assert gate.wait(20)
        with self._lock:
            self._inside[session].remove(word)
            self.done.append(word)

    def make(self, effect: e.Restore, driver: Driver, unwanted: threading.Event = WANTED) -> e.Restored | e.NotRestored:
        self._work("make", effect.session, str(effect.epoch))
        if self.make_fails:
            raise self.make_fails.pop(0)
        return e.Restored(source="fresh", workspace=f.Workspace())

    def take_up(self, effect: e.Restore, driver: Driver) -> e.Restored | e.NotRestored:
        self._work("take", effect.session, str(effect.epoch))
        return e.Restored(source="warm", workspace=f.Workspace())

    def save(
        self,
        effect: e.Capture,
        carried: Carried,
        repository: str,
        parent: str,
        stopped: tuple[str, ...],
        care: f.Care = f.Care(),  # noqa: B008 - frozen
        limits: Mapping[str, float] = MappingProxyType({}),
        waits: Waits = lambda why: None,
    ) -> e.Captured | e.NotCaptured:
        self._work("save", effect.session, str(effect.epoch))
        self.parents.append(parent)
        return self.save_says.pop(0) if self.save_says else e.Captured(root=f"root-{effect.epoch}-{effect.n}")

    def keep_warm(self, session: str, root: str) -> None:
        self._work(f"keep {root}", session)

    def put_aside(self, session: str, epoch: int) -> None:
        self._work("aside", session, str(epoch))


class FakeProcess:
    """A runtime's process in memory. `held` is what the operating system would say: stopped or not."""

    pid, stderr_tail = 4711, "last words\n"
    runtime = None

    def __init__(self) -> None:
        self.said: asyncio.Queue[bytes] = asyncio.Queue()
        self.written: list[bytes] = []
        self.frozen = self.stays = False
        self.may_die = asyncio.Event()
        self.may_die.set()
        self._over = asyncio.Event()
        self.pause: Callable[[], int] = lambda: 1

    @property
    def ended(self) -> bool:
        return self._over.is_set()

    async def stdout(self) -> AsyncIterator[bytes]:
        while chunk := await self.said.get():
            yield chunk

    def write(self, chunk: bytes) -> None:
        self.written.append(chunk)

    def exit(self) -> None:
        self._over.set()
        self.said.put_nowait(b"")

    async def wait(self) -> int:
        await self._over.wait()
        return 3

    async def end(self, grace_s: float = 0.0) -> Ended:
        await self.may_die.wait()
        self.exit()
        return Ended(code=3, reason="closed")

    async def kill(self) -> Ended:
        return await self.end()

    def discard(self) -> None: ...

    def ward(self, session: str, epoch: int, until: float) -> None: ...

    def running(self) -> tuple[()]:
        return ()

    def others(self) -> frozenset[Any]:
        return frozenset()

    async def freeze(self) -> bool:
        for _ in range(self.pause()):
            self.frozen = True
            await asyncio.sleep(0)
        return True

    async def thaw(self) -> None:
        for _ in range(self.pause()):
            await asyncio.sleep(0)
        self.frozen = False


class FakeDriver:
    """A driver that is its own dialogue; `breaks` names the step that raises, as often as `times` says."""

    name = "scripted"

    def __init__(self) -> None:
        self.breaks, self.times = "", 10**9
        self.problem = ""

    def _step(self, step: str) -> None:
        if step == self.breaks and self.times > 0:
            self.times -= 1
            raise ValueError(f"{step} is broken")

    def binary(self) -> str:
        self._step("binary")
        return "/bin/sh"

    def probe(self, env: dict[str, str]) -> r.Runtime:
        return r.Runtime(name=self.name, version="1")

    def carried(self, runtime_session_id: str) -> Carried:
        self._step("carried")
        return Carried(keep=(), private=())

    def memory(self, home: Path, runtime_session_id: str) -> Memory:
        self._step("memory")
        return Memory(found=True, problem=self.problem)

    def open(self, job: Job) -> FakeDriver:
        self._step("open")
        return self

    def launch(self) -> Launch:
        self._step("launch")
        return Launch(argv=("/bin/sh",), env={}, ends_turn={"x": True}, call_key="k")

    def hello(self) -> bytes:
        self._step("hello")
        return b"hello"

    def feed(self, chunk: bytes) -> list[r.RuntimeEvent]:
        self._step("feed")
        match chunk:
            case b"ready":
                return [r.Ready(version="1", runtime_session_id="x", rung="new")]
            case b"idle":
                return [r.Idle(result="completed")]
            case _:
                return [r.Spoke(text=chunk.decode())]

    def eof(self) -> list[r.RuntimeEvent]:
        self._step("eof")
        return []

    def say(self, order: r.Order) -> bytes:
        self._step("say")
        return type(order).__name__.encode()

    def replies(self) -> bytes:
        self._step("replies")
        return b""

    def contains(self, input_id: str) -> bool | None:
        return None


class FakeServer(Link):
    """Takes facts, or says what the test wants said instead."""

    def __init__(self) -> None:
        self.facts: dict[str, list[f.RunnerFact]] = defaultdict(list)
        self.posts = 0
        self.says: dict[str, Exception] = {}  # by session
        self.poison = ""  # no batch can be taken that has this word in it
        self.lost: list[int] = []  # the holes that it was told of

    async def post(self, facts: FactsPost) -> FactsReply:
        self.posts += 1
        await asyncio.sleep(0)
        if facts.session in self.says:
            raise self.says[facts.session]
        if self.poison and self.poison in map(_word, facts.facts):
            raise Refused("malformed", "It cannot be read.")
        known = self.facts[f"{facts.session} {facts.of or facts.epoch}"]
        if (hole := facts.first - len(known)) > 0:
            if facts.lost < hole:
                raise Refused("gap", "Facts are missing.", next=len(known))
            self.lost.append(hole)
            known += [f.Gap(source=len(known), target=facts.first - 1, reason="lost")] * hole
        known += facts.facts[len(known) - facts.first :]
        return FactsReply(next=len(known))

    def words(self) -> list[str]:
        """What the runtime of `SESSION` said, and what stands in the place of what could not be told."""
        return [word for fact in self.facts[f"{SESSION} 1"] if (word := _word(fact))]

    def kinds(self, session: str = SESSION, epoch: int = 1) -> list[str]:
        return [type(fact).__name__ for fact in self.facts[f"{session} {epoch}"]]


def _word(fact: f.RunnerFact) -> str:
    return fact.text if isinstance(fact, f.AssistantMessage) else fact.code if isinstance(fact, f.Error) else ""


class Shell:
    """The real loop and machine among stand-ins, with a clock that the test turns."""

    def __init__(self, root: Path) -> None:
        self.folders, self.server, self.driver = GatedFolders(root), FakeServer(), FakeDriver()
        self.now, self.root = 1000.0, root
        self.spools = Spools(root, "boot-1", "kernel-1")
        self.loop = Loop(
            self.server, self.folders, {"scripted": self.driver}, CHOICE, self.spools, (), lambda: self.now
        )
        self.gateway = self.loop.gateway = Gateway(self.loop.called, self.loop.heard, "http://127.0.0.1:9", "")
        self.processes: list[FakeProcess] = []
        self.may_spawn = asyncio.Event()
        self.may_spawn.set()
        self.spawn_says: Refused | None = None

    async def spawn(self, *_: object, **__: object) -> FakeProcess:
        await self.may_spawn.wait()
        if self.spawn_says:
            raise self.spawn_says
        self.processes.append(FakeProcess())
        return self.processes[-1]

    def restart(self) -> None:
        """The next process on the same root."""
        Layout(self.root, SESSION).create(CHOICE.uid_outside)
        self.spools = Spools(self.root, "boot-2", "kernel-1")
        self.loop = Loop(
            self.server, self.folders, {"scripted": self.driver}, CHOICE, self.spools, self.spools.found(),
            lambda: self.now,
        )  # fmt: skip
        self.gateway = self.loop.gateway = Gateway(self.loop.called, self.loop.heard, "http://127.0.0.1:9", "")

    def grant(
        self, epoch: int = 1, session: str = SESSION, adopted_from: int = 0, tail_n: int = 0, **more: Any
    ) -> None:
        given = Granted(
            session=session, epoch=epoch, ttl_s=120, margin_s=40, job=job(**more), adopted_from=adopted_from,
            tail_n=tail_n,
        )  # fmt: skip
        self.loop.synced(SyncReply(grants=(given,)), self.now)

    def lose(self, epoch: int = 1, session: str = SESSION) -> None:
        self.loop.synced(SyncReply(lost=(Gone(session=session, epoch=epoch, reason="gone"),)), self.now)

    def park(self, epoch: int = 1, session: str = SESSION) -> None:
        news = News(session=session, epoch=epoch, parking="the window is over")
        self.loop.synced(SyncReply(commands=(news,)), self.now)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.loop.perform(self.loop.machine.tick(self.now))

    @property
    def tokens(self) -> list[int]:
        """Epochs whose token opens the gateway."""
        return [seat.epoch for seat in self.gateway._seats.values()]

    @property
    def empty(self) -> bool:
        """Whether nothing of any session is left in the shell."""
        return not (self.loop.machine.runs or self.loop._hosted or self.loop._tasks or self.tokens)
