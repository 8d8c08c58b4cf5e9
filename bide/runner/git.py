"""Our own git calls: they run nothing that a repository configured, take no locks, and never ask a terminal."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

from bide.core.limits import FULL_BYTES, GIT_QUICK_S, GIT_S
from bide.core.nouns import Workspace
from bide.core.refusals import Refused

_SAFE = (
    "-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never",
    "-c", "core.sshCommand=ssh -oBatchMode=yes", "-c", "gc.auto=0", "-c", "credential.helper=",
)  # fmt: skip
# A file, because git clears configuration from the environment before it serves a local repository.
TRUSTS = "[safe]\n\tdirectory = *\n"
IDENTITY = (
    "[user]\n\tname = bide\n\temail = bide@localhost\n[safe]\n\tdirectory = *\n[advice]\n\tdetachedHead = false\n"
)


FULL = os.strerror(errno.ENOSPC).encode()


def clone(repository: str, branch: str, target: Path, config: Path) -> None:
    """Clones into an empty folder. `config` is a private file that this call may write.

    Raises `Refused('no_repository')` with git's own last words, OSError where the disk is full.
    """
    config.write_text(TRUSTS)
    argv = ["git", *_SAFE, "clone", "--quiet", "--no-hardlinks", "--template="]
    argv += ["--branch", branch] if branch else []
    done = _run([*argv, "--", repository, str(target)], config, GIT_S, cwd=target.parent)
    if done.returncode != 0:
        if FULL in done.stderr or shutil.disk_usage(target.parent).free < FULL_BYTES:  # it does not always say so
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        words = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["git said nothing"]
        raise Refused("no_repository", f"{repository} could not be cloned: {words[-1][:300]}")


def look(workspace: Path, inside: str, repository: str, config: Path) -> Workspace:
    """Branch and HEAD as they stand; empty where there is no repository or git cannot tell."""

    def ask(*words: str) -> str:
        done = _run(
            ["git", *_SAFE, "--no-optional-locks", "-C", str(workspace), *words], config, GIT_QUICK_S, workspace
        )
        return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""

    config.write_text(TRUSTS)
    branch = ask("symbolic-ref", "--short", "-q", "HEAD")
    head = ask("rev-parse", "-q", "--verify", "HEAD")
    root = inside if (workspace / ".git").exists() else ""
    return Workspace(repository=repository, branch=branch, head=head, git_root=root, cwd=inside)


def _run(argv: list[str], config: Path, timeout_s: float, cwd: Path) -> subprocess.CompletedProcess[bytes]:
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
        return subprocess.run(argv, env=env, cwd=cwd, capture_output=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL)  # fmt: skip
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, b"", f"git took longer than {timeout_s:g} s".encode())
    except FileNotFoundError:
        return subprocess.CompletedProcess(argv, 127, b"", b"git is not installed on this runner")
