"""Following a session: whole, in order, once, whatever happens to the line."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from bide.client import Client, Connection
from bide.core import limits
from bide.core.refusals import Refused
from tests.server.harness import LiveServer, until


def stir(server: LiveServer, session: str, count: int) -> None:
    server.post(session, *({"type": "user.message", "text": f"n{n}"} for n in range(count)))


async def seqs(client: Client, session: str, count: int, after: int = 0) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(20), aclosing(client.follow(session, after=after)) as events:
        async for event in events:
            found.append(event["seq"])
            if len(found) == count:
                return found
    return found


async def test_a_follower_sees_every_event_once_across_a_restart_of_the_server(tmp_path: Path, repo: Path) -> None:
    server = LiveServer(tmp_path / "restarted")
    try:
        session = server.session(repo, pool="empty")["id"]
        stir(server, session, 10)
        got: list[int] = []
        troubles: list[str] = []

        async def take() -> None:
            async with aclosing(client.follow(session, on_trouble=troubles.append)) as events:
                async for event in events:
                    got.append(event["seq"])
                    if event["data"].get("text") == "last":
                        return

        async with Client(server.url, server.token) as client:
            taking = asyncio.ensure_future(take())
            for _ in range(3):
                await asyncio.to_thread(
                    until, lambda: len(got) >= server.ok("GET", f"/v1/sessions/{session}")["last_seq"]
                )
                await asyncio.to_thread(server.stop)
                await asyncio.to_thread(server.start)
                await asyncio.to_thread(stir, server, session, 10)
            await asyncio.to_thread(server.post, session, {"type": "user.message", "text": "last"})
            async with asyncio.timeout(20):
                await taking
        assert got == [event["seq"] for event in server.events(session)]
    finally:
        server.stop()


@asynccontextmanager
async def going_dead(server: LiveServer) -> AsyncIterator[tuple[str, list[int]]]:
    """A line that carries the beginning of the first two streams, then nothing more, and does not say so."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    opened: list[int] = []
    carrying: list[asyncio.Task[None]] = []

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        carrying.append(asyncio.create_task(carry(reader, writer)))

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(host, int(port))
        request = await reader.readuntil(b"\r\n\r\n")
        up_writer.write(request)
        streams = b"/stream" in request
        if streams:
            opened.append(1)
        left = 700 if streams and len(opened) <= 2 else 10**9
        try:
            while chunk := await up_reader.read(min(left, 4096)):
                writer.write(chunk)
                left -= len(chunk)
                if left <= 0:
                    await asyncio.Event().wait()
        finally:
            writer.close()
            up_writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", opened
    finally:
        listening.close()
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)


async def test_a_line_that_died_without_a_word_is_noticed_and_nothing_is_lost_or_doubled(
    server: LiveServer, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FOLLOW_DEAD_S", 0.3)
    session = server.session(repo, pool="empty")["id"]
    await asyncio.to_thread(stir, server, session, 20)
    async with going_dead(server) as (url, opened):
        async with Client(connection=Connection(url=url, token=server.token)) as client:
            assert await seqs(client, session, 23) == list(range(1, 24))
        assert len(opened) == 3


async def test_a_follower_moves_over_to_the_next_server_by_its_cursor_and_stays_there(
    server: LiveServer, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FOLLOW_DEAD_S", 0.3)
    session = server.session(repo, pool="empty")["id"]
    await asyncio.to_thread(stir, server, session, 20)
    async with going_dead(server) as (url, opened):
        connection = Connection(url=url, token=server.token, others=(server.url,))
        async with Client(connection=connection) as client:
            assert await seqs(client, session, 23) == list(range(1, 24))
            assert await seqs(client, session, 5, after=18) == list(range(19, 24))
        assert len(opened) == 1


async def test_a_request_finds_the_server_that_is_there(server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="empty")["id"]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with Client(f"{nobody},{server.url}", server.token) as client:
            assert (await client.session(session))["id"] == session
            await client.send(session, "once")
        with pytest.raises(Refused) as refused:
            async with Client(nobody, server.token) as client:
                await client.session(session)
    assert refused.value.code == "unreachable"
    assert [e["data"]["text"] for e in server.events(session) if e["type"] == "user.message"].count("once") == 1


async def test_an_old_end_does_not_end_the_following_of_a_session_that_goes_on(server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="empty")["id"]
    server.post(session, {"type": "user.cancel"})
    ended = server.ok("GET", f"/v1/sessions/{session}")["last_seq"]
    async with Client(server.url, server.token) as client, asyncio.timeout(20):
        types = [event["type"] async for event in client.follow(session, until_ended=True)]
        assert len(types) == ended
        assert "session.ended" in types
        assert [event async for event in client.follow(session, after=ended, until_ended=True)] == []


async def test_an_unknown_session_or_a_server_that_never_was_is_refused_at_once(server: LiveServer) -> None:
    nobody = "00000000-0000-7000-8000-000000000000"
    for connection, code in (
        (Connection(url=server.url, token=server.token), "no_session"),
        (Connection(url=server.url, token="wrong"), "unauthenticated"),
        (Connection(url="http://127.0.0.1:9", token="x"), "unreachable"),
    ):
        async with Client(connection=connection) as client:
            with pytest.raises(Refused) as found:
                await seqs(client, nobody, 1)
            assert found.value.code == code


async def test_a_server_that_stays_away_is_given_up_with_a_sentence(
    tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FOLLOW_AWAY_S", 1.0)
    server = LiveServer(tmp_path / "gone")
    session, troubles = server.session(repo, pool="empty")["id"], list[str]()
    async with Client(server.url, server.token) as client:
        events = client.follow(session, on_trouble=troubles.append)
        assert [(await anext(events))["seq"] for _ in range(3)] == [1, 2, 3]
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        with pytest.raises(Refused) as found:
            await anext(events)
        assert found.value.code == "unreachable"
        assert len(troubles) == 1
        await asyncio.to_thread(stopping.join)


async def test_waiting_survives_a_dead_line_and_a_restart(
    tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FOLLOW_DEAD_S", 0.3)
    server = LiveServer(tmp_path / "waited")
    try:
        session = server.session(repo, pool="empty")["id"]
        async with going_dead(server) as (url, opened):
            connection = Connection(url=url, token=server.token, others=(server.url,))
            async with Client(connection=connection) as client, asyncio.timeout(20):
                waiting = asyncio.ensure_future(client.wait_for(session, "parked"))
                await asyncio.to_thread(until, lambda: opened)
                await asyncio.to_thread(stir, server, session, 5)
                await asyncio.to_thread(server.stop)
                await asyncio.to_thread(server.start)
                await asyncio.to_thread(server.post, session, {"type": "user.cancel"})
                assert (await waiting)["outcome"] == "cancelled"
    finally:
        server.stop()
