"""How a session is shut in: the rungs from best to worst, each proved by running it, and the command line of each.

A root runner never starts a runtime as host uid 0: it drops to `SESSION_UID` before the sandbox is made (userns rungs)
or inside it, before the first byte of the session runs. No rung is believed because a program is installed or a kernel
switch is on: `probe` runs the real mounts in a real folder under the runner's root and looks at what came of it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from bide.core import limits
from bide.core.refusals import Refused
from bide.runner.layout import INSIDE, Layout, prepare_root, reachable, session_uid, staged
from bide.runner.view import BIN, bwrap_options, checked_ro_paths, mounts, seen_anyway, taken, unshare_script

Rung = Literal["bwrap-userns", "bwrap-root", "unshare-root", "unshare-userns", "bwrap-hostproc", "none"]
Isolation = Literal["bwrap", "unshare", "none"]

AS_ROOT: tuple[Rung, ...] = (
    "bwrap-userns", "bwrap-root", "unshare-root", "unshare-userns", "bwrap-hostproc", "none",
)  # fmt: skip
AS_USER: tuple[Rung, ...] = ("bwrap-userns", "unshare-userns", "bwrap-hostproc", "none")
MOUNTED_BY_ROOT = ("bwrap-root", "unshare-root")  # sources are opened by root: closed homes are no obstacle

UID_INSIDE = 1000  # the same on every machine, so files of a moved session keep their owner's name
READY = b"bide-ready\n"
# What wraps a runtime never sees the session's environment: root must not run with a LD_PRELOAD that a project set.
SCRUBBED = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
UNSHARE = ("--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child=KILL", "--propagation", "private")
DROP_CAPS = ("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all")

# The last stretch inside, in the shell every machine has: say ready, wait for the environment as the first line of
# stdin (a runner that dies before leaves nothing behind), become the runtime. `ulimit` and the score protect the host.
_ENTER = """
nl='
'
echo bide-ready
IFS= read -r go || exit 125
ulimit -c 0
{ echo 500 >/proc/self/oom_score_adj; } 2>/dev/null || :
eval "$go"
cd "$1" || exit 126
shift
unset go nl
"""
ENTER = _ENTER + 'exec "$@"\n'
# As PID 1 the shell stays: it reaps orphans while it waits, and ends everything by exiting with the runtime's code.
ENTER_AS_INIT = _ENTER + '"$@"\nexit $?\n'

CHECK = """
[ "$(id -u)" != 0 ] || { echo "the session would run as root" >&2; exit 1; }
[ "$1" = none ] || [ "$(readlink /proc/self/ns/pid)" != "$2" ] || { echo "no process namespace" >&2; exit 1; }
: >/dev/null && : >"$HOME/probe" && : >probe && echo bide-ok
"""


class Choice(Struct, frozen=True, kw_only=True):
    """The rung this runner uses, and what was tried before it: (rung, worked, why not)."""

    rung: Rung
    uid_outside: int
    uid_inside: int
    tried: tuple[tuple[str, bool, str], ...] = ()

    @property
    def isolation(self) -> Isolation:
        return _isolation(self.rung)

    @property
    def stable_paths(self) -> bool:
        """Whether sessions see /workspace and /home/bide, whatever the root is called."""
        return self.rung != "none"


class Plan(Struct, frozen=True, kw_only=True):
    """A command line that is ready but for the number of the descriptor that carries bubblewrap's options."""

    head: tuple[str, ...]
    options: bytes  # NUL-separated; empty: the rung takes none
    tail: tuple[str, ...]
    uid: int | None  # to become before the start
    go: bytes  # the first line on stdin

    def argv(self, fd: int) -> tuple[str, ...]:
        return (*self.head, *(("--args", str(fd)) if self.options else ()), *self.tail)


def probe(root: Path, forced: str = "") -> Choice:
    """Finds the best rung by running each in turn; `forced` names a rung or an isolation (bwrap, unshare, none).

    Takes some 50 ms where the first rung works, `limits.SANDBOX_PROBE_S` per rung at worst. Raises
    `Refused('no_sandbox')` when the forced one, or none at all, works here.
    """
    prepare_root(root)
    usual = AS_ROOT if os.getuid() == 0 else AS_USER
    rungs = [rung for rung in usual if forced in ("", rung, _isolation(rung))]
    tried: list[tuple[str, bool, str]] = []
    area = root.resolve() / ".probe"
    try:
        layout = Layout(area, "probe")
        for rung in rungs:
            choice = Choice(rung=rung, uid_outside=session_uid(), uid_inside=_uid_inside(rung))
            why = _try(choice, layout)
            tried.append((rung, not why, why))
            if not why:
                return Choice(
                    rung=rung, uid_outside=choice.uid_outside, uid_inside=choice.uid_inside, tried=tuple(tried)
                )  # fmt: skip
    finally:
        shutil.rmtree(area, ignore_errors=True)
    reasons = "; ".join(f"{rung}: {why}" for rung, _, why in tried) or f"{forced!r} is not possible for this user"
    raise Refused("no_sandbox", f"No way to run sessions works here ({reasons}).")


def binary_inside(choice: Choice, layout: Layout, host_path: Path) -> str:
    """The runtime's executable as the session sees it. May copy it once to where the session's user can read it."""
    if not choice.stable_paths:
        return str(staged(layout.root, host_path, choice.uid_outside))
    return str(host_path) if seen_anyway(host_path) else f"{BIN}/{host_path.name}"


def python_prefix() -> tuple[Path, ...]:
    """The runner's own Python where a session does not see it anyway: for machines without a /usr/bin/python3."""
    prefix = Path(sys.base_prefix)
    return () if seen_anyway(prefix) or taken(prefix) else (prefix,)


def shown_paths(choice: Choice, layout: Layout, wanted: Iterable[Path]) -> list[Path]:
    """Those of the wanted folders that this rung can show: ones that the session's user cannot reach need root's mounts.

    Raises `Refused('bad_value')` for a folder that must not be shown.
    """
    by_root = choice.rung in MOUNTED_BY_ROOT
    return [path for path in checked_ro_paths(layout, wanted) if by_root or reachable(path, choice.uid_outside)]


def base_env(choice: Choice, layout: Layout, ro_paths: Iterable[Path] = ()) -> dict[str, str]:
    """The environment every session has; a launch's own values win over it."""
    places = layout.places(choice.stable_paths)
    # the runner's own tools come last: a venv made with the system's python works on every runner
    path = [BIN] * choice.stable_paths + ["/usr/local/bin", "/usr/bin", "/bin"]
    path += [str(extra / "bin") for extra in ro_paths if (extra / "bin").is_dir()]
    return {
        "PATH": ":".join(path),
        "HOME": places.home,
        "TMPDIR": places.tmp,
        "XDG_RUNTIME_DIR": "/run/bide" if choice.stable_paths else places.state,
        "USER": "bide",
        "LOGNAME": "bide",
        "SHELL": "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
    }


def plan(
    choice: Choice,
    layout: Layout,
    argv: tuple[str, ...],
    env: Mapping[str, str],
    *,
    binary: Path | None = None,
    ro_paths: Iterable[Path] = (),
    cwd: str = "",
) -> Plan:
    """How to start `argv` (paths as seen inside) with exactly `env`; `ro_paths` are those `shown_paths` gave."""
    cwd = cwd or layout.places(choice.stable_paths).workspace
    drop = choice.uid_outside if os.getuid() == 0 else None
    if choice.rung == "none":
        shim = str(Path(__file__).with_name("shim.py"))
        order = {"argv": argv, "env": dict(env), "cwd": cwd, "uid": drop}
        go = json.dumps(order).encode() + b"\n"
        head = (sys.executable, "-I", "-S", shim, str(os.getpid()))
        return Plan(head=head, options=b"", tail=(), uid=None, go=go)
    by_root = choice.rung in MOUNTED_BY_ROOT
    if binary is not None:
        if not binary.is_file():
            raise Refused("no_runtime", f"There is no {binary}.")
        binary = None if seen_anyway(binary) else _source(choice, layout, binary)
    own_proc = choice.rung != "bwrap-hostproc"
    tree = mounts(layout, choice.uid_inside, own_proc=own_proc, binary=binary, ro_paths=ro_paths)
    to_uid = (f"--reuid={drop}", f"--regid={drop}", "--clear-groups")
    if choice.isolation == "bwrap":
        flags = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "bide"]
        flags += ["--die-with-parent", "--new-session"]
        inner: tuple[str, ...] = ("sh", "-c", ENTER, "bide", cwd, *argv)
        if by_root:
            inner = ("setpriv", *DROP_CAPS, *to_uid, *inner)
        else:
            flags += ["--unshare-user", "--uid", str(choice.uid_inside), "--gid", str(choice.uid_inside)]
        options = "\0".join([*flags, *bwrap_options(tree)]).encode(errors="surrogateescape") + b"\0"
        uid = None if by_root else drop
        return Plan(head=(_tool("bwrap"),), options=options, tail=("--", *inner), uid=uid, go=_go(env))
    mount_point = layout.root / ".mnt"
    mount_point.mkdir(exist_ok=True)
    mount_point.chmod(0o755)
    # a change of uid clears the death signal, so it is asked for again after the last one
    last = ("setpriv", *DROP_CAPS, *(to_uid if by_root else ()), "--pdeathsig", "KILL")
    if not by_root:
        # the mapping needs a capability that `last` drops, so it comes before
        last = ("unshare", "--user", f"--map-user={UID_INSIDE}", f"--map-group={UID_INSIDE}", *last)
    script = unshare_script(tree, mount_point) + f'exec env -i PATH="$PATH" {shlex.join(last)} sh -c "$0" bide "$@"\n'
    userns = () if by_root else ("--user", "--map-root-user")
    head = (_tool("setpriv"), "--pdeathsig", "KILL", _tool("unshare"), *userns, *UNSHARE)
    tail = ("sh", "-c", script, ENTER_AS_INIT, cwd, *argv)
    return Plan(head=head, options=b"", tail=tail, uid=None if by_root else drop, go=_go(env))


def options_fd(options: bytes) -> int:
    """A file in memory that holds the options; the caller closes it after the start."""
    fd = os.memfd_create("options")
    os.write(fd, options)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _try(choice: Choice, layout: Layout) -> str:
    """Runs a small check under the rung. Empty when it held, else the reason in one line."""
    fd = -1
    try:
        layout.create(choice.uid_outside)
        argv = ("/bin/sh", "-c", CHECK, "check", choice.rung, str(Path("/proc/self/ns/pid").readlink()))
        how = plan(choice, layout, argv, base_env(choice, layout))
        fd = options_fd(how.options)
        with subprocess.Popen(
            how.argv(fd), env=SCRUBBED, cwd="/", pass_fds=(fd,) if how.options else (), start_new_session=True,
            user=how.uid, group=how.uid, extra_groups=None if how.uid is None else [],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as child:  # fmt: skip
            try:
                out, err = child.communicate(how.go, timeout=limits.SANDBOX_PROBE_S)
            except subprocess.TimeoutExpired:
                child.kill()
                return f"did not start within {limits.SANDBOX_PROBE_S:g} s"
    except (OSError, subprocess.SubprocessError, Refused) as error:
        return error.sentence if isinstance(error, Refused) else str(error)
    finally:
        if fd >= 0:
            os.close(fd)
    if out == READY + b"bide-ok\n":
        return ""
    lines = err.decode(errors="replace").strip().splitlines()
    return (lines[-1] if lines else f"exit code {child.returncode}")[:300]


def _source(choice: Choice, layout: Layout, binary: Path) -> Path:
    """Where the sandbox takes the binary from; its name is kept, so links like `claude -> claude-2.1` look the same."""
    return binary if choice.rung in MOUNTED_BY_ROOT else staged(layout.root, binary, choice.uid_outside)


def _go(env: Mapping[str, str]) -> bytes:
    """The environment as one line of shell. Newlines in values become a variable the reader has."""
    words: list[str] = []
    for name, value in env.items():
        if not name.isascii() or not name.isidentifier() or "\0" in value:
            raise Refused("bad_value", f"{name[:80]!r} cannot be an environment variable.")
        words.append(f"{name}={shlex.quote(value)}".replace("\n", "'\"$nl\"'"))
    return " ".join(["export", *words]).encode(errors="surrogateescape") + b"\n"


def _tool(name: str) -> str:
    found = shutil.which(name, path=SCRUBBED["PATH"])
    if found is None:
        raise Refused("no_sandbox", f"{name} is not installed.")
    return found


def _isolation(rung: Rung) -> Isolation:
    return "none" if rung == "none" else "bwrap" if rung.startswith("bwrap") else "unshare"


def _uid_inside(rung: Rung) -> int:
    return UID_INSIDE if rung in ("bwrap-userns", "unshare-userns", "bwrap-hostproc") else session_uid()


__all__ = ["INSIDE", "Choice", "Plan", "base_env", "binary_inside", "plan", "probe", "python_prefix"]
