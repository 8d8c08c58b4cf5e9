"""Which runner a session needs, and that it says why it has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from bide.core import exchange
from tests.server.harness import LiveServer, Voice, held, repository


def reason(server: LiveServer, session: str) -> str:
    return str(server.ok("GET", f"/v1/sessions/{session}")["reason"])


def test_a_session_goes_to_a_runner_with_its_labels_and_says_which_it_lacks(server: LiveServer, repo: Path) -> None:
    plain = Voice(server, "plain", pool="labelled")
    session = server.session(repo, pool="labelled", labels=["zone=a", "gpu"])
    assert session["labels"] == ["gpu", "zone=a"]
    assert session["reason"] == "no runner of pool labelled is labelled gpu and zone=a; 1st in its queue"
    assert plain.sync()["grants"] == []
    able = Voice(server, "able", pool="labelled")
    able.register(labels=["zone=a", "gpu", "fast"])
    assert [grant["session"] for grant in able.sync()["grants"]] == [session["id"]]
    listed = {r["name"]: r["labels"] for r in server.ok("GET", "/v1/runners")["items"]}
    assert (listed["able"], listed["plain"]) == (["fast", "gpu", "zone=a"], [])


def test_labels_may_be_set_for_a_project_and_are_checked_wherever_they_come_from(
    server: LiveServer, tmp_path: Path
) -> None:
    repo = repository(tmp_path / "wanting")
    settings = {"labels": " gpu , zone=a,gpu", "pool": "wants"}
    put = server.ok("PUT", "/v1/projects/wanting", json={"repository": str(repo), "settings": settings})
    assert put["settings"]["labels"] == "gpu,zone=a"
    body = {"project": "wanting", "prompt": "x", "runtime": "scripted"}
    assert server.ok("POST", "/v1/sessions", json=body)["session"]["labels"] == ["gpu", "zone=a"]
    own = body | {"labels": ["tpu"]}
    assert server.ok("POST", "/v1/sessions", json=own)["session"]["labels"] == ["tpu"]
    for wrong in (["G P U"], ["=a"], ["x" * 200], [f"l{i}" for i in range(99)]):
        server.refused("POST", "/v1/sessions", 422, "bad_name", json=body | {"labels": wrong})
    server.refused("POST", "/v1/runners", 422, "bad_name", json={"name": "mislabelled", "labels": ["a,b"]})


def test_a_session_that_waits_says_its_place_in_the_queue_of_its_pool(server: LiveServer, repo: Path) -> None:
    runner = Voice(server, "busy", slots=1, pool="busy")
    server.session(repo, pool="elsewhere")
    sessions = [server.session(repo, pool="busy")["id"] for _ in range(4)]
    grant = runner.claim()
    runner.sync(held(grant), free=0)
    why = "all 1 slots of pool busy that could take it are taken"
    assert [reason(server, s) for s in sessions[1:]] == [f"{why}; {n} in its queue" for n in ("1st", "2nd", "3rd")]
    listed = {s["id"]: s["reason"] for s in server.ok("GET", "/v1/sessions?limit=4")["items"]}
    assert listed[sessions[3]] == f"{why}; 3rd in its queue"


def test_a_session_behind_a_long_queue_that_this_runner_cannot_serve_is_reached_by_its_next_looks(
    server: LiveServer, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "QUEUE_PAGE", 2)
    monkeypatch.setattr(exchange, "QUEUE_PAGES_MAX", 1)
    for _ in range(5):
        server.session(repo, pool="long", labels=["gpu"])
    plain = server.session(repo, pool="long")["id"]
    runner = Voice(server, "patient", pool="long")
    assert [runner.sync()["grants"] for _ in range(2)] == [[], []], "each look is a page"
    assert [grant["session"] for grant in runner.sync()["grants"]] == [plain]
    able = Voice(server, "able-too", pool="long")
    able.register(labels=["gpu"])
    assert len(able.sync()["grants"]) == 2, "the first are not forgotten"


def test_a_conversation_of_a_newer_runtime_waits_for_one_that_can_read_it(server: LiveServer, repo: Path) -> None:
    new = Voice(server, "new", pool="versions")
    new.register(runtimes=[{"name": "scripted", "version": "0.171.2"}])
    session = server.session(repo, pool="versions")["id"]
    grant = new.sync(free=1)["grants"][0]
    saved = {
        "id": session, "n": 1, "epoch": 1, "root": "r", "turn": 1, "runtime_version": "0.171.2",
    }  # fmt: skip
    new.say(grant, {"type": "environment.restored", "source": "fresh"})
    new.say(grant, {"type": "checkpoint.saved", "checkpoint": saved}, {"type": "session.parked", "checkpoint": 1})
    server.post(session, {"type": "user.message", "text": "go on"})
    new.sync(free=0, leaving=True)
    old = Voice(server, "old", pool="versions")
    old.register(runtimes=[{"name": "scripted", "version": "0.99"}])
    assert old.sync()["grants"] == []
    assert reason(server, session).startswith("no runner of pool versions has scripted ≥ 0.171.2")


def test_a_full_disk_is_given_no_session_that_needs_room(server: LiveServer, repo: Path) -> None:
    runner = Voice(server, "brimful", pool="brimful")
    session = server.session(repo, pool="brimful")["id"]
    assert runner.sync(disk_free=1_000_000)["grants"] == []
    assert reason(server, session).startswith("no runner of pool brimful has 256 MiB of disk free")
    shown = next(r for r in server.ok("GET", "/v1/runners")["items"] if r["name"] == "brimful")
    assert shown["disk_free"] == 1_000_000
    assert runner.sync(disk_free=10**12)["grants"][0]["session"] == session
