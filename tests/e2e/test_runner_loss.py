"""A runner dies with `kill -9`: what its sessions lose is said to everybody, and they go on elsewhere."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from msgspec import Struct

from tests.e2e.model import bash, newest_texts, said, word
from tests.e2e.stage import Session, Stage, processes_saying, processes_within, until


class Crash(Struct):
    """Three sessions of one runner, before and after it was killed."""

    stage: Stage
    said_after_s: float  # from the kill to the fact
    midway: Session  # had one whole turn, was in its second
    early: Session  # was in its first turn
    idle: Session  # waited
    words: dict[str, str]
    contact: dict[str, Any]  # the session in mid-turn, soon after


@pytest.fixture(scope="module")
def crash(shared: Stage) -> Crash:
    (doomed,) = shared.runners("loss-one", pool="loss")
    words = {name: word(name) for name in ("task", "second", "early", "idle", "busy", "first")}
    idle = shared.session(said(words["idle"], {"text": "ready"}), pool="loss")
    early = shared.session(
        said(words["early"], bash(f"echo lost > early.txt; sh -c 'sleep 300; true' {words['first']}")), pool="loss"
    )
    midway = shared.session(said(words["task"], bash("echo kept > kept.txt; echo ignored > kept.log")), pool="loss")
    until(lambda: midway.count("checkpoint.saved") >= 2, why=midway.story)
    midway.send(
        words["second"],
        {"tool": "Write", "input": {"file_path": "/workspace/lost.txt", "content": "lost"}},
        bash(f"echo lost >> kept.txt; sh -c 'sleep 300; true' {words['busy']}"),
    )
    midway.tool_running(words["busy"])
    early.tool_running(words["first"])
    idle.shown("waiting")
    until(lambda: idle.count("checkpoint.saved") >= 2, why=idle.story)
    doomed.kill()
    killed_at = time.monotonic()
    shared.runner("loss-two", "loss")
    contact = until(
        lambda: "out of contact" in (now := midway.look())["reason"] and now, 2 * shared.lease_s, midway.story
    )
    midway.first("session.interrupted", within_s=3 * shared.lease_s)
    return Crash(shared, time.monotonic() - killed_at, midway, early, idle, words, contact)


def test_a_killed_runner_takes_its_runtimes_with_it(crash: Crash) -> None:
    folder = crash.stage.folder / "loss-one"
    until(lambda: not processes_within(folder), 5, lambda: processes_within(folder))
    for session in (crash.midway, crash.early):
        session.first("session.leased", runner_name="loss-two")
    assert not processes_saying(str(folder))


def test_the_session_says_within_the_lease_that_its_runner_is_out_of_contact(crash: Crash) -> None:
    assert crash.contact["reason"].startswith("out of contact since "), "before the lease is over, too"
    interrupted = crash.midway.events("session.interrupted")[0]
    assert interrupted["data"]["runner"] == "loss-one"
    assert "out of contact" in interrupted["data"]["reason"]
    assert crash.said_after_s < crash.stage.lease_s + 2


def test_the_loss_is_itemised_shown_and_told_to_the_coding_agent(crash: Crash) -> None:
    s = crash.midway
    rolled = s.first("environment.rolled_back", within_s=3 * crash.stage.lease_s)["data"]
    assert (rolled["checkpoint"], rolled["turns"]) == (2, 1)
    assert rolled["seconds"] > 0
    whats = [item["what"] for item in rolled["lost"]]
    assert "turn 2" in whats
    assert any("lost.txt" in what for what in whats)
    assert any("tool call" in what for what in whats)
    assert all(item["reason"] for item in rolled["lost"])
    again = next(e["data"] for e in s.events("user.receipt") if e["data"]["how"].startswith("to be delivered again"))
    second = s.events("user.message")[1]["data"]["id"]
    assert (again["input_id"], again["status"]) == (second, "accepted")
    shown = crash.stage.cli("show", s.id)
    assert shown.returncode == 0, shown.stderr
    assert "rolled back to checkpoint 2" in shown.stdout
    for what in whats:
        assert what in shown.stdout
    losses = json.loads(crash.stage.cli("show", s.id, "--json").stdout)["losses"]
    assert losses[0]["lost"] == rolled["lost"]
    until(lambda: crash.stage.model.openings(crash.words["second"]) == 2, 20, s.story)
    told = "\n".join(_openings(crash, "second")[-1])
    for what in ("Work was lost", "checkpoint 2", *whats):
        assert what in told
    assert crash.stage.model.openings(crash.words["task"]) == 1, "a turn that was saved never runs again"


def test_the_workspace_is_the_checkpoints_and_the_same_conversation_goes_on(crash: Crash) -> None:
    s = crash.midway
    s.first("environment.restored", source="checkpoint", checkpoint=2, within_s=3 * crash.stage.lease_s)
    s.tool_running(crash.words["busy"])
    s.post({"type": "user.interrupt"})
    s.shown("waiting")
    workspace = crash.stage.root_of(s) / "workspace"
    assert crash.stage.root_of(s).parent.name == "loss-two"
    assert (workspace / "kept.log").read_text() == "ignored\n"
    # The second turn ran again from the checkpoint: what it appends stands there once, not twice.
    assert (workspace / "kept.txt").read_text() == "kept\nlost\n"
    resumed = s.events("runtime.resumed")[-1]["data"]
    assert resumed["rung"] == "native"
    assert s.look()["environment"]["reset_count"] == 0
    s.whole()


def test_a_first_turn_that_never_ended_starts_again_from_the_fresh_clone_and_says_so(crash: Crash) -> None:
    s = crash.early
    rolled = s.first("environment.rolled_back", within_s=3 * crash.stage.lease_s)["data"]
    assert (rolled["checkpoint"], rolled["turns"]) == (1, 1)
    assert "turn 1" in [item["what"] for item in rolled["lost"]]
    until(lambda: crash.stage.model.openings(crash.words["early"]) == 2, 20, s.story)
    assert "Work was lost" in "\n".join(_openings(crash, "early")[-1])
    s.tool_running(crash.words["first"])
    s.post({"type": "user.interrupt"})
    s.shown("waiting")
    assert (crash.stage.root_of(s) / "workspace" / "early.txt").read_text() == "lost\n"
    s.whole()


def test_a_session_that_waited_loses_nothing(crash: Crash) -> None:
    s = crash.idle
    s.first("session.leased", runner_name="loss-two", within_s=3 * crash.stage.lease_s)
    s.shown("waiting")
    assert not s.events("environment.rolled_back", "environment.lost")
    s.send(after := word("after"), {"text": "still here"})
    s.first("assistant.message", text="still here")
    assert [crash.stage.model.openings(each) for each in (crash.words["idle"], after)] == [1, 1]


def _openings(crash: Crash, name: str) -> list[list[str]]:
    """What was said to the coding agent each time that the message opened a turn."""
    mark = crash.words[name]
    told = [newest_texts(request) for request in crash.stage.model.about(mark)]
    return [each for each in told if any(mark in text for text in each)]
