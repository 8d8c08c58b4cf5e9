"""What people would lose if a crash in the middle of a save, a restore or a collection left half of something."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_kills_at_any_system_call_cost_no_checkpoint() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.snapshots.killing", "120", "1"],
        cwd=ROOT, capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["kills"] >= 120
    assert (counts["bad_restores"], counts["bad_verifies"]) == (0, 0), done.stderr
    assert min(counts["captures"], counts["restores"], counts["collections"]) > 5
