"""What the machine's own list of processes says about a fleet: who belongs to a folder, and which runtimes can act."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

LOOK_S = 0.4  # between two looks at the runtimes: a handover of a lease takes seconds
MARK, SESSION = b"BIDE_MARK=", b"BIDE_SESSION="  # what a runner gives each start of a runtime


def within(folder: Path) -> list[int]:
    """Living processes whose command line or environment speaks of the folder; ourselves left out."""
    mark = str(folder).encode()
    return [pid for pid, words, variables in _all() if mark in words or mark in variables]


def end(folder: Path, within_s: float) -> None:
    """Kills until no process speaks of the folder."""
    until = time.monotonic() + within_s
    while found := within(folder):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            raise AssertionError(f"processes of {folder} do not end: {found}")
        time.sleep(0.01)


def _all() -> Iterator[tuple[int, bytes, bytes]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                path = Path(entry.path)
                yield int(entry.name), (path / "cmdline").read_bytes(), (path / "environ").read_bytes()


class Witness:
    """Looks again and again which scripted runtimes can act, and notes sessions that have two of them at once."""

    def __init__(self) -> None:
        self.twice: dict[str, str] = {}  # session -> where
        self.looks = 0

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.to_thread(self._look)
            await asyncio.sleep(LOOK_S)

    def _look(self) -> None:
        acting: dict[bytes, dict[bytes, int]] = {}
        for pid, words, variables in _all():
            if b"scripted.pyz" in words and (mark := _value(variables, MARK)) and _state(pid) not in "TtZX":
                acting.setdefault(_value(variables, SESSION), {})[mark] = pid
        self.looks += 1
        for session, pids in acting.items():
            if len(pids) > 1:
                self.twice.setdefault(session.decode(), " and ".join(map(_owner, pids.values())))


def _value(variables: bytes, name: bytes) -> bytes:
    return variables.partition(name)[2].partition(b"\0")[0]


def _state(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "X"


def _owner(pid: int) -> str:
    """The process, and the name of the runner that it descends from."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        above = pid
        while above > 1:
            words = Path(f"/proc/{above}/cmdline").read_bytes().split(b"\0")
            if b"--name" in words:
                return f"process {pid} of runner {words[words.index(b'--name') + 1].decode()}"
            above = int(Path(f"/proc/{above}/stat").read_text().rpartition(")")[2].split()[1])
    return f"process {pid} of no runner"
