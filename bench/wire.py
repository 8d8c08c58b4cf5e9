"""HTTP as cheap as it gets, so that what is measured is the server: one connection, one request at a time on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import httptools
import msgspec

_encode = msgspec.json.Encoder().encode


class Failed(Exception):
    """The server's answer is not the one that the measurement needs."""


class Line(asyncio.Protocol):
    """One connection. Made by `dial`."""

    def __init__(self, host: str, token: str) -> None:
        self._head = f"host: {host}\r\nauthorization: Bearer {token}\r\n"
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._hears: Callable[[bytes], None] | None = None
        self.lost = False

    # -- asking -------------------------------------------------------------------------------------------------------

    async def ask(self, method: str, path: str, body: Any = None) -> bytes:
        """The body of the answer. Raises `Failed` when it is not a good one."""
        assert self._answer is None, "one request at a time"
        self._answer = asyncio.get_running_loop().create_future()
        self._send(method, path, _encode(body) if body is not None else b"")
        try:
            return await self._answer
        finally:
            self._answer = None

    def follow(self, path: str, hears: Callable[[bytes], None]) -> None:
        """Streams an answer without end: its bytes as they come."""
        self._hears = hears
        self._send("GET", path, b"")

    def close(self) -> None:
        """Hangs up."""
        if self._transport is not None:
            self._transport.close()

    def _send(self, method: str, path: str, body: bytes) -> None:
        if self._transport is None or self.lost:
            raise Failed("the connection is lost")
        kind = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n" if body else ""
        self._transport.write(f"{method} {path} HTTP/1.1\r\n{self._head}{kind}\r\n".encode() + body)

    # -- called by the event loop -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, received: bytes) -> None:
        self._parser.feed_data(received)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Failed(f"the connection was lost: {error}"))

    # -- called by the parser -----------------------------------------------------------------------------------------

    def on_body(self, part: bytes) -> None:
        if self._hears is not None and self._parser.get_status_code() == 200:
            self._hears(part)
        else:
            self._body += part

    def on_message_complete(self) -> None:
        status, body = self._parser.get_status_code(), bytes(self._body)
        self._body.clear()
        if self._answer is None or self._answer.done():
            return
        if 200 <= status < 300:
            self._answer.set_result(body)
        else:
            self._answer.set_exception(Failed(f"{status}: {body[:500].decode(errors='replace')}"))


async def dial(host: str, port: int, token: str) -> Line:
    """Connects."""
    loop = asyncio.get_running_loop()
    _, line = await loop.create_connection(lambda: Line(f"{host}:{port}", token), host, port)
    return line


class Events:
    """Server-sent events out of the bytes of a stream: calls back with each event's id and `data`."""

    def __init__(self, each: Callable[[int, bytes], None]) -> None:
        self._each, self._rest = each, b""

    def __call__(self, received: bytes) -> None:
        *whole, self._rest = (self._rest + received).split(b"\n\n")
        for frame in whole:
            if not frame.startswith(b"id: "):
                continue  # a ping, or how long to wait before a retry
            place, _, rest = frame.partition(b"\n")
            self._each(int(place[4:]), rest.partition(b"\ndata: ")[2])
