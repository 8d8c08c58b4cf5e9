"""Rows of a SQLite file that this release did not write, or that a disk has spoiled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from bide.core.session import VERSION
from bide.store.sqlite import SqliteStore
from tests.store.story import Clock, begin, damaged_in_the_middle, do, report, runner, saved, say, whole, words


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bide.db"


@pytest.fixture
def store(path: Path, clock: Clock) -> Iterator[SqliteStore]:
    opened = SqliteStore(path, clock)
    yield opened
    opened.close()


def test_a_state_that_another_release_wrote_is_rebuilt_from_its_facts(
    store: SqliteStore, path: Path, clock: Clock
) -> None:
    sessions = [begin(store, n) for n in range(3)]
    s = do(store, sessions[0].id, report(sessions[0], *words(30, 2000), saved(sessions[0], 1))).session
    do(store, s.id, say(1))
    store.put_runner(runner("r1"))
    names = [each.id for each in sessions]
    before = whole(store, names, ["r1"])
    store.close()
    with closing(apsw.Connection(str(path))) as other:
        other.execute('update session set version = 0, body = cast(\'{"version":0,"gone":1}\' as blob)')
    again = SqliteStore(path, clock)
    assert whole(again, names, ["r1"]) == before
    rebuilt = again.session(s.id)
    assert rebuilt is not None
    do(again, s.id, report(rebuilt, *words(1)))
    again.close()
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as stored:
        row = stored.execute("select version, wake_at is not null from session where id = ?", (s.id,)).get
    assert row == (VERSION, True)


def test_a_damaged_row_is_shown_as_damaged_and_what_follows_it_is_read(store: SqliteStore, path: Path) -> None:
    def damage(session: str, seq: int) -> None:
        with closing(apsw.Connection(str(path))) as other:
            other.execute("update event set body = x'7b00ff' where session = ? and seq = ?", (session, seq))

    damaged_in_the_middle(store, damage)
