"""Events per second into the store of one process, beside what its databases take of the same bytes from bare hands.

python -m bench.ingest
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import uvloop
from msgspec import Struct

from bench import peers, story
from bench.board import SCALE, Board, median, show, tell
from bench.places import folder, postgres
from bide.server.serve import open_engine
from bide.store.threaded import Store

ROUNDS = 3
ROUND_S = max(0.3, 2.5 * SCALE)
SQLITE_EPS, POSTGRES_EPS = 20_000, 40_000  # the targets


class _Callers:
    """Many runners at once, each of which sends a session's next batch once the one before is stored."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._places: dict[str, tuple[int, int]] = {}  # session -> epoch, n

    async def begin(self) -> None:
        """Sessions whose turn is open."""
        for n in range(story.SESSIONS):
            session_id, command = story.create(self._store.now(), n)
            await self._store.handle(session_id, command)
            await self._store.handle(session_id, story.grant())
            opening = story.report(1, 0, story.opening(command.input_id))
            done = await self._store.handle(session_id, opening)
            self._places[session_id] = (done.session.epoch, done.session.n)

    async def run(self, seconds: float) -> float:
        """Events per second over about so many seconds."""
        began = time.perf_counter()
        counts = await asyncio.gather(*(self._tell(session_id, began + seconds) for session_id in self._places))
        return sum(counts) / (time.perf_counter() - began)

    async def _tell(self, session_id: str, until: float) -> int:
        epoch, begun = self._places[session_id]
        n = begun
        while time.perf_counter() < until:
            done = await self._store.handle(session_id, story.report(epoch, n, story.FACTS))
            assert done.session.n == n + story.BATCH, "every fact is stored"
            n = done.session.n
        self._places[session_id] = (epoch, n)
        return n - begun


@asynccontextmanager
async def _bide(database: str) -> AsyncIterator[peers.Contender]:
    """The store as the server has it."""
    store = Store(open_engine(database))
    try:
        callers = _Callers(store)
        await callers.begin()
        yield callers.run
    finally:
        await store.close()


class Speed(Struct, frozen=True):
    """Events a second, and what each costs this process: microseconds of processor, the database's own left out."""

    eps: float
    cost_us: float


async def _race(inside: Path, urls: list[str]) -> dict[str, Speed]:
    """Every contender's middle round; they take turns, so that a slow moment of the machine meets all alike."""
    async with AsyncExitStack() as stack:
        contenders = {
            "sqlite": _bide(f"sqlite:{inside / 'bide.sqlite'}"),
            "apsw": peers.sqlite(inside / "peer.sqlite"),
            "postgres": _bide(urls[0]),
            "copy": peers.copied(urls[1]),
            "one by one": peers.one_by_one(urls[2]),
        }
        ready = {name: await stack.enter_async_context(contender) for name, contender in contenders.items()}
        rounds: dict[str, list[Speed]] = {name: [] for name in ready}
        for turn in range(ROUNDS):
            for name, run in ready.items():
                cpu, began = time.process_time(), time.perf_counter()
                eps = await run(ROUND_S)
                count = eps * (time.perf_counter() - began)
                rounds[name].append(Speed(eps, (time.process_time() - cpu) / count * 1e6))
                tell(f"ingest, round {turn + 1}: {name} {eps:,.0f} events/s")
    return {
        name: Speed(median([one.eps for one in speeds]), median([one.cost_us for one in speeds]))
        for name, speeds in rounds.items()
    }


def measure(board: Board) -> None:
    """Fills the board's rows on ingest."""
    with folder() as inside, postgres(inside) as server:
        found = uvloop.run(_race(inside, [server.url(server.create()) for _ in range(3)]))
    sqlite, embedded, fleet, copy, single = (
        found[name] for name in ("sqlite", "apsw", "postgres", "copy", "one by one")
    )
    board.figures |= {"sqlite_ingest_eps": sqlite.eps, "postgres_ingest_eps": fleet.eps}
    board.least("ingest, SQLite", sqlite.eps, SQLITE_EPS, "events/s")
    board.beside("ingest, SQLite", sqlite.eps, embedded.eps, "bare apsw, group commit", "events/s")
    board.beside("processor time of an event, SQLite", sqlite.cost_us, embedded.cost_us, "bare apsw", "µs")
    board.least("ingest, PostgreSQL", fleet.eps, POSTGRES_EPS, "events/s")
    board.beside("ingest, PostgreSQL", fleet.eps, copy.eps, "bare COPY, group commit", "events/s")
    board.beside("ingest, PostgreSQL", fleet.eps, single.eps, "a transaction for each request", "events/s")
    board.beside("processor time of an event, PostgreSQL", fleet.cost_us, copy.cost_us, "bare COPY", "µs")


if __name__ == "__main__":
    show(measure)
