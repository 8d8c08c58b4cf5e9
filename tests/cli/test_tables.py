"""What people read about a session and a runner: each thing once, and what cannot be used with its reason."""

from __future__ import annotations

from pathlib import Path

from bide.cli import tables
from tests.cli.conftest import Bide
from tests.server.harness import LiveServer


def test_why_a_session_is_queued_is_said_once(bide: Bide, server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="nobody-there", labels=["gpu"])["id"]
    row = bide("ps").out
    assert row.count("No runner of pool nobody-there is online; 1st in its queue.") == 1
    assert "A free runner of its pool takes it" not in row
    [pool] = [line for line in bide("show", session).out.splitlines() if line.strip().startswith("pool ")]
    assert pool.split() == ["pool", "nobody-there,", "labelled", "gpu"]


def test_a_runtime_that_cannot_be_used_is_told_apart_from_those_that_can() -> None:
    said = tables.runtimes(
        [
            {"name": "claude_code", "version": "", "problem": "Claude Code is not installed.", "hint": "Install it."},
            {"name": "scripted", "version": "1", "problem": "", "hint": ""},
        ]
    )
    assert said == "scripted 1\nclaude_code: Claude Code is not installed. Install it."


def test_a_comma_too_many_between_servers_is_named(lone: Bide) -> None:
    problem = lone("ps", "--server", "a,,b", "--json").problem
    assert (problem["code"], "an empty element" in problem["detail"]) == ("bad_value", True)
