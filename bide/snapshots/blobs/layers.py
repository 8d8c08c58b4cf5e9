"""Layers over a blob store that are blob stores themselves: trying again, and reading back what was put."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from bide.core import limits
from bide.core.refusals import Unavailable
from bide.snapshots.blobs.base import BlobStore

T = TypeVar("T")


Pause = Callable[[float], None]


def tried(action: Callable[[], T], waits_s: Sequence[float] = limits.UPLOAD_TRIES_S, pause: Pause = time.sleep) -> T:
    """Does it, and again after each outage; the last one is passed on."""
    for failed in range(len(waits_s)):
        try:
            return action()
        except Unavailable as outage:
            wait(failed, outage, waits_s, pause)
    return action()


def wait(failed: int, outage: Unavailable, waits_s: Sequence[float], pause: Pause) -> None:
    """Waits after so many outages, 0 being the first."""
    pause(max(waits_s[failed], min(outage.retry_after_s, waits_s[-1])))


class Retrying:
    """Tries again after an outage, waiting `waits_s` between tries; the last outage is passed on.

    A put whose answer was lost may have succeeded, and the next try then finds the key taken. So after an outage
    "taken" is only believed when the content differs: our own object is not somebody else's.
    """

    def __init__(
        self,
        inner: BlobStore,
        waits_s: Sequence[float] = limits.UPLOAD_TRIES_S,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._inner, self._waits_s, self._pause = inner, tuple(waits_s), pause

    def put(self, key: str, content: bytes) -> bool:
        tries = 0

        def once() -> bool:
            nonlocal tries
            tries += 1
            return self._inner.put(key, content)

        return self._tried(once) or (tries > 1 and self.get(key) == content)

    def get(self, key: str) -> bytes:
        return self._tried(lambda: self._inner.get(key))

    def read(self, key: str, start: int, length: int) -> bytes:
        return self._tried(lambda: self._inner.read(key, start, length))

    def size(self, key: str) -> int:
        return self._tried(lambda: self._inner.size(key))

    def has(self, key: str) -> bool:
        return self._tried(lambda: self._inner.has(key))

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        """After an outage it goes on behind the last key that came."""
        failed = 0
        while True:
            try:
                for key in self._inner.list(prefix, after):
                    after, failed = key, 0
                    yield key
            except Unavailable as outage:
                if failed == len(self._waits_s):
                    raise
                wait(failed, outage, self._waits_s, self._pause)
                failed += 1
            else:
                return

    def delete(self, key: str) -> None:
        self._tried(lambda: self._inner.delete(key))

    def _tried(self, action: Callable[[], T]) -> T:
        return tried(action, self._waits_s, self._pause)


class ReadBack:
    """Reads each object back after putting it; content that came back different is an outage, never a success."""

    def __init__(self, inner: BlobStore) -> None:
        self._inner = inner

    def put(self, key: str, content: bytes) -> bool:
        if not self._inner.put(key, content):
            return False
        if self._inner.get(key) != content:
            self._inner.delete(key)  # we created it this moment, nobody can rely on it
            raise Unavailable("the blob store", f"it gave back other bytes than it was given for {key}")
        return True

    def get(self, key: str) -> bytes:
        return self._inner.get(key)

    def read(self, key: str, start: int, length: int) -> bytes:
        return self._inner.read(key, start, length)

    def size(self, key: str) -> int:
        return self._inner.size(key)

    def has(self, key: str) -> bool:
        return self._inner.has(key)

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        return self._inner.list(prefix, after)

    def delete(self, key: str) -> None:
        self._inner.delete(key)
