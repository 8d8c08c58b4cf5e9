"""The project's resume hook: a shell command that runs in the session's sandbox before its runtime takes over there.

It runs in the same sandbox, so that what it leaves in the background (a development server, a database) lives on beside
the runtime, and ends with it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from msgspec.structs import replace

from bide.core.limits import HOOK_S, HOOK_TAIL_BYTES
from bide.drivers.base import Launch, plain_file
from bide.runner.layout import FOLDER

OUTPUT, CODE = "resume-hook.out", "resume-hook.code"  # the session can put anything there
# The runtime's own streams are not the hook's: it reads nothing and writes into files.
_SCRIPT = """
d=$1; s=$2; h=$3; shift 3
timeout -k 2 "$s" /bin/sh -c "$h" </dev/null >"$d/resume-hook.out" 2>&1
echo $? >"$d/resume-hook.code"
exec "$@"
"""


def hooked(launch: Launch, hook: str, state: str) -> Launch:
    """The launch with the hook before it; `state` is the session's state folder as it is seen inside."""
    argv = ("/bin/sh", "-c", _SCRIPT, "resume-hook", state, f"{HOOK_S:g}", hook, *launch.argv)
    return replace(launch, argv=argv)


def outcome(hook: str, state: Path) -> tuple[str, ...]:
    """What came of it, for people and for the coding agent; empty where none ran. Blocking; run in a thread."""
    with contextlib.suppress(OSError, ValueError):
        with plain_file(state, CODE) as file:
            code = int(file.read(len("255\n")))
        with plain_file(state, OUTPUT) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - HOOK_TAIL_BYTES))
            tail = file.read(HOOK_TAIL_BYTES).decode("utf-8", "replace").strip()
        _forget(state)
        how = {0: "ran", 124: f"was stopped after {HOOK_S:g} s"}.get(code, f"failed with code {code}")
        return (f"The project's resume hook `{hook}` {how}." + (f" Its last words:\n{tail}" if tail else ""),)
    return ()


def _forget(state: Path) -> None:
    """It is told once."""
    at = os.open(state, FOLDER)
    try:
        os.unlink(CODE, dir_fd=at)
    finally:
        os.close(at)
