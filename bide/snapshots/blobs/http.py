"""A blob store behind bide's server: `PUT` `GET` `HEAD` `DELETE /v1/blobs/{key}` with a bearer token."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import httpx2
import msgspec
from msgspec import Struct

from bide.core import limits
from bide.core.problems import LATER, read_problem
from bide.core.refusals import Refused, Unavailable
from bide.core.servers import Servers
from bide.core.wire import LOOPBACK
from bide.snapshots.blobs.base import Missing, check_key

_EXISTS = (409, 412)


class _Created(Struct):
    created: bool = True


class _Keys(Struct):
    items: list[str]
    next: str | None = None


class HttpBlobs:
    """Objects kept by bide servers. Safe to share between threads; close it, or use it in `with`.

    A refusal of the server (no token, fenced, too large) is raised as `Refused` with the server's own words;
    an outage, a cut connection or a 5xx as `Unavailable`. Redirects are not followed: they would carry the token away.
    """

    def __init__(self, servers: str | Servers, token: str, timeout_s: float = limits.HTTP_S) -> None:
        self._servers = Servers([servers]) if isinstance(servers, str) else servers
        self._clients = {
            url: httpx2.Client(
                base_url=url,
                headers={"authorization": f"Bearer {token}"},
                timeout=httpx2.Timeout(timeout_s, connect=min(timeout_s, limits.CONNECT_S)),
                follow_redirects=False,
                trust_env=urlsplit(url).hostname not in LOOPBACK,  # no proxy knows our loopback
            )
            for url in self._servers.urls
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        for client in self._clients.values():
            client.close()

    def put(self, key: str, content: bytes) -> bool:
        headers = {"content-type": "application/octet-stream", "if-none-match": "*"}
        answer = self._ask("PUT", _path(key), content=content, headers=headers)
        if answer.status_code in _EXISTS:
            found = _read(answer)
            if isinstance(found, Refused) and found.code in ("fenced", "lease_over"):
                raise found
            return False
        _expect(answer)
        try:
            return msgspec.json.decode(answer.content, type=_Created).created
        except msgspec.DecodeError:
            return True  # 201 or 204 without a body says the same

    def get(self, key: str) -> bytes:
        answer = self._ask("GET", _path(key))
        if answer.status_code == 404:
            found = _read(answer)
            if isinstance(found, Refused) and found.code == "no_blob":
                raise Missing(key)
            raise found  # another 404, such as no_route, is a wrong address and must not look like a loss
        _expect(answer)
        return answer.content

    def has(self, key: str) -> bool:
        answer = self._ask("HEAD", _path(key))
        if answer.status_code == 404:
            return False
        _expect(answer)
        return True

    def list(self, prefix: str) -> Iterator[str]:
        """Pages of `GET /v1/blobs?prefix=&after=`, shaped like every list of the API."""
        after: str | None = None
        while True:
            query = {"prefix": prefix} | ({"after": after} if after else {})
            answer = self._ask("GET", "/v1/blobs", params=query)
            _expect(answer)
            try:
                page = msgspec.json.decode(answer.content, type=_Keys)
            except msgspec.DecodeError as error:
                raise Unavailable("the blob server", f"its list cannot be read: {error}") from error
            yield from page.items
            if not page.next or page.next == after:
                return
            after = page.next

    def delete(self, key: str) -> None:
        answer = self._ask("DELETE", _path(key))
        if answer.status_code != 404:
            _expect(answer)

    def _ask(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
        params: dict[str, str] | None = None,
    ) -> httpx2.Response:
        url = self._servers.now
        try:
            answer = self._clients[url].request(method, path, content=content, headers=headers, params=params)
        except httpx2.TransportError as error:
            self._servers.away(url)
            raise Unavailable("the blob server", str(error) or type(error).__name__) from error
        if answer.status_code >= 500 or answer.status_code in LATER:
            no = _read(answer)
            if isinstance(no, Unavailable) and no.said is None:  # not its own words: something stands before it
                self._servers.away(url)
            raise no
        return answer


def _path(key: str) -> str:
    return f"/v1/blobs/{check_key(key)}"


def _expect(answer: httpx2.Response) -> None:
    if answer.is_redirect:
        raise Refused("failed", f"The blob server answered {answer.status_code}: it has moved, give its own address.")
    if not answer.is_success:
        raise _read(answer)


def _read(answer: httpx2.Response) -> Refused | Unavailable:
    found = read_problem(answer.status_code, answer.content, "the blob server")
    if isinstance(found, Unavailable):
        found.retry_after_s = _retry_after(answer)
    return found


def _retry_after(answer: httpx2.Response) -> float:
    text = answer.headers.get("retry-after", "")
    return min(float(text), limits.UPLOAD_TRIES_S[-1]) if text.isdigit() else 1.0
