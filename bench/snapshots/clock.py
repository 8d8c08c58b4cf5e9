"""Runs the programs that are measured, each in a process of its own, one at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

HERE = Path(__file__).resolve().parent
PATH = os.environ.get("PATH", os.defpath)
ORDER_S = 900.0  # of one operation: the slowest peer takes a minute; one that hangs must not hang the run


class Order(Struct, frozen=True):
    """A program as it is started; `well` are the exit codes that count as success."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    cwd: Path | None = None
    well: tuple[int, ...] = (0,)


class Took(Struct, frozen=True):
    """What a program took; see `stopwatch`."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    together_mb: float | None
    code: int


class WentWrong(Exception):
    """A program that was measured failed; the text is the end of what it wrote."""


def run(order: Order, watch: bool = False, bound_s: float = ORDER_S) -> Took:
    """Runs it to its end, with nothing of this process's environment but where programs are. Raises `WentWrong`."""
    return run_at_once([order], watch, bound_s)[0]


def run_at_once(orders: list[Order], watch: bool = False, bound_s: float = ORDER_S) -> list[Took]:
    """The same with several at the same time."""
    with tempfile.TemporaryFile() as words:
        running = [
            subprocess.Popen(
                _stopwatch(order, watch, bound_s),
                stdout=subprocess.PIPE,
                stderr=words,
                cwd=order.cwd,
                env={"PATH": PATH, "LANG": "C.UTF-8", **order.env},
            )
            for order in orders
        ]
        try:
            said = [program.communicate()[0] for program in running]
        finally:
            for program in running:
                program.terminate()
        return [_took(order, out, words) for order, out in zip(orders, said, strict=True)]


def _stopwatch(order: Order, watch: bool, bound_s: float) -> list[str]:
    flags = ["--watch"] if watch else []
    return [sys.executable, "-I", "-S", str(HERE / "stopwatch.py"), str(bound_s), *flags, "--", *order.argv]


def _took(order: Order, out: bytes, words: IO[bytes]) -> Took:
    took = msgspec.json.decode(out, type=Took) if out else None
    if took is None or took.code not in order.well:
        words.seek(0)
        text = words.read().decode("utf-8", "replace").strip()
        raise WentWrong(f"{Path(order.argv[0]).name} ended with {took.code if took else 'nothing'}: {text[-2000:]}")
    return took
