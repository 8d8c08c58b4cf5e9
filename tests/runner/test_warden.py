"""What people would lose if a session went on acting past its lease because its runner was stopped, or never again."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from bide.runner import procfs
from bide.runner.layout import Layout
from bide.runner.process import Process
from bide.runner.sandbox import Choice
from bide.runner.shim import children
from bide.runner.warden import Froze, Ward, Warden, boot_clock
from bide.runner.watch import Watch
from tests.runner.sessions import WORKS, new_root, session, until

every_rung = pytest.mark.parametrize("choice", WORKS.values(), ids=WORKS)
TICKS = "while :; do date +%s.%N >>ticks; sleep 0.01; done"

NOBODY = procfs.Ident(2**22 + 1, 1)  # no machine has such a process


@asynccontextmanager
async def watched(heard: Callable[[Froze], None]) -> AsyncIterator[Watch]:
    watch = Watch(heard)
    living = asyncio.create_task(watch.live())
    try:
        yield watch
    finally:
        living.cancel()
        with suppress(asyncio.CancelledError):
            await living


@asynccontextmanager
async def ticking(choice: Choice) -> AsyncIterator[tuple[Process, Path]]:
    with new_root() as root:
        async with session(choice, root, TICKS) as process:
            ticks = Layout(root, "one").workspace / "ticks"
            await until(ticks.exists)
            yield process, ticks


def ward(process: Process, until: float) -> Ward:
    found = process.ward("one", 1, until)
    assert found is not None
    return found


def wardens() -> list[int]:
    return [pid for pid in children(os.getpid()) if b"bide.runner.warden" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@every_rung
async def test_a_session_stops_at_its_leases_end_and_its_runner_can_continue_exactly_that(choice: Choice) -> None:
    heard: list[Froze] = []
    async with ticking(choice) as (process, ticks), watched(heard.append) as watch:
        end = boot_clock() + 0.5
        watch.set([ward(process, end)])
        await until(lambda: heard)
        wall = time.time() - boot_clock()
        last = float(ticks.read_text().split()[-1]) - wall
        assert end - 0.2 < last < end + 0.2
        stopped = [each for each in heard[0].who if procfs.held(each)]
        assert stopped
        process.stopped_by_warden(heard[0].who)
        assert process.frozen
        await process.thaw()
        size = ticks.stat().st_size
        await until(lambda: ticks.stat().st_size > size)


async def test_a_renewal_that_is_told_in_time_is_heard_before_anything_is_frozen() -> None:
    heard: list[Froze] = []
    async with ticking(next(iter(WORKS.values()))) as (process, ticks), watched(heard.append) as watch:
        watch.set([])
        await until(wardens)
        for _ in range(20):
            watch.set([ward(process, boot_clock() + 0.15)])
            await asyncio.sleep(0.05)
        watch.set([ward(process, boot_clock() + 60)])
        size = ticks.stat().st_size
        await until(lambda: ticks.stat().st_size > size)
        watch.set([])
        assert heard == []


async def test_a_warden_that_dies_is_replaced_and_the_new_one_knows_everything() -> None:
    heard: list[Froze] = []
    async with ticking(next(iter(WORKS.values()))) as (process, _), watched(heard.append) as watch:
        await until(wardens)
        watch.set([ward(process, boot_clock() + 3)])
        (old,) = wardens()
        os.kill(old, signal.SIGKILL)
        await until(lambda: heard)
        assert heard[0].who


async def test_no_warden_outlives_its_runner_or_is_ended_by_a_stop_of_the_whole_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-canary")
    heard: list[Froze] = []
    async with watched(heard.append) as watch:
        await until(wardens)
        (pid,) = wardens()
        who = procfs.ident(pid)
        watch.set([Ward(session="s", epoch=1, until=0, init=NOBODY)])
        await until(lambda: heard)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(pid, number)
        watch.set([Ward(session="s", epoch=2, until=0, init=NOBODY)])
        await until(lambda: len(heard) == 2)
        assert wardens() == [pid]
        assert b"sk-ant-canary" not in environ(pid)
    assert not procfs.alive(who)


def environ(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def test_a_lease_that_is_over_is_not_frozen_and_a_new_one_of_the_session_is_its_own() -> None:
    now = [100.0]
    warden = Warden(lambda: now[0])
    warden.told(Ward(session="s", epoch=1, until=110, init=NOBODY))
    warden.told(Ward(session="s", epoch=2, until=120, init=NOBODY))
    assert warden.wait_s() == 1.0
    warden.told(Ward(session="s", epoch=1))
    now[0] = 115
    assert warden.look() == []
    now[0] = 120
    assert warden.wait_s() == 0
    assert [each.epoch for each in warden.look()] == [2]
    assert warden.wait_s() is None
