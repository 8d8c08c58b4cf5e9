"""What people would lose if a session saw too much of the machine, or too little of what a coding tool needs."""

import os
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bide.core.refusals import Refused
from bide.runner.layout import SESSION_UID, Layout, staged
from bide.runner.sandbox import AS_USER, Choice, binary_inside, probe, shown_paths
from bide.runner.sweep import sweep
from bide.runner.view import checked_ro_paths, taken
from tests.runner.sessions import NOT_HERE, SHUT_IN, WORKS, lone_runner, new_root, output, poll, processes_saying

every_rung = pytest.mark.parametrize("choice", WORKS.values(), ids=WORKS)
every_sandbox = pytest.mark.parametrize("choice", [WORKS[rung] for rung in SHUT_IN], ids=SHUT_IN)
TOOLS = Path(__file__).parent
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root runs sessions as another user")


@pytest.fixture
def closed(root: Path) -> Path:
    root.chmod(0o700)
    return root / "closed"


def test_some_sandbox_is_exercised_on_this_machine() -> None:
    if not (shutil.which("bwrap") or shutil.which("unshare")):
        pytest.skip("neither bubblewrap nor unshare is installed")
    assert SHUT_IN, NOT_HERE


@every_sandbox
async def test_a_session_sees_neither_another_session_nor_the_runners_secrets(
    choice: Choice, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"secret-{secrets.token_hex(8)}"
    monkeypatch.setenv("BIDE_TEST_SECRET", secret)
    other = Layout(root, "other")
    other.create(choice.uid_outside)
    other.workspace.joinpath("private").write_text(secret)
    other.hand_over(choice.uid_outside)
    script = f"""
    echo ours >/workspace/file; ls /workspace
    cat {other.workspace}/private {root}/.l*/* 2>/dev/null
    ls {root} {other.folder} 2>/dev/null
    cat /proc/[0-9]*/environ /proc/[0-9]*/root{other.workspace}/private 2>/dev/null
    ls -a /home /root 2>/dev/null
    echo end
    """
    said = await output(choice, root, script)
    assert said.startswith("file\n")
    assert said.endswith("end\n")
    assert secret not in said
    assert "other" not in said
    assert Layout(root, "one").workspace.joinpath("file").stat().st_uid == choice.uid_outside


@every_rung
async def test_a_session_has_no_power_over_the_machine(choice: Choice, root: Path) -> None:
    script = """
    id -u
    grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status | tr '\\t\\n' ' '; echo
    for f in /usr/bide-was-here /etc/bide-was-here; do touch $f && echo wrote $f; done
    [ -w /proc/sys/kernel/core_pattern ] && echo may set core_pattern
    mount -o remount,rw,bind /usr && echo remounted
    mount -t tmpfs none /mnt && echo mounted
    kill -0 $1 && echo may kill the runner
    echo end
    """
    said = (await output(choice, root, f"({script}) 2>/dev/null", "one", str(os.getpid()))).splitlines()
    assert said[0] == str(choice.uid_inside)
    assert choice.uid_inside != 0
    assert choice.uid_outside != 0
    assert "CapEff: 0000000000000000" in said[1]
    assert "NoNewPrivs: 1" in said[1]
    mine = os.getuid() == choice.uid_outside and not choice.stable_paths
    assert said[2:] == (["may kill the runner", "end"] if mine else ["end"])


@every_sandbox
async def test_other_processes_cannot_be_named_or_signalled(choice: Choice, root: Path) -> None:
    said = await output(choice, root, "kill -0 $1 2>/dev/null && echo reached; ls /proc", "one", str(os.getpid()))
    assert "reached" not in said
    if choice.rung != "bwrap-hostproc":
        assert len([name for name in said.split() if name.isdigit()]) < 6


@every_sandbox
async def test_what_coding_tools_need_is_there(choice: Choice, root: Path) -> None:
    script = """
    set -e
    echo "$PWD $HOME $(whoami) $(cd ~bide && pwd) $(stat -c %a /tmp /var/tmp/ /dev/shm | tr '\\n' ' ')"
    : >/dev/shm/x; : >/tmp/x; : >"$XDG_RUNTIME_DIR/x"; echo x >/dev/null; echo "$(head -c 3 /dev/urandom | wc -c)"
    python3 -c 'import pty, os, multiprocessing as m; m.Lock(); print(os.isatty(pty.openpty()[1]))'
    git init -q r && cd r && git -c user.name=a -c user.email=b@c commit -q --allow-empty -m hi && git log --format=%s
    sh -c 'sleep 0 & wait'; cat /sys/kernel/mm/transparent_hugepage/enabled >/dev/null || :
    getent hosts localhost | grep -c localhost
    echo done
    """
    said = await output(choice, root, script)
    assert said == "/workspace /home/bide bide /home/bide 1777 1777 1777 \n3\nTrue\nhi\n1\ndone\n"


@every_sandbox
@pytest.mark.skipif(not Path("/usr/bin/node").exists(), reason="no node in /usr")
async def test_node_runs(choice: Choice, root: Path) -> None:
    assert await output(choice, root, "node -p '[os.homedir(), os.userInfo().username].join()'") == "/home/bide,bide\n"


@every_sandbox
async def test_a_workspace_that_moved_to_another_root_still_works(choice: Choice, root: Path) -> None:
    make = """
    set -e
    python3 -m venv --without-pip .venv
    printf '#!/workspace/.venv/bin/python3\\nimport sys; print(sys.prefix)\\n' >.venv/bin/tool
    chmod +x .venv/bin/tool; .venv/bin/tool
    git init -q . && git -c user.name=a -c user.email=b@c commit -q --allow-empty -m hi
    git worktree add -q /workspace/tree
    """
    assert await output(choice, root, make) == "/workspace/.venv\n"
    with new_root() as elsewhere:
        shutil.copytree(root / "one", elsewhere / "one", symlinks=True)
        layout = Layout(elsewhere, "one")
        layout.create(choice.uid_outside)
        layout.hand_over(choice.uid_outside)
        look = ".venv/bin/tool && git status --short --branch | head -n 1 && git -C tree log --format=%s"
        assert (await output(choice, elsewhere, look)).splitlines()[::2] == ["/workspace/.venv", "hi"]


@every_rung
async def test_a_runtime_in_a_closed_home_can_be_run(choice: Choice, root: Path) -> None:
    home = Path(tempfile.mkdtemp(prefix="bide-home-"))  # 0700, as /root is
    try:
        binary = home / "runtime"
        shutil.copy("/bin/sh", binary)
        inside = binary_inside(choice, Layout(root, "one"), binary)
        assert (inside == "/run/bide/bin/runtime") == choice.stable_paths
        said = await output(choice, root, 'echo "$1"', "one", "ran", binary=binary, argv0=inside)
        assert said == "ran\n"
    finally:
        shutil.rmtree(home)


@as_root
def test_a_big_runtime_is_staged_once_and_an_old_version_goes_at_the_next_start(root: Path) -> None:
    home = Path(tempfile.mkdtemp(prefix="bide-home-"))
    try:
        binary = home / "runtime"
        binary.write_text("#!/bin/sh\n")
        binary.chmod(0o755)
        first = staged(root, binary, SESSION_UID)
        assert first.stat().st_ino == binary.stat().st_ino  # a link costs nothing
        assert staged(root, binary, SESSION_UID) == first
        binary.unlink()
        binary.write_text("#!/bin/sh\necho new\n")
        binary.chmod(0o700)
        second = staged(root, binary, SESSION_UID)
        assert second != first
        assert stat.S_IMODE(second.stat().st_mode) == 0o755  # a copy: the original stays closed
        os.utime(first.parent, (1, 1))
        sweep(root)
        assert (first.exists(), second.exists()) == (False, True)
    finally:
        shutil.rmtree(home)


@every_sandbox
async def test_extra_tools_are_seen_at_their_own_path_and_cannot_be_changed(choice: Choice, root: Path) -> None:
    if taken(TOOLS) or not shown_paths(choice, Layout(root, "one"), [TOOLS]):
        pytest.skip("this repository lies where sessions of this rung cannot look")
    script = "head -c 4 $1/test_sandbox.py; touch $1/x 2>/dev/null || touch $1/test_sandbox.py 2>/dev/null || echo kept"
    assert await output(choice, root, script, "one", str(TOOLS), ro_paths=[TOOLS]) == '"""Wkept\n'
    assert not TOOLS.joinpath("x").exists()


@pytest.mark.parametrize(
    "path", ["/", "/home", "/root", "relative/path", "{root}", "{root}/one", "/tmp/..", "/tmp/tools", "/proc/1"]
)
def test_a_whole_home_the_runners_root_or_a_sessions_own_place_is_never_shown(root: Path, path: str) -> None:
    with pytest.raises(Refused, match="bad_value"):
        checked_ro_paths(Layout(root, "one"), [Path(path.format(root=root))])


@as_root
@pytest.mark.skipif(not {"bwrap-root", "unshare-root"} & WORKS.keys(), reason="root may not mount here")
async def test_a_root_in_a_closed_home_falls_to_a_rung_that_root_mounts(closed: Path) -> None:
    choice = probe(closed)
    assert choice.rung in ("bwrap-root", "unshare-root")
    assert choice.tried[0][:2] == ("bwrap-userns", False)
    assert choice.tried[0][2]
    assert await output(choice, closed, "pwd; id -u") == f"/workspace\n{SESSION_UID}\n"


def test_a_rung_that_is_forced_and_does_not_work_is_refused_with_the_reason(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Refused, match="no_sandbox"):
        probe(root, "jail")
    monkeypatch.setattr("bide.runner.sandbox.SCRUBBED", {"PATH": str(root)})
    with pytest.raises(Refused, match="bwrap is not installed"):
        probe(root, "bwrap")
    assert not root.joinpath(".probe").exists()


def test_without_any_sandbox_program_sessions_still_run_and_the_choice_says_so(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.runner.sandbox.SCRUBBED", {"PATH": str(root)})
    choice = probe(root)
    assert (choice.rung, choice.isolation, choice.stable_paths) == ("none", "none", False)
    assert [rung for rung, ok, why in choice.tried if not ok and why]


def ordinary_python() -> str:
    """A Python that a user without rights can run and that has our packages' binary interface; empty if none."""
    same = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    if os.getuid() != 0:
        return sys.executable
    for python in (sys.executable, f"/usr/bin/{same}", f"/usr/local/bin/{same}"):
        asked = [python, "-c", "import sys, msgspec"]
        env = {"PYTHONPATH": packages()}
        try:
            if not subprocess.run(asked, user=SESSION_UID, group=SESSION_UID, env=env, cwd="/", check=False).returncode:
                return python
        except OSError:
            continue
    return ""


def packages() -> str:
    return next(path for path in sys.path if path.endswith("site-packages"))


@pytest.mark.parametrize("rung", AS_USER)
def test_an_ordinary_user_can_run_sessions_too(root: Path, rung: str) -> None:
    python = ordinary_python()
    if not python or rung not in WORKS:
        pytest.skip("no Python that another user can run" if not python else NOT_HERE[rung])
    mine = root / "mine"
    mine.mkdir()
    who = {"user": SESSION_UID, "group": SESSION_UID, "extra_groups": []} if os.getuid() == 0 else {}
    if who:
        os.chown(mine, SESSION_UID, SESSION_UID)
    word = f"bide-test-{secrets.token_hex(6)}"
    script = """
    id -u; pwd; : >x; git --version >/dev/null && echo git
    setsid -f sh -c 'while :; do sleep 9; done' "$1-daemon"; cat
    """
    with lone_runner(mine, rung, script, word, "--read", python=python, path=packages(), **who) as runner:
        said = runner.communicate(timeout=30)[0].splitlines()
    uid, cwd = (os.getuid() or SESSION_UID, mine / "one/workspace") if rung == "none" else (1000, "/workspace")
    assert said[1:] == [str(uid), str(cwd), "git", " 0 "]
    poll(lambda: not processes_saying(word))
