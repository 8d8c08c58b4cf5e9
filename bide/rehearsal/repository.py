"""Plants the demo's sample repository: a small library whose integration test fails since a dependency was updated.

Its files stand in `sample/`, each with `.txt` behind its name, so that neither our own linters, type checker and tests
nor those of whoever installs bide take them for code of ours. `before` holds what differed one commit earlier.
"""

from __future__ import annotations

import os
import subprocess
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from bide.core import limits
from bide.core.refusals import Refused

SHELF = files("bide.rehearsal") / "sample"
_NAMES = {"gitignore": ".gitignore"}  # under its own name it would hide files of ours
_COMMITS = (
    ("2026-10-05T09:12:00+00:00", "Wait for an export that is still being uploaded", ("now", "before")),
    ("2026-11-23T16:40:00+00:00", "Update plaindate to 2.0.0", ("now",)),
)


def plant(folder: Path) -> Path:
    """Makes the folder a git repository with two commits; the second one broke the integration test.

    Equal on every machine, down to the commit ids. Raises `Refused('failed')` when git is missing or fails.
    """
    folder.mkdir(parents=True)
    _git(folder, "", "init", "-q", "--initial-branch=main")
    for when, subject, layers in _COMMITS:
        for layer in layers:
            _lay(SHELF / layer, folder)
        _git(folder, when, "add", "-A")
        _git(folder, when, "commit", "-q", "-m", subject)
    return folder


def original(name: str) -> str:
    """A file of the newest commit, as text."""
    return (SHELF / "now").joinpath(f"{name}.txt").read_text("utf-8")


def _lay(shelf: Traversable, folder: Path) -> None:
    for item in shelf.iterdir():
        if item.is_dir():
            (folder / item.name).mkdir(exist_ok=True)
            _lay(item, folder / item.name)
        else:
            name = item.name.removesuffix(".txt")
            (folder / _NAMES.get(name, name)).write_bytes(item.read_bytes())


def _git(folder: Path, when: str, *words: str) -> None:
    """Runs git with nothing of this machine's configuration, which might sign, hook or rewrite."""
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": str(folder),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_NAME": "orders", f"GIT_{who}_EMAIL": "orders@localhost", f"GIT_{who}_DATE": when}
    try:
        done = subprocess.run(
            ("git", "-C", str(folder), *words),
            env=env, capture_output=True, text=True, timeout=limits.GIT_QUICK_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused("failed", f"git cannot be run: {error}.", "Install git.") from error
    if done.returncode:
        raise Refused("failed", f"`git {words[0]}` failed: {done.stderr.strip()[:300]}", "Look at what git says.")
