"""The demo as people start it: one command, a real server, two real runners, the real Claude Code, the rehearsal model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

DEMO = (sys.executable, "-m", "bide.cli.main", "demo", "--rehearsal")
WITHIN_S = 150.0
KEYS = [
    "outcome", "runtime", "runtime_version", "model", "parked_on", "resumed_on", "same_conversation", "reinstalled",
    "suite", "changelog", "park_seconds", "resume_seconds", "events",
]  # fmt: skip


def env(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder)}


def demo(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (*DEMO, *flags), env=env(folder), check=False, capture_output=True, text=True, timeout=WITHIN_S
    )


def mentioning(folder: Path) -> list[int]:
    """Processes that run in the folder or speak of it: nobody else knows its name."""
    mark, found = str(folder).encode(), []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            said = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if mark in said:
            found.append(int(entry.name))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.getuid() and parent.stat().st_mode & 0o111 != 0o111:
            parent.chmod(parent.stat().st_mode | 0o111)  # the user of a session has to pass through
    yield tmp_path
    for pid in mentioning(tmp_path):
        os.kill(pid, signal.SIGKILL)


def test_the_demo_keeps_every_promise_and_leaves_nothing_behind(folder: Path) -> None:
    done = demo(folder, "--json")
    assert done.returncode == 0, done.stderr[-4000:]
    (only,) = done.stdout.splitlines()
    line = json.loads(only)
    assert list(line) == KEYS
    assert line["park_seconds"] > 0
    assert 0 < line["resume_seconds"] < 30
    assert line["events"] > 50
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", line["runtime_version"])
    measured = ("park_seconds", "resume_seconds", "events", "runtime_version")
    assert {key: value for key, value in line.items() if key not in measured} == {
        "outcome": "completed",
        "runtime": "claude_code",
        "model": "rehearsal",
        "parked_on": "runner-one",
        "resumed_on": "runner-two",
        "same_conversation": True,
        "reinstalled": False,
        "suite": "passed",
        "changelog": True,
    }
    assert "rehearsal model" in done.stderr.splitlines()[0]
    assert not list(folder.iterdir())
    assert not mentioning(folder)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_demo_that_is_stopped_at_work_takes_everything_with_it(folder: Path, number: int, code: int) -> None:
    story = folder / "story"
    with story.open("wb") as told:
        started = subprocess.Popen(DEMO, env=env(folder), stdout=told, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + WITHIN_S
        while "tools/install.py" not in story.read_text():
            assert time.monotonic() < until, story.read_text()
            assert started.poll() is None, story.read_text()
            time.sleep(0.05)
        started.send_signal(number)
        assert started.wait(40) == code, story.read_text()
    finally:
        started.kill()
    assert [path.name for path in folder.iterdir()] == ["story"]
    assert not mentioning(folder)
    assert "Traceback (most recent call last):\n  File" not in story.read_text()


def test_a_model_that_does_not_ask_fails_the_demo_in_a_sentence(folder: Path) -> None:
    with subprocess.Popen((sys.executable, "-m", "bide.rehearsal.model"), stdout=subprocess.PIPE, text=True) as echo:
        try:
            assert echo.stdout
            real = {"ANTHROPIC_API_KEY": "key", "BIDE_MODEL_URL": echo.stdout.readline().strip(), "NO_PROXY": "*"}
            command = (*DEMO[:-1], "--json")
            done = subprocess.run(
                command, env=env(folder) | real, check=False, capture_output=True, text=True, timeout=WITHIN_S
            )
        finally:
            echo.terminate()
    assert done.returncode == 1
    assert "real model" in done.stderr.splitlines()[0]
    problem = json.loads(done.stderr.splitlines()[-1])
    assert "without a question" in problem["detail"]
    assert "--keep" in problem["hint"]
    assert not done.stdout
    assert not list(folder.iterdir())


def test_a_runtime_the_demo_cannot_play_is_refused_in_a_sentence(folder: Path) -> None:
    done = demo(folder, "--runtime", "scripted", "--json")
    assert done.returncode == 3
    problem = json.loads(done.stderr.splitlines()[-1])
    assert problem["code"] == "no_runtime"
    assert problem["detail"]
    assert problem["hint"]
    assert not done.stdout
