"""How the command line answers before and when something is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bide.cli import app, local_runner
from bide.cli.commands import COMMANDS
from bide.core.refusals import CODES, EXIT_CODE, Kind, Refused
from tests.cli.conftest import Bide
from tests.server.harness import until

PAGE = Path(__file__).with_name("help.txt")
NAMES = [command.name for commands in COMMANDS.values() for command in commands]


def test_help_lists_every_command_of_the_first_part(lone: Bide) -> None:
    ran = lone("--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == PAGE.read_text("utf-8"), "write it anew: bide --help > tests/cli/help.txt"
    assert ran.out == lone().out
    wanted = (
        "up runner run ps show attach send interrupt answer inbox park resume cancel logs limits runners doctor demo"
    )
    assert set(wanted.split()) <= set(NAMES)
    assert max(map(len, ran.out.splitlines())) <= 110


def test_help_is_there_at_once() -> None:
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "bide.cli.main", "--help"], check=True, capture_output=True)
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.3


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("demo", "runner")])
def test_every_command_explains_itself_and_takes_json(lone: Bide, name: str) -> None:
    ran = lone(name, "--help")
    assert ran.code == 0
    assert "Usage: bide" in ran.out
    assert "--json" in ran.out or name in ("project", "ticket")


@pytest.mark.parametrize(
    "words",
    [
        ("shwo",), ("ps", "extra"), ("ps", "--nope"), ("run",), ("run", "."), ("ps", "--shown", "asleep"),
        ("run", ".", "x", "--online-window", "15"), ("extend", "x", "--until", "someday"), ("extend", "x"),
        ("extend", "x", "--until", "monday", "--budget", "5"), ("extend", "x", "--budget", "lots"),
        ("run", ".", "x", "--budget", "-1"), ("extend", "x", "--budget", "nan"),
        ("send", "x", "y", "--delivery", "pigeon"), ("logs", "x", "--after", "y"), ("project", "nope"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_exit_code_2_with_a_sentence(lone: Bide, words: tuple[str, ...]) -> None:
    ran = lone(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("bide: ")
    assert "--help" in ran.err
    assert "Traceback" not in ran.err
    problem = lone(*words, "--json").problem
    assert (problem["code"], bool(problem["detail"]), bool(problem["hint"])) == ("usage", True, True)


def test_a_mistyped_command_names_the_one_that_was_meant(lone: Bide) -> None:
    assert "'show'" in lone("shwo").err


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_of_refusal_has_its_exit_code(lone: Bide, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    code = next(code for code, (of, _) in CODES.items() if of is kind)

    def refuse(words: object) -> int:
        raise Refused(code, "It is \x1b[31mso.", more=[1])

    monkeypatch.setattr(app, "call", refuse)
    ran = lone("ps")
    assert (ran.code, ran.out) == (EXIT_CODE[kind], "")
    assert ran.err.splitlines()[0] == "bide: It is \\x1b[31mso."
    problem = lone("ps", "--json").problem
    assert set(problem) >= {"type", "title", "status", "code", "detail", "hint", "more"}
    assert problem["code"] == code


def test_a_reader_that_leaves_is_no_error() -> None:
    ran = subprocess.run(
        f"{sys.executable} -m bide.cli.main --help | true; echo ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout.strip() in ("0", "141")
    assert ran.stderr == ""


def test_without_a_server_the_way_to_one_is_said(lone: Bide, tmp_path: Path) -> None:
    assert (lone("ps").code, "bide up" in lone("ps").err) == (7, True)
    (tmp_path / "client.json").write_text('{"url": "http://127.0.0.1:9", "token": "x"}')
    problem = lone("ps", "--json").problem
    assert (problem["code"], problem["status"], "127.0.0.1:9" in problem["detail"]) == ("unreachable", 503, True)


def test_the_doctor_finds_out_what_is_there_without_a_server(lone: Bide) -> None:
    ran = lone("doctor", "--json")
    checks = {one["name"]: one for one in ran.json["checks"]}
    assert {"python", "git", "sandbox", "runtime scripted", "data folder", "disk", "server"} <= set(checks)
    assert all(set(one) == {"name", "ok", "detail", "hint"} for one in checks.values())
    assert ran.json["ok"] == all(one["ok"] for one in checks.values())
    assert ran.code == (0 if ran.json["ok"] else 1)
    assert "bide up" in checks["server"]["hint"]


def test_the_doctor_survives_a_machine_where_everything_is_missing(
    lone: Bide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "client.json").write_text('{"url": "http://127.0.0.1:9", "token": "x"}')
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PATH", "/nowhere")
    ran = lone("doctor", "--json", "--data", str(tmp_path / "file" / "data"))
    missing = {one["name"] for one in ran.json["checks"] if not one["ok"]}
    assert {"git", "server"} <= missing
    assert all(one["hint"] for one in ran.json["checks"] if not one["ok"])
    assert ran.code == 1
    assert "MISSING" in lone("doctor").out


def test_modules_of_commands_are_not_loaded_until_they_are_asked_for() -> None:
    code = "import sys; from bide.cli.main import main; main(['--help']); print([m for m in sys.modules if 'cyclopts' in m or 'httpx2' in m])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_a_refusal_with_a_structure_inside_is_still_json(lone: Bide, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(words: object) -> int:
        raise Refused("failed", "So.", path=Path("/x"))

    monkeypatch.setattr(app, "call", refuse)
    assert json.loads(lone("ps", "--json").err)["path"] == "/x"


@pytest.mark.parametrize("words", [("--help",), ("doctor", "--help"), ("doctor", "--json")])
def test_a_full_disk_is_one_line_and_exit_code_1(tmp_path: Path, words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "bide.cli.main", *words], stdout=full, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"BIDE_HOME": str(tmp_path)}, check=False,
        )  # fmt: skip
    assert (ran.returncode, len(ran.stderr.splitlines())) == (1, 1), ran.stderr
    assert "No space left" in ran.stderr


def test_json_may_come_before_the_verb(lone: Bide) -> None:
    assert lone("--json", "ps").problem["code"] == "unreachable"
    assert lone("--json", "run", ".", "--", "--title").problem["code"] == "unreachable"
    assert "Usage: bide project ls" in lone("--json", "project", "ls", "--help").out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("ps", "--limit", "0"), "--limit must be at least 1."),
        (("up", "--slots", "-1"), "--slots must be at least 1."),
        (("ps", "--limit", "many"), "--limit must be a whole number, not 'many'."),
        (("extend", "x", "--until", "2020-01-01"), "2020-01-01 is over."),
        (("run", ".", "x", "--timeout", "3"), "'3' has no unit. Write 3s or 3m."),
        (("run", ".", "x", "--timeout", "[/x]"), "'[/x]' is not a duration. Write 90s, 15m, 2h30m or 3d."),
    ],
)
def test_a_value_that_cannot_be_is_refused_in_plain_words(lone: Bide, words: tuple[str, ...], sentence: str) -> None:
    assert lone(*words).err.splitlines()[0] == f"bide: {sentence}"


def test_help_names_what_a_value_is(lone: Bide) -> None:
    run = lone("run", "--help").out
    assert "--online-window DURATION" in run
    assert "FLOAT" not in run + lone("up", "--help").out
    assert "SESSION [TEXT]" in lone("interrupt", "--help").out
    assert "QUESTION [TEXT]" in lone("answer", "--help").out


def test_the_doctor_says_whether_claude_code_gets_a_model(lone: Bide, monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> dict[str, object]:
        return dict({one["name"]: one for one in lone("doctor", "--json").json["checks"]}["model key"])

    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("BIDE_MODEL_URL", raising=False)
    assert check()["ok"] is False
    assert "ANTHROPIC_API_KEY" in str(check()["hint"])
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-nobody-reads-this")
    assert check()["ok"] is True
    assert "sk-nobody" not in lone("doctor", "--json").out


def test_the_doctor_asks_the_runner_here_and_not_this_shell(
    lone: Bide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("BIDE_MODEL_URL", raising=False)
    sleeper = (sys.executable, "-c", "import signal; signal.pause()")
    found = local_runner.started(tmp_path, "http://127.0.0.1:9", 4, sleeper)
    try:
        until(lambda: "BIDE_HOME" in (found.variables or ()))
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-nobody-reads-this")
        check = {one["name"]: one for one in lone("doctor", "--json").json["checks"]}["model key"]
        assert (check["ok"], f"kill {found.recorded.pid}" in check["hint"]) == (False, True)
    finally:
        os.kill(found.recorded.pid, signal.SIGKILL)
