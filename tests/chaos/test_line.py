"""A line that a fault is on behaves as a network does, or what is proved with it is worth nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from chaos.line import Line

pytestmark = pytest.mark.anyio
SOON_S = 0.3
WITHIN_S = 5.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Echo:
    """A line to a server that says everything back; `heard` is what that server has heard."""

    def __init__(self, line: Line) -> None:
        self.line, self.heard = line, list[bytes]()
        self.dialled: list[asyncio.StreamWriter] = []
        self.gone = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while part := await reader.read(1000):
                self.heard.append(part)
                writer.write(part)
        writer.close()
        self.gone.set()

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.line.port)
        self.dialled.append(writer)
        return reader, writer


@contextlib.asynccontextmanager
async def echoing() -> AsyncIterator[Echo]:
    made: list[Echo] = []
    server = await asyncio.start_server(lambda *ends: made[0].answer(*ends), "127.0.0.1", 0)
    line = Line(server.sockets[0].getsockname()[1])
    made.append(Echo(line))
    await line.open()
    try:
        yield made[0]
    finally:
        for writer in made[0].dialled:
            writer.transport.abort()
        await line.close()
        server.close()
        await asyncio.wait_for(made[0].gone.wait(), WITHIN_S)


async def hears(reader: asyncio.StreamReader, within_s: float = WITHIN_S) -> bytes:
    """What comes next; nothing when nothing does."""
    with contextlib.suppress(TimeoutError):
        return await asyncio.wait_for(reader.read(1000), within_s)
    return b"silence"


async def test_what_is_sent_arrives_and_is_answered() -> None:
    async with echoing() as echo:
        reader, writer = await echo.dial()
        writer.write(b"hello")
        assert await hears(reader) == b"hello"
        writer.write_eof()
        assert await hears(reader) == b""


async def test_a_line_that_is_cut_breaks_what_is_open_and_what_comes_until_it_is_healed() -> None:
    async with echoing() as echo:
        reader, writer = await echo.dial()
        writer.write(b"hello")
        assert await hears(reader) == b"hello"
        echo.line.cut()
        for source in (reader, (await echo.dial())[0]):
            with contextlib.suppress(ConnectionError):
                assert await hears(source) == b""
        echo.line.heal()
        again, writer = await echo.dial()
        writer.write(b"again")
        assert await hears(again) == b"again"
        assert echo.heard == [b"hello", b"again"]


@pytest.mark.parametrize("late", [True, False])
async def test_answers_that_are_held_come_late_or_never_though_the_request_has_arrived(late: bool) -> None:
    async with echoing() as echo:
        reader, writer = await echo.dial()
        echo.line.hold("back")
        writer.write(b"hello")
        assert await hears(reader, SOON_S) == b"silence"
        assert echo.heard == [b"hello"]
        echo.line.heal(late=late)
        with contextlib.suppress(ConnectionError):
            assert await hears(reader) == (b"hello" if late else b"")


async def test_requests_that_are_held_have_not_arrived() -> None:
    async with echoing() as echo:
        reader, writer = await echo.dial()
        echo.line.hold("there")
        writer.write(b"hello")
        assert await hears(reader, SOON_S) == b"silence"
        assert echo.heard == []
        echo.line.heal(late=True)
        assert await hears(reader) == b"hello"


async def test_only_requests_for_one_path_are_spoiled() -> None:
    async with echoing() as echo:
        echo.line.spoil(b"/v1/blobs", b"HTTP/1.1 503 No\r\n\r\n")
        _, writer = other = await echo.dial()
        writer.write(b"GET /v1/sessions HTTP/1.1\r\n\r\n")
        assert (await hears(other[0])).startswith(b"GET /v1/sessions")
        reader, writer = await echo.dial()
        writer.write(b"PUT /v1/blobs/x HTTP/1.1\r\n\r\n")
        assert (await hears(reader)).startswith(b"HTTP/1.1 503")
        assert len(echo.heard) == 1
