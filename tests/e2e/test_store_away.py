"""The database or the blob store is away for a while: people are told to come again, sessions work on, nothing is lost."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx2
import pytest

from chaos.fleet import Fleet, until
from tests.e2e.fleets import Session, fleet, lines

pytestmark = pytest.mark.anyio
LONG_S = 24.0  # a lease that outlives the outage: its holder works on for 16 s
SHORT_S = 3.0  # one that does not
AWAY_S = 5.0
TICKS = [{"run": f"echo {n} >> ticks; sleep 0.15"} for n in range(50)]  # each of them is told to the server
GONE = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def ticking(there: Fleet, client: httpx2.AsyncClient) -> tuple[Session, Path]:
    """A session that writes a line some five times a second, each with a tool of its own, for ten seconds."""
    session = await Session.start(there, client, "task", *TICKS, {"say": "all ticked"})
    await session.first("tool.call")
    file = there.root("one") / session.id / "workspace" / "ticks"
    assert await until(lambda: lines(file), 5)
    return session, file


def told_to_come_again(answer: httpx2.Response) -> None:
    """A refusal that a person, and a program, can act on."""
    assert answer.status_code == 503, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert int(answer.headers["retry-after"]) >= 1
    problem = answer.json()
    assert problem["code"] == "store_unavailable"
    assert problem["detail"].endswith(".")
    assert problem["hint"]


async def taken(session: Session, text: str, key: str) -> None:
    """Sends it until it is accepted, as the refusal says."""
    async with asyncio.timeout(15):
        while True:
            answer = await session.say(text, key)
            if answer.status_code == 200:
                return
            told_to_come_again(answer)
            await asyncio.sleep(0.2)


async def whole_and_once(session: Session, turns: int = 1) -> None:
    await session.first("assistant.message", text="all ticked")
    await session.first("turn.ended", result="completed")
    for kind, times in (("turn.started", turns), ("turn.ended", turns), ("session.leased", 1), ("runtime.started", 1)):
        assert len(await session.events(kind)) == times, kind
    assert not await session.events("session.interrupted", "environment.rolled_back", "gap")
    await session.whole()


async def test_while_the_database_is_stopped_inputs_are_refused_for_now_and_tools_work_on() -> None:
    async with fleet("east", lease_s=LONG_S) as there:
        client = there.client("east")
        session, file = await ticking(there, client)
        await there.on_database(there.postgres.stop)
        began, before = time.monotonic(), lines(file)
        told_to_come_again(await session.say("meanwhile", "key"))
        told_to_come_again(await client.get(session.path))
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 503
        spool = there.root("one") / ".spool" / session.id
        kept = spool.stat().st_size
        await until(lambda: time.monotonic() > began + AWAY_S, AWAY_S + 1)
        assert lines(file) > before + AWAY_S * 2, "its tools have worked on"
        assert there.servers["east"].alive, there.servers["east"].tail()
        await there.on_database(there.postgres.start)
        await taken(session, "meanwhile", "key")
        assert spool.stat().st_size > kept, "what could not be told was kept on disk"
        await session.first("assistant.message", text="echo: meanwhile")
        await session.shown("waiting")
        await whole_and_once(session, turns=2)
        assert (await session.told("consumed"))[-1] == "meanwhile"


@pytest.mark.parametrize("how", ["stopped", "frozen"])
async def test_a_database_that_is_away_for_longer_than_a_lease_costs_a_pause_and_no_turn(how: str) -> None:
    async with fleet("east", "west", lease_s=SHORT_S) as there:
        session, file = await ticking(there, there.client("east"))
        if how == "stopped":
            await there.on_database(there.postgres.stop)
            await asyncio.sleep(AWAY_S)
            await there.on_database(there.postgres.start)
        else:
            with there.postgres.frozen():
                await asyncio.sleep(AWAY_S)
        await whole_and_once(session)
        assert [int(line) for line in file.read_text().split()] == list(range(50)), "it went on where it stood"


async def test_a_database_that_says_nothing_is_reported_as_away_within_its_bound() -> None:
    async with fleet("east", lease_s=LONG_S) as there:
        client = there.client("east")
        client.timeout = httpx2.Timeout(25.0)
        session = await Session.start(there, client, "task", {"say": "hello"})
        await session.shown("waiting")
        with there.postgres.frozen():
            began = time.monotonic()
            told_to_come_again(await session.say("meanwhile", "key"))
            assert time.monotonic() - began < 20
        await taken(session, "meanwhile", "key")
        await session.first("assistant.message", text="echo: meanwhile")
        assert await session.told("consumed") == ["task", "meanwhile"]
        await session.whole()


@pytest.mark.parametrize("answer", [GONE, b""], ids=["503", "hangs"])
async def test_while_the_blob_store_is_away_the_session_keeps_its_runner_works_on_and_parks_when_it_is_back(
    answer: bytes,
) -> None:
    async with fleet("east", runners=("one", "two"), lease_s=LONG_S) as there:
        client, lines = there.client("east"), [there.lines[name, "east"] for name in ("one", "two")]
        session = await Session.start(there, client, "task", {"run": "echo before > file"})
        await session.shown("waiting")
        await session.first("checkpoint.saved")
        for line in lines:
            line.spoil(b"/v1/blobs", answer)
        assert (await session.say("more", "k1", {"run": "echo meanwhile >> file"}, {"say": "done"})).status_code == 200
        await session.first("assistant.message", text="done")
        asked = await client.post(f"{session.path}/events", json={"events": [{"type": "user.park"}]})
        assert asked.status_code == 200, asked.text
        for _ in range(10):
            assert (await session.look())["lifecycle"] == "active", "it keeps its runner while it cannot be saved"
            await asyncio.sleep(0.2)
        holder = (await session.look())["runner_name"]
        for line in lines:
            line.heal()
        await session.shown("parked")
        assert not await session.events("session.interrupted", "environment.lost")
        await there.lose(holder)  # only what is saved comes back
        assert (await session.say("again", "k2", {"run": "cat file"})).status_code == 200
        await session.first("tool.result", ok=True, output="before\nmeanwhile\n")
        await session.whole()
