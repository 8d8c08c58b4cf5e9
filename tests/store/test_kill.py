"""A server that is killed at any moment loses nothing that it said was kept."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bide.core.session import Session
from bide.store.base import Engine
from bide.store.postgres import PostgresStore
from bide.store.rows import session_of
from bide.store.sqlite import SqliteStore
from tests.store.story import uid
from tests.store.writer import SESSIONS

ROOT = Path(__file__).resolve().parents[2]
KILLS = 6
WRITES_S = 0.25  # each writer lives up to this long after its first word
FIRST_WORD_S = 30.0


def write_and_die(database: str, chance: random.Random) -> dict[str, int]:
    """What the writer acknowledged before it was killed in the midst of its work: session -> highest seq."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.store.writer", database], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline()]
        assert lines[0], "the writer started"
        end = time.monotonic() + chance.uniform(0, WRITES_S)
        while time.monotonic() < end:
            lines.append(process.stdout.readline())
    finally:
        process.kill()
        rest = process.stdout.read()
        process.stdout.close()
        assert process.wait(FIRST_WORD_S) == -9
    whole = ("".join(lines) + rest).split("\n")[:-1]  # the last line may be half said
    acknowledged: dict[str, int] = {}
    for line in whole:
        session, seq = line.split()
        acknowledged[session] = int(seq)
    return acknowledged


def rebuilt(store: Engine, s: Session) -> Session:
    return session_of(store.events(s.id, 0, s.last_seq + 1), s.lease.until if s.lease else None)


def survives(database: str, opened: Callable[[], Engine]) -> None:
    chance, total = random.Random(7), 0
    for _ in range(KILLS):
        acknowledged = write_and_die(database, chance)
        assert acknowledged
        store = opened()
        for n in range(SESSIONS):
            s = store.session(uid("session", n))
            assert s is not None
            assert s.last_seq >= acknowledged.get(s.id, 0), "an acknowledged event is gone"
            assert [e.seq for e in store.events(s.id, 0, 1_000_000)] == list(range(1, s.last_seq + 1))
            assert rebuilt(store, s) == s
            assert {p.id for p in s.inputs} <= {row.id for row in store.inputs(s.id)}
            total = max(total, s.last_seq)
        store.close()
    assert total > 50, "the writer was killed in the midst of work, not before it"


def test_a_killed_server_keeps_every_event_it_acknowledged_and_the_log_has_no_hole(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    survives(str(path), lambda: SqliteStore(path, time.time))


def test_a_killed_server_of_a_fleet_keeps_every_event_it_acknowledged(database: str) -> None:
    survives(database, lambda: settled(PostgresStore(database)))


def settled(store: PostgresStore) -> PostgresStore:
    """Once the database has noticed that the killed one is gone: until then it may still commit what it was told."""
    others = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    end = time.monotonic() + FIRST_WORD_S
    while store._link.fetch(others + " and backend_type = 'client backend'")[0][0]:
        assert time.monotonic() < end
        time.sleep(0.01)
    return store
