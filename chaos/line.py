"""A TCP line that can be cut, or held in one direction or both, and healed again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Literal

Way = Literal["there", "back"]  # from who connects to who listens, and the other way
PART_BYTES = 64 * 1024
PATH_BYTES = 200  # of a request: method and path stand at its beginning


class Line:
    """Listens on a port of its own and passes on to `target`, a port of this machine."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._clear: dict[Way, asyncio.Event] = {"there": asyncio.Event(), "back": asyncio.Event()}
        self._is_cut = False
        self._spoiled, self._answer = b"", b""
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        for way in self._clear.values():
            way.set()

    async def open(self) -> None:
        """Begins to listen."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Ends it with all its connections."""
        self.cut()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def cut(self) -> None:
        """Every connection breaks now, and every new one at once."""
        self._is_cut = True
        self._break()

    def hold(self, *ways: Way) -> None:
        """What is sent these ways does not arrive, and nobody is told."""
        for way in ways:
            self._clear[way].clear()

    def spoil(self, path: bytes, answer: bytes) -> None:
        """HTTP requests for what begins with `path` get this answer and no other; an empty one: none at all."""
        self._spoiled, self._answer = path, answer

    def heal(self, *, late: bool = False) -> None:
        """All is well again. What was held arrives `late`, or its connections break."""
        held = not all(way.is_set() for way in self._clear.values())
        if held and not late:
            self._break()
        if self._spoiled:
            self._break()
        self._is_cut, self._spoiled = False, b""
        for way in self._clear.values():
            way.set()

    def _break(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        self._open.add(writer)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            self._open.discard(writer)
            return
        self._open.add(back)
        try:
            await asyncio.gather(
                self._pass(self._asked(reader, writer), back, "there"), self._pass(_parts(there), writer, "back")
            )
        except OSError:
            pass
        finally:
            for each in (writer, back):
                self._open.discard(each)
                each.transport.abort()

    async def _asked(self, source: asyncio.StreamReader, answers: asyncio.StreamWriter) -> AsyncIterator[bytes]:
        """What is passed on of what a client sends: a request that is spoiled ends here, and its connection with it."""
        async for part in _parts(source):
            path = part[:PATH_BYTES].split(b" ", 2)[1:2]
            if self._spoiled and path and path[0].startswith(self._spoiled):
                if self._answer:
                    answers.write(self._answer)
                    await answers.drain()
                    answers.close()
                async for _ in _parts(source):  # the rest of it goes nowhere
                    pass
                return
            yield part

    async def _pass(self, source: AsyncIterator[bytes], target: asyncio.StreamWriter, way: Way) -> None:
        async for part in source:
            await self._clear[way].wait()
            target.write(part)
            await target.drain()
        await self._clear[way].wait()
        with contextlib.suppress(OSError):
            target.write_eof()


async def _parts(source: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while part := await source.read(PART_BYTES):
        yield part
