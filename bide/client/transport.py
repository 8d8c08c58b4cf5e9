"""One request and its answer: JSON in, JSON or a refusal out; a request that is safe to repeat meets a lost line once."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
import msgspec

from bide.client.connection import Connection, on_loopback
from bide.client.problems import GATEWAYS, refuse
from bide.core import limits
from bide.core.refusals import Refused
from bide.core.servers import Servers

Query = Mapping[str, str | int]
_JSON = {"content-type": "application/json"}


class Transport:
    """The open lines to the servers: to the one that answered last, and to the next when that one is out of reach."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.servers = Servers(connection.urls)
        self._http = {
            url: httpx2.AsyncClient(
                base_url=url,
                headers={"authorization": f"Bearer {connection.token}"} if connection.token else {},
                timeout=httpx2.Timeout(limits.HTTP_S, connect=limits.CONNECT_S),
                trust_env=not on_loopback(url),
            )
            for url in self.servers.urls
        }

    async def close(self) -> None:
        """Closes the lines."""
        for http in self._http.values():
            await http.aclose()

    async def ask(
        self, method: str, path: str, *, query: Query | None = None, body: Any = None, key: str = "", again: bool = True
    ) -> Any:
        """The answer's JSON. `again`: repeating the request does no harm, so a line that broke is tried once more.

        Raises what the server refuses, and `Refused('unreachable')` when it cannot be asked.
        """
        if not (key.isascii() and key.isprintable()):
            raise Refused(
                "bad_value", f"{key[:80]!a} cannot be an idempotency key.", "Use letters, digits and signs of ASCII."
            )
        headers = (_JSON if body is not None else {}) | ({"idempotency-key": key} if key else {})
        content = None if body is None else msgspec.json.encode(body)
        given = {name: value for name, value in (query or {}).items() if value not in ("", None)}

        def request(http: httpx2.AsyncClient) -> httpx2.Request:
            return http.build_request(method, path, params=given, content=content, headers=headers)

        answer, url = await self._answered(request, again=again)
        if answer.status_code >= 300:
            refuse(answer.status_code, answer.content, url)
        return msgspec.json.decode(answer.content) if answer.content else None

    @asynccontextmanager
    async def download(
        self, method: str, path: str, *, query: Query | None = None, body: Any = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of a long answer as they come. Raises like `ask`, also when the line breaks before its end."""
        content = None if body is None else msgspec.json.encode(body)
        given = {name: value for name, value in (query or {}).items() if value not in ("", None)}
        timeout = httpx2.Timeout(limits.DOWNLOAD_DEAD_S, connect=limits.CONNECT_S)

        def request(http: httpx2.AsyncClient) -> httpx2.Request:
            headers = _JSON if body is not None else {}
            return http.build_request(method, path, params=given, content=content, headers=headers, timeout=timeout)

        answer, url = await self._answered(request, again=True, whole=False)
        try:
            if answer.status_code >= 300:
                refuse(answer.status_code, await answer.aread(), url)
            yield answer.aiter_bytes()
        except httpx2.HTTPError as error:
            raise _unreachable(url, error) from None
        finally:
            await answer.aclose()

    async def _answered(
        self, request: Callable[[httpx2.AsyncClient], httpx2.Request], *, again: bool, whole: bool = True
    ) -> tuple[httpx2.Response, str]:
        """The answer of a server and its address: each is asked until one can answer."""
        asked = 0
        while True:
            url = self.servers.now
            asked += 1
            try:
                answer = await self._send(self._http[url], request(self._http[url]), again=again, whole=whole)
                if answer.status_code in GATEWAYS:
                    self.servers.away(url)
                    if again and asked < len(self.servers):
                        await answer.aclose()
                        continue
                return answer, url
            except httpx2.HTTPError as error:
                self.servers.away(url)
                unasked = again or isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
                if asked >= len(self.servers) or not unasked:
                    raise _unreachable(url, error) from None

    async def _send(
        self, http: httpx2.AsyncClient, request: httpx2.Request, *, again: bool, whole: bool
    ) -> httpx2.Response:
        try:
            return await http.send(request, stream=not whole)
        except (httpx2.NetworkError, httpx2.RemoteProtocolError) as error:
            # A line kept open across a restart of the server is dead, and that is only found out by using it.
            if not again or isinstance(error, httpx2.ConnectError):
                raise
            return await http.send(request, stream=not whole)

    @asynccontextmanager
    async def stream(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of an answer without end. Raises `httpx2.HTTPError` when the line breaks or is dead; the next try
        then goes to the next server.
        """
        timeout, url = httpx2.Timeout(limits.FOLLOW_DEAD_S, connect=limits.CONNECT_S), self.servers.now
        try:
            async with self._http[url].stream("GET", path, headers=headers, timeout=timeout) as answer:
                if answer.status_code in GATEWAYS:
                    self.servers.away(url)
                if answer.status_code >= 300:
                    refuse(answer.status_code, await answer.aread(), url)
                yield answer.aiter_bytes()
        except httpx2.HTTPError:
            self.servers.away(url)
            raise

    async def clock(self) -> tuple[float, float]:
        """How long the server took to answer, seconds, and its `Date` (epoch seconds, 0 when it has none)."""
        began = time.perf_counter()
        answer, url = await self._answered(lambda http: http.build_request("GET", "/healthz"), again=True)
        if answer.status_code >= 300:
            refuse(answer.status_code, answer.content, url)
        return time.perf_counter() - began, _moment(answer.headers.get("date", ""))


def _unreachable(url: str, error: httpx2.HTTPError) -> Refused:
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
