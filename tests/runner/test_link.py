"""What people would lose if a runner took an outage for a no, or a no for an outage."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from bide.core import facts as f
from bide.core.refusals import CODES, HTTP_STATUS, Refused, Unavailable
from bide.core.servers import Servers
from bide.core.wire import FactsPost, FactsReply, Register, Registered, Sync, SyncReply
from bide.runner.link import Link

HELLO = Register(name="one", boot="boot-1")
POST = FactsPost(session="s", epoch=1, first=0, facts=(f.Note(text="é\n\u2028"),))
Answer = tuple[int, bytes] | Callable[[asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers one request after the other with what the test gave it, byte for byte."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[tuple[str, str, bytes]] = []  # path, authorization, body
        self.tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.create_task(self.serve(reader, writer)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in lines if line)
                known = next((line.split(": ")[1] for line in lines if line.lower().startswith("authorization")), "")
                body = await reader.readexactly(int(headers["content-length"]))
                self.requests.append((first.split()[1], known, body))
                answer = self.answers.pop(0)
                if callable(answer):
                    await answer(writer)
                    break
                status, body = answer
                writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def linked(*answers: Answer) -> AsyncIterator[tuple[Link, Server]]:
    fake = Server()
    fake.answers += answers
    server = await asyncio.start_server(fake.connected, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    link = Link(Servers([fake.url + "/"]), "enrolment")
    try:
        yield link, fake
    finally:
        await link.close()
        server.close()
        await server.wait_closed()
        await asyncio.gather(*fake.tasks)


def ok(reply: msgspec.Struct) -> Answer:
    return 200, msgspec.json.encode(reply)


def no(code: str, status: int = 0) -> Answer:
    problem = {"type": "x", "title": "t", "code": code, "detail": "The sentence.", "hint": "The hint."}
    return status or HTTP_STATUS[CODES[code][0]], msgspec.json.encode(problem)


async def hang(_: asyncio.StreamWriter) -> None:
    await asyncio.sleep(0.5)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def half(writer: asyncio.StreamWriter) -> None:
    writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"next":')
    await writer.drain()


async def test_what_is_asked_arrives_and_the_answer_comes_back() -> None:
    told = (ok(Registered(id="r1", token="mine")), ok(SyncReply(drain=True)), ok(FactsReply(next=4)))
    async with linked(*told) as (link, server):
        assert (await link.register(HELLO)).id == "r1"
        assert (await link.sync(Sync(boot="boot-1", free_slots=2), math.inf)).drain
        assert (await link.post(POST)).next == 4
        assert [(path, known) for path, known, _ in server.requests] == [
            ("/v1/runners", "Bearer enrolment"),
            ("/v1/runners/r1/sync", "Bearer mine"),
            ("/v1/runners/r1/facts", "Bearer mine"),
        ]
        assert msgspec.json.decode(server.requests[2][2], type=FactsPost) == POST


async def test_a_runner_that_registers_again_shows_its_enrolment_and_uses_the_new_token() -> None:
    told = (ok(Registered(id="r1", token="old")), no("unauthenticated"), ok(Registered(id="r1", token="new")))
    async with linked(*told, ok(SyncReply())) as (link, server):
        await link.register(HELLO)
        with pytest.raises(Refused):
            await link.sync(Sync(), math.inf)
        await link.register(msgspec.structs.replace(HELLO, boot="boot-2"))
        await link.sync(Sync(), math.inf)
        assert [known for _, known, _ in server.requests] == [
            "Bearer enrolment", "Bearer old", "Bearer enrolment", "Bearer new",
        ]  # fmt: skip
        assert msgspec.json.decode(server.requests[2][2])["boot"] == "boot-2"


async def test_every_no_of_the_server_keeps_its_code_sentence_and_hint() -> None:
    codes = [code for code, (kind, _) in CODES.items() if HTTP_STATUS[kind] < 500]
    async with linked(*map(no, codes)) as (link, _):
        for code in codes:
            with pytest.raises(Refused) as refused:
                await link.post(POST)
            said = refused.value
            assert (said.code, said.sentence, said.hint) == (code, "The sentence.", "The hint.")


async def test_a_no_that_only_a_newer_server_knows_is_still_a_no() -> None:
    async with linked(no("moon_phase", 409)) as (link, _):
        with pytest.raises(Refused) as refused:
            await link.post(POST)
        assert refused.value.sentence == "The sentence."
        assert refused.value.code not in ("fenced", "gap", "lease_over")


@pytest.mark.parametrize(
    "answer",
    [
        no("failed"), no("store_unavailable"), no("timed_out"), (500, b""), (502, b"<html>bad gateway</html>"),
        (503, b'"\xff"'), (404, b"<html>no such page</html>"), (401, b"null"), (409, b'{"detail":"no code"}'),
        (409, b"[" * 100_000), (403, b'{"code":"\xff\xfe"}'), (302, b""), (200, b"<html>sign in</html>"), (204, b""),
        (200, b'{"next":"many"}'), (200, b"{}"), (200, b'{"next":1'), hang, hang_up, half,
    ],
    ids=str,
)  # fmt: skip
async def test_what_is_no_answer_of_a_server_is_an_outage_and_condemns_nothing(
    answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.runner.link.HTTP_S", 0.2)
    async with linked(answer, ok(FactsReply(next=1))) as (link, _):
        with pytest.raises(Unavailable) as away:
            await link.post(POST)
        assert away.value.why
        assert (await link.post(POST)).next == 1, "the next try must find its way"


async def test_a_long_poll_waits_longer_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.runner.link.HTTP_S", 0.2)

    async def late(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.4)
        body = msgspec.json.encode(SyncReply(drain=True))
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)

    async with linked(late) as (link, _):
        assert (await link.sync(Sync(wait_s=5.0), math.inf)).drain


async def test_a_server_that_is_not_there_is_an_outage() -> None:
    async with linked() as (link, _):
        pass
    link = Link(link.servers, "enrolment")
    with pytest.raises(Unavailable):
        await link.register(HELLO)
    await link.close()


async def test_no_proxy_of_the_machine_is_asked_for_our_own_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with linked(ok(FactsReply(next=1))) as (link, _):
        assert (await link.post(POST)).next == 1


# -- several servers --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def two(*first: Answer) -> AsyncIterator[tuple[Link, Server, Server]]:
    """A link to two servers, the first of which gives these answers."""
    async with linked(*first) as (one, a), linked() as (other, b):
        link = Link(Servers([*one.servers.urls, *other.servers.urls]), "enrolment")
        yield link, a, b
        await link.close()


async def test_facts_reach_the_next_server_at_once_when_one_dies_and_stay_with_it() -> None:
    async with two(ok(FactsReply(next=1)), hang_up) as (link, a, b):
        b.answers += [ok(FactsReply(next=2)), ok(FactsReply(next=3))]
        assert [(await link.post(POST)).next for _ in range(3)] == [1, 2, 3]
        assert [len(a.requests), len(b.requests)] == [2, 2]


async def test_a_long_poll_that_breaks_is_not_asked_again_unseen_but_the_next_one_finds_the_other_server() -> None:
    async with two(hang_up) as (link, a, b):
        b.answers += [ok(SyncReply(drain=True))]
        with pytest.raises(Unavailable):
            await link.sync(Sync(), math.inf)
        assert (await link.sync(Sync(), math.inf)).drain
        assert [len(a.requests), len(b.requests)] == [1, 1]


async def test_a_server_that_hangs_is_left_as_soon_as_patience_is_over() -> None:
    async with two(hang) as (link, _, b):
        b.answers += [ok(SyncReply())]
        with pytest.raises(Unavailable):
            await link.sync(Sync(wait_s=20), 0.1)
        await link.sync(Sync(wait_s=20), 0.1)
        assert len(b.requests) == 1


async def test_when_all_are_away_it_says_so_and_a_no_of_one_is_not_asked_of_the_other() -> None:
    async with two(hang_up, no("fenced")) as (link, a, b):
        b.answers += [hang_up]
        with pytest.raises(Unavailable):
            await link.post(POST)
        with pytest.raises(Refused):
            await link.post(POST)
        assert [len(a.requests), len(b.requests)] == [2, 1]
