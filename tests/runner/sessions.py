"""Real sessions for the tests of the runner: every rung that works on this machine, and shell scripts as runtimes."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from bide.core.refusals import Refused
from bide.drivers.base import File, Launch
from bide.runner.layout import Layout
from bide.runner.process import Process, spawn
from bide.runner.sandbox import AS_ROOT, AS_USER, Choice, probe

SHELL = Path("/bin/sh")
LoneRunner = subprocess.Popen[str]


@contextmanager
def new_root() -> Iterator[Path]:
    """A runner's root that the session's user can reach; pytest's own folders are closed to other users."""
    root = Path(tempfile.mkdtemp(prefix="bide-runner-"))
    root.chmod(0o711)
    try:
        yield root
    finally:
        shutil.rmtree(root)


def _works() -> tuple[dict[str, Choice], dict[str, str]]:
    works: dict[str, Choice] = {}
    not_here: dict[str, str] = {}
    with new_root() as root:
        for rung in AS_ROOT if os.getuid() == 0 else AS_USER:
            try:
                works[rung] = probe(root, rung)
            except Refused as no:
                not_here[rung] = no.sentence
    return works, not_here


WORKS, NOT_HERE = _works()
SHUT_IN = [rung for rung in WORKS if rung != "none"]


@asynccontextmanager
async def session(
    choice: Choice, root: Path, script: str, name: str = "one", *args: str,
    env: dict[str, str] | None = None, files: Iterable[File] = (), binary: Path = SHELL, argv0: str = "/bin/sh",
    ro_paths: Iterable[Path] | None = None,
) -> AsyncIterator[Process]:  # fmt: skip
    """A shell script as the runtime of a session; whatever a test does, it is gone afterwards."""
    launch = Launch(argv=(argv0, "-c", script, "runtime", *args), env=env or {}, files=tuple(files))
    process = await spawn(choice, Layout(root, name), launch, binary, ro_paths=ro_paths)
    try:
        yield process
    finally:
        await process.kill()
        process.discard()
        await asyncio.sleep(0)  # the transport closes its pipes at the loop's next turn


async def read_all(process: Process) -> str:
    """Everything it says until it is gone, with its stderr where a test fails."""
    out = b"".join([chunk async for chunk in process.stdout()])
    code = await process.wait()
    return out.decode(errors="replace") + (f"\n[exit {code}] {process.stderr_tail}" if code else "")


async def output(choice: Choice, root: Path, script: str, name: str = "one", *args: str, **more: object) -> str:
    """What a script prints in a session of its own that ends by itself."""
    async with session(choice, root, script, name, *args, **more) as process:  # type: ignore[arg-type]
        process.close_stdin()
        return await asyncio.wait_for(read_all(process), 30)


async def until(true: Callable[[], object], seconds: float = 10.0) -> None:
    """Waits for a condition; fails when it does not come."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.01)


def poll(true: Callable[[], object], seconds: float = 10.0) -> None:
    """The same for tests without a loop."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


@contextmanager
def lone_runner(*words: object, python: str = sys.executable, path: str = "", **how: Any) -> Iterator[LoneRunner]:
    """`lone_runner.py` as a process; killed at the end."""
    program = Path(__file__).with_name("lone_runner.py")
    env = {"PYTHONPATH": ":".join([str(Path.cwd()), *([path] if path else [])]), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        [python, str(program), *map(str, words)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        **how,
    ) as runner:  # fmt: skip
        try:
            yield runner
        finally:
            runner.kill()


def processes_saying(word: str) -> list[int]:
    """Living processes of this machine, zombies left out, whose command line holds the word; not this one."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if word.encode() in Path(entry.path, "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
