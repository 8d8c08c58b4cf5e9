"""The straight way to an object store, by URLs that the server signs: contents need not pass through the server.

Whatever goes wrong on it, the way through the server is still there. So nothing here is an error to anybody: an
answer is either certain, or `None`, "ask the server". A signed URL is a key to one object for a while; it is never
part of a message, and the token that is for the server is never sent along.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Literal
from urllib.parse import urlsplit

import httpx2
from msgspec import Struct

from bide.core import limits
from bide.core.wire import LOOPBACK
from bide.snapshots.blobs.objects import Method

_SIGNED = "packs/"  # below it names are random, and a second object under one of them is nobody's
_TAKEN, _PAST_END = 412, 416


class Signed(Struct, frozen=True, kw_only=True):
    """URLs for the keys that may be reached by one, for so long; 0: this store signs none."""

    urls: dict[str, str | None]
    expires_s: float = 0.0


Sign = Callable[[Method, str], Signed]
Put = Literal["created", "taken", "unknown", "not tried"]


def range_of(start: int, length: int) -> str:
    """The header that asks for `length` bytes, at least one, from `start`; for all from the end where that is negative."""
    return f"bytes={start}" if start < 0 else f"bytes={start}-{start + length - 1}"


class DirectWay:
    """Moves objects to and from where signed URLs lead. `sign` asks the server for one. Safe to share between threads.

    Rests for a while after a failure: a store that this machine cannot reach must not cost each transfer its patience.
    """

    def __init__(self, sign: Sign, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._sign, self._clock = sign, clock
        self._timeout = httpx2.Timeout(timeout_s, connect=min(timeout_s, limits.CONNECT_S))
        self._connect()
        self._guard = threading.Lock()
        self._urls: dict[str, tuple[str, float]] = {}
        self._rests_until = 0.0

    def close(self) -> None:
        """Closes the connections."""
        for line in self._lines.values():
            line.close()

    def put(self, key: str, content: bytes) -> Put:
        """What became of it. Unknown: it may be there, or come to be."""
        url = self._url("PUT", key)
        if url is None:
            return "not tried"
        digest = base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()
        headers = {"if-none-match": "*", "content-md5": digest, "content-type": "application/octet-stream"}
        answer = self._ask("PUT", url, content, headers)
        if answer is not None and answer.is_success:
            return "created"
        if answer is not None and answer.status_code == _TAKEN:
            return "taken"
        self._rest()
        return "unknown"

    def read(self, key: str, start: int, length: int) -> bytes | None:
        """The range; None when it could not be had."""
        found = self._get(key, {"range": range_of(start, length)})
        if found is not None and found.status_code == _PAST_END:
            return b""
        return found.content[:length] if found is not None and found.status_code == 206 else None

    def get(self, key: str) -> bytes | None:
        """The whole content; None when it could not be had."""
        found = self._get(key, {})
        return found.content if found is not None and found.status_code == 200 else None

    def _get(self, key: str, headers: dict[str, str]) -> httpx2.Response | None:
        url = self._url("GET", key)
        answer = self._ask("GET", url, None, headers | {"accept-encoding": "identity"}) if url else None
        if answer is None or answer.is_success or answer.status_code in (404, _PAST_END):
            return answer  # whether what is not there is lost, the server says
        with self._guard:
            self._urls.pop(key, None)
        self._rest()
        return None

    def _url(self, method: Method, key: str) -> str | None:
        now = self._clock()
        if not key.startswith(_SIGNED) or now < self._rests_until:
            return None
        with self._guard:
            url, until = self._urls.get(key, ("", 0.0))
        if method == "GET" and now < until:
            return url
        signed = self._sign(method, key)
        if not signed.expires_s:
            self._rest()
            return None
        found = signed.urls.get(key)
        if found and method == "GET":
            with self._guard:
                while len(self._urls) >= limits.DIRECT_KEPT_MAX:
                    self._urls.pop(next(iter(self._urls)))
                self._urls[key] = found, now + signed.expires_s * limits.DIRECT_KEPT_SHARE
        return found

    def _ask(self, method: Method, url: str, content: bytes | None, headers: dict[str, str]) -> httpx2.Response | None:
        if os.getpid() != self._process:  # the connections are the parent's
            self._connect()
        line = self._lines[urlsplit(url).hostname in LOOPBACK]
        try:
            return line.request(method, url, content=content, headers=headers)
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
            self._rest()
            return None

    def _connect(self) -> None:
        self._process = os.getpid()
        self._lines = {
            near: httpx2.Client(timeout=self._timeout, follow_redirects=False, trust_env=not near)
            for near in (True, False)
        }  # no proxy knows our loopback

    def _rest(self) -> None:
        self._rests_until = self._clock() + limits.DIRECT_REST_S


def _unsigned(record: logging.LogRecord) -> bool:
    """Whether a line of the HTTP library's log is free of signed URLs: it names the address of every request."""
    return not any("x-amz-signature" in str(word).lower() for word in record.args or ())


logging.getLogger("httpx2").addFilter(_unsigned)
