"""The way to the servers: dials out, asks by long poll, posts facts, and puts up with servers that are away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec

from bide.core.limits import CONNECT_S, GLIMPSE_POST_S, HTTP_S, STDOUT_CHUNK_BYTES
from bide.core.problems import read_problem
from bide.core.refusals import Unavailable
from bide.core.servers import Servers
from bide.core.wire import (
    LOOPBACK,
    FactsPost,
    FactsReply,
    GlimpsesPost,
    GlimpsesReply,
    Register,
    Registered,
    Sync,
    SyncReply,
)

T = TypeVar("T")


class Link:
    """One HTTP client for each server. All here raise `Refused` for a no of a server, `Unavailable` when all are away."""

    def __init__(self, servers: Servers, token: str) -> None:
        self.servers, self._enrolment = servers, token
        self.token, self.runner = token, ""
        self._http = {url: _client(url) for url in servers.urls}

    async def register(self, hello: Register) -> Registered:
        """Makes this process the runner of its name; its later requests carry the token that comes back."""
        self.token = self._enrolment
        answer = await self._post("/v1/runners", hello, Registered, HTTP_S)
        self.token, self.runner = answer.token, answer.id
        return answer

    async def sync(self, ask: Sync, within_s: float) -> SyncReply:
        """The long poll, asked once: a lease counts from when it was asked for, so the next try is the caller's."""
        return await self._once(f"/v1/runners/{self.runner}/sync", ask, SyncReply, min(within_s, ask.wait_s + HTTP_S))

    async def post(self, facts: FactsPost) -> FactsReply:
        """A batch of facts."""
        return await self._post(f"/v1/runners/{self.runner}/facts", facts, FactsReply, HTTP_S)

    async def glimpse(self, glimpses: GlimpsesPost) -> GlimpsesReply:
        """Words of the moment, asked once: a server that does not take them at once is not away for that."""
        http = self._http[self.servers.now]
        return await self._ask(http, f"/v1/runners/{self.runner}/glimpses", glimpses, GlimpsesReply, GLIMPSE_POST_S)

    async def store(self, session: str, output: str, path: Path) -> None:
        """Brings a whole output, which lies at the path. OSError where that cannot be read."""
        url = self.servers.now
        headers = {
            "authorization": f"Bearer {self.token}", "content-type": "application/octet-stream",
            "content-length": _size(path),
        }  # fmt: skip
        timeout = httpx2.Timeout(HTTP_S, connect=CONNECT_S)  # of silence, not of the whole
        try:
            reply = await self._http[url].put(
                f"/v1/sessions/{session}/outputs/{output}", content=_parts(path), headers=headers, timeout=timeout
            )
        except httpx2.HTTPError as error:
            self.servers.away(url)
            raise Unavailable("the server", str(error) or type(error).__name__) from error
        if reply.status_code >= 300:
            raise read_problem(reply.status_code, reply.content)

    async def close(self) -> None:
        """Closes the connections."""
        for http in self._http.values():
            await http.aclose()

    async def _post(self, path: str, body: msgspec.Struct, answer: type[T], timeout_s: float) -> T:
        for _ in self.servers.urls[1:]:
            try:
                return await self._once(path, body, answer, timeout_s)
            except Unavailable:
                pass  # the next is in use now
        return await self._once(path, body, answer, timeout_s)

    async def _once(self, path: str, body: msgspec.Struct, answer: type[T], timeout_s: float) -> T:
        url = self.servers.now
        try:
            return await self._ask(self._http[url], path, body, answer, timeout_s)
        except Unavailable:
            self.servers.away(url)
            raise

    async def _ask(
        self, http: httpx2.AsyncClient, path: str, body: msgspec.Struct, answer: type[T], timeout_s: float
    ) -> T:
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        timeout = httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_S))
        try:
            reply = await http.post(path, content=msgspec.json.encode(body), headers=headers, timeout=timeout)
        except httpx2.HTTPError as error:
            raise Unavailable("the server", str(error) or type(error).__name__) from error
        if reply.status_code < 300:
            try:
                return msgspec.json.decode(reply.content, type=answer)
            except msgspec.DecodeError as error:
                raise Unavailable("the server", f"it answered something else: {error}") from error
        raise read_problem(reply.status_code, reply.content)


def _size(path: Path) -> str:
    return str(path.stat().st_size)


async def _parts(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(STDOUT_CHUNK_BYTES):
            yield part


def _client(url: str) -> httpx2.AsyncClient:
    local = urlsplit(url).hostname in LOOPBACK  # no proxy knows our loopback
    return httpx2.AsyncClient(base_url=url, timeout=HTTP_S, trust_env=not local)
