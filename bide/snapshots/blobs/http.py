"""A blob store behind bide's server: `PUT` `GET` `HEAD` `DELETE /v1/blobs/{key}` with a bearer token.

Packs go the direct way where the server's store signs URLs; roots never do, since it is the server that sees to it
that each is created once, and by whom.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self

import httpx2
import msgspec
from msgspec import Struct

from bide.core import limits
from bide.core.refusals import Refused, Unavailable
from bide.core.servers import Servers
from bide.snapshots.blobs.base import Missing, check_key, folder_of
from bide.snapshots.blobs.direct import DirectWay, Signed, range_of
from bide.snapshots.blobs.line import Line
from bide.snapshots.blobs.objects import Method

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
        self._line = Line(servers, token, "the blob server", timeout_s)
        self._direct = DirectWay(self._sign, timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._direct.close()
        self._line.close()

    def put(self, key: str, content: bytes) -> bool:
        done = self._direct.put(check_key(key), content)
        if done in ("created", "taken"):
            return done == "created"
        # What was tried and whose end is unknown may be there: our own object is not somebody else's.
        return self._put(key, content) or (done == "unknown" and self._fetch(key).content == content)

    def get(self, key: str) -> bytes:
        found = self._direct.get(check_key(key))
        return self._fetch(key).content if found is None else found

    def read(self, key: str, start: int, length: int) -> bytes:
        if length <= 0:
            self.size(key)
            return b""
        found = self._direct.read(check_key(key), start, length)
        return self._range(key, start, length) if found is None else found

    def size(self, key: str) -> int:
        answer = self._line.ask("HEAD", _path(key))
        if answer.status_code == 404:
            self._fetch(key, {"range": range_of(0, 1)})  # only an answer with a body says whose 404 it is
            raise Unavailable("the blob server", f"{key} came while it was looked for")
        self._line.expect(answer)
        return int(answer.headers.get("content-length", "0"))

    def has(self, key: str) -> bool:
        try:
            self.size(key)
        except Missing:
            return False
        return True

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        """Pages of `GET /v1/blobs?prefix=&after=`, shaped like every list of the API."""
        folder_of(prefix)
        while True:
            query = {"prefix": prefix} | ({"after": after} if after else {})
            answer = self._line.ask("GET", "/v1/blobs", params=query)
            self._line.expect(answer)
            try:
                page = msgspec.json.decode(answer.content, type=_Keys)
            except msgspec.DecodeError as error:
                raise Unavailable("the blob server", f"its list cannot be read: {error}") from error
            yield from page.items
            if not page.next or page.next == after:
                return
            after = page.next

    def delete(self, key: str) -> None:
        answer = self._line.ask("DELETE", _path(key))
        if answer.status_code != 404:
            self._line.expect(answer)

    def _put(self, key: str, content: bytes) -> bool:
        headers = {"content-type": "application/octet-stream", "if-none-match": "*"}
        answer = self._line.ask("PUT", _path(key), content=content, headers=headers)
        if answer.status_code in _EXISTS:
            found = self._line.no(answer)
            if isinstance(found, Refused) and found.code in ("fenced", "lease_over"):
                raise found
            return False
        self._line.expect(answer)
        try:
            return msgspec.json.decode(answer.content, type=_Created).created
        except msgspec.DecodeError:
            return True  # 201 or 204 without a body says the same

    def _fetch(self, key: str, headers: dict[str, str] | None = None) -> httpx2.Response:
        answer = self._line.ask("GET", _path(key), headers=headers)
        if answer.status_code == 404:
            found = self._line.no(answer)
            if isinstance(found, Refused) and found.code == "no_blob":
                raise Missing(key)
            raise found  # another 404, such as no_route, is a wrong address and must not look like a loss
        if answer.status_code != 416:
            self._line.expect(answer)
        return answer

    def _range(self, key: str, start: int, length: int) -> bytes:
        answer = self._fetch(key, {"range": range_of(start, length)})
        if answer.status_code == 416:
            return b""
        if answer.status_code == 206:
            return answer.content[:length]
        whole = answer.content  # of a server that knows no ranges
        first = start if start >= 0 else max(0, len(whole) + start)
        return whole[first : first + length]

    def _sign(self, method: Method, key: str) -> Signed:
        """A server that will not, or does not know how, is as one whose store cannot."""
        answer = self._line.ask(
            "POST",
            "/v1/blobs/sign",
            content=msgspec.json.encode({"method": method, "keys": [key]}),
            headers={"content-type": "application/json"},
        )
        try:
            return msgspec.json.decode(answer.content, type=Signed) if answer.is_success else Signed(urls={})
        except msgspec.DecodeError:
            return Signed(urls={})


def _path(key: str) -> str:
    return f"/v1/blobs/{check_key(key)}"
