"""Makes `.venv` ready for the demo or for the tests, and says in a sentence what is missing where it cannot.

Usage: python3 tools/bootstrap.py demo|test

Needs Linux, Python 3.11 or newer, git, and pip or ensurepip. It runs on an older Python too, in order to find a newer one or
to say so. Everything it prints goes to stderr: the last line on stdout belongs to the command that comes after it.
"""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
INSIDE = VENV / "bin" / "python"
STAGES = {"demo": ("claude",), "test": ("claude", "dev")}  # each holds the ones before it

OLDEST_PYTHON = (3, 11)
NEWER_PYTHONS = ("python3.13", "python3.12", "python3.11", "python3.14")  # in this order: most wheels first
OLDEST_PIP = (22, 3)  # the first with --python
INSTALL_TRIES_MAX = 2  # pip retries a request; this is for what it gives up on, such as a broken download
LOOK_S = 0.5  # how often a terminal shows how far the installation is
STILL_THERE_S = 15.0  # without a terminal a line says now and then that it goes on
TAIL_BYTES = 65536  # of what pip said, to see what it does: minutes of it
COUNTING_PIP = (24, 1)  # the first that can tell its progress to a program
CLAUDE_WHEELS = ("x86_64", "aarch64")  # machines for which the package that carries Claude Code has a Linux wheel


# Types that an old Python does not know are quoted below: it has to get as far as saying that it is too old.


class Missing(Exception):
    """Something has to be there that is not: what, and what to do about it, as sentences."""


def main() -> int:
    """Gives the exit code: 0 when `.venv` is ready, 1 when something is missing, 2 for wrong usage."""
    if len(sys.argv) != 2 or sys.argv[1] not in STAGES:
        say("usage: python3 tools/bootstrap.py {}".format("|".join(STAGES)))
        return 2
    try:
        prepare(sys.argv[1])
    except Missing as missing:
        say(f"\nbide cannot be set up here: {missing}")
        return 1
    except KeyboardInterrupt:
        say("\nStopped. Run the same command again to go on: what was downloaded is kept.")
        return 130
    return 0


def prepare(stage: str) -> None:
    """Checks what the machine has, makes the virtual environment, installs into it, and leaves a stamp."""
    need_python()
    need_git()
    need_platform()
    begun = time.monotonic()
    say(f"Setting up .venv to {stage} bide (once; about 250 MB to download, most of it Claude Code).")
    pip = ready_pip()
    install(pip, "-e", ".[{}]".format(",".join(STAGES[stage])), "-c", "constraints.txt")
    need_claude_binary()
    if stage == "test":
        bring_browser()
    names = list(STAGES)
    for name in names[: names.index(stage) + 1]:
        (VENV / (".stamp-" + name)).touch()
    say("Set up in %.0f s." % (time.monotonic() - begun))


def need_python() -> None:
    """Goes on in a newer Python of this machine when the one that runs is too old."""
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return
    for name in NEWER_PYTHONS:
        path = shutil.which(name)
        if path and new_enough(path):
            say(f"python3 is {platform.python_version()}; going on with {name}.")
            sys.stderr.flush()
            os.execv(path, [path, *sys.argv])
    raise Missing(
        f"it needs Python 3.11 or newer, and python3 is {platform.python_version()}. Install a newer one, "
        "or name it: make PYTHON=/path/to/python3.11 …"
    )


def new_enough(python: "Path | str") -> bool:
    """Whether this interpreter starts, is new enough, and can make virtual environments."""
    question = f"import sys, venv; sys.exit(sys.version_info[:2] < {OLDEST_PYTHON!r})"
    return quiet(str(python), "-c", question) == 0


def need_git() -> None:
    """Sessions work on git repositories, the demo makes one."""
    if not shutil.which("git"):
        raise Missing("git is not on PATH. Install it (for instance: apt-get install git) and run this again.")


def need_platform() -> None:
    """Names a platform on which it cannot work, before pip or the runner say it in their own words."""
    system, machine = platform.system(), platform.machine()
    if system != "Linux":
        raise Missing(f"a runner needs Linux, and this is {system}. A Linux container or virtual machine will do.")
    musl = "musl" in str(sysconfig.get_config_var("HOST_GNU_TYPE"))
    if musl or machine not in CLAUDE_WHEELS:
        raise Missing(
            "the demo and the tests run the real Claude Code, whose package (claude-agent-sdk) exists for Linux with "
            "glibc on x86-64 and 64-bit ARM. This is {}{}.".format(machine, " with musl" if musl else "")
        )


def ready_pip() -> "list[str]":
    """Makes `.venv` where there is none that works, and gives the command that runs a pip on it."""
    if not (new_enough(INSIDE) or (has_ensurepip() and make_venv()) or make_venv("--without-pip")):
        raise Missing(
            f"{sys.executable} cannot make a virtual environment. Install its venv module "
            "(on Debian and Ubuntu: apt-get install python3-venv) and run this again."
        )
    if quiet(str(INSIDE), "-m", "pip", "--version") == 0:
        return [str(INSIDE), "-m", "pip"]
    need_host_pip()
    return [sys.executable, "-m", "pip", "--python", str(INSIDE)]


def has_ensurepip() -> bool:
    """Debian ships Python without it; there `venv` makes half an environment and fails."""
    return quiet(sys.executable, "-c", "import ensurepip") == 0


def make_venv(*more: str) -> bool:
    """Whether `.venv` could be made anew."""
    return quiet(sys.executable, "-m", "venv", "--clear", *more, str(VENV)) == 0


def need_host_pip() -> None:
    """The pip of the machine, which installs into a virtual environment that has none of its own."""
    found = subprocess.run(
        [sys.executable, "-m", "pip", "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    words = found.stdout.decode("utf-8", "replace").split()
    if found.returncode != 0 or len(words) < 2:
        raise Missing(
            f"{sys.executable} has neither ensurepip nor pip. Install one of them and run this again "
            "(Debian and Ubuntu: apt-get install python3-venv; Fedora: dnf install python3-pip)."
        )
    if numbers(words[1]) < OLDEST_PIP:
        raise Missing(
            f"{sys.executable} has no ensurepip, and its pip {words[1]} is too old to install into another "
            "environment (22.3 or newer can). Install python3-venv, or update pip."
        )


def numbers(version: str) -> "tuple[int, ...]":
    """The first two numbers of a version, to compare."""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def install(pip: "list[str]", *what: str) -> None:
    """Runs `pip install`, twice if need be. What pip says is shown only when it fails."""
    bar = "raw" if can_count(pip) else "off"
    command = [*pip, "install", "--progress-bar", bar, *what]
    for attempt in range(1, INSTALL_TRIES_MAX + 1):
        code, said = run_watched(command)
        if code == 0:
            return
        say("".join(line for line in said.splitlines(keepends=True) if not line.startswith("Progress ")).rstrip())
        if attempt < INSTALL_TRIES_MAX:
            say("The installation broke off; trying once more. What was downloaded is kept.")
    raise Missing(
        "the packages could not be installed; pip says above why. If it was the network, "
        "run the same command again: what was downloaded is kept."
    )


def can_count(pip: "list[str]") -> bool:
    """Whether this pip can tell how much of a download is there."""
    found = subprocess.run([*pip, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    words = found.stdout.decode("utf-8", "replace").split()
    return len(words) > 1 and numbers(words[1]) >= COUNTING_PIP


def run_watched(command: "list[str]") -> "tuple[int, str]":
    """Exit code and output of a long command. A terminal shows how far it is; without one a line does now and then."""
    begun = told = time.monotonic()
    terminal = sys.stderr.isatty()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=str(ROOT), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=pip_environ()
        )
        try:
            code = None
            while code is None:
                try:
                    code = process.wait(timeout=LOOK_S)
                except subprocess.TimeoutExpired:
                    now = time.monotonic()
                    line = f"… {doing(tail(output))}, {now - begun:.0f} s"
                    if terminal:
                        sys.stderr.write("\r\033[K" + line[:79])
                        sys.stderr.flush()
                    elif now - told >= STILL_THERE_S:
                        told = now
                        say(line)
        except KeyboardInterrupt:
            process.wait()
            raise
        finally:
            if terminal:
                sys.stderr.write("\r\033[K")
        return code, tail(output, whole=True)


def tail(output: "IO[bytes]", whole: bool = False) -> str:
    """What a process has written into the file so far, or the end of it."""
    size = os.fstat(output.fileno()).st_size
    start = 0 if whole else max(0, size - TAIL_BYTES)
    return os.pread(output.fileno(), size - start, start).decode("utf-8", "replace")


def doing(said: str) -> str:
    """What pip does, by the end of what it said."""
    download = None
    for line in said.splitlines():
        words = line.split()
        if words[:1] == ["Downloading"] and len(words) > 1:
            name = words[1].rpartition("/")[2].split("-")[0]
            download = "downloading " + name
        elif words[:1] == ["Progress"] and len(words) == 4 and download and words[3].isdigit():
            have, size = int(words[1]) / 1e6, int(words[3]) / 1e6
            download = f"{download.split(':')[0]}: {have:.0f} of {size:.0f} MB"
        elif words[:1] == ["Installing"]:
            download = "installing"
    return download or "collecting packages"


def pip_environ() -> "dict[str, str]":
    """The environment for pip: the user's own index, proxy and patience are kept, what leads out of `.venv` is not."""
    astray = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PYTHONHOME")
    env = {name: value for name, value in os.environ.items() if name not in astray}
    for name, value in (("RETRIES", "8"), ("DEFAULT_TIMEOUT", "60"), ("DISABLE_PIP_VERSION_CHECK", "1")):
        env.setdefault("PIP_" + name, value)
    return env


def need_claude_binary() -> None:
    """The package can also be built from its source, and then it carries no Claude Code."""
    question = (
        "import importlib.util as u, pathlib as p, sys; folder = p.Path(u.find_spec('claude_agent_sdk').origin); "
    )
    question += "sys.exit(not folder.with_name('_bundled').joinpath('claude').is_file())"
    if quiet(str(INSIDE), "-c", question) != 0:
        raise Missing(
            "claude-agent-sdk was installed without Claude Code in it. Its wheel was not used: "
            "allow binary packages for it (pip's --no-binary or PIP_NO_BINARY forbids them) and remove .venv."
        )


def bring_browser() -> None:
    """The tests of the web page drive a real one. Without it they fail, and all others can be run."""
    command = [str(INSIDE), str(ROOT / "tools" / "chromium.py")]
    if subprocess.call(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) != 0:
        say("Going on without it: the tests of the web page will fail, and say so.")


def quiet(*command: str) -> int:
    """The exit code of a short command that is only asked; 127 when it cannot be started."""
    try:
        return subprocess.call(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError:
        return 127


def say(text: str) -> None:
    """One line for a person."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
