"""Layers over a blob store that are blob stores themselves: trying again, reading back what was put, and knowing whose
objects it holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from bide.core import limits
from bide.core.refusals import Unavailable
from bide.snapshots.blobs.base import MARK_KEY, BlobStore, Missing

T = TypeVar("T")


Pause = Callable[[float], None]
Tell = Callable[[Unavailable], None]


def tried(
    action: Callable[[], T],
    waits_s: Sequence[float] = limits.UPLOAD_TRIES_S,
    pause: Pause = time.sleep,
    tell: Tell = lambda outage: None,
) -> T:
    """Does it, and again after each outage; the last one is passed on."""
    for failed in range(len(waits_s)):
        try:
            return action()
        except Unavailable as outage:
            wait(failed, outage, waits_s, pause, tell)
    return action()


def wait(failed: int, outage: Unavailable, waits_s: Sequence[float], pause: Pause, tell: Tell) -> None:
    """Waits after so many outages, 0 being the first. What a second try did not mend is told."""
    if failed:
        tell(outage)
    pause(max(waits_s[failed], min(outage.retry_after_s, waits_s[-1])))


class Retrying:
    """Tries again after an outage, waiting `waits_s` between tries; the last outage is passed on, and those between the
    first and it are told.

    A put whose answer was lost may have succeeded, and the next try then finds the key taken. So after an outage
    "taken" is only believed when the content differs: our own object is not somebody else's.
    """

    def __init__(
        self,
        inner: BlobStore,
        waits_s: Sequence[float] = limits.UPLOAD_TRIES_S,
        pause: Pause = time.sleep,
        tell: Tell = lambda outage: None,
    ) -> None:
        self._inner, self._waits_s, self._pause, self._tell = inner, tuple(waits_s), pause, tell

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
                wait(failed, outage, self._waits_s, self._pause, self._tell)
                failed += 1
            else:
                return

    def delete(self, key: str) -> None:
        self._tried(lambda: self._inner.delete(key))

    def _tried(self, action: Callable[[], T]) -> T:
        return tried(action, self._waits_s, self._pause, self._tell)


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


class Marked:
    """The store that holds the object MARK_KEY with this content. Where it does not, another one stands in its place,
    such as the folder below a disk that is not mounted: that is an outage, and nothing is lost in it or written to it.

    What is missing is only believed when the mark is seen after it. Before a put or a delete a look of BLOB_MARK_S ago
    will do. The mark itself is no object to those who list.
    """

    def __init__(self, inner: BlobStore, mark: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._inner, self._mark, self._clock = inner, mark, clock
        self._seen = -limits.BLOB_MARK_S

    def put(self, key: str, content: bytes) -> bool:
        self.look(limits.BLOB_MARK_S)
        return self._inner.put(key, content)

    def get(self, key: str) -> bytes:
        return self._believed(lambda: self._inner.get(key))

    def read(self, key: str, start: int, length: int) -> bytes:
        return self._believed(lambda: self._inner.read(key, start, length))

    def size(self, key: str) -> int:
        return self._believed(lambda: self._inner.size(key))

    def has(self, key: str) -> bool:
        found = self._inner.has(key)
        if not found:
            self.look()
        return found

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        for key in self._inner.list(prefix, after):
            if key != MARK_KEY:
                yield key
        self.look()

    def delete(self, key: str) -> None:
        self.look(limits.BLOB_MARK_S)
        self._inner.delete(key)

    def look(self, age_s: float = 0.0) -> None:
        """Raises `Unavailable` when the mark is not there, unless it was seen so lately."""
        now = self._clock()
        if now - self._seen < age_s:
            return
        found = read_mark(self._inner)
        if found != self._mark:
            why = f"{'another mark is' if found else 'no mark is'} in it, so it is not the one of this database"
            raise Unavailable("the blob store", f"{why}: is its disk mounted?", plain=why)
        self._seen = now

    def _believed(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except Missing:
            self.look()
            raise


def read_mark(store: BlobStore) -> str:
    """What says which database the store's objects belong to; empty when nothing does. Raises `Unavailable`."""
    try:
        return store.get(MARK_KEY).decode("utf-8", "replace").strip()
    except Missing:
        return ""
