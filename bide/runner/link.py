"""The way to the server: dials out, asks by long poll, posts facts, and puts up with a server that is away."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec

from bide.core.limits import HTTP_S
from bide.core.problems import read_problem
from bide.core.refusals import Unavailable
from bide.core.wire import LOOPBACK, FactsPost, FactsReply, Register, Registered, Sync, SyncReply

T = TypeVar("T")


class Link:
    """One HTTP client. Everything here raises `Refused` for a no of the server, `Unavailable` when it is away."""

    def __init__(self, server: str, token: str) -> None:
        self._server, self._enrolment = server.rstrip("/"), token
        self.token, self.runner = token, ""
        local = urlsplit(self._server).hostname in LOOPBACK  # no proxy knows our loopback
        self._http = httpx2.AsyncClient(base_url=self._server, timeout=HTTP_S, trust_env=not local)

    async def register(self, hello: Register) -> Registered:
        """Makes this process the runner of its name; its later requests carry the token that comes back."""
        self.token = self._enrolment
        answer = await self._post("/v1/runners", hello, Registered, HTTP_S)
        self.token, self.runner = answer.token, answer.id
        return answer

    async def sync(self, ask: Sync) -> SyncReply:
        """The long poll."""
        return await self._post(f"/v1/runners/{self.runner}/sync", ask, SyncReply, ask.wait_s + HTTP_S)

    async def post(self, facts: FactsPost) -> FactsReply:
        """A batch of facts."""
        return await self._post(f"/v1/runners/{self.runner}/facts", facts, FactsReply, HTTP_S)

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def _post(self, path: str, body: msgspec.Struct, answer: type[T], timeout_s: float) -> T:
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        try:
            reply = await self._http.post(
                path, content=msgspec.json.encode(body), headers=headers, timeout=timeout_s
            )  # fmt: skip
        except httpx2.HTTPError as error:
            raise Unavailable("the server", str(error) or type(error).__name__) from error
        if reply.status_code < 300:
            try:
                return msgspec.json.decode(reply.content, type=answer)
            except msgspec.DecodeError as error:
                raise Unavailable("the server", f"it answered something else: {error}") from error
        raise read_problem(reply.status_code, reply.content)
