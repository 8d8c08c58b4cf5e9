"""How the scripted runtime ends what its commands began."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

TERM_S = 0.8  # a command that ignores SIGTERM is killed after this: its runner kills what is left after a second
TICK_S = 0.02  # how often a running command and a sleep look for an interrupt


def tree(pid: int) -> set[int]:
    """The process, all that descend from it and all in its session, as far as they are alive."""
    parents, sessions = {}, {}
    for each in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent, _, session = (each / "stat").read_text().rpartition(")")[2].split()[:4]
            if state != "Z":
                parents[int(each.name)], sessions[int(each.name)] = int(parent), int(session)
    found = [pid, *(each for each, session in sessions.items() if session == pid)]
    for known in found:
        found.extend(child for child, parent in parents.items() if parent == known and child not in found)
    return set(found) & set(parents)


def end(pid: int) -> None:
    """Ends a command's whole tree: politely, then for good. Looks again and again, since a tree grows while it is cut."""
    until = time.monotonic() + TERM_S
    found, asked = tree(pid), set[int]()
    while found:
        for each in found if time.monotonic() > until else found - asked:
            with contextlib.suppress(OSError):
                os.kill(each, signal.SIGKILL if time.monotonic() > until else signal.SIGTERM)
        asked |= found
        time.sleep(TICK_S)
        found = {each for each in asked if alive(each)} | tree(pid)


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def end_all() -> None:
    for child in tree(os.getpid()) - {os.getpid()}:
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
    os._exit(143)
