"""A small run of the whole: a fleet that is broken for twenty seconds loses nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 170.0  # it takes some forty seconds; past this the watchdog of the tests would end everything


def test_a_fleet_that_is_broken_for_twenty_seconds_loses_and_doubles_nothing() -> None:
    words = ["--seed", "1", "--seconds", "20", "--sessions", "8", "--away", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "chaos", *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=WITHIN_S
    )
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout
    line = json.loads(done.stdout.splitlines()[-1])
    assert (line["violations"], line["lost"], line["doubled"], line["sessions"]) == (0, 0, 0, 8)
    assert line["kills"] > 2
    assert line["inputs"] > 20
    assert "CHAOS_SEED=1" in done.stderr
