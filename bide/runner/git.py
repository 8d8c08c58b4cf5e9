"""Our own git calls, which run nothing that a repository configured and never ask a terminal; and looking at one."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

from bide.core.limits import FULL_BYTES, GIT_HEAD_BYTES, GIT_REFS_BYTES, GIT_S, STOP_LOOK_S
from bide.core.nouns import Workspace
from bide.core.refusals import Refused
from bide.drivers.base import plain_file

_SAFE = (
    "-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never",
    "-c", "core.sshCommand=ssh -oBatchMode=yes", "-c", "gc.auto=0", "-c", "credential.helper=",
    "-c", "init.defaultRefFormat=files",
)  # fmt: skip
# A file, because git clears configuration from the environment before it serves a local repository.
TRUSTS = "[safe]\n\tdirectory = *\n"
IDENTITY = (
    "[user]\n\tname = bide\n\temail = bide@localhost\n[safe]\n\tdirectory = *\n[advice]\n\tdetachedHead = false\n"
)


_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_IN_NO_NAME = re.compile(r"[\x00-\x20\x7f-\x9f~^:?*\[\\]|\.\.|@\{")
FULL = os.strerror(errno.ENOSPC).encode()


class Unwanted(Exception):
    """Nobody waits for it any more."""


def clone(repository: str, branch: str, target: Path, config: Path, unwanted: threading.Event) -> None:
    """Clones into an empty folder until it is `unwanted`. `config` is a private file that this call may write.

    Raises `Refused('no_repository')` with git's own last words, OSError where the disk is full, and `Unwanted`.
    """
    config.write_text(TRUSTS)
    argv = ["git", *_SAFE, "clone", "--quiet", "--no-hardlinks", "--template="]
    argv += ["--branch", branch] if branch else []
    done = _run([*argv, "--", repository, str(target)], config, GIT_S, target.parent, unwanted)
    if done.returncode != 0:
        if FULL in done.stderr or shutil.disk_usage(target.parent).free < FULL_BYTES:  # it does not always say so
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        words = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["git said nothing"]
        raise Refused("no_repository", f"{repository} could not be cloned: {words[-1][:300]}")


def look(workspace: Path, inside: str, repository: str) -> Workspace:
    """Branch and HEAD as they stand; empty where there is no repository, or its form is not the usual one.

    It is read, not asked of git: the session may have made its `.git` lead to another's, or never answer.
    """
    said = _first(workspace, "HEAD")
    ref = said.removeprefix("ref: ") if said.startswith("ref: refs/") and _is_name(said) else ""
    head = (_first(workspace, ref) or _packed(workspace, ref)) if ref else said
    return Workspace(
        repository=repository,
        branch=ref.removeprefix("refs/").removeprefix("heads/"),
        head=head if _HASH.fullmatch(head) else "",
        git_root=inside if os.path.lexists(workspace / ".git") else "",
        cwd=inside,
    )


def _first(workspace: Path, name: str) -> str:
    """The line in a file of its repository; empty where there is none."""
    with contextlib.suppress(OSError, UnicodeDecodeError), plain_file(workspace, f".git/{name}") as file:
        return file.read(GIT_HEAD_BYTES).decode().strip()
    return ""


def _packed(workspace: Path, ref: str) -> str:
    """What a branch without a file of its own is at: those that rest stand in one list, as `HASH NAME`."""
    with contextlib.suppress(OSError), plain_file(workspace, ".git/packed-refs") as file:
        before, found, _ = (b"\n" + file.read(GIT_REFS_BYTES)).partition(f" {ref}\n".encode())
        return before.rpartition(b"\n")[2].decode("ascii", "replace") if found else ""
    return ""


def _is_name(said: str) -> bool:
    """Whether it could name a branch, as git sees it: nothing else is opened, or shown to people."""
    parts = said.split("/")
    return not _IN_NO_NAME.search(said.removeprefix("ref: ")) and not any(
        part.startswith(".") or part.endswith((".lock", ".")) or not part for part in parts
    )


def _run(
    argv: list[str], config: Path, timeout_s: float, cwd: Path, unwanted: threading.Event
) -> subprocess.CompletedProcess[bytes]:
    """A process group of its own, because it is what git starts, and not git, that hangs on a line."""
    env = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(config.parent),
        "LANG": "C.UTF-8",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(config),
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(cwd.parent),  # what lies above a workspace is the runner's, not the session's
    }
    try:
        process = subprocess.Popen(
            argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError:
        return subprocess.CompletedProcess(argv, 127, b"", b"git is not installed on this runner")
    until = time.monotonic() + timeout_s
    with process:
        while not unwanted.is_set() and time.monotonic() < until:
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, err = process.communicate(timeout=STOP_LOOK_S)
                return subprocess.CompletedProcess(argv, process.returncode, out, err)
        os.killpg(process.pid, signal.SIGKILL)
    if unwanted.is_set():
        raise Unwanted
    return subprocess.CompletedProcess(argv, 124, b"", f"git took longer than {timeout_s:g} s".encode())
