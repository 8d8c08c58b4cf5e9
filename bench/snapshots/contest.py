"""The rounds: in each, every entrant does every operation on the same workspace, in another order each time."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from bench.board import tell
from bench.snapshots.change import changed
from bench.snapshots.clock import HERE, Order, Took, WentWrong, run
from bench.snapshots.entrants import AFTER_CHANGE, AT_FIRST, Entrant, Ground, entrants, stored
from bench.snapshots.recipes import Content, content_of, workspace

ROUNDS = max(1, int(os.environ.get("BENCH_ROUNDS", "3")))
COMPARE_S = 600.0


class Score:
    """What one entrant took in all rounds. Bytes are what its store grew by; `differences` of what it restored."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.took: dict[str, list[Took]] = {}
        self.grew: dict[str, int] = {}
        self.differences: dict[str, int] = {}
        self.wrong: dict[str, str] = {}
        self.together_mb = 0.0

    def wall_s(self, op: str) -> float | None:
        """The middle of its times."""
        took = self.took.get(op)
        return statistics.median(each.wall_s for each in took) if took else None

    def cpu_s(self, op: str) -> float | None:
        """The middle of its processor times, children's included."""
        took = self.took.get(op)
        return statistics.median(each.cpu_s for each in took) if took else None

    def peak_mb(self) -> float | None:
        """The most it held at once: of all its processes where they were watched, else of the largest of them."""
        peaks = [each.peak_mb for took in self.took.values() for each in took]
        return max(*peaks, self.together_mb) if peaks else None


class Outcome(Struct, frozen=True):
    """All that was measured on one workspace."""

    name: str
    content: Content
    changed_bytes: int
    scores: dict[str, Score]
    absent: dict[str, str]


def measure(name: str, home: Path) -> Outcome:
    """Everything on this workspace. Raises `NotMade` when it cannot be had."""
    folder = workspace(name, home)
    content = content_of(folder)
    tell(f"{name}: {content.entries:,} entries, {content.bytes / 1e6:,.0f} MB")
    scores: dict[str, Score] = {}
    absent: dict[str, str] = {}
    change = 0
    with folder_of_a_run(home) as place:
        subprocess.run(["cp", "-r", folder, place / "copy"], check=True)
        for n in range(ROUNDS + 1):
            with folder_of_a_run(place) as inside:
                found, absent = entrants(Ground(folder, place / "copy", inside, home))
                change = _Round(name, n, found, scores, folder).play()
    return Outcome(name, content, change, scores, absent)


class _Round:
    """The last one is not timed: ours is watched in it, all its processes together, which slows it down."""

    def __init__(self, name: str, n: int, found: list[Entrant], scores: dict[str, Score], folder: Path) -> None:
        self._n, self._folder = n, folder
        self._watching = n == ROUNDS
        self._title = f"{name}, {'memory' if self._watching else f'round {n + 1} of {ROUNDS}'}"
        self._entrants = [each for each in found if (each.name == "bide" if self._watching else n < each.rounds)]
        self._scores = scores

    def play(self) -> int:
        """Gives how many bytes the small change is."""
        for each in self._entrants:
            self._scores.setdefault(each.name, Score(each.version))
            for order in each.before:
                run(order)
        for op in AT_FIRST:
            self._all(op)
        self._remove("plain", "tar_zstd")
        with changed(self._folder) as size:
            for op in AFTER_CHANGE:
                self._all(op)
        return size

    def _all(self, op: str) -> None:
        turn = self._n % len(self._entrants)
        for each in self._entrants[turn:] + self._entrants[:turn]:
            if op in each.orders and not self._scores[each.name].wrong.keys() & {"first", op}:
                self._one(each, op, each.orders[op])

    def _one(self, each: Entrant, op: str, order: Order) -> None:
        score, before = self._scores[each.name], stored(each)
        try:
            took = run(order, watch=self._watching)
        except WentWrong as error:
            score.wrong[op] = str(error)
            tell(f"{self._title}: {op}, {each.name}: {error}")
            return
        tell(f"{self._title}: {op}, {each.name}: {took.wall_s:.2f} s, {took.cpu_s:.2f} s of processor time")
        if self._watching:
            score.together_mb = max(score.together_mb, took.together_mb or 0)
            return
        score.took.setdefault(op, []).append(took)
        score.grew[op] = stored(each) - before
        if self._n == 0 and op in ("restore", "warm") and each.name != "plain":
            score.differences[op] = _differences(self._folder, each.target)

    def _remove(self, *names: str) -> None:
        for each in self._entrants:
            if each.name in names:
                remove(each.target)


def _differences(folder: Path, target: Path) -> int:
    """In a process of its own: the manifests of both take memory that this one would keep."""
    argv = [sys.executable, "-m", "bench.snapshots.alike", str(folder), str(target)]
    done = subprocess.run(argv, cwd=HERE.parents[1], stdout=subprocess.PIPE, timeout=COMPARE_S, check=True)
    return int(done.stdout)


@contextmanager
def folder_of_a_run(home: Path) -> Iterator[Path]:
    """A folder that goes again, with everything in it."""
    made = Path(tempfile.mkdtemp(prefix="run-", dir=home))
    try:
        yield made
    finally:
        remove(made)


def remove(folder: Path) -> None:
    """With everything in it; quick on trees of many files."""
    subprocess.run(["rm", "-rf", folder], check=True)
