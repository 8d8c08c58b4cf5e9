"""Runners and the sessions they hold, over HTTP: what a fleet would ask of the server, without any runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from bench import story
from bench.wire import Line, dial
from bide.core import facts as f
from bide.core.runtime import Runtime
from bide.core.wire import FactsPost, FactsReply, Held, Register, Registered, Sync, SyncReply

POLL_S = 20.0
CONNECTIONS = 8  # for what is only made ready


class _Session(Struct, frozen=True):
    id: str


class _Started(Struct, frozen=True):
    """The part of the answer to `POST /v1/sessions` that is needed."""

    session: _Session


class Where(Struct, frozen=True):
    """A server, and the owner's token."""

    host: str
    port: int
    token: str

    async def line(self, token: str = "") -> Line:
        """A connection to it."""
        return await dial(self.host, self.port, token or self.token)


class Lease(Struct):
    """A session that a runner holds, and how far it has told."""

    session: str
    epoch: int
    cursor: int
    prompt: str
    n: int = 0


class Voice:
    """One runner: registers, claims, keeps a sync open as a runner does, and tells facts."""

    def __init__(self, where: Where, name: str, slots: int) -> None:
        self._where, self._name, self._slots = where, name, slots
        self.leases: list[Lease] = []
        self._id = self._token = ""
        self._sync: Line | None = None
        self._syncing: asyncio.Task[None] | None = None

    async def register(self) -> None:
        """Becomes known to the server."""
        line = await self._where.line()
        ask = Register(
            name=self._name, slots=self._slots, isolation="bwrap", runtimes=(Runtime(name="scripted", version="1"),)
        )
        known = msgspec.json.decode(await line.ask("POST", "/v1/runners", ask), type=Registered)
        self._id, self._token = known.id, known.token
        line.close()
        self._sync = await self._where.line(self._token)
        await self._ask(0.0)

    async def claim(self, until: int) -> None:
        """Takes sessions until it holds so many."""
        while len(self.leases) < until:
            for granted in (await self._ask(1.0)).grants:
                self.leases.append(Lease(granted.session, granted.epoch, granted.job.cursor, granted.job.inputs[0].id))

    def renew(self) -> None:
        """Keeps asking from now on."""
        self._syncing = asyncio.ensure_future(self._keep_asking())

    def check(self) -> None:
        """Raises what ended its asking."""
        if self._syncing is not None and self._syncing.done():
            self._syncing.result()

    def close(self) -> None:
        """Stops asking."""
        if self._syncing is not None:
            self._syncing.cancel()
        if self._sync is not None:
            self._sync.close()

    async def line(self) -> Line:
        """Another connection of this runner."""
        return await self._where.line(self._token)

    async def tell(self, line: Line, lease: Lease, facts: Sequence[f.RunnerFact]) -> None:
        """Posts facts of one session, and returns once they are stored."""
        post = FactsPost(session=lease.session, epoch=lease.epoch, first=lease.n, facts=tuple(facts))
        reply = msgspec.json.decode(await line.ask("POST", f"/v1/runners/{self._id}/facts", post), type=FactsReply)
        lease.n += len(facts)
        assert reply.next == lease.n, "every fact is stored"

    async def _keep_asking(self) -> None:
        while True:
            reply = await self._ask(POLL_S)
            assert not reply.lost, reply.lost

    async def _ask(self, wait_s: float) -> SyncReply:
        assert self._sync is not None
        held = tuple(Held(session=one.session, epoch=one.epoch, cursor=one.cursor) for one in self.leases)
        sync = Sync(leases=held, free_slots=self._slots - len(held), wait_s=wait_s)
        return msgspec.json.decode(await self._sync.ask("POST", f"/v1/runners/{self._id}/sync", sync), type=SyncReply)


async def fleet(where: Where, runners: int, slots: int) -> list[Voice]:
    """So many runners with all their slots taken, and every session's turn open."""
    voices = [Voice(where, f"bench-{n}", slots) for n in range(runners)]
    for voice in voices:
        await voice.register()
    await create(where, runners * slots)
    await asyncio.gather(*(voice.claim(slots) for voice in voices))
    for voice in voices:
        line = await voice.line()
        for lease in voice.leases:
            await voice.tell(line, lease, story.opening(lease.prompt))
        line.close()
        voice.renew()
    return voices


async def create(where: Where, count: int) -> list[str]:
    """New sessions, which wait for a runner."""
    lines = [await where.line() for _ in range(CONNECTIONS)]
    body = {"repository": "https://example.org/bench.git", "runtime": "scripted", "prompt": "Measure."}

    async def some(line: Line, many: int) -> list[str]:
        made = [await line.ask("POST", "/v1/sessions", body) for _ in range(many)]
        line.close()
        return [msgspec.json.decode(one, type=_Started).session.id for one in made]

    parts = [len(range(place, count, CONNECTIONS)) for place in range(CONNECTIONS)]
    made = await asyncio.gather(*(some(line, many) for line, many in zip(lines, parts, strict=True)))
    return [session for part in made for session in part]
