"""The protocol of a blob store: immutable objects under keys, created once and never changed.

There is no compare-and-swap and no overwrite: a key that exists keeps its content until it is deleted. That is
all the engine needs, and it is what fences a runner that no longer holds the lease.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

from bide.core.limits import BLOB_KEY_CHARS

MARK_KEY = "bide/mark"  # of the object that says which database the objects belong to

_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class Missing(Exception):
    """There is no object under `key`."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"there is no object {key}")


class BlobStore(Protocol):
    """Objects under keys. Every method may raise `Unavailable` (an outage, worth trying again), or ValueError for a
    key that `check_key` refuses."""

    def put(self, key: str, content: bytes) -> bool:
        """Creates the object, whole or not at all; False when the key already exists, whatever it holds."""
        ...

    def get(self, key: str) -> bytes:
        """The whole content; `Missing` when there is none."""
        ...

    def read(self, key: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start` on; from the end where `start` is negative. `Missing` when there is none.

        Fewer come back where the object ends; none past its end.
        """
        ...

    def size(self, key: str) -> int:
        """The object's length in bytes; `Missing` when there is none."""
        ...

    def has(self, key: str) -> bool:
        """Whether the object exists."""
        ...

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        """Every key that starts with `prefix`, once, in an order of the store's own; those behind `after` in it.

        ValueError for a prefix that no key can have.
        """
        ...

    def delete(self, key: str) -> None:
        """Removes the object; a key that is not there is no error."""
        ...


def check_key(key: str) -> str:
    """The key unchanged, or ValueError.

    Keys are segments of A-Z a-z 0-9 . _ - with '/' between them; no segment begins with a dot.
    """
    if len(key) > BLOB_KEY_CHARS or not all(_SEGMENT.fullmatch(part) for part in key.split("/")):
        raise ValueError(f"{key[:80]!r} is not the key of an object")
    return key


def folder_of(prefix: str) -> str:
    """Where all keys that start with `prefix` lie, empty for everywhere; ValueError when there can be none."""
    folder = prefix.rpartition("/")[0]
    return check_key(folder) if "/" in prefix else ""
