"""Several releases on one database: it is built once, used side by side, and brought up to date by all at once."""

from __future__ import annotations

import pytest

from bide.core.handle import Done
from bide.core.session import VERSION, Session
from bide.store import postgres
from bide.store.base import Page
from bide.store.postgres import STEPS, PostgresStore
from bide.store.statements import Step
from tests.store.fleet import Open, refusal, together
from tests.store.postgres_server import PostgresServer
from tests.store.story import begin, create, do, job, queue_of, say, uid


def test_many_servers_that_start_at_once_build_one_schema(own: PostgresServer) -> None:
    url = own.url(own.create())
    stores = together(*[lambda: PostgresStore(url)] * 4)
    begin(stores[0])
    for store in stores:
        assert len(store.sessions(Page(limit=9))) == 1
        store.close()


def test_a_step_of_the_schema_is_applied_once_and_all_or_none(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    opened()
    more = Step(number=len(STEPS) + 1, name="more", sql="create table more (id integer);")
    broken = Step(
        number=more.number + 1, name="broken", sql="create table again (id integer); create table more (x int);"
    )
    monkeypatch.setattr(postgres, "STEPS", (*STEPS, more, broken))
    with pytest.raises(Exception, match="already exists"):
        opened()
    monkeypatch.setattr(postgres, "STEPS", (*STEPS, more))
    for _ in range(2):
        store = opened()
        assert store._link.fetch("select count(*) from more")[0][0] == 0
        assert (store.schema, store._one("form")[0]) == (more.number, more.number)


def test_servers_of_two_releases_work_side_by_side_until_the_older_one_is_gone(
    opened: Open, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = opened()
    s = begin(old)
    more = Step(number=len(STEPS) + 1, name="more", sql="alter table session add column more text;")
    post = Step(number=more.number, name="more.post", sql="drop index session_held;")
    with monkeypatch.context() as newer:
        newer.setattr(postgres, "STEPS", (*STEPS, more))
        newer.setattr(postgres, "POSTS", (post,))
        new, another = opened(), opened()
        do(new, s.id, say(1))
        do(old, s.id, say(2))
        assert old.session(s.id) == new.session(s.id)
        assert new.contract(old.schema) == 0, "the older server needs what it would take away"
        assert sorted(together(lambda: new.contract(more.number), lambda: another.contract(more.number))) == [0, 1]
        assert new.contract(more.number) == 0, "once"
    assert refusal(database).code == "store_newer"


def test_an_older_server_that_starts_again_while_newer_ones_run_is_let_in(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(
            postgres, "STEPS", (*STEPS, Step(number=len(STEPS) + 1, name="more", sql="create table more ();"))
        )
        opened()
    begin(opened())


def misfiled(store: PostgresStore, count: int) -> dict[str, Session]:
    sessions = {s.id: s for s in (begin(store, n) for n in range(count))}
    store._link.execute(
        "update session set version = 0, body = '{\"version\":0,\"gone\":1}', pool = '', runtime = '', wake_at = null,"
        " lifecycle = 'ended'"
    )
    return sessions


def test_what_another_release_wrote_is_read_as_it_is_and_filed_anew_by_all_servers_at_once(opened: Open) -> None:
    servers = [opened() for _ in range(3)]
    sessions = misfiled(servers[0], 40)
    assert {i: servers[1].session(i) for i in sessions} == sessions
    some = next(iter(sessions))
    assert do(servers[1], some, say(1)).session.id == some

    def refile(store: PostgresStore) -> int:
        count = 0
        while more := store.refile(3):
            count += more
        return count

    assert sum(together(*[lambda store=store: refile(store) for store in servers])) == 39
    rows = servers[0]._link.fetch("select version, lifecycle, pool, runtime, wake_at is not null from session")
    assert {tuple(row) for row in rows} == {(VERSION, "active", "default", "scripted", True)}
    assert len(servers[0].claim_due(servers[0].now() + 3600, 100, 1.0)) == 40


def test_long_histories_are_filed_anew_one_by_one_so_that_nobody_waits_long_for_a_lock(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    misfiled(store, 3)
    monkeypatch.setattr(postgres, "REFILE_FACTS", 1)
    assert [store.refile(10) for _ in range(4)] == [1, 1, 1, 0]


def test_a_session_of_a_later_release_that_cannot_be_read_stops_no_other(opened: Open) -> None:
    store = opened()
    sessions = list(misfiled(store, 3))
    store._link.execute(f"update event set body = '{{\"type\":\"from.the.future\"}}' where session = '{sessions[1]}'")
    store._link.execute(f"update session set version = {VERSION + 1} where id = '{sessions[2]}'")
    assert [store.refile(1) for _ in range(4)].count(1) == 2
    assert store.refile(10) == 0
    found = store._link.fetch("select id from session where version <> $1", VERSION)
    assert [row[0] for row in found] == [sessions[1]]


def test_a_session_that_cannot_be_read_is_not_in_the_way_of_the_others(opened: Open) -> None:
    store = opened()
    held = [begin(store, n).id for n in range(3)]
    waiting = [do(store, uid("session", n), create(n)).session.id for n in range(3, 6)]
    for session in (held[1], waiting[1]):
        store._link.execute(f"update session set version = {VERSION + 1} where id = '{session}'")
        store._link.execute(f"update event set body = '{{\"type\":\"from.the.future\"}}' where session = '{session}'")
    results = store.perform([job(session, say(n)) for n, session in enumerate(held)])
    assert [isinstance(result, Done) for result in results] == [True, False, True], "all three share a transaction"
    assert {s.id for s in store.leased_to("r1")} == {held[0], held[2]}
    assert {s.id for s in queue_of(store, page=10)} == {waiting[0], waiting[2]}
    assert {s.id for s in store.sessions(Page(limit=9))} == {*held, *waiting} - {held[1], waiting[1]}
