"""What people would lose if an interrupt left something of the stopped turn alive, or ended what it should not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from bide.core import limits
from bide.core import runtime as r
from bide.runner.clearing import Clearing
from bide.runner.layout import Layout
from bide.runner.process import Process
from bide.runner.sandbox import Choice
from tests.runner.sessions import WORKS, processes_saying, session, until

every_rung = pytest.mark.parametrize("choice", WORKS.values(), ids=WORKS)

OBEYS = 'echo up; while read -r line; do eval "$line"; done'  # each order is a line of shell
HOLD = "trap '' TERM HUP INT; while :; do sleep 0.1; done"
# What tools do so that nobody finds them; each line leaves one process with the test's word in its command line.
ESCAPES = {
    "child": f'sh -c "{HOLD}" "$1-tool" &',
    "daemon": f'setsid -f sh -c "{HOLD}" "$1-tool"',
    "nohup": f'nohup sh -c "{HOLD}" "$1-tool" >nohup.out 2>&1 &',
    "twice": f'( ( sh -c "{HOLD}" "$1-tool" & ) & )',
    "bare": f'env -i /usr/bin/setsid -f /bin/sh -c "{HOLD}" "$1-tool"',
    "chaser": """c='sleep 0.02; setsid -f sh -c "$1" "$0" "$1"'; setsid -f sh -c "$c" "$1-tool" "$c";""",
    "forker": """setsid -f sh -c 'trap "" TERM; while :; do setsid -f sh -c "sleep 60; :" "$0"; sleep 0.05; done' "$1-tool";""",
}


class Talk:
    """A shell as the runtime: it does each order as it is written, and says `idle` where its turn is over."""

    def __init__(self, process: Process) -> None:
        self.noted: list[r.Noted] = []
        self.lines: list[str] = []
        self._process = process
        self.clearing = Clearing(process, self.noted.append)

    async def listen(self) -> None:
        """What it says, each line once it counts."""
        rest = b""
        async for chunk in self._process.stdout():
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                if line == b"idle":
                    await self.clearing.idle()
                self.lines.append(line.decode())

    def deliver(self, shell: str) -> None:
        self.clearing.order(r.Deliver(input_id="m", text=""), shell.encode() + b"\n")

    def interrupt(self, shell: str) -> None:
        self.clearing.order(r.Interrupt(request_id="i"), shell.encode() + b"\n")

    async def says(self, line: str, times: int = 1) -> None:
        await until(lambda: self.lines.count(line) >= times)


@asynccontextmanager
async def talk(choice: Choice, root: Path, word: str) -> AsyncIterator[Talk]:
    async with session(choice, root, OBEYS, "one", word) as process:
        made = Talk(process)
        listening = asyncio.create_task(made.listen())
        try:
            await made.says("up")
            yield made
        finally:
            made.clearing.close()
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening


@every_rung
@pytest.mark.parametrize("escape", ESCAPES)
async def test_nothing_that_a_tool_began_outlives_the_interrupt_of_its_turn(
    choice: Choice, root: Path, word: str, escape: str
) -> None:
    async with talk(choice, root, word) as one:
        one.deliver(
            f"{ESCAPES[escape]} echo begun" if ESCAPES[escape][-1] in "&;" else f"{ESCAPES[escape]}; echo begun"
        )
        await one.says("begun")
        await until(lambda: processes_saying(f"{word}-tool"))
        asked = time.monotonic()
        one.interrupt("echo idle")
        await one.says("idle")
        assert not processes_saying(f"{word}-tool"), "the turn was said to be over while something of it lived"
        assert time.monotonic() - asked < 2
        one.deliver("echo on")
        await one.says("on")
        assert not processes_saying(f"{word}-tool")
        assert one.noted == []


@every_rung
async def test_what_was_forked_after_an_interrupt_does_not_count_as_older_than_the_next_turn(
    choice: Choice, root: Path, word: str
) -> None:
    async with talk(choice, root, word) as one:
        one.deliver("echo begun")
        await one.says("begun")
        one.interrupt(f"(sleep 0.1; {ESCAPES['daemon']}) & echo idle")
        one.deliver("echo next")
        await one.says("next")
        assert not processes_saying(f"{word}-tool")


@every_rung
async def test_a_server_of_an_earlier_turn_survives_the_interrupt_of_a_later_one_with_its_new_workers(
    choice: Choice, root: Path, word: str
) -> None:
    serves = "trap '' TERM; : >serving; while ! [ -e hire ]; do sleep 0.02; done; sleep 60 & wait"
    async with talk(choice, root, word) as one:
        folder = Layout(root, "one").workspace
        one.deliver(f'setsid -f sh -c "{serves}" "$1-server"; echo idle')
        await one.says("idle")
        await until((folder / "serving").exists)
        one.deliver(f': >hire; setsid -f sh -c "{HOLD}" $1-later; echo begun')
        await one.says("begun")
        await until(lambda: processes_saying(f"{word}-later"))
        # While it forks it is there twice.
        await until(lambda: [workers_of(pid) for pid in processes_saying(f"{word}-server")] == ["sleep 60 "])
        (server,) = processes_saying(f"{word}-server")
        one.interrupt("echo idle")
        await one.says("idle", 2)
        assert processes_saying(f"{word}-later") == []
        assert processes_saying(f"{word}-server") == [server]
        assert "60" in workers_of(server), "its worker was taken for a tool's"


def workers_of(pid: int) -> str:
    """Command lines of its children; "" when it is gone."""
    with suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return " ".join(Path(f"/proc/{each}/cmdline").read_text().replace("\0", " ") for each in children)
    return ""


@every_rung
async def test_a_redirect_waits_for_the_processes_of_the_turn_that_it_stops(
    choice: Choice, root: Path, word: str
) -> None:
    async with talk(choice, root, word) as one:
        one.deliver(f"setsid -f sh -c 'echo $$ >pid; {HOLD.replace(chr(39), chr(34))}'; echo begun")
        await one.says("begun")
        await until(lambda: (pid := Layout(root, "one").workspace / "pid").exists() and pid.read_text())
        one.interrupt("echo idle")
        one.deliver("kill -0 $(cat pid) && echo beside || echo alone")
        await until(lambda: {"beside", "alone"} & set(one.lines))
        assert "alone" in one.lines


@every_rung
async def test_an_interrupt_never_overtakes_a_message_that_waits_for_another(
    choice: Choice, root: Path, word: str
) -> None:
    async with talk(choice, root, word) as one:
        one.deliver(f"{ESCAPES['daemon']}; echo idle")
        await one.says("idle")
        await until(lambda: processes_saying(f"{word}-tool"))
        one.interrupt("echo first")
        one.deliver("echo message")
        one.interrupt("echo second; echo idle")
        await one.says("idle", 2)
        assert one.lines[-4:] == ["first", "message", "second", "idle"]


@every_rung
async def test_an_interrupt_between_turns_ends_what_earlier_ones_left_and_not_what_is_the_runtimes_own(
    choice: Choice, root: Path, word: str
) -> None:
    async with session(choice, root, f'sh -c "{HOLD}" "$1-own" & {OBEYS}', "one", word) as process:
        one = Talk(process)
        listening = asyncio.create_task(one.listen())
        await until(lambda: processes_saying(f"{word}-own"))
        one.deliver(f'setsid -f sh -c "{HOLD}" "$1-left"; echo idle')
        await one.says("idle")
        await until(lambda: processes_saying(f"{word}-left"))
        one.interrupt("echo heard")
        await until(lambda: not processes_saying(f"{word}-left"))
        assert processes_saying(f"{word}-own")
        one.clearing.close()
        listening.cancel()


@every_rung
@pytest.mark.parametrize("begun", ["{} & tool=$!", "setsid -f {}; tool="], ids=["asked by its runtime", "asked by us"])
async def test_a_tool_that_tidies_up_when_it_is_asked_to_end_has_the_time_for_it(
    choice: Choice, root: Path, word: str, begun: str
) -> None:
    tidies = "sh -c 'trap \"sleep 0.4; echo so >tidied; exit\" TERM; : >up; while :; do sleep 0.02; done'"
    async with talk(choice, root, word) as one:
        folder = Layout(root, "one").workspace
        one.deliver(begun.format(tidies) + "; echo begun")
        await one.says("begun")
        await until((folder / "up").exists)
        one.interrupt("kill $tool; echo idle")
        await one.says("idle")
        assert (folder / "tidied").exists()


async def test_what_cannot_be_ended_is_named_and_the_session_goes_on(
    root: Path, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REAP_S", 0.0)  # as if the kernel held it: only a broken disk does that for good
    async with talk(next(iter(WORKS.values())), root, word) as one:
        one.deliver(f"{ESCAPES['daemon']}; echo begun")
        await one.says("begun")
        await until(lambda: processes_saying(f"{word}-tool"))
        one.interrupt("echo idle")
        await one.says("idle")
        (note,) = one.noted
        assert note.code == "not_cleared"
        assert word in note.text
        one.deliver("echo on")
        await one.says("on")
