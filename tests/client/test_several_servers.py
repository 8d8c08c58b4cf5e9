"""What people would lose if a client with several servers to ask stayed with the one that cannot answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from bide.client import Client, Connection
from bide.core import limits
from bide.core.refusals import Refused
from tests.server.harness import LiveServer

AWAY = (
    b'{"type":"urn:bide:problem:store_unavailable","title":"Out of reach for the moment","status":503,'
    b'"code":"store_unavailable","detail":"The store is away.","hint":"Try again in a moment."}'
)


@asynccontextmanager
async def without_its_store() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers everything with: its database is away."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        head = f"HTTP/1.1 503 X\r\ncontent-type: application/problem+json\r\ncontent-length: {len(AWAY)}\r\n"
        writer.write(head.encode() + b"connection: close\r\n\r\n" + AWAY)
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", asked
    finally:
        listening.close()


@contextmanager
def nobody() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


async def first_events(client: Client, session: str, count: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(20), aclosing(client.follow(session)) as events:
        async for event in events:
            found.append(event["seq"])
            if len(found) == count:
                break
    return found


async def test_following_begins_though_the_first_server_is_down(server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="empty")["id"]
    with nobody() as url:
        connection = Connection(url=url, token=server.token, others=(server.url,))
        async with Client(connection=connection) as client:
            assert await first_events(client, session, 3) == [1, 2, 3]
        connection = Connection(url=url, token=server.token, others=(f"{url}/other",))
        async with Client(connection=connection) as client:
            with pytest.raises(Refused) as refused:
                await first_events(client, session, 1)
            assert refused.value.code == "unreachable"


async def test_a_follower_leaves_a_server_that_has_lost_its_database(
    server: LiveServer, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FOLLOW_AWAY_S", 2.0)
    session = server.session(repo, pool="empty")["id"]
    async with without_its_store() as (url, asked):
        connection = Connection(url=url, token=server.token, others=(server.url,))
        async with Client(connection=connection) as client:
            assert await first_events(client, session, 3) == [1, 2, 3]
        assert len(asked) == 1


async def test_a_request_is_answered_by_a_server_that_can(server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="empty")["id"]
    async with without_its_store() as (url, asked):
        connection = Connection(url=url, token=server.token, others=(server.url,))
        async with Client(connection=connection) as client:
            assert (await client.session(session))["id"] == session
            await client.send(session, "once")
        assert len(asked) == 1, "it stays with the one that answered"
        async with Client(connection=Connection(url=url, token="x", others=(f"{url}/",))) as client:
            with pytest.raises(Refused) as refused:
                await client.session(session)
            assert refused.value.code == "store_unavailable"
    assert [e["data"]["text"] for e in server.events(session) if e["type"] == "user.message"].count("once") == 1
