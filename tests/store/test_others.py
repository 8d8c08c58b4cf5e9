"""Two servers on one database: what one does, the other's viewers and runners hear of, also where a hint got lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from bide.core import facts as f
from bide.core.limits import STORE_LOOK_S
from bide.core.refusals import Unavailable
from bide.store import others
from bide.store.base import Engine
from bide.store.postgres import PostgresStore
from bide.store.postgres_reader import SQL
from bide.store.threaded import Store
from bide.store.wakeups import QUEUE, Subscription
from tests.store.postgres_server import PostgresServer
from tests.store.story import create, do, grant, report, runner, say, uid, words

SOON_S = 30.0  # far more than anything here takes


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def distant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks: only what is heard is known."""
    monkeypatch.setattr(others, "STORE_LOOK_S", 3600.0)


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """No hint reaches anybody."""
    monkeypatch.setitem(SQL, "notify", "select $1::text")


@pytest.fixture
async def servers(database: str) -> AsyncIterator[tuple[Store, Store]]:
    """Two, both of which listen already."""
    stores = Store(PostgresStore(database)), Store(PostgresStore(database))
    for store in stores:
        await until(lambda store=store: store._others is not None and store._others._listener is not None)  # type: ignore[misc]
    yield stores
    for store in stores:
        await store.close()


async def until(holds: Callable[[], Any]) -> None:
    end = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


async def rung(listener: Subscription, name: str) -> None:
    """Waits until the name is rung, and not merely everything."""
    end = time.monotonic() + SOON_S
    while name not in (await listener.wait(SOON_S)).sessions:
        assert time.monotonic() < end, "it was never rung"


async def told_all(there: Store, here: Store) -> None:
    """Waits until one has heard everything that the other told so far: it is heard in order."""
    with here.subscribe("the end") as end:
        there.changed("the end")
        await rung(end, "the end")


async def test_a_viewer_of_one_server_hears_at_once_of_what_another_did(
    distant: None, servers: tuple[Store, Store]
) -> None:
    here, there = servers
    s = (await there.handle(uid("session"), create())).session
    await told_all(there, here)
    with here.subscribe(s.id) as viewer, here.subscribe(uid("other")) as stranger, here.subscribe(QUEUE) as waiting:
        await there.handle(s.id, say(1))
        await rung(viewer, s.id)
        await there.handle(uid("another"), create(1))
        await rung(waiting, QUEUE)
        there.changed("runner x", uid("other"))
        await rung(stranger, uid("other"))
        await told_all(there, here)
        assert not (await viewer.wait(0)).sessions
        assert not (await waiting.wait(0)).sessions


async def test_a_runner_hears_of_work_that_another_server_queued_and_of_nothing_else(
    distant: None, servers: tuple[Store, Store]
) -> None:
    here, there = servers
    with here.subscribe(QUEUE) as waiting, there.subscribe(QUEUE) as local:
        s = (await there.handle(uid("session"), create())).session
        await rung(waiting, QUEUE)
        assert (await local.wait(SOON_S)).sessions == {QUEUE}
        s = (await there.handle(s.id, grant())).session
        started = (f.EnvironmentRestored(source="fresh"), f.TurnStarted(input_ids=()))
        s = (await there.handle(s.id, report(s, *started, *words(3)))).session
        await told_all(there, here)
        assert not (await waiting.wait(0)).sessions


async def test_what_a_server_did_itself_it_hears_once(distant: None, servers: tuple[Store, Store]) -> None:
    here, there = servers
    with here.subscribe(uid("session"), QUEUE) as both:
        await here.handle(uid("session"), create())
        assert (await both.wait(SOON_S)).sessions == {uid("session"), QUEUE}
        await told_all(here, there)
        await told_all(there, here)
        assert not (await both.wait(0)).sessions


async def test_a_hint_that_got_lost_is_made_up_for_by_a_look(deaf: None, servers: tuple[Store, Store]) -> None:
    here, there = servers
    s = (await there.handle(uid("session"), create())).session
    with here.subscribe(s.id, QUEUE) as viewer:
        await rung(viewer, s.id)  # it is new here
        for n in range(2):
            await there.handle(s.id, say(n))
            began = time.monotonic()
            await rung(viewer, s.id)
            assert time.monotonic() - began < STORE_LOOK_S + SOON_S / 10
        await here.handle(s.id, say("mine"))
        await rung(viewer, s.id)
        assert not (await viewer.wait(2.5 * STORE_LOOK_S)).sessions, "nothing new, nobody is woken"


async def test_a_listener_that_is_cut_off_comes_back_and_everything_is_looked_at(
    distant: None, servers: tuple[Store, Store], postgres: PostgresServer
) -> None:
    here, there = servers
    s = (await there.handle(uid("session"), create())).session
    with here.subscribe(s.id) as viewer:
        assert here._others is not None
        lost = here._others._listener
        assert lost is not None
        pid = lost._link.pid  # type: ignore[attr-defined]
        await asyncio.to_thread(postgres.execute, "postgres", "select pg_terminate_backend($1)", pid)
        while not (await viewer.wait(SOON_S)).everything:
            pass
        await there.handle(s.id, say(1))
        await rung(viewer, s.id)


async def test_two_servers_that_change_one_document_lose_no_change(servers: tuple[Store, Store]) -> None:
    await servers[0].put("count", "n", b"0")

    def more(engine: Engine) -> None:
        engine.put("count", "n", str(int(engine.get("count", "n") or b"") + 1).encode())

    await asyncio.gather(*(store.write(more) for store in servers for _ in range(20)))
    assert await servers[0].get("count", "n") == b"40"


async def test_a_runner_replaced_on_one_server_is_not_heard_by_the_other(servers: tuple[Store, Store]) -> None:
    here, there = servers
    await here.put_runner(runner("r1", boot="1"))
    assert await there.hear(runner("r1", boot="1", slots_free=1))
    await here.put_runner(runner("r1", boot="2"))
    assert not await there.hear(runner("r1", boot="1", slots_free=3))
    assert await there.hear(runner("r1", boot="2", slots_free=2))
    assert [r.slots_free for r in await here.runners()] == [2]


async def test_many_writers_on_two_servers_leave_whole_logs(servers: tuple[Store, Store]) -> None:
    sessions = [uid("session", n) for n in range(20)]
    await asyncio.gather(*(store.handle(s, create(n)) for n, s in enumerate(sessions) for store in servers))
    await asyncio.gather(
        *(store.handle(s, say((n, index))) for n in range(5) for index, store in enumerate(servers) for s in sessions)
    )
    for s in sessions:
        assert [e.seq for e in await servers[0].events(s, 0, 99)] == list(range(1, 14))


async def test_a_server_closes_while_its_database_is_away() -> None:
    own = PostgresServer()
    try:
        await asyncio.to_thread(own.start)
        engine = PostgresStore(own.url(await asyncio.to_thread(own.create)))
        do(engine, uid("session"), create())
        store = Store(engine)
        await store.session(uid("session"))
        await asyncio.to_thread(own.kill)
        with pytest.raises(Unavailable):
            await store.handle(uid("session"), say(1))
        with pytest.raises(Unavailable):
            await store.session(uid("session"))
        async with asyncio.timeout(SOON_S):
            await store.close()
    finally:
        own.remove()


async def test_a_listener_that_breaks_in_an_unknown_way_is_replaced(
    distant: None, servers: tuple[Store, Store], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, there = servers
    listener, broken = PostgresStore.listener, [RuntimeError("unheard of"), ValueError("never seen")]

    def breaks(self: PostgresStore) -> Any:
        if broken:
            raise broken.pop()
        return listener(self)

    monkeypatch.setattr(PostgresStore, "listener", breaks)
    here = Store(PostgresStore(database))
    try:
        await until(lambda: here._others is not None and here._others._listener is not None)
        await told_all(there, here)
    finally:
        await here.close()
