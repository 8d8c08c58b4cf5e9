"""One seed is one story: whichever process tells it, whichever store keeps it. Otherwise no finding could be replayed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sim.__main__ import attempt, kept_seeds
from sim.world import play

ROOT = Path(__file__).resolve().parents[2]


def told(hash_seed: int, *options: str) -> str:
    """What the simulator prints, without how long it took."""
    done = subprocess.run(
        [sys.executable, "-m", "sim", "--jobs", "1", *options],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": str(hash_seed)}, capture_output=True, text=True, check=True,
        timeout=600,
    )  # fmt: skip
    return re.sub(r"[\d.]+ s,", "", done.stdout)


def test_a_failing_seed_fails_again_in_any_process() -> None:
    first, *others = [told(hash_seed, "--seeds", "12") for hash_seed in (0, 1, 77)]
    assert "0 failed" in first
    assert others == [first, first]


def test_sqlite_keeps_what_the_oracle_keeps() -> None:
    assert told(0, "--seeds", "10", "--store", "sqlite") == told(0, "--seeds", "10", "--store", "memory")


def test_postgresql_keeps_what_the_oracle_keeps(database: str) -> None:
    asked = ("--seeds", "8", "--jobs", "2")  # each costs seconds of commits
    kept = told(0, *asked, "--store", "postgres", "--database", database)
    assert kept == told(0, *asked, "--store", "memory")


@pytest.mark.parametrize("seed", kept_seeds())
def test_a_promise_broken_once_holds(seed: int) -> None:
    _, digest, problem, *_ = attempt("memory", seed)
    assert not problem
    assert digest


def test_two_seeds_are_two_stories() -> None:
    assert play(1)[0] != play(2)[0]
