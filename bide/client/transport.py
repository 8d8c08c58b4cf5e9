"""One request and its answer: JSON in, JSON or a refusal out; a request that is safe to repeat meets a lost line once."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
import msgspec

from bide.client.connection import Connection
from bide.client.problems import refuse
from bide.core import limits
from bide.core.refusals import Refused

Query = Mapping[str, str | int]
_JSON = {"content-type": "application/json"}


class Transport:
    """The open lines to one server."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._http = httpx2.AsyncClient(
            base_url=connection.url,
            headers={"authorization": f"Bearer {connection.token}"} if connection.token else {},
            timeout=httpx2.Timeout(limits.HTTP_S, connect=limits.CONNECT_S),
            trust_env=not connection.loopback,
        )

    async def close(self) -> None:
        """Closes the lines."""
        await self._http.aclose()

    async def ask(
        self, method: str, path: str, *, query: Query | None = None, body: Any = None, key: str = "", again: bool = True
    ) -> Any:
        """The answer's JSON. `again`: repeating the request does no harm, so a line that broke is tried once more.

        Raises what the server refuses, and `Refused('unreachable')` when it cannot be asked.
        """
        headers = (_JSON if body is not None else {}) | ({"idempotency-key": key} if key else {})
        content = None if body is None else msgspec.json.encode(body)
        given = {name: value for name, value in (query or {}).items() if value not in ("", None)}
        request = self._http.build_request(method, path, params=given, content=content, headers=headers)
        try:
            answer = await self._send(request, again=again)
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None
        if answer.status_code >= 300:
            refuse(answer.status_code, answer.content, self.connection.url)
        return msgspec.json.decode(answer.content) if answer.content else None

    async def _send(self, request: httpx2.Request, *, again: bool) -> httpx2.Response:
        try:
            return await self._http.send(request)
        except (httpx2.NetworkError, httpx2.RemoteProtocolError) as error:
            # A line kept open across a restart of the server is dead, and that is only found out by using it.
            if not again or isinstance(error, httpx2.ConnectError):
                raise
            return await self._http.send(request)

    @asynccontextmanager
    async def stream(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of an answer without end. Raises `httpx2.HTTPError` when the line breaks or is dead."""
        timeout = httpx2.Timeout(limits.FOLLOW_DEAD_S, connect=limits.CONNECT_S)
        async with self._http.stream("GET", path, headers=headers, timeout=timeout) as answer:
            if answer.status_code >= 300:
                refuse(answer.status_code, await answer.aread(), self.connection.url)
            yield answer.aiter_bytes()

    async def clock(self) -> tuple[float, float]:
        """How long the server took to answer, seconds, and its `Date` (epoch seconds, 0 when it has none)."""
        began = time.perf_counter()
        try:
            answer = await self._http.get("/healthz")
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None
        if answer.status_code >= 300:
            refuse(answer.status_code, answer.content, self.connection.url)
        return time.perf_counter() - began, _moment(answer.headers.get("date", ""))

    def _unreachable(self, error: httpx2.HTTPError) -> Refused:
        url = self.connection.url
        match error:
            case httpx2.ConnectError() | httpx2.ConnectTimeout():
                return Refused("unreachable", f"No server answers at {url}.")
            case httpx2.TimeoutException():
                return Refused("unreachable", f"{url} did not answer within {limits.HTTP_S:g} s.")
            case _:
                return Refused("unreachable", f"The connection to {url} broke: {str(error) or type(error).__name__}.")


def _moment(date: str) -> float:
    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return 0.0
