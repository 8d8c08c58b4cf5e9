"""Sessions, runners and servers that are told to end: what is kept, and what goes on."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.model import ask, bash, said, word
from tests.e2e.stage import READY_S, Stage, processes_saying, until


def test_a_cancelled_session_keeps_its_work_and_a_message_wakes_it(stage: Stage) -> None:
    task, mark, after = word("task"), word("busy"), word("after")
    s = stage.session(said(task, bash(f"echo half > half.txt; sh -c 'sleep 300; true' {mark}"), {"text": "never"}))
    s.tool_running(mark)
    queued = s.send("and then", {"text": "never"})
    (cancel,) = s.post({"type": "user.cancel"})
    ended = s.first("session.ended")
    assert ended["data"]["outcome"] == "cancelled"
    assert not processes_saying(mark)
    assert s.receipt(cancel["id"])["status"] == "consumed"
    refused = s.receipt(queued)
    assert (refused["status"], refused["text"][:8]) == ("refused", "and then")
    now = s.look()
    assert (now["shown"], now["outcome"], now["runner"]) == ("ended", "cancelled", None)
    assert now["checkpoint"]["event_seq"] < ended["seq"]
    assert now["expires_at"]
    stage.refused("POST", f"{s.path}/events", 409, "ended", json={"events": [{"type": "user.cancel"}]})
    s.send(after, bash("cat half.txt"), {"text": "awake"})
    s.first("assistant.message", text="awake")
    assert s.events("tool.result")[-1]["data"]["output"].strip() == "half"
    assert s.count("session.reopened") == 1
    assert [stage.model.openings(each) for each in (task, after)] == [1, 1]
    s.whole()


def test_a_runner_that_is_told_to_go_parks_all_it_holds_and_loses_nothing(shared: Stage) -> None:
    (leaving,) = shared.runners("drain-one", pool="leaving")
    mark, late = word("busy"), word("late")
    waiting = shared.session(said(word("task"), bash("echo w > w.txt"), ask("Which?")), pool="leaving")
    question = waiting.question()
    working = shared.session(said(word("task"), bash(f"sh -c 'sleep 2; true' {mark}; echo d > d.txt")), pool="leaving")
    working.tool_running(mark)
    staying = shared.runner("drain-two", "leaving")
    leaving.process.terminate()
    assert leaving.process.wait(20) == 0, leaving.tail()
    for s in (waiting, working):
        now = s.shown("parked")
        assert "drained" in now["reason"]
        assert now["checkpoint"]
        assert not s.events("session.interrupted", "environment.rolled_back", "environment.lost")
    assert working.events("turn.ended")[-1]["data"]["result"] == "completed", "the turn came to its own end"
    shared.online(staying)
    waiting.answer(question, late, bash("cat w.txt"), {"text": "answered"})
    working.send("go on", bash("cat d.txt"), {"text": "went on"})
    waiting.first("assistant.message", text="answered")
    working.first("assistant.message", text="went on")
    assert [s.events("tool.result")[-1]["data"]["output"].strip() for s in (waiting, working)] == ["w", "d"]
    for s in (waiting, working):
        s.whole()


def test_a_restart_of_bide_up_keeps_port_and_token_and_adopts_the_runner_in_the_middle_of_a_turn(shared: Stage) -> None:
    folder = shared.folder / "upped"
    words = ("up", "--data", str(folder), "--listen", "127.0.0.1:0", "--lease", "6s", "--json")
    env = {"ANTHROPIC_API_KEY": shared.key, "BIDE_MODEL_URL": shared.model.url}
    first = shared.spawn("up-one", *words, **env)
    told = json.loads(until(first.out, READY_S, first.tail))
    assert set(told) == {"url", "token", "data", "runner", "page"}
    assert told["runner"]["state"] == "online"
    mark = word("busy")
    try:
        task = said(word("task"), bash(f"sh -c 'sleep 8; true' {mark}; echo survived"), {"text": "done"})
        ran = shared.cli(
            "run", str(shared.repository()), task, "--json", BIDE_SERVER=told["url"], BIDE_TOKEN=told["token"]
        )
        session = json.loads(ran.stdout)["id"]
        (pid, *_) = until(lambda: processes_saying(mark), 20)
        assert first.stop() == 0
        assert "goes on" in first.tail()
        second = shared.spawn("up-two", *words, **env)
        again = json.loads(until(second.out, READY_S, second.tail))
        assert [again[name] for name in ("url", "token", "data")] == [told[name] for name in ("url", "token", "data")]
        assert again["runner"]["id"] == told["runner"]["id"]
        assert Path(f"/proc/{pid}").exists(), "the tool runs on"
        env = {"BIDE_SERVER": told["url"], "BIDE_TOKEN": told["token"]}
        until(lambda: json.loads(shared.cli("show", session, "--json", **env).stdout)["shown"] == "waiting")
        events = [json.loads(line) for line in shared.cli("logs", session, "--json", **env).stdout.splitlines()]
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        types = [event["type"] for event in events]
        assert [types.count(kind) for kind in ("session.leased", "turn.started", "turn.ended", "runtime.started")] == [
            1
        ] * 4
        assert "survived" in next(e["data"]["output"] for e in events if e["type"] == "tool.result")
    finally:
        for name in ("up-one", "up-two"):
            if name in shared.parts:
                shared.parts.pop(name).kill()
