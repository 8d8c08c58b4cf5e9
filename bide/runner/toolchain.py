"""Which tools this machine gives to sessions, so that a difference after a move can be told."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from bide.core.limits import PROBE_S

_ASKED = {
    "python": ("python3", "--version"), "node": ("node", "--version"), "npm": ("npm", "--version"),
    "cargo": ("cargo", "--version"), "rustc": ("rustc", "--version"), "go": ("go", "version"),
    "java": ("java", "-version"), "gcc": ("gcc", "--version"), "clang": ("clang", "--version"),
    "make": ("make", "--version"), "cmake": ("cmake", "--version"), "git": ("git", "--version"),
}  # fmt: skip
_VERSION = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # what sessions see of the machine


def fingerprint() -> dict[str, str]:
    """Name -> version of what is here; tools that are not are left out. Takes about a tenth of a second."""
    with ThreadPoolExecutor(len(_ASKED), "toolchain") as threads:
        versions = dict(zip(_ASKED, threads.map(_version, _ASKED.values()), strict=True))
    system = {"os": _os(), "machine": platform.machine(), "libc": os.confstr("CS_GNU_LIBC_VERSION") or ""}
    return {name: version for name, version in (system | versions).items() if version}


def changed(then: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """What is not as it was: name -> (then, now), empty for none. Nothing where nothing is known of then."""
    if not then:
        return {}
    names = sorted({*then, *now})
    return {name: (then.get(name, ""), now.get(name, "")) for name in names if then.get(name) != now.get(name)}


def told(changes: Mapping[str, tuple[str, str]]) -> tuple[str, ...]:
    """The changes in a sentence for the coding agent."""
    if not changes:
        return ()
    each = "; ".join(f"{name}: {then or 'none'} before, {now or 'none'} now" for name, (then, now) in changes.items())
    return (f"Tools of this machine are not those that the workspace was saved with. {each}.",)


def _version(argv: tuple[str, ...]) -> str:
    env = {"PATH": _PATH, "HOME": "/nonexistent", "LANG": "C.UTF-8"}
    try:
        done = subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_S, check=False, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = _VERSION.search((done.stdout + done.stderr).decode("utf-8", "replace"))
    return found[0] if found and done.returncode == 0 else ""


def _os() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""
