"""A million parked sessions: what a claim and a look for due sessions cost beside them, and the server's memory.

python -m bench.parked
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import uvloop
from msgspec import Struct

from bench import story
from bench.board import Board, median, number, scaled, show, tell
from bench.crowd import Where
from bench.filling import begin, fill_postgres, fill_sqlite, park_one
from bench.places import Serving, folder, postgres, serving
from bide.core.handle import handle
from bide.core.limits import QUEUE_PAGE
from bide.server.serve import open_engine
from bide.store.base import Engine, Page, perform_one

PARKED = scaled(1_000_000, 10_000)
DUE = 100
QUEUED = 20
REPEATS = 100
LEASE_S = 30.0
SCAN_MS, CLAIM_MS = 5.0, 5.0  # the targets
REQUESTS = 50
MEMORY_SHARE = 1.1  # "unchanged": what one server's memory differs by from run to run


class Costs(Struct, frozen=True):
    """Milliseconds, middle values of many repeats."""

    idle_scan: float
    due_scan: float
    claim: float
    page: float


def costs(engine: Engine) -> Costs:
    """Asks what the waker and a runner's claim ask, as often as gives a steady figure."""
    idle = _middle(lambda: engine.claim_due(engine.now(), DUE, LEASE_S))
    page = _middle(lambda: engine.sessions(Page(limit=50)))
    for n in range(DUE):
        begin(engine, n, LEASE_S)
    moment = engine.now()
    scans: list[float] = []
    for _ in range(REPEATS):
        moment += 2 * LEASE_S  # everything that was claimed before is due again
        began = time.perf_counter()
        due = engine.claim_due(moment, DUE, LEASE_S)
        scans.append(time.perf_counter() - began)
        assert len(due) == DUE, f"{len(due)} are due"
    return Costs(idle_scan=idle, due_scan=median(scans) * 1000, claim=_claims(engine), page=page)


def _claims(engine: Engine) -> float:
    """From a runner's question for work to the lease in the log, where a few sessions wait."""
    for n in range(QUEUED):
        _enqueue(engine, DUE + n)
    took: list[float] = []
    for n in range(REPEATS):
        began = time.perf_counter()
        found = engine.queued("default", ("scripted",), None, QUEUE_PAGE)
        perform_one(engine, partial(handle, found[0].id, story.grant()))
        took.append(time.perf_counter() - began)
        _enqueue(engine, DUE + QUEUED + n)
        assert len(found) == QUEUED, f"{len(found)} wait"
    return median(took) * 1000


def _enqueue(engine: Engine, n: int) -> None:
    session_id, command = story.create(engine.now(), n)
    perform_one(engine, lambda: handle(session_id, command))


def _middle(ask: Callable[[], object]) -> float:
    took: list[float] = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        ask()
        took.append(time.perf_counter() - began)
    return median(took) * 1000


async def _visit(server: Serving) -> None:
    """What people and machines look at all day."""
    line = await Where(server.host, server.port, server.token).line()
    for path in ("/healthz", "/readyz", "/metrics", "/v1/sessions?limit=50", "/v1/runners"):
        for _ in range(REQUESTS):
            await line.ask("GET", path)
    line.close()


def memory(inside: Path, database: str) -> float:
    """Resident MiB of a server that was asked a few hundred things."""
    with serving(inside, database) as server:
        uvloop.run(_visit(server))
        return server.rss()


def _on_postgres(inside: Path) -> tuple[Costs, float, float]:
    with postgres(inside, wal_level="minimal") as server:
        empty, full = (server.url(server.create()) for _ in range(2))
        none = memory(inside, empty)
        with closing(open_engine(full)) as engine:
            template = park_one(engine)
            began = time.monotonic()
            fill_postgres(full, template, PARKED)
            tell(f"parked: PostgreSQL filled in {time.monotonic() - began:.0f} s")
            found = costs(engine)
        return found, none, memory(inside, full)


def _on_sqlite(inside: Path) -> tuple[Costs, float]:
    path = inside / "parked.sqlite"
    with closing(open_engine(f"sqlite:{path}")) as engine:
        template = park_one(engine)
    began = time.monotonic()
    fill_sqlite(path, template, PARKED)
    tell(f"parked: SQLite filled in {time.monotonic() - began:.0f} s")
    with closing(open_engine(f"sqlite:{path}")) as engine:
        found = costs(engine)
    return found, memory(inside, f"sqlite:{path}")


def measure(board: Board) -> None:
    """Fills the board's rows on parked sessions."""
    many = f"{number(PARKED)} parked"
    with folder() as inside:
        on_postgres, none, full = _on_postgres(inside)
    with folder() as inside:
        on_sqlite, embedded = _on_sqlite(inside)
    for name, found in (("PostgreSQL", on_postgres), ("SQLite", on_sqlite)):
        board.most(f"look for due sessions, none due, {many}, {name}", found.idle_scan, SCAN_MS, "ms")
        board.most(f"claim {DUE} due sessions, {many}, {name}", found.due_scan, SCAN_MS, "ms")
        board.most(f"claim a queued session, {many}, {name}", found.claim, CLAIM_MS, "ms")
        board.note(f"list the newest 50, {many}, {name}", found.page, "ms")
    board.most(f"server memory, {many}, PostgreSQL", full, none * MEMORY_SHARE, "MiB")
    board.note("server memory, none parked, PostgreSQL", none, "MiB")
    board.note(f"server memory, {many}, SQLite", embedded, "MiB")
    board.figures |= {
        "claim_ms_1m": on_postgres.claim,
        "due_ms_1m": on_postgres.idle_scan,
        "due_100_ms_1m": on_postgres.due_scan,
        "sqlite_claim_ms_1m": on_sqlite.claim,
        "sqlite_due_ms_1m": on_sqlite.idle_scan,
        "sqlite_due_100_ms_1m": on_sqlite.due_scan,
        "rss_mb_0": none,
        "rss_mb_1m": full,
        "sqlite_rss_mb_1m": embedded,
    }


if __name__ == "__main__":
    show(measure)
