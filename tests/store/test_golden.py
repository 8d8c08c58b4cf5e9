"""What a release has kept, every later one reads: its facts, its database, its sessions go on."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from bide.core.codec import decode_fact, encode_fact
from bide.core.handle import Done
from bide.core.limits import REFILE_ROWS
from bide.core.refusals import Refused
from bide.core.session import VERSION
from bide.store import sqlite
from bide.store.base import Page
from bide.store.rows import session_of
from bide.store.sqlite import POSTS, SqliteStore
from tests.store.golden.record import FOLDER, Kept, Was, was
from tests.store.story import START, Clock, create, do, inbox_of, job, say, uid

RELEASES = sorted((path for path in FOLDER.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
by_release = pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)


@pytest.fixture
def store(release: Path, tmp_path: Path) -> SqliteStore:
    """A copy of the release's database, opened when its sessions were recorded."""
    shutil.copy(release / "bide.sqlite", tmp_path / "bide.sqlite")
    clock = Clock()
    clock.time = START + 3600
    return SqliteStore(tmp_path / "bide.sqlite", clock)


def holds(now: Any, before: Any) -> bool:
    """Whether everything that was said is still said; more may be."""
    if isinstance(before, dict):
        return all(holds(now.get(name), value) for name, value in before.items())
    if isinstance(before, list):
        return len(now) == len(before) and all(map(holds, now, before))
    return bool(now == before)


def test_the_first_release_is_kept() -> None:
    assert [path.name for path in RELEASES][:1] == ["1"]


@by_release
def test_every_fact_that_a_release_wrote_is_read_and_says_the_same(release: Path) -> None:
    lines = [msgspec.json.decode(line, type=Kept) for line in (release / "facts.jsonl").read_bytes().splitlines()]
    for kept in lines:
        before, now = (
            msgspec.json.decode(kept.fact),
            msgspec.json.decode(encode_fact(decode_fact(kept.fact, kept.version))),
        )
        assert holds(now, before), f"{before['type']} of release {release.name} says something else now"


@by_release
def test_every_session_that_a_release_wrote_is_what_it_was(release: Path, store: SqliteStore) -> None:
    kept = msgspec.json.decode((release / "sessions.json").read_bytes(), type=dict[str, Was])
    found = store.sessions(Page(limit=1000))
    assert {s.id: was(store, s) for s in found} == kept
    for s in found:
        assert session_of(store.events(s.id, 0, 10_000), s.lease.until if s.lease else None) == s
    assert {s.lifecycle.value for s in found} == {"queued", "active", "parked", "ended"}
    store.close()


@by_release
def test_every_session_that_a_release_wrote_goes_on(release: Path, store: SqliteStore) -> None:
    sessions = [s.id for s in store.sessions(Page(limit=1000))]
    for session in sessions:
        assert isinstance(do(store, session, say("now", "go on")), Done)
    store.close()


@by_release
def test_questions_that_a_release_wrote_stand_in_the_inbox_where_they_belong(release: Path, tmp_path: Path) -> None:
    """Also those that it writes after this one was there: an update may be taken back."""
    shutil.copy(release / "bide.sqlite", tmp_path / "bide.sqlite")
    database = apsw.Connection(str(tmp_path / "bide.sqlite"))
    kept = [body for (body,) in database.execute("select body from question")]
    kinds = list(itertools.product((True, False), ("low", "high", "medium")))
    written = [
        msgspec.json.encode(
            msgspec.json.decode(kept[n % len(kept)]) | {"id": uid("late", n), "blocking": blocking, "impact": impact}
        )
        for n, (blocking, impact) in enumerate((*kinds, *kinds))
    ]
    add = "insert into question (id, session, status, asked_at, body) values (?, 's', 'open', ?, cast(? as blob))"

    def write(bodies: list[bytes]) -> None:
        for body in bodies:
            said = msgspec.json.decode(body)
            database.execute(add, (said["id"], said["asked_at"], body))

    write(written[:6])
    SqliteStore(tmp_path / "bide.sqlite", Clock()).close()
    write(written[6:])
    database.close()
    store = SqliteStore(tmp_path / "bide.sqlite", Clock())
    found = inbox_of(store)
    assert len(found) == len(kept) + 12
    assert found == sorted(
        found, key=lambda q: (not q.blocking, ("high", "medium", "low").index(q.impact), q.asked_at, q.id)
    )
    store.close()


@by_release
def test_long_histories_are_filed_anew_one_by_one_so_that_nobody_waits_long_for_the_writer(
    release: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = [version for (version,) in store._db.execute("select version from session")]
    monkeypatch.setattr(sqlite, "REFILE_FACTS", 1)
    filed = [store.refile(10) for _ in (*versions, VERSION)]
    assert filed == [int(version != VERSION) for version in versions] + [0]
    store.close()


@by_release
def test_sessions_that_a_release_wrote_are_filed_as_this_one_files_them(release: Path, store: SqliteStore) -> None:
    fresh = do(store, uid("session", 99), create(99)).session
    before = {s.id: s for s in store.sessions(Page(limit=1000))}
    queue = [(s.queued_at, s.id) for s in store.queued(fresh.pool, [fresh.runtime], None, 1000)]
    due = [s for s in before.values() if s.lease is not None]
    assert store.refile(5) in (0, 5)
    while store.refile(REFILE_ROWS):
        pass
    assert [version for (version,) in store._db.execute("select distinct version from session")] == [VERSION]
    assert store.contract(store.schema) == len(POSTS), "and what only older releases needed can go"
    assert {s.id: s for s in store.sessions(Page(limit=1000))} == before
    assert [(s.queued_at, s.id) for s in store.queued(fresh.pool, [fresh.runtime], None, 1000)] == queue
    assert sorted(queue) == queue
    assert store.load()[fresh.pool].queued == len(queue) == sum(s.lifecycle == "queued" for s in before.values())
    assert store.load()[fresh.pool].held == len(due)
    assert {s.id for s in due} <= set(store.claim_due(START + 10**9, 1000, 1.0))
    (result,) = store.perform([job(fresh.id, say(" ", " "))])
    assert isinstance(result, Refused)
    store.close()
