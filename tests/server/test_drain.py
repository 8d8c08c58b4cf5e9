"""A runner is emptied on demand: nothing new comes, nothing is lost, and it is said what became of each session."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from tests.server.harness import LiveServer, Voice, held, until

RESTORED = {"type": "environment.restored", "source": "fresh"}


def drain(server: LiveServer, runner: str, **body: Any) -> dict[str, Any]:
    return dict(server.ok("POST", f"/v1/runners/{runner}/drain", json=body))


def result(server: LiveServer, runner: str) -> dict[str, Any]:
    return dict(server.ok("GET", f"/v1/runners/{runner}/drain"))


def shown(server: LiveServer, runner: Voice) -> str:
    return next(str(r["state"]) for r in server.ok("GET", "/v1/runners")["items"] if r["id"] == runner.id)


def test_a_runner_hears_at_once_that_it_is_to_drain_and_gets_nothing_new(tmp_path: Path, repo: Path) -> None:
    server = LiveServer(tmp_path / "ordered", lease_s=120)
    try:
        runner = Voice(server, "full")
        first = server.session(repo)["id"]
        grant = runner.claim()
        replies: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: replies.append(runner.sync(held(grant), wait_s=20)))
        thread.start()
        until(lambda: "bide_syncs_waiting 1.0" in server.http.get("/metrics").text)
        began = time.monotonic()
        ordered = drain(server, "full", deadline_s=30)
        thread.join()
        assert time.monotonic() - began < 10, "the poll alone may last 20 s"
        assert replies[0]["drain"]
        assert 25 < replies[0]["drain_s"] <= 30
        assert (ordered["state"], ordered["by"], ordered["name"]) == ("draining", "owner", "full")
        assert [line["session"] for line in ordered["sessions"]] == [first]
        assert shown(server, runner) == "draining"
        second = server.session(repo)["id"]
        told = runner.sync(held(grant), draining=True, ordered=True)
        assert (told["drain"], told["grants"]) == (True, [])
        assert "draining" in server.ok("GET", f"/v1/sessions/{second}")["reason"]
        assert server.http.delete("/v1/runners/full/drain").status_code == 204
        assert not runner.sync(held(grant), draining=True, ordered=True)["drain"]
        assert [g["session"] for g in runner.sync(held(grant))["grants"]] == [second]
        assert shown(server, runner) == "online"
    finally:
        server.stop()


def test_every_session_of_a_drained_runner_is_accounted_for(server: LiveServer, repo: Path) -> None:
    runner = Voice(server, "emptied", pool="emptied")
    works, waits = (server.session(repo, pool="emptied", title=title)["id"] for title in ("works", "waits"))
    grants = {grant["session"]: grant for grant in runner.sync()["grants"]}
    runner.say(grants[works], RESTORED, {"type": "turn.started", "input_ids": []})
    runner.ask(grants[waits])
    drain(server, runner.id)
    lines = {line["session"]: line for line in result(server, "emptied")["sessions"]}
    assert {lines[works]["result"], lines[waits]["result"]} == {"working", "waiting"}
    assert lines[works]["title"] == "works"
    [given] = grants[waits]["job"]["inputs"]
    runner.say(grants[waits], {"type": "user.receipt", "input_id": given["id"], "status": "consumed", "turn": 1})
    runner.say(grants[waits], {"type": "session.parked"})
    assert {line["result"] for line in result(server, runner.id)["sessions"]} == {"working", "parked"}
    ended = {"type": "session.ended", "outcome": "completed", "summary": "done"}
    runner.say(grants[works], {"type": "turn.ended", "result": "completed"}, ended)
    final = result(server, runner.id)
    assert {line["session"]: line["result"] for line in final["sessions"]} == {works: "queued", waits: "parked"}
    assert final["state"] == "drained"
    other = Voice(server, "relief", pool="emptied")
    assert other.claim()["session"] == works
    assert {line["result"] for line in result(server, "emptied")["sessions"]} == {"moved", "parked"}


def test_an_order_is_over_when_the_runner_starts_anew(server: LiveServer) -> None:
    runner = Voice(server, "reborn", pool="reborn", boot="b1")
    drain(server, "reborn")
    assert runner.sync()["drain"]
    runner.boot = "b2"
    runner.register()
    assert not runner.sync()["drain"]
    assert "order" in server.refused("GET", "/v1/runners/reborn/drain", 404, "no_drain")["detail"]


def test_a_session_granted_in_the_moment_of_the_order_is_accounted_for_too(server: LiveServer, repo: Path) -> None:
    runner = Voice(server, "crossing", pool="crossing")
    drain(server, "crossing")
    server.http.delete("/v1/runners/crossing/drain")
    session = server.session(repo, pool="crossing")["id"]
    grant = runner.claim()
    # As if the grant had crossed the order: an order that knows of no session.
    server.write("drain", runner.id, {"runner": runner.id, "boot": "b1", "by": "o", "asked_at": 1, "deadline_s": 1})
    runner.sync(held(grant), draining=True, ordered=True)
    runner.say(grant, RESTORED, {"type": "turn.started", "input_ids": []})
    runner.say(grant, {"type": "turn.ended", "result": "completed"}, {"type": "session.parked"})
    assert [line["session"] for line in result(server, "crossing")["sessions"]] == [session]


def test_what_cannot_be_drained_is_said(server: LiveServer) -> None:
    server.refused("POST", "/v1/runners/nobody/drain", 404, "no_runner", json={})
    Voice(server, "endless", pool="endless")
    server.refused("POST", "/v1/runners/endless/drain", 422, "bad_value", json={"deadline_s": 1e9})
    server.refused("GET", "/v1/runners/endless/drain", 404, "no_drain")
    old = Voice(server, "older", pool="older")
    old.register(protocol=1)
    problem = server.refused("POST", "/v1/runners/older/drain", 409, "wrong_protocol", json={})
    assert "SIGTERM" in problem["hint"]
    answer = old.http.post("/v1/runners/older/drain", json={})
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), "who drains the fleet is the owner"
