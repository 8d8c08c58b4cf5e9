"""What nobody comes back for is let go, and nothing else: runners, their tokens and orders, idempotency keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from bide.core import ids
from bide.core.limits import FORGET_GAP_S, FORGET_S, KEY_KEPT_S, PAGE_S, RUNNER_KEPT_S
from bide.server import auth, drains, keys, signing
from bide.server.auth import Actor
from bide.server.blobs import Blobs
from bide.server.config import load
from bide.server.loops import forgetter
from bide.server.loops.base import ROUND
from bide.server.loops.forgetter import DUTY, Forgetter, Missed
from bide.server.parts import Parts
from bide.server.wrapping import Wrapper
from bide.snapshots.blobs.local import LocalBlobs
from bide.store.base import Engine
from bide.store.postgres import PostgresStore
from bide.store.sqlite import SqliteStore
from bide.store.threaded import Store
from tests.store.story import Clock, create, grant, runner, uid

Served = Callable[[Engine], Parts]
HOURS = int(RUNNER_KEPT_S / FORGET_S)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Makes the parts of a server on an engine."""
    stores: list[Store] = []

    def serve(engine: Engine) -> Parts:
        stores.append(Store(engine))
        config = load({"data": str(tmp_path)}, {"BIDE_HOME": str(tmp_path)})
        return Parts(config, stores[-1], Blobs(LocalBlobs(tmp_path / "blobs")), Wrapper(bytes(32)))

    yield serve
    for store in stores:
        await store.close()


@pytest.fixture
async def parts(served: Served, tmp_path: Path, clock: Clock) -> Parts:
    return served(SqliteStore(tmp_path / "bide.sqlite", clock))


async def enrol(store: Store, name: str) -> str:
    """A runner as registration leaves it; its token."""

    def put(engine: Engine) -> str:
        engine.put_runner(replace(runner(name), last_seen_at=engine.now()))
        return auth.issue_for_runner(engine, Actor(role="runner", name=name, runner=uid("runner", name)))

    return await store.write(put)


async def pass_hours(parts: Parts, clock: Clock, hours: int) -> None:
    own = Forgetter(parts)
    for _ in range(hours):
        clock.time += FORGET_S
        await own.round()


async def names(parts: Parts) -> list[str]:
    return [one.name for one in await parts.store.runners()]


async def test_a_runner_missing_for_a_week_goes_with_its_tokens_and_orders(parts: Parts, clock: Clock) -> None:
    store = parts.store
    token, other = await enrol(store, "gone"), await enrol(store, "there")
    await store.write(lambda engine: engine.put(drains.KIND, uid("runner", "gone"), b"{}"))
    own = Forgetter(parts)
    for hour in range(HOURS + 1):
        clock.time += FORGET_S
        await store.hear(replace(runner("there"), last_seen_at=clock.time))
        assert await names(parts) == ["gone", "there"], hour
        await own.round()
    assert await names(parts) == ["there"]
    assert await parts.tokens.actor(token) is None
    assert await parts.tokens.actor(other) is not None
    assert await store.keys(drains.KIND) == []
    assert await store.keys(auth.OF_RUNNER) == [uid("runner", "there")]
    await enrol(store, "gone")
    await pass_hours(parts, clock, 3)
    assert await names(parts) == ["gone", "there"], "it comes as a new one"


async def test_what_cannot_be_read_any_more_keeps_nothing_else_from_being_forgotten(parts: Parts, clock: Clock) -> None:
    await enrol(parts.store, "gone")
    await enrol(parts.store, "odd")
    odd = uid("runner", "odd")
    await parts.store.write(lambda engine: engine.put(auth.OF_RUNNER, odd, b"what no release wrote"))
    await parts.store.write(lambda engine: engine.put(keys.KIND, "0", b"nor this"))
    await pass_hours(parts, clock, HOURS + 1)
    assert await names(parts) == ["odd"]
    assert await parts.store.keys(keys.KIND) == ["0"]


async def test_a_runner_that_left_in_order_is_kept_as_long(parts: Parts, clock: Clock) -> None:
    await parts.store.put_runner(replace(runner("left"), last_seen_at=0.0))
    await pass_hours(parts, clock, HOURS)
    assert await names(parts) == ["left"]
    await pass_hours(parts, clock, 1)
    assert await names(parts) == []


async def test_a_runner_that_comes_back_in_time_is_missed_from_the_beginning_again(parts: Parts, clock: Clock) -> None:
    await enrol(parts.store, "traveller")
    await pass_hours(parts, clock, HOURS)
    await parts.store.hear(replace(runner("traveller"), last_seen_at=clock.time + FORGET_S))
    await pass_hours(parts, clock, HOURS)
    assert await names(parts) == ["traveller"]


async def test_a_runner_that_holds_a_session_is_kept_until_it_does_not(parts: Parts, clock: Clock) -> None:
    store = parts.store
    await store.put_runner(replace(runner("r1"), id="r1"))
    await store.handle(uid("session"), create())
    s = (await store.handle(uid("session"), grant("r1"))).session
    await pass_hours(parts, clock, HOURS + 5)
    assert [held.id for held in await store.leased_to("r1")] == [s.id]
    assert await names(parts) == ["r1"]


async def test_time_that_no_server_saw_makes_nobody_missing(parts: Parts, clock: Clock) -> None:
    await enrol(parts.store, "laptop")
    for _ in range(5):  # switched on once in ten days, for an hour
        clock.time += 10 * RUNNER_KEPT_S
        await Forgetter(parts).round()
        await pass_hours(parts, clock, 1)
    clock.time -= 20 * RUNNER_KEPT_S  # and a clock that was set back
    await Forgetter(parts).round()
    assert await names(parts) == ["laptop"]
    stored = msgspec.json.decode(await parts.store.get(ROUND, DUTY) or b"", type=Missed)
    assert all(seen <= 5 * (FORGET_S + FORGET_GAP_S) for seen in stored.missing.values())


async def test_a_key_is_free_again_after_its_time_and_not_before(
    parts: Parts, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetter, "FORGET_PAGE", 3)
    store = parts.store

    async def take(n: int) -> keys.Keyed:
        wanted = keys.Keyed(session=ids.mint(store.now(), "session", n, store.now()), body="b")
        return await store.write(lambda engine: keys.claim(engine, keys.name("ada", str(n)), wanted))

    old = [await take(n) for n in range(10)]
    clock.time += KEY_KEPT_S - FORGET_S - 1
    young = [await take(n) for n in range(10, 14)]
    await pass_hours(parts, clock, 1)
    assert [await take(n) for n in range(14)] == old + young
    await pass_hours(parts, clock, 1)
    assert len(await store.keys(keys.KIND)) == 4
    assert [await take(n) for n in range(10, 14)] == young
    assert (await take(0)).session != old[0].session


async def test_a_key_that_was_taken_anew_meanwhile_is_kept(parts: Parts, clock: Clock) -> None:
    name = keys.name("ada", "k")
    fresh = keys.Keyed(session=ids.mint(clock.time, "fresh"), body="b")
    await parts.store.write(lambda engine: keys.claim(engine, name, fresh))
    await parts.store.write(lambda engine: keys.forget(engine, [name, "never there"]))
    assert await parts.store.read(lambda reader: keys.find(reader, name)) == fresh


async def test_of_two_servers_one_does_the_round(served: Served, database: str, clock: Clock) -> None:
    both = [served(PostgresStore(database, clock)) for _ in range(2)]
    await enrol(both[0].store, "gone")
    for hour in range(HOURS + 1):
        assert await names(both[0]) == ["gone"], f"hour {hour}: what both see counts once"
        clock.time += FORGET_S
        await asyncio.gather(*(Forgetter(parts).round() for parts in both))
    assert await names(both[1]) == []
    for parts in both:
        await Forgetter(parts).round()


async def test_links_and_pages_that_are_over_are_forgotten_and_no_others(parts: Parts, clock: Clock) -> None:
    owner = Actor(role="owner", name="owner")
    unused, _ = await parts.store.write(lambda engine: signing.invite(engine, owner, "t"))
    used, _ = await parts.store.write(lambda engine: signing.invite(engine, owner, "t"))
    halves = await parts.store.write(lambda engine: signing.redeem(engine, used))
    await pass_hours(parts, clock, 1)
    assert await parts.store.get(signing.LINK, auth.digest(unused)) is None
    assert await parts.store.get(signing.PAGE, auth.digest(halves.cookie)) is not None
    await pass_hours(parts, clock, int(PAGE_S / FORGET_S))
    assert await parts.store.get(signing.PAGE, auth.digest(halves.cookie)) is None
    for kind in signing.KINDS:
        assert await parts.store.get(signing.LISTS, kind) == b"[]"
