"""What people would lose if a workspace came back with locks of dead processes, other tools or nothing running, unsaid."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from bide.core.limits import HOOK_TAIL_BYTES
from bide.drivers.base import Launch
from bide.runner import stale_locks, toolchain
from bide.runner.hook import CODE, OUTPUT, hooked, outcome
from tests.runner.shell_parts import git, repository


def test_a_lock_of_a_killed_git_is_removed_and_named_and_git_works_again(tmp_path: Path) -> None:
    work = repository(tmp_path / "work")
    for lock in ("index.lock", "HEAD.lock", "refs/heads/main.lock", "config.lock"):
        (work / ".git" / lock).write_bytes(b"")
    (work / "new").write_text("x")
    with pytest.raises(subprocess.CalledProcessError):
        git(work, "add", "new")
    before = (work / ".git").stat().st_mtime_ns
    removed = stale_locks.clear(work)
    assert sorted(removed) == [".git/HEAD.lock", ".git/config.lock", ".git/index.lock", ".git/refs/heads/main.lock"]
    assert (work / ".git").stat().st_mtime_ns == before
    git(work, "add", "new")
    git(work, "commit", "-q", "-m", "new")
    assert ".git/index.lock" in stale_locks.told(removed)[0]


def test_files_of_the_work_that_are_called_lock_stay(tmp_path: Path) -> None:
    work = repository(tmp_path / "work")
    kept = [work / "poetry.lock", work / "yarn.lock", work / ".git" / "objects" / "pack" / "x.lock"]
    for path in kept:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("x")
    assert stale_locks.clear(work) == ()
    assert all(path.exists() for path in kept)
    assert stale_locks.told(()) == ()


def test_a_repository_that_is_a_link_leads_nobody_out_of_the_workspace(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "index.lock").write_text("somebody else's")
    work = tmp_path / "work"
    work.mkdir()
    (work / ".git").symlink_to(outside)
    assert stale_locks.clear(work) == ()
    (work / ".git").unlink()
    (work / ".git").mkdir()
    (work / ".git" / "refs").symlink_to(outside)
    assert stale_locks.clear(work) == ()
    assert (outside / "index.lock").exists()


def test_tools_of_this_machine_are_known_by_their_versions() -> None:
    found = toolchain.fingerprint()
    assert found["git"][0].isdigit()
    assert found["machine"] == os.uname().machine


def test_a_tool_that_changed_came_or_went_is_told_and_the_same_tools_are_not() -> None:
    then, now = {"node": "20.1.0", "go": "1.22", "git": "2.4"}, {"node": "22.0.0", "git": "2.4", "cargo": "1.80.0"}
    changes = toolchain.changed(then, now)
    assert changes == {"node": ("20.1.0", "22.0.0"), "go": ("1.22", ""), "cargo": ("", "1.80.0")}
    (said,) = toolchain.told(changes)
    assert "node: 20.1.0 before, 22.0.0 now" in said
    assert "go: 1.22 before, none now" in said
    assert toolchain.changed(now, now) == toolchain.changed({}, now) == {}
    assert toolchain.told({}) == ()


def run(hook: str, state: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    launch = hooked(Launch(argv=argv, env={}), hook, str(state))
    return subprocess.run(launch.argv, input="for the runtime\n", capture_output=True, text=True, check=True, cwd=state)


def test_the_resume_hook_runs_before_the_runtime_and_takes_nothing_of_its_stdin(tmp_path: Path) -> None:
    hook = "cat; echo hooked >made; echo said; echo err >&2"
    done = run(hook, tmp_path, "/bin/sh", "-c", "cat made; cat")
    assert (done.stdout, done.stderr) == ("hooked\nfor the runtime\n", "")
    (said,) = outcome(hook, tmp_path)
    assert said == f"The project's resume hook `{hook}` ran. Its last words:\nsaid\nerr"
    assert outcome(hook, tmp_path) == ()


def test_a_hook_that_fails_is_told_and_does_not_keep_the_runtime_from_starting(tmp_path: Path) -> None:
    done = run("exit 3", tmp_path, "/bin/echo", "it", "$runs", "'as given'")
    assert done.stdout == "it $runs 'as given'\n"
    assert outcome("exit 3", tmp_path) == ("The project's resume hook `exit 3` failed with code 3.",)


def test_a_hook_that_hangs_is_stopped_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.runner.hook.HOOK_S", 0.2)
    assert run("sleep 100", tmp_path, "/bin/echo", "on").stdout == "on\n"
    assert outcome("sleep 100", tmp_path) == ("The project's resume hook `sleep 100` was stopped after 0.2 s.",)


def test_what_the_hook_leaves_in_the_background_lives_on_beside_the_runtime(tmp_path: Path) -> None:
    hook = "sleep 60 >/dev/null 2>&1 & echo $! >pid"
    done = run(hook, tmp_path, "/bin/sh", "-c", 'kill -0 "$(cat pid)" && echo alive')
    assert done.stdout == "alive\n"
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("what", ["output", "code", "folder"])
def test_what_the_hook_swapped_for_a_link_tells_nobody_what_another_file_holds(tmp_path: Path, what: str) -> None:
    outside, state = tmp_path / "outside", tmp_path / "state"
    for folder in (outside, state):
        folder.mkdir()
        (folder / OUTPUT).write_text("of the runner alone")
        (folder / CODE).write_text("0")
    if what == "folder":
        state.rename(tmp_path / "aside")
        state.symlink_to(outside)
    else:
        name = OUTPUT if what == "output" else CODE
        (state / name).unlink()
        (state / name).symlink_to(outside / name)
    assert outcome("npm run dev &", state) == ()
    assert (outside / CODE).exists()


@pytest.mark.parametrize("name", [OUTPUT, CODE])
@pytest.mark.parametrize("planted", ["a pipe", "a device", "a folder"])
def test_what_the_hook_planted_in_the_place_of_its_output_never_holds_up_the_runner(
    tmp_path: Path, planted: str, name: str
) -> None:
    (tmp_path / OUTPUT).write_text("said")
    (tmp_path / CODE).write_text("0")
    (tmp_path / name).unlink()
    if planted == "a pipe":
        os.mkfifo(tmp_path / name)
    elif planted == "a folder":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).symlink_to("/dev/zero")
    told: list[tuple[str, ...]] = []
    reader = threading.Thread(target=lambda: told.append(outcome("true", tmp_path)), daemon=True)
    reader.start()
    reader.join(20)
    assert told == [()]


def test_an_endless_output_of_the_hook_is_told_by_its_last_words(tmp_path: Path) -> None:
    with (tmp_path / OUTPUT).open("wb") as file:
        file.truncate(1 << 40)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" * HOOK_TAIL_BYTES + b"the end")
    (tmp_path / CODE).write_text("0\n")
    assert outcome("true", tmp_path)[0].endswith("Its last words:\nthe end")
