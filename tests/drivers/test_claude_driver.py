"""Where Claude Code is found, when it is refused, and what its conversation on disk tells."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bide.core.refusals import Refused
from bide.drivers.base import Job, Places
from bide.drivers.claude_code import ClaudeCode, frames
from bide.drivers.claude_code import driver as driver_module
from bide.drivers.claude_code.frames import Frame
from bide.drivers.claude_code.transcript import place

SESSION = "0193f000-0000-7000-8000-000000000001"


@pytest.fixture
def only_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for a `claude` that is the only one there is."""
    monkeypatch.setattr(driver_module, "CARRIER", "no_such_package_at_all")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "claude"


def program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_the_bundled_binary_is_found_and_accepted() -> None:
    runtime = ClaudeCode().probe({"PATH": "/usr/bin:/bin"})
    assert runtime.problem == ""
    assert runtime.version.startswith("2.1.")
    assert runtime.capabilities.steer


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"api_error_status": 401}, "model_unauthenticated"),
        ({"api_error_status": 403}, "model_unauthenticated"),
        ({"result": "Not logged in · Please run /login"}, "model_unauthenticated"),
        ({"result": "Your apiKeyHelper script is failing"}, "model_unauthenticated"),
        ({"api_error_status": 429}, "model_rate_limited"),
        ({"api_error_status": 500}, "model_overloaded"),
        ({"api_error_status": 529}, "model_overloaded"),
        ({"api_error_status": 502}, "model_unreachable"),
        ({"api_error_status": 504}, "model_unreachable"),
        ({"api_error_status": None}, "model_unreachable"),
        ({"api_error_status": None, "stop_reason": "refusal"}, "model_refused"),
        ({"api_error_status": 400}, "model_error"),
        ({"terminal_reason": "prompt_too_long"}, "model_context_full"),
        ({"terminal_reason": "image_error"}, "model_error"),
        ({"terminal_reason": ""}, "runtime_error"),
    ],
)
def test_what_the_model_did_is_called_by_its_name_so_that_people_know_what_to_do(more: Frame, code: str) -> None:
    frame = {"subtype": "success", "is_error": True, "terminal_reason": "api_error", "result": "API Error", **more}
    found = frames.outcome(frame)
    assert found.result == "failed"
    assert found.trouble is not None
    assert found.trouble.code == code
    assert found.trouble.hint


def test_a_missing_runtime_is_refused_with_a_way_out(only_on_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        ClaudeCode().binary()
    assert refused.value.code == "no_runtime"
    assert "bide[claude]" in ClaudeCode().probe({}).hint


@pytest.mark.parametrize(
    ("body", "version", "problem"),
    [
        ("echo '2.1.331 (Claude Code)'", "2.1.331", "too old"),
        ("echo '1.9.999 (Claude Code)'", "1.9.999", "too old"),
        ("echo nonsense", "", "does not tell its version"),
        ("echo broken >&2; exit 3", "", "broken"),
        ("echo '2.2.0-beta (Claude Code)'", "2.2.0-beta", ""),
    ],
)
def test_a_version_that_cannot_be_driven_is_refused(only_on_path: Path, body: str, version: str, problem: str) -> None:
    program(only_on_path, body)
    runtime = ClaudeCode().probe({"PATH": os.defpath})
    assert runtime.version == version
    assert problem in runtime.problem
    assert bool(runtime.problem) == bool(problem)


def test_a_file_that_cannot_run_is_a_problem_and_no_crash(only_on_path: Path) -> None:
    only_on_path.write_bytes(b"\x7fELF not really")
    only_on_path.chmod(0o755)
    assert "cannot be run" in ClaudeCode().probe({}).problem


def rows(home: Path, content: bytes) -> None:
    path = home / place(SESSION)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)


def test_inputs_are_found_in_all_three_places_through_torn_lines(tmp_path: Path) -> None:
    message = {"role": "user", "content": "x"}
    good = [
        {"type": "user", "uuid": "opened", "message": message, "mergedSendUuids": ["merged", 7]},
        {"type": "attachment", "uuid": "a", "attachment": {"type": "queued_command", "source_uuid": "folded"}},
        {"type": "attachment", "uuid": "b", "attachment": {"type": "date", "source_uuid": "not this"}},
        {"type": "queue-operation", "uuid": "only queued"},
        {"type": "user", "uuid": None, "message": message},
    ]
    lines = [json.dumps(row).encode() for row in good]
    lines[1:1] = [b"\0\0\0\xff", b'{"type":"user","uuid":"torn', b"[]", b""]
    rows(tmp_path, b"\n".join(lines) + b'\n{"type":"user","uu')
    memory = ClaudeCode().memory(tmp_path, SESSION)
    assert memory.found
    assert memory.inputs == {"opened", "merged", "folded"}


@pytest.mark.parametrize(
    ("content", "problem"), [(b"", False), (b'{"type":"queue-operation"}\n', False), (b"\0" * 4096, True)]
)
def test_a_file_without_messages_is_no_conversation(tmp_path: Path, content: bytes, problem: bool) -> None:
    rows(tmp_path, content)
    memory = ClaudeCode().memory(tmp_path, SESSION)
    assert not memory.found
    assert bool(memory.problem) == problem


def test_a_link_or_a_pipe_in_its_place_is_never_followed(tmp_path: Path) -> None:
    assert not ClaudeCode().memory(tmp_path, SESSION).problem
    rows(tmp_path, b"")
    path = tmp_path / place(SESSION)
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert ClaudeCode().memory(tmp_path, SESSION).problem
    path.unlink()
    os.mkfifo(path)
    assert ClaudeCode().memory(tmp_path, SESSION).problem


def test_nothing_secret_stands_where_tools_can_see_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "PYTHONPATH"):
        monkeypatch.setenv(name, "of the runner")
    places = Places(workspace="/workspace", home="/home/bide", state="/run/bide/state", tmp="/tmp")
    job = Job(
        session_id=SESSION,
        runtime_session_id=SESSION,
        places=places,
        home_on_host=tmp_path,
        gateway="http://127.0.0.1:9",
        token="secret-token",
        instructions="-- ask",
        binary="/run/bide/bin/claude",
    )
    launch = ClaudeCode().open(job).launch()
    assert "secret-token" not in " ".join([*launch.argv, *launch.env.values()])
    assert launch.argv[-1] == f"--session-id={SESSION}"
    assert all(file.path.startswith("/run/bide/state/") for file in launch.files)
    assert {file.mode for file in launch.files} == {0o600, 0o700}
    assert "of the runner" not in launch.env.values()
    carried = ClaudeCode().carried(SESSION)
    assert carried.keep == (f".claude/projects/ws/{SESSION}.jsonl", f".claude/projects/ws/{SESSION}")
    assert carried.private == (".claude",)


def test_an_endless_conversation_is_a_problem_that_people_read_and_no_wait(tmp_path: Path) -> None:
    rows(tmp_path, b"")
    os.truncate(tmp_path / place(SESSION), 8 << 30)
    assert "larger than" in ClaudeCode().memory(tmp_path, SESSION).problem
