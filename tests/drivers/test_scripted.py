"""The scripted runtime as its own process: everything a runner needs from a runtime, without a model."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import uuid
from pathlib import Path

import pytest

from bide.core.runtime import (
    Busy,
    Called,
    Consumed,
    Deliver,
    Idle,
    Interrupt,
    Noted,
    Returned,
    Spent,
    Spoke,
    Steer,
    Troubled,
    Unknown,
)
from bide.drivers.scripted import Scripted
from bide.drivers.scripted.driver import FOLDER
from tests.drivers.harness import GatewayStub, Live

pytestmark = pytest.mark.anyio
DRIVER = Scripted()


async def begin(root: Path, gateway: GatewayStub, session: str = "") -> Live:
    live = Live(DRIVER, root, session or str(uuid.uuid4()), gateway.url)
    await live.start()
    return live


async def test_a_script_is_played_step_by_step(tmp_path: Path, gateway: GatewayStub) -> None:
    live = await begin(tmp_path, gateway)
    steps = ({"say": "hi"}, {"run": "echo out; exit 2"}, {"write": {"path": "a/b.txt", "text": "B"}})
    assert await live.turn("go", *steps, {"spend": {"usd": 0.5, "tokens": 7}}, {"note": "n"}) == Idle("completed")
    assert live.events[1] == Busy() or live.events[1] == live.of(Consumed)[0]
    assert live.of(Spoke) == [Spoke("hi")]
    assert [event.name for event in live.of(Called)] == ["Bash", "Write"]
    assert live.of(Returned)[0] == Returned(live.of(Called)[0].id, ok=False, output="out\n")
    assert live.of(Spent) == [Spent(0.5, 7, "scripted")]
    assert live.of(Noted) == [Noted("n")]
    assert (tmp_path / "workspace/a/b.txt").read_text() == "B"
    assert await live.turn("plain") == Idle("completed")
    assert live.of(Spoke)[-1] == Spoke("echo: plain")
    assert await live.close() == 0


async def test_a_question_ends_the_turn_and_the_answer_plays_the_rest_after_a_move(
    tmp_path: Path, gateway: GatewayStub
) -> None:
    live = await begin(tmp_path / "one", gateway)
    session = live.job.session_id
    rest = (
        {"ask": {"question": "Which?"}},
        {"say": "goes on"},
        {"assume": "a"},
        {"finish": "all done"},
        {"recall": True},
    )
    first = live.deliver("go", *rest)
    assert await live.first(Idle) == Idle("completed")
    assert gateway.asked == [("ask_human", {"question": "Which?"})]
    assert not live.of(Spoke)
    await live.close()
    (kept,) = DRIVER.carried(session).keep
    (tmp_path / "two/home" / kept).parent.mkdir(parents=True)
    shutil.copy2(tmp_path / "one/home" / kept, tmp_path / "two/home" / kept)
    shutil.rmtree(tmp_path / "one")
    there = Live(DRIVER, tmp_path / "two", session, gateway.url)
    assert (await there.start()).rung == "native"
    assert there.dialogue.contains(first) is True
    answer = there.deliver("the second")
    await there.first(Idle)
    assert there.of(Spoke) == [Spoke("goes on"), Spoke(json.dumps([first, answer]))]
    assert [name for name, _ in gateway.asked] == ["ask_human", "record_assumption", "finish"]
    there.say(Deliver(first, "again"))
    assert await there.nth(Idle, 1) == Idle("completed", "held already")
    assert len(there.of(Busy)) == 1
    await there.close()


async def test_an_interrupt_ends_the_command_with_its_tree_and_the_next_message_works(
    tmp_path: Path, gateway: GatewayStub
) -> None:
    live = await begin(tmp_path, gateway)
    live.deliver("go", {"run": "setsid sleep 300 & (trap '' TERM; sleep 301)"}, {"say": "never"})
    await live.until(lambda: len(live.survivors()) >= 3)
    live.interrupt()
    assert await live.first(Idle, within_s=2) == Idle("interrupted")
    assert not live.survivors()
    live.interrupt()  # nothing runs: nothing happens
    assert await live.turn("plain") == Idle("completed")
    early = live.deliver("go", {"run": "sleep 300"}, {"say": "never"})
    live.interrupt()
    assert await live.nth(Idle, 2) == Idle("interrupted")
    assert live.of(Consumed)[-1] == Consumed(early)
    await live.close()


async def test_a_steer_is_taken_up_at_the_next_step(tmp_path: Path, gateway: GatewayStub) -> None:
    live = await begin(tmp_path, gateway)
    gate = tmp_path / "gate"
    live.deliver("go", {"run": f"until [ -e {gate} ]; do :; done"}, {"say": "last"})
    await live.first(Called)
    steered = live.steer("also", {"say": "steered in"})
    gate.touch()
    await live.first(Idle)
    assert live.of(Spoke) == [Spoke("steered in"), Spoke("last")]
    assert Consumed(steered) in live.events
    assert len(live.of(Idle)) == 1
    late = live.steer("alone")  # no turn runs: it opens one
    await live.nth(Idle, 1)
    assert live.of(Consumed)[-1] == Consumed(late, alone=True)
    await live.close()


async def test_a_crash_in_mid_turn_is_told_and_the_conversation_goes_on(tmp_path: Path, gateway: GatewayStub) -> None:
    live = await begin(tmp_path, gateway)
    cut = live.deliver("go", {"say": "before"}, {"crash": -signal.SIGKILL})
    await live.first(Troubled)
    assert live.events[-1] == Troubled("runtime_ended_early", "The scripted runtime ended in the middle of a turn.")
    transcript = tmp_path / "home" / DRIVER.carried(live.job.session_id).keep[0]
    with transcript.open("ab") as file:
        file.write(b'\xff\n{"type":"input","id":"to')
    again = await begin(tmp_path, gateway, live.job.session_id)
    assert again.dialogue.contains(cut) is True
    told = again.deliver("plain")
    await again.first(Idle)
    await again.close()
    assert DRIVER.memory(tmp_path / "home", live.job.session_id).inputs == {cut, told}


async def test_raw_bytes_and_broken_scripts_do_not_end_the_session(tmp_path: Path, gateway: GatewayStub) -> None:
    live = await begin(tmp_path, gateway)
    raw = base64.b64encode(b"\0\xff noise\n").decode()
    assert await live.turn("go", {"emit": raw}, {"say": "after"}) == Idle("completed")
    assert live.of(Unknown) == [Unknown("\0\ufffd noise")]
    assert (await live.turn("go", {"no_such_step": 1})).result == "failed"
    assert (await live.turn("go @@[broken")).result == "failed"
    assert await live.turn("go", {"fail": "as told"}) == Idle("failed", "as told")
    assert await live.turn("plain") == Idle("completed")
    await live.close()


async def test_the_model_is_reached_through_the_gateway(tmp_path: Path, gateway: GatewayStub) -> None:
    live = await begin(tmp_path, gateway)
    assert await live.turn("go", {"model": 2}) == Idle("completed")
    assert len(live.of(Spent)) == 2
    assert all(spent.tokens > 0 for spent in live.of(Spent))
    await live.close()


async def test_what_it_is_told_to_remember_stands_in_its_conversation(tmp_path: Path, gateway: GatewayStub) -> None:
    live = await begin(tmp_path, gateway)
    assert await live.turn("go", {"remember": "one"}, {"remember": "two"}) == Idle("completed")
    await live.close()
    rows = (tmp_path / "home" / DRIVER.carried(live.job.session_id).keep[0]).read_text().splitlines()
    assert [row["text"] for row in map(json.loads, rows) if row["type"] == "remembered"] == ["one", "two"]


async def test_a_file_of_rubbish_gives_a_fresh_conversation_that_says_so(tmp_path: Path, gateway: GatewayStub) -> None:
    session = str(uuid.uuid4())
    file = tmp_path / "home" / DRIVER.carried(session).keep[0]
    file.parent.mkdir(parents=True)
    file.write_bytes(b"rubbish\n")
    live = Live(DRIVER, tmp_path, session, gateway.url)
    ready = await live.start()
    assert ready.rung == "fresh"
    assert ready.reason
    assert await live.turn("plain") == Idle("completed")
    await live.close()
    assert DRIVER.memory(tmp_path / "home", ready.runtime_session_id).found


def test_the_system_python_can_play() -> None:
    runtime = DRIVER.probe({"PATH": "/usr/bin:/bin"})
    assert runtime.problem == ""
    assert runtime.name == "scripted"


def test_orders_are_lines_whatever_the_text(tmp_path: Path) -> None:
    live = Live(DRIVER, tmp_path, str(uuid.uuid4()), "http://127.0.0.1:1")
    for order in (Deliver("a", "x\ny\ud800\0"), Steer("b", "\r\n"), Interrupt("c")):
        said = live.dialogue.say(order)
        assert said.count(b"\n") == 1
        json.loads(said)
    assert live.dialogue.contains("a") is None
    assert live.dialogue.contains("z") is False


@pytest.mark.parametrize("planted", ["a link", "a pipe", "an endless file"])
def test_what_stands_in_the_place_of_a_conversation_is_a_problem_and_no_wait(tmp_path: Path, planted: str) -> None:
    path = tmp_path / FOLDER / "c.jsonl"
    path.parent.mkdir()
    if planted == "a link":
        path.symlink_to("/dev/zero")
    elif planted == "a pipe":
        os.mkfifo(path)
    else:
        path.touch()
        os.truncate(path, 8 << 30)
    memory = Scripted().memory(tmp_path, "c")
    assert not memory.found
    assert memory.problem
