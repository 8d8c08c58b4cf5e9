"""A program of its own: captures, restores and erases, is killed at random system calls, and says what that cost.

    python -m tests.snapshots.killing ROUNDS SEED

Its last line is one JSON object. It needs to be alone in its process: it forks, and waits for all its children.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bide.snapshots.blobs.base import Missing
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.capture import capture
from bide.snapshots.compare import Described, manifest_of
from bide.snapshots.depot import Depot, KeyMissing
from bide.snapshots.keyrings import FileKeyring
from bide.snapshots.losses import BadFolder, Damaged
from bide.snapshots.manifest import root_key
from bide.snapshots.restore import restore
from bide.snapshots.scan import Tree
from bide.snapshots.verify import verify
from tests.snapshots.traced import killed_at

SESSION = "s"
NEVER = 10**9


class Place:
    """A depot, a folder that changes, and a folder that its checkpoints are brought back to."""

    def __init__(self, home: Path, rng: random.Random) -> None:
        self.home, self.rng = home, rng
        self.work, self.back = home / "work", home / "back"
        self.work.mkdir()
        self.good: dict[str, dict[bytes, Described]] = {}
        self.n = 0
        self.counts = {"kills": 0, "captures": 0, "restores": 0, "collections": 0, "bad_restores": 0, "bad_verifies": 0}
        self.calls: dict[str, int] = {}

    def depot(self) -> Depot:
        return Depot(LocalBlobs(self.home / "blobs"), FileKeyring(self.home / "keys", SESSION))

    def edit(self) -> None:
        """Files come, change and go."""
        for _ in range(self.rng.randint(1, 4)):
            folder = self.work / f"d{self.rng.randint(0, 3)}"
            folder.mkdir(exist_ok=True)
            path = folder / f"f{self.rng.randint(0, 5)}"
            if path.exists() and self.rng.random() < 0.3:
                path.unlink()
            else:
                path.write_bytes(self.rng.randbytes(self.rng.choice((0, 10, 4000, 3_000_000))))

    def capture(self) -> None:
        self.edit()
        self.n += 1
        root, parent = f"{SESSION}/1-{self.n}", max(self.good, key=_number, default=None)
        held = manifest_of(self.work)
        workers = self.rng.choice((1, 1, 1, 2))

        def work() -> None:
            capture((Tree("w", self.work),), self.depot(), root, parent, self.home / "cache", workers=workers)

        self._struck("captures", work)
        if self._offered(root):
            self.good[root] = held

    def restore(self) -> None:
        root = self.rng.choice(sorted(self.good))
        warm = self.rng.random() < 0.5
        cache = self.home / "back.cache"

        def work() -> None:
            restore(root, self.depot(), {"w": self.back}, cache_dir=cache, warm=warm and cache.exists())

        self._struck("restores", work)
        self._bring(root, cache)

    def _bring(self, root: str, cache: Path) -> None:
        """Whatever the crash left, the checkpoint comes back on top of it: in place where that is offered, or anew."""
        try:
            restore(root, self.depot(), {"w": self.back}, cache_dir=cache, warm=self.back.exists() and cache.exists())
        except BadFolder:
            shutil.rmtree(self.back)
            restore(root, self.depot(), {"w": self.back}, cache_dir=cache)
        if manifest_of(self.back) != self.good[root]:
            self.counts["bad_restores"] += 1

    def collect(self) -> None:
        """The oldest goes: its keys first, then what nobody uses."""
        if len(self.good) < 2:
            return
        root = min(self.good, key=_number)
        del self.good[root]

        def work() -> None:
            depot = self.depot()
            FileKeyring(self.home / "keys", SESSION).forget(root)
            depot.blobs.delete(root_key(root))
            used = {name for kept in self.good for name in depot.keyring.keys(kept).packs}
            for key in list(depot.blobs.list("packs/")):
                if key.rpartition("/")[2] not in used:
                    depot.blobs.delete(key)

        self._struck("collections", work)

    def check(self) -> None:
        """Every checkpoint that was ever offered is whole."""
        for root in self.good:
            try:
                verify(root, self.depot(), deep=True)
            except (Damaged, Missing, KeyMissing) as error:
                print(f"{root}: {error}", file=sys.stderr)
                self.counts["bad_verifies"] += 1

    def _offered(self, root: str) -> bool:
        """Whether the root is there: then it counts as saved, and must be whole."""
        depot = self.depot()
        return depot.blobs.has(root_key(root))

    def _struck(self, what: str, work: Callable[[], None]) -> None:
        """Kills it anywhere in about the length that it had before, or lets it come to its end now and then."""
        lives = self.rng.random() < 0.25
        calls, code = killed_at(NEVER if lives else self.rng.randint(1, self.calls.get(what, 400)), work)
        self.counts[what] += 1
        self.counts["kills"] += code == -9
        if code != -9:
            self.calls[what] = calls
        if code not in (0, -9):
            raise SystemExit(f"{what} failed with code {code}")


def _number(root: str) -> int:
    return int(root.rpartition("-")[2])


def main(rounds: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as home:
        place = Place(Path(home), random.Random(seed))
        while place.counts["kills"] < rounds:
            place.capture()
            if place.good:
                place.restore()
            place.collect()
            if sum(place.counts.values()) % 7 == 0:
                place.check()
        place.check()
        print(json.dumps(place.counts))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
