"""Four small workspaces parked at the same moment into one store, beside one alone; also while others are collected."""

from __future__ import annotations

import statistics
import subprocess
from pathlib import Path

from msgspec import Struct

from bench.board import in_columns, number, tell
from bench.snapshots.clock import WentWrong, run, run_at_once
from bench.snapshots.contest import ROUNDS, folder_of_a_run
from bench.snapshots.entrants import Entrant, Ground, entrants
from bench.snapshots.recipes import workspace

AT_ONCE = 4
MOST = 2.0  # times as long as one alone, on two processors


class Crowd(Struct, frozen=True):
    """What it took, middle values; `beside_s` with a collection at the same time. `wrong` says how it failed."""

    name: str
    alone_s: float
    together_s: float
    beside_s: float | None = None
    wrong: str = ""


def measure(home: Path) -> list[Crowd]:
    """All that know sessions."""
    tell(f"{AT_ONCE} at once")
    with folder_of_a_run(home) as place:
        copies = [place / f"copy-{n}" for n in range(AT_ONCE)]
        for copy in copies:
            subprocess.run(["cp", "-a", workspace("small", home), copy], check=True)
        found, _ = entrants(Ground(copies[0], copies[0], place, home))
        return [_of(each, copies) for each in found if each.name in ("bide", "restic", "borg")]


def table(crowds: list[Crowd]) -> str:
    """One row for each."""
    rows = [(f"{AT_ONCE} small parks at once", "one alone, s", "all at once, s", "ratio", "promised", "")]
    for each in crowds:
        if each.wrong:
            rows.append((each.name, "failed", "", "", "", "MISSED" if each.name == "bide" else ""))
            continue
        found = {each.name: each.together_s, f"{each.name}, beside a collection": each.beside_s}
        for name, took_s in found.items():
            if took_s is not None:
                ratio = took_s / each.alone_s
                held = (f"≤ {number(MOST)}", "met" if ratio <= MOST else "MISSED") if each.beside_s else ("", "")
                rows.append((name, number(each.alone_s), number(took_s), f"{ratio:.2f}", *held))
    failed = [f"{each.name} failed: {each.wrong}" for each in crowds if each.wrong]
    return "\n".join([*failed, in_columns(rows)])


def _of(each: Entrant, copies: list[Path]) -> Crowd:
    assert each.park
    alone: list[float] = []
    together: list[float] = []
    beside: list[float] = []
    try:
        for order in each.before:
            run(order)
        alone = [run(each.park(f"alone{n}", copies[0])).wall_s for n in range(ROUNDS)]
        for n in range(ROUNDS):
            took = run_at_once([each.park(f"round{n}at{k}", copy) for k, copy in enumerate(copies)])
            together.append(max(one.wall_s for one in took))
        for n in range(ROUNDS if each.collect else 0):
            assert each.collect
            parks = [each.park(f"later{n}at{k}", copy) for k, copy in enumerate(copies)]
            *took, _ = run_at_once([*parks, each.collect(f"round{n}")])
            beside.append(max(one.wall_s for one in took))
    except WentWrong as error:
        return Crowd(each.name, 0.0, 0.0, wrong=str(error)[-200:].replace("\n", " "))
    return Crowd(
        each.name, statistics.median(alone), statistics.median(together), statistics.median(beside) if beside else None
    )
