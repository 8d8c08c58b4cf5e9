"""The demo's stage: a temporary folder, and server and runners as processes of their own, all gone at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from bide.core import limits
from bide.core.refusals import Refused

_OURS = ("BIDE_", "ANTHROPIC_", "CLAUDE")  # of the shell that starts the demo: none of it is meant for the stage


class Part:
    """One process of bide. Its output stands in `<folder>/<name>.out` and `.log`."""

    def __init__(self, name: str, folder: Path, process: asyncio.subprocess.Process) -> None:
        self.name, self._folder, self._process = name, folder, process

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.returncode is None

    def last_words(self) -> str:
        """The end of what it said on stderr."""
        with contextlib.suppress(OSError):
            lines = (self._folder / f"{self.name}.log").read_text("utf-8", "replace").strip().splitlines()
            return "\n".join(lines[-limits.LOG_TAIL_LINES :])
        return ""

    async def end(self, *, at_once: bool = False) -> bool:
        """SIGTERM, and SIGKILL where that is not enough; True when it ended in order. Returns once it is gone.

        `at_once` does without the first: a runner would wait for the end of a turn whose model is gone.
        """
        if not self.alive:
            return self._process.returncode == 0
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL if at_once else signal.SIGTERM)
        try:
            async with asyncio.timeout(limits.DEMO_STOP_S):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        return self._process.returncode == 0


class Stage:
    """The folder and what runs in it, as an async context manager; `keep` leaves the folder behind."""

    def __init__(self, *, keep: bool = False) -> None:
        self._keep = keep
        self.parts: list[Part] = []
        self.folder = Path()
        self._leaving: Part | None = None  # its end is wanted

    async def __aenter__(self) -> Self:
        self.folder = await asyncio.to_thread(_folder)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server, runners = self.parts[:1], self.parts[1:]  # which say goodbye to it
        await asyncio.gather(*(part.end(at_once=error is not None) for part in runners))
        await asyncio.gather(*(part.end() for part in server))
        if not self._keep:
            await asyncio.to_thread(remove, self.folder)

    async def start(self, name: str, *words: str, **env: str) -> Part:
        """Starts `bide <words>`; the environment is the caller's without what is meant for another bide."""
        own = {key: value for key, value in os.environ.items() if not key.startswith(_OURS)}
        own |= {"BIDE_HOME": str(self.folder / "home"), **env}
        with (self.folder / f"{name}.out").open("wb") as out, (self.folder / f"{name}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bide.cli.main", *words,
                env=own, cwd=self.folder, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which ends the rest in order
            )  # fmt: skip
        part = Part(name, self.folder, process)
        self.parts.append(part)
        return part

    def check(self) -> None:
        """Raises `Refused('failed')` when something that should run has ended."""
        for part in self.parts:
            if not part.alive and part is not self._leaving:
                said = part.last_words() or "it said nothing"
                raise Refused("failed", f"{part.name} ended too early: {said}", self.hint())

    async def gone(self, part: Part) -> bool:
        """Ends a part for good, and waits until it is gone; True when it ended in order."""
        self._leaving = part
        in_order = await part.end()
        self.parts.remove(part)
        self._leaving = None
        return in_order

    def hint(self) -> str:
        """Where to look."""
        if self._keep:
            return f"Look at the logs in {self.folder}."
        return "Run it again with --keep and look at the logs in its folder; `bide doctor` says what is missing."


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="bide-demo-")).resolve()
    folder.chmod(0o711)  # sessions run as a user of their own, who has to reach what is theirs
    return folder


async def waited(what: str, found: Callable[[], bool], stage: Stage, within_s: float) -> None:
    """Waits for something on the stage. Raises `Refused` when it does not come in time, or a part ended."""
    try:
        async with asyncio.timeout(within_s):
            while not found():
                stage.check()
                await asyncio.sleep(limits.DEMO_LOOK_S)
    except TimeoutError:
        raise Refused("timed_out", f"{what} did not come within {within_s:g} s.", stage.hint()) from None


def remove(folder: Path) -> None:
    """Deletes the folder, also what a session made read-only."""

    def unlock(act: object, path: str, error: object) -> None:
        """Opens what stood in the way; the next round deletes it."""
        for stuck in (Path(path).parent, Path(path)):
            with contextlib.suppress(OSError):
                if stuck.is_dir() and not stuck.is_symlink():
                    stuck.chmod(stat.S_IRWXU)

    end = time.monotonic() + limits.REAP_S
    while folder.exists() and time.monotonic() < end:  # what a killed session still writes ends in a moment
        shutil.rmtree(folder, onerror=unlock)
