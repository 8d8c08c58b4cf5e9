"""The project's resume hook: a shell command that runs in the session's sandbox before its runtime takes over there.

It runs in the same sandbox, so that what it leaves in the background (a development server, a database) lives on beside
the runtime, and ends with it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from msgspec.structs import replace

from bide.core.limits import HOOK_S, HOOK_TAIL_BYTES
from bide.drivers.base import Launch

OUTPUT, CODE = "resume-hook.out", "resume-hook.code"
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
    """What came of it, for people and for the coding agent; empty where none ran."""
    with contextlib.suppress(OSError, ValueError):
        code = int((state / CODE).read_bytes()[:20])
        with (state / OUTPUT).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - HOOK_TAIL_BYTES))
            tail = file.read(HOOK_TAIL_BYTES).decode("utf-8", "replace").strip()
        (state / CODE).unlink()
        how = {0: "ran", 124: f"was stopped after {HOOK_S:g} s"}.get(code, f"failed with code {code}")
        return (f"The project's resume hook `{hook}` {how}." + (f" Its last words:\n{tail}" if tail else ""),)
    return ()
