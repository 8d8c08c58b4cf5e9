"""`bide demo`: which model plays, how it is told, and what the exit says."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from importlib.metadata import entry_points
from typing import Annotated

import msgspec
from cyclopts import Parameter

from bide.cli import out
from bide.cli.demo.narration import Narration
from bide.cli.demo.play import Model, Play
from bide.cli.demo.proof import Line, broken, measure
from bide.cli.demo.stage import Stage
from bide.core import limits
from bide.core.refusals import Refused
from bide.drivers.base import Driver
from bide.rehearsal.model import RehearsalModel
from bide.rehearsal.story import story

ANTHROPIC = "https://api.anthropic.com"
PLAYED = ("claude_code",)  # the runtimes whose tools the story knows
TOLD_TO_STOP = 143  # as shells report SIGTERM


async def demo(
    *,
    runtime: Annotated[str, Parameter(help="The coding agent's CLI.")] = "claude_code",
    rehearsal: Annotated[bool, Parameter(help="The rehearsal model, even with ANTHROPIC_API_KEY set.")] = False,
    keep: Annotated[bool, Parameter(help="Leave the folder behind, with everybody's logs.")] = False,
    json: Annotated[bool, Parameter(help="Only one JSON object on stdout; the story goes to stderr.")] = False,
) -> int:
    """Watch a session ask, park, and go on elsewhere.

    Starts a server and two runners of its own in a temporary folder, lets a coding agent work on a sample repository,
    and measures that everything went as promised. With ANTHROPIC_API_KEY set the real model plays.
    """
    driver = _driver(runtime)
    real = bool(os.environ.get("ANTHROPIC_API_KEY")) and not rehearsal
    narration = Narration(out.tell if json else out.say)
    narration.plain(_opening(real=real))
    task = asyncio.current_task()
    assert task is not None
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    try:
        line, wrong, hint = await _played(driver, narration, real=real, keep=keep)
    except asyncio.CancelledError:
        if stopped:
            return TOLD_TO_STOP
        raise
    if json:
        out.emit(line)
    else:
        narration.table([(name.replace("_", " "), value) for name, value in msgspec.to_builtins(line).items()])
    if wrong:
        raise Refused("failed", " ".join(["The demo did not go as promised.", *wrong]), hint)
    return 0


async def _played(driver: Driver, narration: Narration, *, real: bool, keep: bool) -> tuple[Line, list[str], str]:
    async with Stage(keep=keep) as stage, _model(stage, real=real) as model:
        if keep:
            narration.plain(f"Everything stays in {stage.folder}.")
        evidence = await Play(stage, model, driver, narration).perform()
        line = measure(evidence)
        return line, broken(line, evidence), stage.hint()


@contextlib.asynccontextmanager
async def _model(stage: Stage, *, real: bool) -> AsyncIterator[Model]:
    if real:
        url = os.environ.get("BIDE_MODEL_URL") or ANTHROPIC
        yield Model(url=url, key=os.environ["ANTHROPIC_API_KEY"], act_s=limits.DEMO_REAL_S)
        return
    rehearsed = RehearsalModel(story, stage.folder / "model.jsonl")
    url = await rehearsed.start()
    try:
        yield Model(url=url, key="rehearsal", act_s=limits.DEMO_REHEARSED_S, rehearsal=rehearsed)
    finally:
        await rehearsed.stop()


def _opening(*, real: bool) -> str:
    if real:
        return "This demo runs with the real model, paid by your ANTHROPIC_API_KEY."
    return (
        "This demo runs with the rehearsal model: a script on this machine that answers as a model would, while the real "
        "coding-agent CLI does the work. Set ANTHROPIC_API_KEY to see a real model do it."
    )


def _driver(runtime: str) -> Driver:
    """The runtime's driver, once its executable is known to be usable here."""
    found = {point.name: point for point in entry_points(group="bide.drivers")}
    if runtime not in PLAYED or runtime not in found:
        raise Refused("no_runtime", f"The demo cannot be played by {runtime[:80]!r}.", f"There is {', '.join(PLAYED)}.")
    driver: Driver = found[runtime].load()()
    probed = driver.probe({"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent"})
    if probed.problem:
        raise Refused("no_runtime", probed.problem, probed.hint)
    return driver
