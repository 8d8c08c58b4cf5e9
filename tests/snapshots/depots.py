"""Depots for tests: on disk, or in memory where thousands are needed."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

from bide.core import limits
from bide.core.refusals import Unavailable
from bide.snapshots.blobs.base import Missing, check_key
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.depot import Depot
from bide.snapshots.keyrings import FileKeyring


class MemoryBlobs:
    """A blob store that ends with the test. Children of this process have a copy: what they put is gone with them."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self._guard = threading.Lock()

    def put(self, key: str, content: bytes) -> bool:
        with self._guard:
            return self.objects.setdefault(check_key(key), content) is content

    def get(self, key: str) -> bytes:
        try:
            return self.objects[check_key(key)]
        except KeyError:
            raise Missing(key) from None

    def read(self, key: str, start: int, length: int) -> bytes:
        content = self.get(key)
        at = max(len(content) + start, 0) if start < 0 else start
        return content[at : at + length]

    def size(self, key: str) -> int:
        return len(self.get(key))

    def has(self, key: str) -> bool:
        return check_key(key) in self.objects

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        yield from sorted(key for key in self.objects if key.startswith(prefix) and key > after)

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)


def depot_at(folder: Path, family: str = "s") -> Depot:
    """A depot in this folder; depots of several families may share one."""
    return Depot(LocalBlobs(folder / "blobs"), FileKeyring(folder / "keys", family))


def depot_in_memory(folder: Path, family: str = "s") -> Depot:
    """Objects in memory, keys in this folder."""
    return Depot(MemoryBlobs(), FileKeyring(folder / "keys", family))


class Counting(LocalBlobs):
    """Remembers what was put; breaks at the put number `fail_at`, before or after it took effect."""

    def __init__(self, root: Path, fail_at: int = -1, after: bool = False) -> None:
        super().__init__(root)
        self.put_keys: list[str] = []
        self.put_bytes = 0
        self._fail_at, self._after = fail_at, after

    def put(self, key: str, content: bytes) -> bool:
        failing = len(self.put_keys) == self._fail_at
        self.put_keys.append(key)
        self.put_bytes += len(content)
        if failing and not self._after:
            raise Unavailable("the blob store", "cut")
        done = super().put(key, content)
        if failing:
            raise Unavailable("the blob store", "cut after it was written")
        return done


def fill(work: Path, files: int, seed: int = 1) -> None:
    chance = random.Random(seed)
    for n in range(files):
        folder = work / f"d{n % 37}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{n}").write_bytes(chance.randbytes(300))


def settled(path: Path, tmp_path: Path) -> None:
    """Returns once the clock is far enough past the path's last change for it to be trusted."""
    probe = tmp_path / "probe"
    for _ in range(1_000_000):
        probe.write_text("")
        if probe.stat().st_ctime_ns > path.stat().st_ctime_ns + 3 * limits.RACY_NS:
            return
    raise AssertionError("the clock stands still")


def children() -> set[int]:
    """The processes that this one started, and that have not been waited for."""
    found = (path.read_text().split() for path in Path("/proc/self/task").glob("*/children"))
    return {int(pid) for each in found for pid in each}
