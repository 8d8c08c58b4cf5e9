"""The demo's line says what happened, not what should have: each promise that is broken shows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bide.cli.demo.proof import Evidence, broken, measure
from bide.cli.demo.watch import Watch
from bide.drivers.claude_code import ClaudeCode
from bide.drivers.claude_code.transcript import place
from bide.rehearsal.repository import original

START = 1_760_000_000.0
RUNTIME_SESSION = "5f0c6f0e-0000-4000-8000-000000000001"
ANSWERED, SUITE = "Answer to your question “Which?”:\na", ".venv/bin/python -m unittest -v 2>&1"
Case = dict[str, Any]


def usual() -> list[tuple[str, dict[str, Any]]]:
    """A log as it should be, one second between events."""
    return [
        ("user.message", {"id": "prompt"}),
        ("session.leased", {"runner_name": "one"}),
        ("runtime.started", {"version": "2.1.332"}),
        ("tool.call", {"id": "install", "name": "Bash", "input": ".venv/bin/python tools/install.py"}),
        ("session.parking", {}),
        ("session.parked", {"seconds": 9.0}),
        ("user.answer", {"id": "answer"}),
        ("session.leased", {"runner_name": "two"}),
        ("runtime.resumed", {"version": "2.1.332", "rung": "native"}),
        ("user.receipt", {"input_id": "answer", "status": "delivered"}),
        ("tool.call", {"id": "suite", "name": "Bash", "input": SUITE}),
        ("user.message", {"id": "message"}),
        ("tool.result", {"id": "suite", "output": "Ran 3 tests in 3.0s\n\nOK"}),
        ("user.receipt", {"input_id": "message", "status": "consumed"}),
        ("cost", {"model": "a-model"}),
        ("session.ended", {"outcome": "completed", "summary": ""}),
    ]


def asked(*texts: str, results: tuple[str, ...] = ()) -> dict[str, Any]:
    users = [{"at": 0, "sha256": text, "text": text} for text in texts]
    return {"session": RUNTIME_SESSION, "tools": ["Bash"], "users": users, "results": [{"id": one} for one in results]}


def case() -> Case:
    before, since = asked("task", results=("r1",)), asked("task", ANSWERED, results=("r1", "r2"))
    ended = {"outcome": "completed", "runtime": "claude_code", "model": "", "runtime_session_id": RUNTIME_SESSION}
    return {
        "log": usual(), "requests": [before, since], "ended": ended, "remembered": ["prompt", "answer", "message"],
        "changelog": "more", "installed_at": START + 3,
    }  # fmt: skip


def evidence(root: Path, given: Case) -> Evidence:
    watch = Watch("session", lambda event: None, lambda: None)
    watch.events = [
        {"id": str(seq), "session_id": "session", "seq": seq, "epoch": 1, "turn": 1, "actor": "", "type": kind,
         "time": datetime.fromtimestamp(START + seq, UTC).isoformat(), "data": body}
        for seq, (kind, body) in enumerate(given["log"], 1)
    ]  # fmt: skip
    conversation = root / "session/home" / place(RUNTIME_SESSION)
    conversation.parent.mkdir(parents=True)
    rows = [{"type": "user", "uuid": one, "message": {"content": "x"}} for one in given["remembered"]]
    conversation.write_text("\n".join(map(json.dumps, rows)))
    installed = root / "session/workspace/.venv/lib/plaindate.py"
    installed.parent.mkdir(parents=True)
    installed.write_text("")
    os.utime(installed, (given["installed_at"], given["installed_at"]))
    (root / "session/workspace/CHANGELOG.md").write_text(given["changelog"])
    ended: Any = {"id": "session", "last_seq": given.get("last_seq", len(watch.events)), **given["ended"]}
    began: Any = {"runtime_session_id": RUNTIME_SESSION}
    return Evidence(
        watch=watch, began=began, ended=ended, root=root, driver=ClaudeCode(),
        prompt="prompt", answer="answer", message="message", requests=given["requests"],
    )  # fmt: skip


def test_what_went_well_is_said_with_its_numbers(tmp_path: Path) -> None:
    found = evidence(tmp_path, case())
    line = measure(found)
    assert not broken(line, found)
    assert (line.parked_on, line.resumed_on, line.runtime_version) == ("one", "two", "2.1.332")
    assert (line.park_seconds, line.resume_seconds, line.events) == (1.0, 3.0, 16)
    assert (line.model, line.suite, line.outcome) == ("rehearsal", "passed", "completed")


def test_a_real_model_is_named_by_what_was_billed(tmp_path: Path) -> None:
    assert measure(evidence(tmp_path, case() | {"requests": None})).model == "a-model"


def _log(place: int, **body: Any) -> Callable[[Case], Any]:
    return lambda given: given["log"][place][1].update(body)


def _add(place: int, kind: str, **body: Any) -> Callable[[Case], Any]:
    return lambda given: given["log"].insert(place, (kind, body))


def _set(name: str, value: Any) -> Callable[[Case], Any]:
    return lambda given: given.update({name: value})


BEFORE = asked("task", results=("r1",))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda given: given["ended"].update(outcome="failed"), "ended as failed"),
        (_log(7, runner_name="one"), "resumed on 'one'"),
        (_log(8, rung="fresh"), "conversation"),
        (lambda given: given["ended"].update(runtime_session_id="another"), "conversation"),
        (_set("remembered", ["answer", "message"]), "conversation"),
        (_set("requests", [BEFORE, asked(ANSWERED, results=("r1",))]), "conversation"),  # the task is forgotten
        (_set("requests", [BEFORE, asked("task", "task", ANSWERED, results=("r1",))]), "conversation"),  # told twice
        (_set("requests", [BEFORE, asked("task", ANSWERED, ANSWERED, results=("r1",))]), "conversation"),
        (_set("requests", [BEFORE, asked("task", ANSWERED)]), "conversation"),  # a result is forgotten
        (_set("requests", [BEFORE]), "conversation"),
        (_add(10, "tool.call", id="x", input="python3 -m venv .venv"), "installed again"),
        (_add(10, "tool.call", id="x", input="uv pip install plaindate"), "installed again"),
        (_set("installed_at", START + 9), "installed again"),
        (_log(12, output="FAILED (failures=1)"), "failed"),
        (_log(12, output="killed"), "failed"),
        (_log(10, input=".venv/bin/python -m unittest tests.test_report"), "not run"),
        (_set("changelog", original("CHANGELOG.md")), "CHANGELOG"),
        (_log(9, status="accepted"), "did not reach"),
        (_set("last_seq", 17), "16 of 17"),
        (lambda given: given["log"].insert(13, given["log"].pop(11)), "while the suite ran"),
        (_add(12, "runtime.exited", reason="x"), "restarted"),
        (_log(13, status="delivered"), "restarted"),
    ],
)
def test_what_went_wrong_is_said(tmp_path: Path, spoil: Callable[[Case], Any], said: str) -> None:
    given = case()
    spoil(given)
    found = evidence(tmp_path, given)
    assert [sentence for sentence in broken(measure(found), found) if said in sentence]
