"""`bide up` as a process: it says where it is, comes back as it was, and its runner outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bide.cli import local_runner
from bide.client import SyncClient
from bide.client.connection import find
from bide.core import limits
from bide.core.refusals import Refused
from bide.runner import procfs
from tests.server.harness import LiveServer, repository, until

SLEEPER = (sys.executable, "-c", "import signal; signal.pause()")


@contextmanager
def up(
    folder: Path, *words: str, runner: bool = False, env: Mapping[str, str] = os.environ
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    env = {name: value for name, value in env.items() if not name.startswith("BIDE_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "bide.cli.main", "up", "--json", *words, *([] if runner else ["--no-runner"])],
        env=env | {"BIDE_HOME": str(folder)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def sleepers() -> Iterator[list[int]]:
    """Process ids that are ended after the test."""
    started: list[int] = []
    yield started
    for pid in started:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_restart_keeps_address_and_token(tmp_path: Path, number: signal.Signals) -> None:
    with up(tmp_path, "--listen", "127.0.0.1:0", "--lease", "5s") as (process, first):
        assert set(first) == {"url", "token", "data", "runner", "page"}
        assert first["page"].startswith(f"{first['url']}/#sign-in=")
        assert (first["data"], first["runner"]) == (str(tmp_path), None)
        kept = json.loads((tmp_path / "client.json").read_text())
        assert kept == {"url": first["url"], "token": first["token"]}
        second = subprocess.run(
            [sys.executable, "-m", "bide.cli.main", "up", "--no-runner", "--json", "--data", str(tmp_path)],
            capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        assert (second.returncode, second.stdout) == (3, "")
        assert json.loads(second.stderr.splitlines()[-1])["code"] in ("store_taken", "bad_setting")
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out) == (0, "")
        assert "Traceback" not in err
    with up(tmp_path) as (_, again):
        assert again["page"] != first["page"], "a link is good once"
        assert again | {"page": ""} == first | {"page": ""}


@pytest.mark.parametrize(
    "words",
    [("--listen", "nonsense"), ("--database", "mysql:x"), ("--lease", "0"), ("--blobs", "x"), ("--data", "/proc/x")],
)
def test_a_server_that_cannot_start_says_why(tmp_path: Path, words: tuple[str, ...]) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "bide.cli.main", "up", "--no-runner", "--json", *words],
        env=os.environ | {"BIDE_HOME": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (3, "")
    assert json.loads(ran.stderr.splitlines()[-1])["code"] == "bad_setting"


def test_a_second_server_with_a_folder_of_its_own_leaves_the_commands_with_the_first(tmp_path: Path) -> None:
    with up(tmp_path / "first", "--listen", "127.0.0.1:0") as (_, first):
        with up(tmp_path / "first", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "second")) as (_, second):
            assert json.loads((tmp_path / "second" / "client.json").read_text())["url"] == second["url"]
        assert find("", "", {"BIDE_HOME": str(tmp_path / "first")}).url == first["url"]
        assert find("", "", {"BIDE_HOME": str(tmp_path / "second")}).url == second["url"]
        assert find("", "", {"BIDE_DATA": str(tmp_path / "second")}).url == second["url"]


@pytest.mark.parametrize("words", [("--slots", "100000"), ("--listen", "256.0.0.1:1"), ("--blobs", "ftp:x")])
def test_what_is_refused_at_the_start_leaves_nothing_behind(tmp_path: Path, words: tuple[str, ...]) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "bide.cli.main", "up", "--json", "--data", str(tmp_path / "data"), *words],
        env=os.environ | {"BIDE_HOME": str(tmp_path / "home")}, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert (ran.returncode, "Traceback" in ran.stderr) == (3, False), ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_living_runner_is_adopted_and_not_started_twice(tmp_path: Path, sleepers: list[int]) -> None:
    first = local_runner.started(tmp_path, "http://127.0.0.1:1", 4, SLEEPER)
    sleepers.append(first.recorded.pid)
    again = local_runner.started(tmp_path, "http://127.0.0.1:1", 4, SLEEPER)
    assert (first.adopted, again.adopted) == (False, True)
    assert again.recorded == first.recorded
    assert os.getsid(first.recorded.pid) == first.recorded.pid, "a session of its own: Ctrl-C does not reach it"


def test_a_runner_that_ended_is_started_anew_even_when_its_pid_is_somebody_elses(
    tmp_path: Path, sleepers: list[int]
) -> None:
    mine = procfs.ident(os.getpid())
    assert mine is not None
    stale = f'{{"pid": {mine.pid}, "start": {mine.start - 1}, "url": "http://127.0.0.1:1"}}'
    (tmp_path / local_runner.RECORD).write_text(stale)
    found = local_runner.started(tmp_path, "http://127.0.0.1:1", 4, SLEEPER)
    sleepers.append(found.recorded.pid)
    assert not found.adopted
    assert found.recorded.pid != os.getpid()


def test_a_runner_that_dials_another_address_is_replaced(tmp_path: Path, sleepers: list[int]) -> None:
    old = local_runner.started(tmp_path, "http://127.0.0.1:1", 4, SLEEPER)
    sleepers.append(old.recorded.pid)
    new = local_runner.started(tmp_path, "http://127.0.0.1:2", 4, SLEEPER)
    sleepers.append(new.recorded.pid)
    assert (new.adopted, old.alive, new.alive) == (False, False, True)


def test_a_runner_that_does_not_end_is_left_alone_and_named(
    tmp_path: Path, sleepers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RUNNER_STOP_S", 0.3)
    stubborn = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); signal.pause()"
    old = local_runner.started(tmp_path, "http://127.0.0.1:1", 4, (sys.executable, "-c", stubborn))
    sleepers.append(old.recorded.pid)
    until(lambda: old.last_words() == "1")
    with pytest.raises(Refused) as refused:
        local_runner.started(tmp_path, "http://127.0.0.1:2", 4, SLEEPER)
    assert str(old.recorded.pid) in refused.value.sentence
    assert old.alive


def test_the_token_stands_in_no_command_line_and_the_log_is_private(tmp_path: Path, sleepers: list[int]) -> None:
    words = local_runner._program(tmp_path, "http://127.0.0.1:1", 4)
    assert "--token" not in words
    found = local_runner.started(tmp_path, "http://127.0.0.1:1", 4, SLEEPER)
    sleepers.append(found.recorded.pid)
    assert found.log.stat().st_mode & 0o077 == 0


def test_the_runner_outlives_the_server_and_goes_on_with_its_session(tmp_path: Path) -> None:
    place, folder = repository(tmp_path / "repo"), tmp_path / "data"
    folder.mkdir()
    bide = (sys.executable, "-m", "bide.cli.main")
    env = os.environ | {"BIDE_HOME": str(folder)}
    pids: list[int] = []
    try:
        with up(folder, "--listen", "127.0.0.1:0", "--lease", "30s", "--slots", "2", runner=True) as (process, first):
            pids.append(json.loads((folder / "runner.json").read_text())["pid"])
            assert (first["runner"]["name"], first["runner"]["state"], first["runner"]["slots"]) == (
                "local",
                "online",
                2,
            )
            words = (
                "run",
                str(place),
                "hello",
                "--runtime",
                "scripted",
                "--wait",
                "waiting",
                "--timeout",
                "60s",
                "--json",
            )
            ran = subprocess.run((*bide, *words), env=env, capture_output=True, text=True, check=True)
            session = json.loads(ran.stdout)
            assert session["shown"] == "waiting"
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=30)
            assert f"kill {pids[0]}" in err
        with up(folder, "--lease", "30s", runner=True) as (_, again):
            assert (again["url"], again["token"]) == (first["url"], first["token"])
            assert again["runner"]["id"] == first["runner"]["id"]
            assert json.loads((folder / "runner.json").read_text())["pid"] == pids[0]
            for verb, *more in (("park",), ("send", "go on")):
                subprocess.run((*bide, verb, session["id"], *more), env=env, capture_output=True, check=True)
            now = subprocess.run((*bide, "show", session["id"], "--json"), env=env, capture_output=True, check=True)
            assert json.loads(now.stdout)["runtime_session_id"] == session["runtime_session_id"]
            runner = procfs.ident(pids[0])
            procfs.send(runner, signal.SIGTERM)  # while the server is there: it parks what it has
            until(lambda: not procfs.alive(runner))
    finally:
        left = local_runner.living(folder)  # the one that `bide up` started after it
        for pid in (*pids, *([left.pid] if left is not None else [])):
            procfs.send(procfs.ident(pid), signal.SIGKILL)


def recorded(folder: Path) -> int:
    """The process of the runner that was started last; 0 before the first."""
    try:
        return int(json.loads((folder / "runner.json").read_text())["pid"])
    except FileNotFoundError:
        return 0


def other(folder: Path, than: int) -> int:
    """Another runner than that one, once its process runs."""
    return int(until(lambda: (pid := recorded(folder)) != than and procfs.alive(procfs.ident(pid)) and pid, 30))


@contextmanager
def no_runner_left(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        found = local_runner.living(folder)
        if found is not None:
            procfs.send(found.process, signal.SIGKILL)


def line_of(process: subprocess.Popen[str], *parts: str) -> str:
    """The first line on stderr with all parts in it."""
    assert process.stderr is not None
    for line in process.stderr:
        if all(part in line for part in parts):
            return line.strip()
    raise AssertionError(f"it ended without saying {parts}")


def online(url: str, token: str) -> list[str]:
    with SyncClient(url, token) as client:
        return [one["name"] for one in client.runners() if one["state"] == "online"]


def test_a_runner_that_dies_is_said_and_started_anew_but_not_for_ever(tmp_path: Path) -> None:
    with no_runner_left(tmp_path), up(tmp_path, "--listen", "127.0.0.1:0", runner=True) as (process, there):
        assert {one["name"] for one in there["runner"]["runtimes"]} >= {"scripted"}
        pid = recorded(tmp_path)
        procfs.send(procfs.ident(pid), signal.SIGKILL)
        said = line_of(process, f"The runner (process {pid}) has ended")
        pid = other(tmp_path, pid)
        assert f"process {pid}" in said, "who reads it knows the new one"
        until(lambda: online(there["url"], there["token"]) == ["local"])
        procfs.send(procfs.ident(pid), signal.SIGTERM)  # by hand, in order
        assert f"process {other(tmp_path, pid)}" in line_of(process, f"The runner (process {pid}) has ended")
        pid = recorded(tmp_path)
        procfs.send(procfs.ident(pid), signal.SIGKILL)
        assert "is not started again" in line_of(process, f"The runner (process {pid}) has ended", "3 times")
        assert recorded(tmp_path) == pid
        words = [sys.executable, "-m", "bide.cli.main", "doctor", "--json"]
        ran = subprocess.run(words, env=os.environ | {"BIDE_HOME": str(tmp_path)}, capture_output=True, check=False)
        check = {one["name"]: one for one in json.loads(ran.stdout)["checks"]}["runners"]
        assert (check["ok"], f"process {pid}" in check["detail"]) == (False, True), "though the server still counts it"


def test_a_runner_that_drains_is_not_taken_over(tmp_path: Path) -> None:
    with no_runner_left(tmp_path):
        with up(tmp_path, "--listen", "127.0.0.1:0", runner=True) as (process, first):
            env = os.environ | {"BIDE_HOME": str(tmp_path)}
            task = '@@[{"say":"x"},{"run":"sleep 4"}]'
            place = repository(tmp_path / "repo")
            words = ("run", str(place), task, "--runtime", "scripted", "--wait", "working", "--timeout", "60s")
            subprocess.run([sys.executable, "-m", "bide.cli.main", *words], env=env, check=True, capture_output=True)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
        old = recorded(tmp_path)
        procfs.send(procfs.ident(old), signal.SIGTERM)  # it has a turn to end first
        with up(tmp_path, runner=True) as (process, again):
            assert not procfs.alive(procfs.ident(old))
            assert (again["runner"]["id"], again["runner"]["state"]) == (first["runner"]["id"], "online")
            assert recorded(tmp_path) != old


@pytest.mark.parametrize("key", ["", "ours", "theirs"])
def test_a_runner_without_a_model_is_said_at_the_start(tmp_path: Path, key: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "ANTHROPIC_API_KEY"}
    with_key = env | {"ANTHROPIC_API_KEY": "sk-nobody-reads-this"}
    with no_runner_left(tmp_path):
        if key == "ours":
            with up(tmp_path, "--listen", "127.0.0.1:0", runner=True, env=env):
                pass
        with up(tmp_path, runner=True, env=with_key if key else env) as (process, _):
            pid = recorded(tmp_path)
            if key != "theirs":
                said = line_of(process, "ANTHROPIC_API_KEY")
                assert f"kill {pid}" in said
                assert ("a new one starts with it" in said) == (key == "ours")
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=30)
            assert "Claude Code has no model" not in err
            assert "sk-nobody" not in err


def test_a_runner_says_what_it_is_once_it_is_online(server: LiveServer, tmp_path: Path) -> None:
    env = os.environ | {"BIDE_HOME": str(server.folder)}
    process = subprocess.Popen(
        [sys.executable, "-m", "bide.cli.main", "runner", "--name", "spoken", "--pool", "p", "--root", str(tmp_path),
         "--slots", "3", "--json"],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert (said["name"], said["pool"], said["slots"], said["state"]) == ("spoken", "p", 3, "online")
        assert said["id"] in [one["id"] for one in server.ok("GET", "/v1/runners")["items"]]
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (0, ""), err
    finally:
        process.kill()
        process.communicate()
