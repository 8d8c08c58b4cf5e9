"""What was measured: rows of a table for people, figures for programs."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from msgspec import Struct

SCALE = float(os.environ.get("BENCH_SCALE", "1"))  # how much of the whole is done: sessions, seconds, subscribers
COLUMNS = ("what", "measured", "peer or target", "ratio")


class Row(Struct, frozen=True):
    """One line of the table."""

    what: str
    measured: str
    beside: str = ""
    ratio: str = ""


class Board:
    """The table and the figures so far."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.figures: dict[str, float] = {}

    def beside(self, what: str, measured: float, peer: float, whose: str, unit: str) -> None:
        """A measurement beside a peer's of the same run."""
        ratio = f"{measured / peer:.2f}" if peer else ""
        self.rows.append(Row(what, f"{number(measured)} {unit}", f"{number(peer)} {unit}, {whose}", ratio))

    def least(self, what: str, measured: float, target: float, unit: str) -> None:
        """A measurement that should be at least the target."""
        met = "" if measured >= target else " MISSED"
        self.rows.append(
            Row(what, f"{number(measured)} {unit}", f"≥ {number(target)} {unit}{met}", f"{measured / target:.2f}")
        )

    def most(self, what: str, measured: float, target: float, unit: str) -> None:
        """A measurement that should stay below the target."""
        met = "" if measured < target else " MISSED"
        self.rows.append(
            Row(what, f"{number(measured)} {unit}", f"< {number(target)} {unit}{met}", f"{measured / target:.2f}")
        )

    def note(self, what: str, measured: float, unit: str, beside: str = "") -> None:
        """A measurement without a target."""
        self.rows.append(Row(what, f"{number(measured)} {unit}", beside))

    def table(self) -> str:
        """All rows, in columns."""
        return in_columns([COLUMNS, *((row.what, row.measured, row.beside, row.ratio) for row in self.rows)])

    def line(self) -> str:
        """The figures as one JSON object."""
        return json.dumps({name: float(f"{value:.6g}") for name, value in self.figures.items()})


def in_columns(rows: Sequence[Sequence[str]]) -> str:
    """A table; the first row is its head."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def number(value: float) -> str:
    """With as many digits as are worth reading."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def share(values: Sequence[float], part: float) -> float:
    """The value that this part of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return statistics.median(values)


def scaled(whole: int, least: int) -> int:
    """How many of so many are done at this scale."""
    return max(least, round(whole * SCALE))


def tell(text: str) -> None:
    """Progress, for whoever waits."""
    sys.stderr.write(f"bench: {text}\n")
    sys.stderr.flush()


def show(*parts: Callable[[Board], None]) -> None:
    """Measures, then prints the table and, as the last line, the figures."""
    board = Board()
    began = time.monotonic()
    for part in parts:
        part(board)
    tell(f"took {time.monotonic() - began:.0f} s")
    sys.stdout.write(f"{board.table()}\n\n{board.line()}\n")
