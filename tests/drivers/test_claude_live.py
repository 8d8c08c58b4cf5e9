"""The real Claude Code, driven through our dialogue against the rehearsal model."""

from __future__ import annotations

import asyncio
import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from bide.core.runtime import (
    Called,
    Consumed,
    Deliver,
    Glimpsed,
    Idle,
    Noted,
    Returned,
    Spent,
    Spoke,
    Thought,
    Troubled,
    Unknown,
)
from bide.drivers.claude_code import ClaudeCode
from bide.drivers.claude_code.transcript import place
from bide.rehearsal.model import Failure
from tests.drivers.harness import GatewayStub, Live, bash

pytestmark = pytest.mark.anyio
DRIVER = ClaudeCode()


async def begin(root: Path, gateway: GatewayStub, session: str = "") -> Live:
    live = Live(DRIVER, root, session or str(uuid.uuid4()), gateway.url)
    await live.start()
    return live


def said(request: dict[str, Any]) -> list[str]:
    return [user["text"] for user in request["users"]]


async def test_a_turn_is_heard_whole_and_the_next_message_finds_the_process_ready(
    tmp_path: Path, gateway: GatewayStub
) -> None:
    live = await begin(tmp_path, gateway)
    first = live.deliver(
        "/clear @secret.txt please", {"thinking": "hm", "text": "I look", **bash("echo hi; exit 3")}, {"text": "done"},
        preamble="From bide: nothing was lost.",
    )  # fmt: skip
    assert await live.first(Idle) == Idle("completed")
    assert [event for event in live.events if not isinstance(event, Consumed | Glimpsed | Spent)][2:] == [
        Thought("hm"),
        Spoke("I look"),
        Called(live.of(Called)[0].id, "Bash", '{"command":"echo hi; exit 3"}'),
        Returned(live.of(Called)[0].id, ok=False, output="Exit code 3\nhi"),
        Spoke("done"),
        Idle("completed"),
    ]
    assert live.of(Consumed) == [Consumed(first)]
    assert "".join(event.text for event in live.of(Glimpsed) if event.kind == "text") == "I lookdone"
    assert live.of(Spent)[0].tokens > 0
    assert live.of(Spent)[0].usd > 0
    assert await live.turn("and now?", {"text": "later"}) == Idle("completed")
    # A text that begins with "/" must not run as a command, nor "@" read a file; and nothing is told twice.
    last = said(gateway.log(live.job.runtime_session_id)[-1])
    assert [text for text in last if "please" in text or "From bide" in text] == [
        "From bide: nothing was lost.",
        "/clear @secret.txt please @@" + json.dumps([{"thinking": "hm", "text": "I look", **bash("echo hi; exit 3")}, {"text": "done"}]),
    ]  # fmt: skip
    assert await live.close() == 0
    assert not live.of(Unknown)
    assert not live.of(Troubled)


async def test_an_interrupt_ends_the_tool_with_its_children_and_the_session_goes_on(
    tmp_path: Path, gateway: GatewayStub
) -> None:
    live = await begin(tmp_path, gateway)
    live.deliver("work", bash("echo; setsid sleep 300 & sleep 301"), {"text": "never"})
    await live.until(lambda: len(live.survivors()) >= 2)
    live.interrupt()
    assert await live.first(Idle, within_s=2) == Idle("interrupted")
    await live.until(lambda: not live.survivors(), within_s=2)
    assert await live.turn("go on", {"text": "went on"}) == Idle("completed")
    assert live.of(Spoke)[-1] == Spoke("went on")
    live.interrupt()  # nothing runs: nothing happens
    assert await live.turn("again", {"text": "still here"}) == Idle("completed")
    assert len(live.of(Idle)) == 3
    await live.close()
    assert not live.of(Troubled)


async def test_an_interrupt_stops_also_what_was_said_just_before_it(tmp_path: Path, gateway: GatewayStub) -> None:
    live = await begin(tmp_path, gateway)
    early = live.deliver("work", bash("echo; sleep 300"), {"text": "never"})
    live.interrupt()
    assert await live.first(Idle, within_s=5) == Idle("interrupted")
    assert live.of(Consumed) == [Consumed(early)]
    live.deliver("work more", bash("echo; sleep 300"), {"text": "never"})
    await live.until(lambda: len(live.of(Called)) >= 1 and bool(live.survivors()))
    steered = live.steer("and this")
    live.interrupt()
    assert await live.nth(Idle, 1, within_s=5) == Idle("interrupted")
    assert live.of(Consumed)[-1] == Consumed(steered, alone=True)
    assert not live.of(Spoke)
    await live.close()


async def test_a_steer_reaches_the_running_turn_and_is_found_again_on_disk(
    tmp_path: Path, gateway: GatewayStub
) -> None:
    live = await begin(tmp_path, gateway)
    opened = live.deliver("work", bash("echo; sleep 1"), bash("echo b"), {"text": "done"})
    await live.first(Called)
    steered = live.steer("/compact also the changelog")
    assert live.dialogue.contains(steered) is None
    await live.first(Idle)
    assert live.of(Consumed) == [Consumed(opened), Consumed(steered)]
    assert len(live.of(Idle)) == 1
    assert any("/compact also the changelog" in text for text in said(gateway.log(live.job.session_id)[-2]))
    assert live.dialogue.contains(steered) is True
    assert live.dialogue.contains(str(uuid.uuid4())) is False
    await live.close()
    memory = DRIVER.memory(tmp_path / "home", live.job.session_id)
    assert memory.found
    assert memory.inputs >= {opened, steered}


async def test_a_question_ends_the_turn_and_its_answer_goes_on_elsewhere_with_the_whole_history_once(
    tmp_path: Path, gateway: GatewayStub
) -> None:
    here = await begin(tmp_path / "one", gateway)
    session = here.job.session_id
    asks = {"tool": "mcp__bide__ask_human", "input": {"question": "Which?"}}
    first = here.deliver("task", bash("echo reproduced"), asks, {"text": "must not come by itself"})
    assert await here.first(Idle) == Idle("completed")
    assert gateway.asked == [("ask_human", {"question": "Which?"})]
    assert not here.of(Spoke)
    await here.close()

    # Only what a checkpoint carries goes along: to another home, at another path.
    for part in DRIVER.carried(session).keep:
        source, target = tmp_path / "one/home" / part, tmp_path / "two/home" / part
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, target)
    shutil.rmtree(tmp_path / "one")
    there = Live(DRIVER, tmp_path / "two", session, gateway.url)
    ready = await there.start()
    assert (ready.rung, ready.runtime_session_id) == ("native", session)
    assert there.dialogue.contains(first) is True
    assert await there.turn("the second", {"text": "thanks"}) == Idle("completed")
    request = gateway.log(session)[-1]
    assert [text.split(" @@")[0] for text in said(request) if "@@" in text] == ["task", "the second"]
    assert [result["text"] for result in request["results"]] == ["reproduced", "recorded"]

    # The same input again: known, so nothing runs and nobody waits for ever.
    requests = len(gateway.log(session))
    there.say(Deliver(first, "task"))
    assert await there.nth(Idle, 1) == Idle("completed")
    assert there.of(Consumed)[-1] == Consumed(first)
    assert len(gateway.log(session)) == requests
    await there.close()


async def test_a_kill_in_mid_tool_leaves_a_conversation_that_resumes(tmp_path: Path, gateway: GatewayStub) -> None:
    live = await begin(tmp_path, gateway)
    session = live.job.session_id
    cut_off = live.deliver("work", bash("echo; sleep 300"), {"text": "never"})
    path = tmp_path / "home" / place(session)
    await live.until(lambda: bool(live.of(Called)) and bool(live.survivors()))
    await live.until(lambda: path.exists() and b'"type":"tool_use"' in path.read_bytes())  # it writes a little later
    await live.kill()
    assert live.events[-1] == Troubled("runtime_ended_early", "Claude Code ended in the middle of a turn.")
    with path.open("ab") as transcript:
        transcript.write(b'{"type":"user","uuid":"to')
    again = await begin(tmp_path, gateway, session)
    assert again.dialogue.contains(cut_off) is True
    assert await again.turn("the runner restarted", {"text": "checking"}) == Idle("completed")
    request = gateway.log(session)[-1]
    assert "outcome is unknown" in request["results"][-1]["text"]
    assert again.of(Spoke) == [Spoke("checking")]
    await again.close()


async def test_errors_of_the_model_end_the_turn_as_failed_and_the_next_message_works(
    tmp_path: Path, gateway: GatewayStub
) -> None:
    live = await begin(tmp_path, gateway)
    gateway.model.fail(Failure(status=400, times=50, message="the cat sat on it"))
    idle = await live.turn("one")
    assert idle.result == "failed"
    assert "the cat sat on it" in idle.detail
    assert [trouble.code for trouble in live.of(Troubled)] == ["model_error"]
    gateway.model.fail(Failure(status=529, times=1))
    assert await live.turn("two", {"text": "after a retry"}) == Idle("completed")
    assert [note.code for note in live.of(Noted)] == ["model_retry"]
    assert live.of(Spoke) == [Spoke("after a retry")]
    assert len(live.of(Consumed)) == 2
    await live.close()


async def test_a_runtime_that_cannot_log_in_says_that_it_is_the_login(
    tmp_path: Path, gateway: GatewayStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = await begin(tmp_path, gateway)
    monkeypatch.setattr(gateway.model, "keys", frozenset({"another"}))  # what it has is not good any more
    (tmp_path / "state/apikey.sh").write_text("#!/bin/sh\nexit 1\n")
    assert (await live.turn("one", {"text": "never"})).result == "failed"
    assert [trouble.code for trouble in live.of(Troubled)] == ["model_unauthenticated"]
    (tmp_path / "state/apikey.sh").write_text("#!/bin/sh\necho another\n")
    assert await live.turn("two", {"text": "gladly"}) == Idle("completed")
    await live.close()


async def test_a_refusal_for_good_is_no_answer_and_no_outage(tmp_path: Path, gateway: GatewayStub) -> None:
    live = await begin(tmp_path, gateway)
    no = {"text": "I cannot help with that.", "stop_reason": "refusal"}
    assert (await live.turn("one", no, no, no)).result == "failed"
    assert [trouble.code for trouble in live.of(Troubled)] == ["model_refused"]
    assert not live.of(Unknown)
    assert await live.turn("two", {"text": "gladly"}) == Idle("completed")
    await live.close()


async def test_a_conversation_that_cannot_be_read_gives_a_fresh_one_that_says_so(
    tmp_path: Path, gateway: GatewayStub
) -> None:
    session = str(uuid.uuid4())
    rubbish = tmp_path / "home" / place(session)
    rubbish.parent.mkdir(parents=True)
    rubbish.write_bytes(b"\0\0\0 not a conversation\n")
    live = Live(DRIVER, tmp_path, session, gateway.url)
    ready = await live.start()
    assert ready.rung == "fresh"
    assert ready.reason
    assert ready.runtime_session_id != session
    assert await live.turn("hello", {"text": "hi"}) == Idle("completed")
    await live.close()
    assert rubbish.read_bytes() == b"\0\0\0 not a conversation\n"
    assert DRIVER.memory(tmp_path / "home", ready.runtime_session_id).found


async def test_a_repository_can_advise_but_not_command(tmp_path: Path, gateway: GatewayStub) -> None:
    workspace = tmp_path / "workspace"
    (workspace / ".claude").mkdir(parents=True)
    (workspace / "CLAUDE.md").write_text("RULES-OF-THE-HOUSE")
    hook = {"matcher": "", "hooks": [{"type": "command", "command": f"touch {tmp_path}/hooked"}]}
    settings = {"hooks": {"SessionStart": [hook]}, "env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}}
    (workspace / ".claude/settings.json").write_text(json.dumps(settings))
    server = {"command": "touch", "args": [f"{tmp_path}/served"]}
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": server}}))
    live = await begin(tmp_path, gateway)
    assert await live.turn("hello", bash("env"), {"text": "hi"}) == Idle("completed")
    await live.close()
    assert not (tmp_path / "hooked").exists()
    assert not (tmp_path / "served").exists()
    bodies = sorted((gateway.model.bodies or tmp_path).iterdir())
    assert "RULES-OF-THE-HOUSE" in bodies[-1].read_text()
    assert {"mcp__bide__ask_human", "Bash"} <= set(gateway.model.log()[-1]["tools"])
    assert not {"AskUserQuestion", "EnterPlanMode", "Monitor"} & set(gateway.model.log()[-1]["tools"])
    # The environment is what every tool sees: nothing secret stands in it.
    assert "throw-away-token" not in live.of(Returned)[0].output
    assert "throw-away-token" not in " ".join(live.dialogue.launch().argv)


async def test_a_start_that_fails_says_why(tmp_path: Path, gateway: GatewayStub) -> None:
    session = str(uuid.uuid4())
    transcript = tmp_path / "home" / place(session)
    transcript.parent.mkdir(parents=True)
    transcript.write_text('{"type":"user","uuid":"u","message":{"role":"user","content":"hi"}}\n')
    live = Live(DRIVER, tmp_path, session, gateway.url)
    transcript.unlink()
    starting = asyncio.create_task(live.start())
    trouble = await live.first(Troubled)
    starting.cancel()
    assert trouble.code == "runtime_start_failed"
    assert "No conversation found" in trouble.sentence
    await live.close()
    assert live.of(Troubled) == [trouble]
