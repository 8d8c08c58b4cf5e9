from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.snapshots.alike import differences
from bench.snapshots.change import changed
from bench.snapshots.recipes import content_of, workspace

ROOT = Path(__file__).resolve().parents[2]
KEYS = {"first_s", "unchanged_s", "small_s", "small_new_bytes", "second_new_bytes", "restore_s", "warm_s", "bytes",
        "peak_mb"}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    workspace("small", folder)
    return folder


def test_the_last_line_of_the_bench_holds_every_figure_of_ours_and_names_every_peer(home: Path, tmp_path: Path) -> None:
    # No apt-get on this PATH: peers that are not installed stay away instead of being fetched by a test.
    for program in ("git", "bash", "sh", "tar", "zstd", "cp", "rm", "mkdir", "find", "xargs", "cat", "sync"):
        found = next((Path(at, program) for at in os.get_exec_path() if Path(at, program).is_file()), None)
        if found:
            (tmp_path / "bin").mkdir(exist_ok=True)
            (tmp_path / "bin" / program).symlink_to(found)
    env = {"PATH": str(tmp_path / "bin"), "BENCH_HOME": str(home), "BENCH_ONLY": "small", "BENCH_ROUNDS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "bench.snapshots"], cwd=ROOT, env=env, capture_output=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()
    table, _, last = done.stdout.decode().rstrip("\n").rpartition("\n")
    (name, found_there), *rest = json.loads(last).items()
    assert (name, rest) == ("small", [])
    assert found_there["walk_s"] > 0
    assert {"bide", "restic", "borg", "tar_zstd"} < found_there.keys()
    assert {key for key in KEYS if not (found_there["bide"][key] or 0) > 0} == set()
    assert "restic does not take part: " in table
    assert [
        line for line in table.splitlines() if "differences after" in line and "met" not in line and "≤" in line
    ] == []


def test_what_the_bench_compares_with_is_what_it_was_after_each_round(home: Path, tmp_path: Path) -> None:
    folder = workspace("small", home)
    subprocess.run(["cp", "-a", folder, tmp_path / "kept"], check=True)
    with changed(folder) as size:
        assert len(differences(folder, tmp_path / "kept")) == 28  # 21 appended, 5 added, their folder, and its folder
        assert size > 0
    assert differences(folder, tmp_path / "kept") == []


def test_a_workspace_is_made_once(home: Path) -> None:
    made = home / "workspaces/small.made"
    before = made.stat().st_mtime_ns
    assert content_of(workspace("small", home)).files > 300
    assert made.stat().st_mtime_ns == before
