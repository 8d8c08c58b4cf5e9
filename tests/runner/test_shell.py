"""What people would lose if the runner's shell did things in the wrong order, twice, or never."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from bide.core import effects as e
from bide.core import facts as f
from bide.core import limits
from bide.core.refusals import Refused, Unavailable
from bide.core.session import Pending
from bide.core.wire import SyncReply
from bide.drivers.scripted import Scripted
from bide.runner.gateway import Gateway
from bide.runner.layout import Layout
from bide.runner.loop import Loop
from bide.runner.spool import Spools
from bide.runner.workspace import Workspaces
from bide.snapshots.blobs.local import LocalBlobs
from tests.runner.sessions import new_root, session, until
from tests.runner.shell_fakes import FakeProcess, FakeServer, Shell
from tests.runner.shell_parts import CHOICE, SESSION, Direct, repository, restoring

OTHER = "0198c0de-0000-7000-8000-000000000002"
THIRD = "0198c0de-0000-7000-8000-000000000003"


def message(text: str = "go", seq: int = 1) -> Pending:
    return Pending(
        id=f"0198c0de-0000-7000-8000-0000000000a{seq}", type="user.message", author="ann", seq=seq, text=text
    )


async def live(shell: Shell, epoch: int = 1, session: str = SESSION, *inputs: Pending) -> FakeProcess:
    """A session whose runtime takes input."""
    before = len(shell.processes)
    shell.grant(epoch, session, inputs=inputs)
    await until(lambda: len(shell.processes) > before and b"hello" in shell.processes[-1].written)
    shell.processes[-1].said.put_nowait(b"ready")
    await until(lambda: "RuntimeStarted" in shell.server.kinds(session, epoch))
    return shell.processes[-1]


# -- folders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("work", ["make", "save"])
async def test_no_folder_is_put_away_or_made_anew_while_something_works_in_it(shell: Shell, work: str) -> None:
    with shell.folders.closed(f"{work} 1") as let_through:
        if work == "make":
            shell.grant()
        else:
            await live(shell)
        await until(lambda: f"{work} 1" in shell.folders.begun)
        shell.lose()
        shell.grant(2)
        shell.grant(3)
        await live(shell, session=OTHER)  # other sessions do not wait
        assert "aside 1" not in shell.folders.begun
        assert "make 2" not in shell.folders.begun
        let_through()
        await until(lambda: "make 3" in shell.folders.done)
        done = shell.folders.done.index
        assert done(f"{work} 1") < done("aside 1") < done("aside 2") < done("make 3")
        assert "make 2" not in shell.folders.done, "nobody waits for this one any more"


async def test_a_new_lease_waits_until_the_old_ones_runtime_is_dead_and_keeps_its_own_folder(shell: Shell) -> None:
    old = await live(shell)
    old.may_die.clear()
    shell.grant(2)
    for _ in range(50):
        await asyncio.sleep(0)
    assert "make 2" not in shell.folders.begun
    old.may_die.set()
    await until(lambda: len(shell.processes) == 2)
    await until(lambda: (SESSION, 1) not in shell.loop._hosted)
    assert shell.folders.done.index("aside 1") < shell.folders.done.index("make 2")
    assert shell.tokens == [2], "the old lease's end took the new one's token"


async def test_a_lease_that_ends_while_it_is_restored_leaves_nothing_behind(shell: Shell) -> None:
    with shell.folders.closed("make") as let_through:
        shell.grant()
        await until(lambda: "make 1" in shell.folders.begun)
        shell.lose()
        let_through()
        await until(lambda: shell.empty)
    assert shell.processes == []
    assert shell.folders.done == ["make 1", "aside 1"]


async def test_blobs_out_of_reach_are_waited_for_as_long_as_the_lease_lives(shell: Shell) -> None:
    shell.folders.make_fails = [Unavailable("the blob store", "away") for _ in range(3)]
    await live(shell)
    assert shell.folders.done.count("make 1") == 4
    shell.folders.make_fails = [Unavailable("the blob store", "away") for _ in range(10_000)]
    shell.grant(1, OTHER)
    await until(lambda: len(shell.folders.make_fails) < 9_995)
    shell.lose(1, OTHER)
    await until(lambda: (OTHER, 1) not in shell.loop._hosted)


async def test_a_full_disk_ends_nobodys_session_and_leaves_it_to_another_machine(shell: Shell) -> None:
    shell.folders.make_fails = [OSError(28, "No space left on device")]
    shell.grant()
    await until(lambda: shell.empty)
    assert not shell.server.kinds(), "no word of an end"
    assert "No space left" in shell.loop.machine.returned[SESSION].reason
    assert shell.loop.unwell_until > shell.loop.clock(), "and takes nothing new for a while"


async def test_a_parked_session_stays_as_a_cache_of_exactly_its_last_checkpoint(shell: Shell) -> None:
    process = await live(shell)
    await until(lambda: "CheckpointSaved" in shell.server.kinds())
    shell.park()
    await until(lambda: shell.empty)
    assert process.ended
    assert shell.server.kinds()[-2:] == ["CheckpointSaved", "Parked"]
    assert shell.folders.done[-1] == "keep root-1-2"


async def test_after_a_save_that_read_back_damaged_the_next_is_built_on_nothing(shell: Shell) -> None:
    await live(shell)
    await until(lambda: "CheckpointSaved" in shell.server.kinds())
    shell.folders.save_says = [e.NotCaptured(code="read_back_failed", reason="x")]
    shell.park()
    await until(lambda: "CheckpointFailed" in shell.server.kinds())
    shell.tick(limits.UPLOAD_TRIES_S[0])
    await until(lambda: shell.empty)
    assert shell.folders.parents == ["", "root-1-1", ""]


@pytest.mark.parametrize("why", ["carried", "save"])
async def test_a_save_that_breaks_is_tried_again_and_never_forgotten(shell: Shell, why: str) -> None:
    await live(shell)
    await until(lambda: "CheckpointSaved" in shell.server.kinds())
    if why == "carried":
        shell.driver.breaks, shell.driver.times = "carried", 1
    else:
        shell.folders.save_says = [e.NotCaptured(code="blobs_unavailable", reason="x")]
    shell.park()
    await until(lambda: "CheckpointFailed" in shell.server.kinds())
    shell.tick(limits.UPLOAD_TRIES_S[0])
    await until(lambda: shell.empty)
    assert shell.server.kinds()[-1] == "Parked"


# -- runtimes ---------------------------------------------------------------------------------------------------------


async def test_a_thaw_is_never_undone_by_the_freeze_before_it(shell: Shell) -> None:
    process, chance = await live(shell), random.Random(7)
    process.pause = lambda: chance.randrange(1, 5)
    for _ in range(300):
        wishes = [chance.random() < 0.5 for _ in range(chance.randrange(1, 6))]
        for frozen in wishes:
            wish = e.Freeze if frozen else e.Thaw
            shell.loop.perform([wish(session=SESSION, epoch=1)])
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
        await shell.loop.settle()
        assert process.frozen == wishes[-1]


async def test_a_real_runtime_still_runs_after_a_freeze_and_a_thaw_in_one_breath(shell: Shell) -> None:
    hosted = shell.loop._host(restoring())
    assert hosted
    with new_root() as root:
        async with session(CHOICE, root, "while :; do (date +%N >>ticks); done") as process:
            hosted.process = process
            ticks = Layout(root, "one").workspace / "ticks"
            await until(ticks.exists)
            for _ in range(40):
                shell.loop.perform([e.Freeze(session=SESSION, epoch=1), e.Thaw(session=SESSION, epoch=1)])
                await asyncio.sleep(0)
                shell.loop.perform([e.Freeze(session=SESSION, epoch=1)])
                await asyncio.sleep(0)
                shell.loop.perform([e.Thaw(session=SESSION, epoch=1)])
                await shell.loop.settle()
                before = ticks.stat().st_size
                await until(lambda before=before: ticks.stat().st_size > before)  # type: ignore[misc]
            hosted.process = None
    shell.loop.perform([e.Release(session=SESSION, epoch=1, keep="salvage")])


@pytest.mark.parametrize("frozen", [True, False])
async def test_a_lease_in_doubt_while_its_runtime_starts_finds_it_frozen(shell: Shell, frozen: bool) -> None:
    shell.may_spawn.clear()
    shell.grant()
    await until(lambda: shell.tokens)
    shell.loop.perform([e.Freeze(session=SESSION, epoch=1)])
    if not frozen:
        shell.loop.perform([e.Thaw(session=SESSION, epoch=1)])
    await asyncio.sleep(0)
    shell.may_spawn.set()
    await until(lambda: shell.processes and b"hello" in shell.processes[0].written)
    assert shell.processes[0].frozen == frozen


@pytest.mark.parametrize("breaks", ["spawn", "binary", "open", "launch", "hello", "feed", "replies", "eof"])
async def test_a_runtime_that_cannot_be_had_is_reported_as_gone_and_never_left_alive(shell: Shell, breaks: str) -> None:
    if breaks == "spawn":
        shell.spawn_says = Refused("no_sandbox", "The sandbox did not start.")
    shell.driver.breaks = breaks
    shell.grant(inputs=(message(),))
    answered: set[FakeProcess] = set()
    end = time.monotonic() + 10
    while not shell.empty:
        for process in set(shell.processes) - answered:
            answered.add(process)
            process.said.put_nowait(b"ready")
            process.said.put_nowait(b"")
        assert time.monotonic() < end, shell.server.kinds()
        await asyncio.sleep(0.005)
    kinds = shell.server.kinds()
    assert kinds.count("RuntimeExited") == limits.RUNTIME_TRIES_MAX
    assert kinds[-1] == "Ended"
    assert all(process.ended for process in shell.processes)


async def test_a_runtime_that_closes_its_output_and_stays_is_ended_and_said_to_be_gone(shell: Shell) -> None:
    process = await live(shell, 1, SESSION, message())
    process.said.put_nowait(b"")
    await until(lambda: "RuntimeExited" in shell.server.kinds())
    assert process.ended


async def test_a_conversation_is_read_while_its_runtime_idles(shell: Shell) -> None:
    process = await live(shell, 1, SESSION, message())
    (run,) = shell.loop.machine.runs.values()
    await until(lambda: process.written.count(b"Deliver") == 1)
    process.said.put_nowait(b"idle")
    await until(lambda: run.seen is not None)
    shell.tick(limits.RECALLED_S)
    await until(lambda: process.written.count(b"Deliver") == 2)  # once more: nothing of it is found
    process.said.put_nowait(b"idle")
    await until(lambda: run.over is not None and run.seen is not None)
    shell.tick(limits.RECALLED_S)
    await until(lambda: shell.server.kinds().count("TurnEnded") == 2)
    said = [fact.status for fact in shell.server.facts[f"{SESSION} 1"] if isinstance(fact, f.Receipt)]
    assert said == ["delivered", "accepted", "delivered", "unconfirmed"]


async def test_a_stop_during_the_start_ends_what_was_started(shell: Shell) -> None:
    shell.may_spawn.clear()
    shell.grant()
    await until(lambda: shell.tokens)
    shell.lose()
    await until(lambda: not shell.tokens)
    shell.may_spawn.set()
    await until(lambda: shell.empty)
    assert shell.processes[0].ended


async def test_a_token_made_for_a_runtime_whose_lease_is_already_over_opens_nothing(shell: Shell) -> None:
    shell.may_spawn.clear()
    shell.loop._host(restoring())
    shell.loop.perform(
        [
            e.Spawn(session=SESSION, epoch=1), e.Stop(session=SESSION, epoch=1, force=True),
            e.Release(session=SESSION, epoch=1, keep="salvage"),
        ]
    )  # fmt: skip
    for turn in range(50):
        await asyncio.sleep(0)
        assert turn < 2 or not shell.tokens
    shell.may_spawn.set()
    await until(lambda: shell.empty)
    assert shell.processes[0].ended


# -- one session's trouble is its own ---------------------------------------------------------------------------------


async def test_an_effect_that_raises_costs_only_its_own_session(shell: Shell) -> None:
    await live(shell, session=OTHER)
    await live(shell, session=THIRD)
    shell.driver.breaks, shell.driver.times = "say", 1
    shell.grant(1, "..")  # no folder can have this name
    await live(shell, 1, SESSION, message())  # its first order cannot be said
    await until(lambda: set(shell.loop.machine.runs) == {OTHER, THIRD})
    await until(lambda: (SESSION, 1) not in shell.loop._hosted)
    assert shell.folders.done[-1] == "aside 1"
    shell.park(1, OTHER)
    await until(lambda: set(shell.loop.machine.runs) == {THIRD})
    assert shell.server.kinds(OTHER)[-1] == "Parked"


async def test_one_event_the_server_can_never_take_costs_no_other(shell: Shell) -> None:
    process = await live(shell)
    await until(lambda: not shell.loop._tasks)
    shell.server.poison = "poison"
    for word in ("before", "poison", "after"):
        process.said.put_nowait(word.encode())
    await until(lambda: "after" in shell.server.words())
    assert shell.server.words()[-3:] == ["before", "bad_event", "after"]
    assert SESSION in shell.loop.machine.runs


async def test_what_the_server_lost_is_said_to_it_and_the_session_goes_on(shell: Shell) -> None:
    process = await live(shell)
    await until(lambda: not shell.loop._tasks)
    known = shell.server.facts[f"{SESSION} 1"]
    count = len(known)
    del known[2:]
    process.said.put_nowait(b"more")
    await until(lambda: "more" in shell.server.words())
    assert shell.server.lost == [count - 2]
    assert SESSION in shell.loop.machine.runs


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [
        (Unavailable("the server", "away"), True), (Refused("gap", "x"), True), (Refused("lease_over", "x"), True),
        (Refused("fenced", "x"), False), (Refused("malformed", "x"), False), (Refused("too_large", "x"), False),
    ],
    ids=str,
)  # fmt: skip
async def test_only_a_no_for_good_ends_the_work_on_a_session(shell: Shell, answer: Exception, goes_on: bool) -> None:
    process = await live(shell)
    await until(lambda: not shell.loop._tasks)
    shell.server.says[SESSION], before = answer, shell.server.posts
    process.said.put_nowait(b"a word")
    await until(lambda: shell.server.posts > before and not shell.loop._tasks)
    assert (SESSION in shell.loop.machine.runs) == goes_on
    assert process.ended != goes_on
    if goes_on:
        del shell.server.says[SESSION]
        shell.tick(limits.RESEND_S)
        await until(lambda: "AssistantMessage" in shell.server.kinds())
    else:
        assert shell.folders.done[-1] == "aside 1"


async def test_a_grant_for_a_runtime_that_is_not_here_is_refused_with_its_name(shell: Shell) -> None:
    shell.grant(runtime="cobol")
    await until(lambda: not shell.loop.machine.runs)
    assert "no driver for cobol" in str(shell.server.facts[f"{SESSION} 1"])


def test_leases_run_out_while_a_laptop_sleeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "clock_gettime", lambda clock: {time.CLOCK_BOOTTIME: 77_777.0}[clock])
    workspaces = Workspaces(tmp_path, Direct(LocalBlobs(tmp_path / "blobs"), tmp_path / "keys"), CHOICE)
    assert Loop(FakeServer(), workspaces, {}, CHOICE, Spools(tmp_path, "b", "k")).clock() == 77_777.0


# -- the whole, with a real process -----------------------------------------------------------------------------------


async def test_a_real_session_works_parks_and_comes_back_warm(tmp_path: Path) -> None:
    with new_root() as root:
        server, workspaces = (
            FakeServer(),
            Workspaces(root, Direct(LocalBlobs(tmp_path / "blobs"), tmp_path / "keys"), CHOICE),
        )
        shell = Shell(root)
        loop = shell.loop = Loop(server, workspaces, {"scripted": Scripted()}, CHOICE, shell.spools)
        loop.gateway = shell.gateway = Gateway(loop.called, loop.heard, "http://127.0.0.1:9", "")
        shell.now = loop.clock()
        steps = '@@[{"write": {"path": "made", "text": "here"}}, {"say": "done"}]'
        shell.grant(repository=str(repository(tmp_path / "source")), inputs=(message(steps),))
        await until(lambda: "TurnEnded" in server.kinds(), 20)
        shell.park()
        await until(lambda: shell.empty, 20)
        assert server.kinds()[-1] == "Parked"
        assert workspaces.shelf.warm() == (SESSION,)
        last = [fact for fact in server.facts[f"{SESSION} 1"] if type(fact).__name__ == "CheckpointSaved"][-1]
        shell.grant(2, checkpoint=last.checkpoint, resumed=True, turn=1)  # type: ignore[union-attr]
        await until(lambda: "RuntimeResumed" in server.kinds(epoch=2), 20)
        assert "warm" in str(server.facts[f"{SESSION} 2"][0])
        assert (root / SESSION / "workspace" / "made").read_text() == "here"
        loop.synced(SyncReply(), loop.clock())
        shell.lose(2)
        await until(lambda: shell.empty, 20)
