"""What bide is measured beside: the same bytes, put into the same databases by the shortest program that can.

None of them decides, numbers, fences or answers anything; two write as many events at once as they like.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import asyncpg

from bench import story
from bide.core.codec import encode_fact

GROUP = 2000  # events of one commit: 200 sessions' batches, which is what a group commit of bide's can hold
CONNECTIONS = 16  # of those that commit each request by itself
Contender = Callable[[float], Awaitable[float]]  # seconds -> events per second

_COLUMNS = ("session", "seq", "id", "epoch", "n", "time", "type", "turn", "actor", "version", "body")
_SQLITE = """
create table event (
  session text not null, seq integer not null, id text not null, epoch integer not null, n integer not null,
  time real not null, type text not null, turn integer not null, actor text not null, version integer not null,
  body blob not null, primary key (session, seq)
) strict, without rowid
"""
_POSTGRES = """
create table event (
  session text not null, seq bigint not null, id text not null, epoch bigint not null, n bigint not null,
  time double precision not null, type text not null, turn bigint not null, actor text not null,
  version integer not null, body bytea not null, primary key (session, seq)
);
create table session (id text primary key, last_seq bigint not null, body bytea not null);
"""
_REQUEST = """
with moved as (
  update session set last_seq = last_seq + cardinality($2::bytea[]), body = $3 where id = $1 returning last_seq
)
insert into event (session, seq, id, epoch, n, time, type, turn, actor, version, body)
select $1, moved.last_seq - cardinality($2::bytea[]) + place, gen_random_uuid()::text, 1, place, 0.0,
  'assistant.message', 1, 'runtime', 1, given.body
from moved, unnest($2::bytea[]) with ordinality as given (body, place)
"""
_BODIES = [encode_fact(fact) for fact in story.FACTS]
_STATE = b"{" + b"s" * 1500 + b"}"  # about what a session's row holds


def _groups() -> Iterator[list[tuple[Any, ...]]]:
    """The rows of one commit after another: every session's next batch."""
    sessions = [story.create(time.time(), n)[0] for n in range(story.SESSIONS)]
    seq = 0
    while True:
        yield [
            (s, seq + place, f"{s[:28]}{seq + place:08x}", 1, seq, 0.0, "assistant.message", 1, "runtime", 1, body)
            for s in sessions
            for place, body in enumerate(_BODIES)
        ][:GROUP]
        seq += len(_BODIES)


@asynccontextmanager
async def sqlite(path: Path) -> AsyncIterator[Contender]:
    """`apsw`: one connection, WAL, FULL, a group in each commit."""
    database = apsw.Connection(str(path))
    database.execute("pragma journal_mode = wal; pragma synchronous = full")
    database.execute(_SQLITE)
    groups = _groups()
    insert = f"insert into event values ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608 - our own words

    def run(seconds: float) -> float:
        count, began = 0, time.perf_counter()
        while time.perf_counter() < began + seconds:
            rows = next(groups)
            with database:
                database.executemany(insert, rows)
            count += len(rows)
        return count / (time.perf_counter() - began)

    try:
        yield lambda seconds: asyncio.to_thread(run, seconds)
    finally:
        database.close()


@asynccontextmanager
async def copied(url: str) -> AsyncIterator[Contender]:
    """asyncpg: one connection, a group by COPY in each transaction."""
    connection = await asyncpg.connect(url)
    await connection.execute(_POSTGRES)
    groups = _groups()

    async def run(seconds: float) -> float:
        count, began = 0, time.perf_counter()
        while time.perf_counter() < began + seconds:
            rows = next(groups)
            await connection.copy_records_to_table("event", records=rows, columns=_COLUMNS)
            count += len(rows)
        return count / (time.perf_counter() - began)

    try:
        yield run
    finally:
        await connection.close()


@asynccontextmanager
async def one_by_one(url: str) -> AsyncIterator[Contender]:
    """asyncpg: a pool, one transaction of one statement for each request."""
    pool = await asyncpg.create_pool(url, min_size=CONNECTIONS, max_size=CONNECTIONS)
    sessions = [story.create(time.time(), n)[0] for n in range(story.SESSIONS)]
    await pool.execute(_POSTGRES)
    await pool.executemany("insert into session values ($1, 0, $2)", [(session, _STATE) for session in sessions])

    async def tell(session: str, until: float) -> int:
        count = 0
        while time.perf_counter() < until:
            await pool.execute(_REQUEST, session, _BODIES, _STATE)
            count += len(_BODIES)
        return count

    async def run(seconds: float) -> float:
        began = time.perf_counter()
        counts = await asyncio.gather(*(tell(session, began + seconds) for session in sessions))
        return sum(counts) / (time.perf_counter() - began)

    try:
        yield run
    finally:
        await pool.close()
