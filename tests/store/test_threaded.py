"""The store as the server uses it: many at once, one writer, and word to whoever waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bide.core.handle import Done
from bide.core.limits import STORE_GROUP_MAX, STORE_QUEUE_MAX, STORE_READS_MAX, WAKEUPS_MAX
from bide.core.refusals import Refused, Unavailable
from bide.store.base import Engine, Job, Page
from bide.store.memory import MemoryStore
from bide.store.postgres import PostgresStore
from bide.store.sqlite import SqliteStore
from bide.store.threaded import Store
from bide.store.wakeups import QUEUE, Hub, decided
from tests.store.branch_suite import fork, saves_twice
from tests.store.story import Clock, begin, create, grant, report, runner, say, uid, words

SOON_S = 10.0  # far more than anything here takes
QUEUED = ("default", ("scripted",), None, 100)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> Engine:
    if request.param == "postgres":
        return PostgresStore(request.getfixturevalue("database"), clock)
    return MemoryStore(clock) if request.param == "memory" else SqliteStore(tmp_path / "bide.db", clock)


@pytest.fixture
async def store(engine: Engine) -> AsyncIterator[Store]:
    store = Store(engine)
    yield store
    await store.close()


class Gate:
    """Keeps the writing thread busy until it is opened."""

    def __init__(self, store: Store) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self.held = asyncio.ensure_future(store.write(self._wait))

    def _wait(self, engine: Engine) -> None:
        self.reached.set()
        assert self.open.wait(SOON_S)

    async def __aenter__(self) -> None:
        await asyncio.sleep(0)
        assert await asyncio.to_thread(self.reached.wait, SOON_S)

    async def __aexit__(self, *error: object) -> None:
        self.open.set()
        await self.held


# -- writing and reading --------------------------------------------------------------------------------------------


async def test_what_was_written_is_read_at_once(store: Store, clock: Clock) -> None:
    done = await store.handle(uid("session"), create())
    assert await store.session(uid("session")) == done.session
    assert await store.events(uid("session"), 0, 10) == list(done.envelopes)
    assert [s.id for s in await store.queued(*QUEUED)] == [uid("session")]
    assert await store.sessions(Page(limit=5)) == [done.session]
    assert [row.id for row in await store.inputs(uid("session"))] == [uid("prompt", 0)]
    assert (await store.input(uid("session"), uid("prompt", 0))) is not None
    await store.put_runner(runner("r1"))
    await store.put("project", "p", b"{}")
    await store.put("project", "q", b"{}")
    await store.write(lambda engine: engine.delete("project", "q"))
    assert ([r.name for r in await store.runners()], await store.keys("project")) == (["r1"], ["p"])
    assert (await store.get("project", "p"), await store.get("project", "q")) == (b"{}", None)
    s = (await store.handle(uid("session"), grant())).session
    assert s.lease is not None
    assert [held.id for held in await store.leased_to("r1")] == [s.id]
    assert await store.claim_due(s.lease.until, 10, 5.0) == [s.id]
    assert (await store.runner(uid("runner", "r1")), await store.hear(runner("r1", boot="?"))) == (runner("r1"), False)
    assert (await store.last_seqs([s.id]), await store.queued(*QUEUED)) == ({s.id: s.last_seq}, [])
    await store.contract(store.schema)
    assert (await store.refile(10), await store.contract(store.schema)) == (0, 0)
    assert (await store.questions(s.id), await store.question(uid("q")), await store.checkpoints(s.id)) == (
        [],
        None,
        [],
    )
    assert (await store.inbox("open", None, 10), await store.questions_beginning("000000", "", 10)) == ([], [])
    assert store.now() == clock.time


async def test_a_refusal_reaches_the_one_who_asked(store: Store) -> None:
    with pytest.raises(Refused, match="no_session"):
        await store.handle(uid("nobody"), say(1))


async def test_several_reads_show_one_moment(store: Store) -> None:
    await store.handle(uid("session"), create())
    s, events = await store.read(lambda reader: (reader.session(uid("session")), reader.events(uid("session"), 0, 99)))
    assert s is not None
    assert s.last_seq == len(events)


async def test_a_bug_in_a_read_or_a_write_is_told_and_the_store_goes_on(store: Store) -> None:
    def breaks(engine: Any) -> None:
        raise ZeroDivisionError

    def runs_out(engine: Any) -> None:
        raise StopIteration

    for ask in (store.read, store.write):
        with pytest.raises(ZeroDivisionError):
            await ask(breaks)
        with pytest.raises(RuntimeError):
            await ask(runs_out)
    await store.handle(uid("session"), create())


async def test_a_hundred_people_at_once_get_each_their_own_answer(store: Store) -> None:
    sessions = [uid("session", n) for n in range(100)]
    await asyncio.gather(*(store.handle(s, create(n)) for n, s in enumerate(sessions)))
    told = await asyncio.gather(
        *(store.handle(s, say(n)) for n in range(3) for s in sessions),
        *(store.handle(uid("nobody", n), say(n)) for n in range(50)),
        return_exceptions=True,
    )
    assert [type(t) for t in told] == [Done] * 300 + [Refused] * 50
    for s in sessions:
        assert [e.seq for e in await store.events(s, 0, 99)] == list(range(1, 7))


# -- groups and bounds ----------------------------------------------------------------------------------------------


class Counting(MemoryStore):
    """Counts the transactions."""

    groups: list[int]

    def perform(self, jobs: Sequence[Job]) -> list[Done | Refused | Exception]:
        self.groups.append(len(jobs))
        return super().perform(jobs)


async def test_what_waits_together_is_committed_together_and_the_rest_is_turned_away(clock: Clock) -> None:
    engine = Counting(clock)
    engine.groups = []
    store = Store(engine)
    async with Gate(store):
        asks = [asyncio.ensure_future(store.handle(uid("s", n), create(n))) for n in range(STORE_QUEUE_MAX - 1)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="wait for it already"):
            await store.handle(uid("one too many"), create())
    await asyncio.gather(*asks)
    assert sum(engine.groups) == STORE_QUEUE_MAX - 1
    assert max(engine.groups) == STORE_GROUP_MAX
    await store.handle(uid("one too many"), create())
    await store.close()


async def test_too_many_reads_are_turned_away_and_later_ones_served(clock: Clock, tmp_path: Path) -> None:
    store = Store(SqliteStore(tmp_path / "bide.db", clock))
    release = threading.Event()
    asks = [asyncio.ensure_future(store.read(lambda _: release.wait(SOON_S))) for _ in range(STORE_READS_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="wait for it already"):
        await store.queued(*QUEUED)
    release.set()
    assert all(await asyncio.gather(*asks))
    assert await store.queued(*QUEUED) == []
    await store.close()


async def test_who_stops_waiting_does_not_disturb_the_others(store: Store) -> None:
    async with Gate(store):
        gone = asyncio.ensure_future(store.handle(uid("session", 1), create(1)))
        stays = asyncio.ensure_future(store.handle(uid("session", 2), create(2)))
        await asyncio.sleep(0)
        gone.cancel()
    assert (await stays).session.id == uid("session", 2)
    assert await store.session(uid("session", 1)) is not None


async def test_closing_performs_what_was_accepted_and_takes_no_more(clock: Clock, tmp_path: Path) -> None:
    store = Store(SqliteStore(tmp_path / "bide.db", clock))
    asks = [asyncio.ensure_future(store.handle(uid("session", n), create(n))) for n in range(50)]
    await asyncio.sleep(0)
    await store.close()
    await store.close()
    assert len({done.session.id for done in await asyncio.gather(*asks)}) == 50
    with pytest.raises(Unavailable, match="closed"):
        await store.handle(uid("late"), create())
    with pytest.raises(Unavailable, match="closed"):
        await store.session(uid("late"))
    again = SqliteStore(tmp_path / "bide.db", clock)
    assert len(again.queued(*QUEUED)) == 50
    again.close()


async def test_whoever_counts_commits_and_fails_at_it_stops_no_write(clock: Clock, tmp_path: Path) -> None:
    store = Store(SqliteStore(tmp_path / "bide.db", clock))

    def breaks(jobs: int, seconds: float) -> None:
        raise RuntimeError("no room for a span")

    store.on_commit = breaks
    async with asyncio.timeout(SOON_S):
        for n in range(2):
            await store.handle(uid("session", n), create(n))
        assert await store.session(uid("session", 1)) is not None
        await store.close()


# -- wake-ups -------------------------------------------------------------------------------------------------------


async def test_who_waits_for_a_session_hears_of_it_and_of_no_other(store: Store) -> None:
    one, two = uid("session", 1), uid("session", 2)
    with store.subscribe(one) as listener, store.subscribe() as everybody:
        waiting = asyncio.ensure_future(listener.wait(SOON_S))
        await store.handle(two, create(2))
        await store.handle(one, create(1))
        assert (await waiting).sessions == {one}
        assert (await everybody.wait(SOON_S)).sessions == {one, two, decided(one), decided(two), QUEUE}
        assert not (await listener.wait(0)).sessions, "nothing new"
        await store.handle(one, say(1))
        await store.handle(one, say(2))
        assert (await listener.wait(0)).sessions == {one}, "a change before the wait is not missed"
        store.changed(one)
        assert (await listener.wait(SOON_S)).sessions == {one}


async def test_a_fork_that_goes_to_work_at_once_wakes_the_runners_that_wait_for_work(engine: Engine) -> None:
    s = saves_twice(engine)
    wanted = replace(fork(engine, s.id, 1), text="try it the other way")
    store = Store(engine)
    with store.subscribe(wanted.session) as follower, store.subscribe(QUEUE) as idle:
        done = await store.handle(s.id, wanted)
        assert (await idle.wait(SOON_S)).sessions == {QUEUE}
        assert (await follower.wait(SOON_S)).sessions == {wanted.session}
    assert {e.session_id for e in done.told} == {s.id, wanted.session}, "and both are counted"
    await store.close()


async def test_a_renewal_or_a_refusal_wakes_nobody(clock: Clock, tmp_path: Path) -> None:
    engine = SqliteStore(tmp_path / "bide.db", clock)
    s = begin(engine)
    store = Store(engine)
    with store.subscribe(s.id) as listener:
        await store.handle(s.id, report(s, *words(1)))
        assert (await listener.wait(0)).sessions == {s.id}
        await store.handle(s.id, report(s, *words(1)))  # a repeat
        with pytest.raises(Refused):
            await store.handle(s.id, say(1, " "))
        assert not (await listener.wait(0)).sessions
    await store.close()


async def test_a_listener_that_sleeps_costs_a_bounded_memory_and_is_told_to_look_everywhere() -> None:
    hub = Hub()
    listener = hub.subscribe()
    hub.ring(f"session {n}" for n in range(WAKEUPS_MAX))
    hub.ring(["session 0"])
    told = await listener.wait(0)
    assert (len(told.sessions), told.everything) == (WAKEUPS_MAX, False)
    hub.ring(f"session {n}" for n in range(WAKEUPS_MAX + 5))
    told = await listener.wait(0)
    assert (told.sessions, told.everything) == (frozenset(), True)
    hub.ring(["session 0"])
    assert (await listener.wait(0)).sessions == {"session 0"}
    listener.close()
    listener.close()
    hub.ring(["session 0"])
    assert not (await listener.wait(0)).sessions


async def test_closing_lets_every_listener_go(clock: Clock) -> None:
    store = Store(MemoryStore(clock))
    listeners = [store.subscribe(), store.subscribe(uid("session"))]
    waits = [asyncio.ensure_future(listener.wait(SOON_S)) for listener in listeners]
    await asyncio.sleep(0)
    await store.close()
    assert [type(t) for t in await asyncio.gather(*waits, return_exceptions=True)] == [Unavailable] * 2
    with pytest.raises(Unavailable):
        await store.subscribe().wait(SOON_S)
