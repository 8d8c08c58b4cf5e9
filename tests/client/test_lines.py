"""What comes over a line is not believed: nothing is left out, nothing doubled, and nothing else passed on."""

from __future__ import annotations

import asyncio
import inspect
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bide.client import Client, Connection, SyncClient
from bide.core import limits
from bide.core.refusals import Refused
from tests.server.harness import LiveServer, Voice, until

SESSION = "0198c0de-0000-7000-8000-000000000001"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\nretry: 1\n\n"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FOLLOW_BACKOFF_S", (0.01,))


def frame(seq: int, session: str = SESSION) -> bytes:
    event = {"seq": seq, "session_id": session, "type": "note", "data": {}}
    return b"id: %d\nevent: note\ndata: %s\n\n" % (seq, json.dumps(event).encode())


@asynccontextmanager
async def saying(*answers: bytes) -> AsyncIterator[tuple[Client, list[str]]]:
    """A client of a server that answers its requests with these, the last one again and again; and what was asked."""
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(request)
        writer.write(answers[min(len(asked), len(answers)) - 1])
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        async with Client(connection=Connection(url=f"http://127.0.0.1:{port}", token="t")) as client:
            yield client, asked


async def read(
    client: Client, count: int, session: str = SESSION, got: list[int] | None = None, **more: Any
) -> list[int]:
    """The numbers of the next events; `got` has those that came, also where it ends badly."""
    found = [] if got is None else got
    async with asyncio.timeout(30), aclosing(client.follow(session, **more)) as events:
        async for event in events:
            found.append(event["seq"])
            if len(found) == count:
                break
    return found


async def test_a_frame_of_a_later_release_is_passed_over() -> None:
    live = b'event: glimpse\ndata: {"text":"hal"}\n\nevent: x\ndata: not json\n\n: ping\n\ndata: 7\n\n'
    async with saying(HEAD + frame(1) + live + frame(2)) as (client, asked):
        assert await read(client, 2) == [1, 2]
        assert len(asked) == 1


@pytest.mark.parametrize("junk", [b"<html>", b"7", b"null", b'{"a":1}', b'{"seq":"2","session_id":"x"}', b"\xff"])
async def test_a_line_that_carries_something_else_is_opened_again_where_it_was(junk: bytes) -> None:
    async with saying(HEAD + frame(1) + b"id: 2\ndata: " + junk + b"\n\n", HEAD + frame(2)) as (client, asked):
        assert await read(client, 2) == [1, 2]
        assert "last-event-id: 1\r\n" in asked[1].lower()


async def test_a_hole_in_the_stream_is_never_passed_on() -> None:
    async with saying(HEAD + frame(1) + frame(3), HEAD + frame(2) + frame(3)) as (client, _):
        assert await read(client, 3) == [1, 2, 3]
    got: list[int] = []
    async with saying(HEAD + frame(1) + frame(3)) as (client, asked):
        with pytest.raises(Refused) as refused:
            await read(client, 9, got=got)
    assert (got, refused.value.code, len(asked)) == ([1], "failed", 2)
    assert f"after 1 of session {SESSION}" in refused.value.sentence


async def test_what_is_repeated_or_another_sessions_is_not_passed_on() -> None:
    other = SESSION.replace("1", "2")
    async with saying(HEAD + frame(1) + frame(1) + frame(2, other) + frame(2)) as (client, _):
        assert await read(client, 2) == [1, 2]


async def test_a_server_that_only_answers_that_something_went_wrong_is_asked_again() -> None:
    body = b'{"code":"failed","detail":"Something went wrong.","hint":"","status":500,"title":"","type":""}'
    failed = b"HTTP/1.1 500 Oops\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n\r\n%s" % (
        len(body), body,
    )  # fmt: skip
    async with saying(HEAD + frame(1), failed, failed, HEAD + frame(2)) as (client, asked):
        troubles: list[str] = []
        assert await read(client, 2, on_trouble=troubles.append) == [1, 2]
        assert len(asked) == 4
        assert troubles == ["Something went wrong. Trying again."]
    async with saying(failed) as (client, asked):
        with pytest.raises(Refused) as refused:
            await read(client, 1)
    assert refused.value.code == "failed", "the first connection has to succeed"


@asynccontextmanager
async def between(server: LiveServer, carry: Callable[..., Any]) -> AsyncIterator[Client]:
    """A client whose every connection to the server goes through `carry(reader, writer)` on its way back."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    tasks: set[asyncio.Task[None]] = set()

    async def both_ways(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(host, int(port))

        async def forth() -> None:
            while chunk := await reader.read(1 << 16):
                up_writer.write(chunk)
            up_writer.close()

        there = asyncio.create_task(forth())
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await carry(up_reader, writer)
        finally:
            there.cancel()
            await asyncio.gather(there, return_exceptions=True)
            for each in (writer, up_writer):
                each.close()
                with suppress(ConnectionError):
                    await each.wait_closed()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(both_ways(reader, writer)))

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with Client(connection=Connection(url=url, token=server.token)) as client:
            yield client
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def held_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As a proxy with buffers does: the head at once, the body when 4 KiB have gathered or it ends."""
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        if (length := _length(head)) is not None:
            writer.write(await reader.readexactly(length))
            continue
        while chunk := await reader.readexactly(4096):
            writer.write(chunk)


def _length(head: bytes) -> int | None:
    named = [line for line in head.lower().splitlines() if line.startswith(b"content-length:")]
    return int(named[0].partition(b":")[2]) if named else None


async def test_behind_proxies_that_hold_streams_back_an_event_shows_within_two_seconds(
    server: LiveServer, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FOLLOW_FIRST_S", 0.3)
    session = server.session(repo, pool="empty")["id"]
    async with between(server, held_back) as client, asyncio.timeout(30):
        async with aclosing(client.follow(session)) as events:
            assert [(await anext(events))["seq"] for _ in range(3)] == [1, 2, 3]
            coming = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0)
            await asyncio.to_thread(server.post, session, {"type": "user.message", "text": "live"})
            async with asyncio.timeout(2):
                assert (await coming)["data"]["text"] == "live"
        other = server.session(repo, pool="empty")["id"]
        async with aclosing(client.follow_many([session, other], after={session: 4})) as many:
            assert [(await anext(many))["session_id"] for _ in range(3)] == [other] * 3


async def test_five_thousand_events_and_twenty_cuts_are_whole_ordered_and_single(
    server: LiveServer, repo: Path
) -> None:
    voice = Voice(server, "cuts", pool="cuts")
    session = server.session(repo, pool="cuts")["id"]
    grant = voice.claim()
    voice.say(grant, {"type": "environment.restored", "source": "fresh"})
    chance, cuts, opened = random.Random(7), 20, 0

    def tell() -> None:
        for _ in range(50):
            voice.say(grant, *({"type": "note", "text": "x"} for _ in range(100)))

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        left = chance.randint(500, 60_000) if opened <= cuts else 10**9
        while left > 0 and (chunk := await reader.read(min(left, 1 << 16))):
            writer.write(chunk)
            left -= len(chunk)

    async with between(server, cut) as client:
        telling = asyncio.ensure_future(asyncio.to_thread(tell))
        got = await read(client, 5005, session)
        await telling
    assert got == list(range(1, 5006))
    assert opened > cuts


async def test_many_sessions_come_over_one_line_each_whole_and_in_order(server: LiveServer, repo: Path) -> None:
    sessions = [server.session(repo, pool="empty")["id"] for _ in range(3)]
    one, two, three = sessions
    got: dict[str, list[int]] = {session: [] for session in sessions}
    async with (
        Client(server.url, server.token) as client,
        asyncio.timeout(30),
        aclosing(client.follow_many([s.upper() for s in sessions], after={two: 2})) as events,
    ):
        async for event in events:
            got[event["session_id"]].append(event["seq"])
            if sum(map(len, got.values())) == 7:
                await asyncio.to_thread(server.post, three, {"type": "user.message", "text": "more"})
            if got[three][-1:] == [4]:
                break
    assert got == {one: [1, 2, 3], two: [3], three: [1, 2, 3, 4]}


async def test_a_word_that_does_not_exist_is_refused_instead_of_waited_for(server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="empty")["id"]
    async with Client(server.url, server.token) as client, asyncio.timeout(10):
        for words in (("wating",), ("parked", "done"), ()):
            with pytest.raises(Refused) as refused:
                await client.wait_for(session, *words)
            assert refused.value.code == "bad_value"
            assert "waiting, parking, parked" in refused.value.hint


async def test_waiting_for_a_session_that_is_deleted_ends(server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="empty")["id"]
    async with Client(server.url, server.token) as client, asyncio.timeout(10):
        waiting = asyncio.ensure_future(client.wait_for(session, "parked"))
        following = asyncio.ensure_future(read(client, 9, session))
        await asyncio.to_thread(until, lambda: "bide_streams_open 2.0" in server.http.get("/metrics").text)
        await client.delete_session(session)
        for each in (waiting, following):
            with pytest.raises(Refused) as refused:
                await each
            assert refused.value.code == "no_session"


async def test_who_sends_can_wait_until_it_is_known_what_became_of_it(server: LiveServer, repo: Path) -> None:
    voice = Voice(server, "settled", pool="settled")
    session = server.session(repo, pool="settled")["id"]
    grant = voice.claim()
    prompt = grant["job"]["inputs"][0]["id"]
    async with Client(server.url, server.token) as client, asyncio.timeout(20):
        assert (await client.receipt(session, prompt))["status"] == "accepted"
        waiting = asyncio.ensure_future(client.wait_settled(session, prompt))
        for status in ("delivered", "consumed"):
            receipt = {"type": "user.receipt", "input_id": prompt, "status": status}
            await asyncio.to_thread(voice.say, grant, receipt)
        assert (await waiting)["status"] == "consumed"
        assert (await client.wait_settled(session, prompt))["status"] == "consumed", "at once where it is known already"
        sent = await client.send(session, "nobody will read it")
        with pytest.raises(Refused) as late:
            await client.wait_settled(session, sent["id"], timeout_s=0.2)
        assert late.value.code == "timed_out"
        with pytest.raises(Refused) as unknown:
            await client.receipt(session, session)
        assert unknown.value.code == "no_input"


def test_the_silence_that_counts_as_dead_is_noticed_within_45_seconds() -> None:
    assert 2 * limits.SSE_PING_S < limits.FOLLOW_DEAD_S, "one ping may get lost"
    assert limits.FOLLOW_DEAD_S + limits.CONNECT_S <= 45
    assert limits.POLL_S < limits.HTTP_S


def test_sync_and_async_clients_can_do_the_same() -> None:
    def public(kind: type) -> dict[str, list[str]]:
        methods = inspect.getmembers(kind, inspect.isfunction)
        return {name: list(inspect.signature(f).parameters) for name, f in methods if not name.startswith("_")}

    waits, plain = public(Client), public(SyncClient)
    assert waits.keys() - plain.keys() <= {"clock", "input_id", "session_id", "question_id"}, (
        "these are the command line's own"
    )
    assert plain.keys() <= waits.keys()
    assert {name: waits[name] for name in plain} == plain
