"""Layers over a blob store that are blob stores themselves: trying again, and reading back what was put."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from bide.core import limits
from bide.core.refusals import Unavailable
from bide.snapshots.blobs.base import BlobStore

T = TypeVar("T")


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

    def has(self, key: str) -> bool:
        return self._tried(lambda: self._inner.has(key))

    def list(self, prefix: str) -> Iterator[str]:
        yield from self._tried(lambda: list(self._inner.list(prefix)))

    def delete(self, key: str) -> None:
        self._tried(lambda: self._inner.delete(key))

    def _tried(self, action: Callable[[], T]) -> T:
        for wait_s in self._waits_s:
            try:
                return action()
            except Unavailable as outage:
                self._pause(max(wait_s, min(outage.retry_after_s, self._waits_s[-1])))
        return action()


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

    def has(self, key: str) -> bool:
        return self._inner.has(key)

    def list(self, prefix: str) -> Iterator[str]:
        return self._inner.list(prefix)

    def delete(self, key: str) -> None:
        self._inner.delete(key)
