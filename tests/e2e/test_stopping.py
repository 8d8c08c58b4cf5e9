"""What people stop is stopped: whatever the tools of a turn began, wherever it hides, ends with an interrupt or a cancel."""

from __future__ import annotations

import socket
import time

import pytest

from tests.e2e.model import bash, said, word
from tests.e2e.stage import WITHIN_S, Session, Stage, processes_saying, until

# Beside the tool that the runtime waits for and ends itself; each leaves a process that is nobody's child.
ESCAPES = {
    "setsid": "setsid -f sh -c 'sleep 300; true' {}",
    "nohup": "nohup sh -c 'sleep 300; true' {} >/dev/null 2>&1 &",
    "double fork": "( ( sh -c 'sleep 300; true' {} & ) & )",
    "ignores TERM": """setsid -f sh -c 'trap "" TERM HUP INT; while :; do sleep 1; done' {}""",
    "fork chaser": """c='sleep 0.05; setsid -f sh -c "$1" "$0" "$1"'; setsid -f sh -c "$c" {} "$c";""",
}


def hiding(escape: str, mark: str) -> str:
    """A command that leaves such a process behind and goes on itself."""
    begins = ESCAPES[escape].format(mark)
    return f"{begins}{'' if begins[-1] in '&;' else ';'} sh -c 'sleep 300; true' {mark}-tool"


@pytest.mark.parametrize("escape", ESCAPES)
def test_an_interrupt_ends_what_the_tool_left_behind_before_it_says_that_the_turn_is_over(
    stage: Stage, escape: str
) -> None:
    mark = word("hides")
    s = stage.session(said(word("task"), bash(hiding(escape, mark)), {"text": "never"}))
    s.tool_running(f"{mark}-tool")
    s.tool_running(mark, 2)
    asked = time.monotonic()
    (interrupt,) = s.post({"type": "user.interrupt"})
    until(lambda: not processes_saying(mark), why=lambda: (processes_saying(mark), s.story()))
    assert time.monotonic() - asked < 2
    assert s.receipt(interrupt["id"], "consumed")["turn"] == 1
    assert not processes_saying(mark)
    s.send("go on", {"text": "went on"})
    s.first("assistant.message", text="went on")
    assert s.count("runtime.started") == 1, "the same process goes on"


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_cancel_ends_what_the_tool_left_behind_and_frees_the_slot(shared: Stage, escape: str) -> None:
    mark, pool = word("hides"), word("narrow")
    (runner,) = shared.runners(pool, pool=pool, slots=1)
    s = shared.session(said(word("task"), bash(hiding(escape, mark)), {"text": "never"}), pool=pool)
    s.tool_running(f"{mark}-tool")
    s.tool_running(mark, 2)
    following = shared.session(said(word("task"), {"say": "my turn"}), runtime="scripted", pool=pool)
    assert following.look()["shown"] == "queued"
    (cancel,) = s.post({"type": "user.cancel"})
    assert s.first("session.ended")["data"]["outcome"] == "cancelled"
    assert not processes_saying(mark)
    assert s.receipt(cancel["id"])["status"] == "consumed"
    assert s.look()["checkpoint"], "its work is kept"
    following.first("assistant.message", text="my turn")
    runner.kill()


def test_what_an_earlier_turn_left_running_is_named_stays_and_ends_with_an_interrupt_between_turns(
    stage: Stage,
) -> None:
    server, tool = word("server"), word("tool")
    s = stage.session(
        said(word("task"), bash(f"setsid -f python3 -c 'import time; time.sleep(300)' {server}"), {"text": "up"})
    )
    s.shown("waiting")
    assert server in s.first("note", code="left_running")["data"]["text"]
    s.send("work", bash(f"sh -c 'sleep 300; true' {tool}"), {"text": "never"})
    s.tool_running(tool)
    s.post({"type": "user.interrupt"})
    until(lambda: s.count("turn.ended") == 2, why=s.story)
    assert not processes_saying(tool)
    assert processes_saying(server), "it was not begun by the turn that was stopped"
    (interrupt,) = s.post({"type": "user.interrupt"})
    until(lambda: not processes_saying(server), why=s.story)
    assert s.receipt(interrupt["id"], "consumed")["how"] == "nothing was running; 1 background process ended"
    s.send("go on", {"text": "went on"})
    s.first("assistant.message", text="went on")
    assert s.count("runtime.started") == 1


def test_a_cancel_of_a_session_whose_clone_hangs_frees_its_runner_at_once(shared: Stage) -> None:
    pool = word("hangs")
    (runner,) = shared.runners(pool, pool=pool, slots=1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"http://127.0.0.1:{mute.getsockname()[1]}/app.git"
        body = {"repository": address, "prompt": "work", "runtime": "scripted", "pool": pool}
        s = Session(shared, shared.ok("POST", "/v1/sessions", json=body)["session"]["id"])
        mute.settimeout(WITHIN_S)
        line, _ = mute.accept()  # git is there, and waits for an answer
        with line:
            (cancel,) = s.post({"type": "user.cancel"})
            ended = s.first("session.ended")["data"]
            assert (ended["outcome"], s.events("error")) == ("cancelled", [])
            assert s.receipt(cancel["id"])["status"] == "consumed"
            following = shared.session(said(word("task"), {"say": "my turn"}), runtime="scripted", pool=pool)
            following.first("assistant.message", text="my turn")
            assert not processes_saying(address)
    runner.kill()
