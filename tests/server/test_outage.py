"""The database or the blobs away: everybody hears it clearly, nothing is half done, and it heals alone."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

from bide.core.handle import Done
from bide.core.refusals import Refused
from bide.store.base import Job
from bide.store.sqlite import SqliteStore
from tests.server.harness import LiveServer, Voice, following, held, until
from tests.store.postgres_server import PostgresServer

Pair = tuple[LiveServer, LiveServer]
RESTORED = {"type": "environment.restored", "source": "fresh"}


def test_a_database_that_is_away_for_longer_than_a_lease_costs_a_pause_and_nothing_else(
    pair: Pair, repo: Path, postgres: PostgresServer
) -> None:
    one, other = pair
    runner = Voice(one, "r")
    session = one.session(repo)["id"]
    grant = runner.claim()
    runner.say(grant, RESTORED)
    before = len(one.events(session))
    path, body = f"/v1/sessions/{session}/events", {"events": [{"type": "user.message", "text": "lost?"}]}
    with following(other.http, f"{path}/stream?after={before}") as frames:
        assert next(frames) == {"retry": "1000"}
        postgres.stop()
        try:
            began = time.monotonic()
            while time.monotonic() - began < 1.3 * one.config.lease_s:
                for server in pair:
                    problem = server.refused("POST", path, 503, "store_unavailable", json=body)
                    assert "Idempotency-Key" in problem["hint"]
                    assert postgres.url("x").split("@")[1].split("/")[0] not in json.dumps(problem)
                    assert server.http.get("/healthz").status_code == 200
                    assert server.http.get("/readyz").status_code == 503
                assert int(one.http.post(path, json=body).headers["retry-after"]) >= 1
                answer = runner.http.post(f"/v1/runners/{runner.id}/sync", json={"boot": "b1"})
                assert answer.status_code == 503
                assert runner.say(grant, {"type": "note", "text": "kept by the runner"}).status_code == 503
            metrics = one.http.get("/metrics")
            assert metrics.status_code == 200
            assert "bide_store_up 0.0" in metrics.text
            assert "bide_sessions_held{" not in metrics.text, "an old number would be taken for a true one"
        finally:
            postgres.start()
        until(lambda: all(server.http.get("/readyz").status_code == 200 for server in pair))
        assert one.ok("GET", f"/v1/sessions/{session}")["runner_name"] == "r", "its lease did not end meanwhile"
        assert [r["session"] for r in runner.sync(held(grant))["renewed"]] == [session]
        assert runner.say(grant, {"type": "note", "text": "kept by the runner"}).json() == {"next": 2}
        other.post(session, {"type": "user.message", "text": "again"})
        told = islice((frame for frame in frames if "id" in frame), 2)
        assert [frame["event"] for frame in told] == ["note", "user.message"]
    texts = [row["text"] for row in one.ok("GET", f"/v1/sessions/{session}/inputs")["items"]]
    assert texts == ["Fix the test", "again"], "what was refused was not done"
    until(lambda: other.ok("GET", f"/v1/sessions/{session}")["runner"] is None)  # the wakers wake again


def test_a_machine_that_dies_with_many_sessions_on_a_slow_disk_is_missed_for_all_of_them_at_once(
    tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = LiveServer(tmp_path / "slow", lease_s=4.0)
    try:
        runner = Voice(server, "big", slots=80)
        held_there = [server.session(repo)["id"] for _ in range(80)]
        assert len(runner.sync()["grants"]) == 80
        perform = SqliteStore.perform

        def slowly(self: SqliteStore, jobs: Sequence[Job]) -> list[Done | Refused | Exception]:
            time.sleep(0.03)
            return perform(self, jobs)

        monkeypatch.setattr(SqliteStore, "perform", slowly)

        def silent() -> list[float]:
            logs = [server.events(session) for session in held_there]
            return [float(e["data"]["held_until"]) for log in logs for e in log if e["type"] == "session.interrupted"]

        until(silent)
        first = time.monotonic()
        until(lambda: len(silent()) == 80)
        assert time.monotonic() - first < 2.0, "a waker that is busy takes its own silence for an outage"
    finally:
        server.stop()


def test_a_frozen_database_keeps_nobody_waiting_who_only_asks_how_the_server_is(
    pair: Pair, postgres: PostgresServer
) -> None:
    with postgres.frozen():
        began = time.monotonic()
        assert pair[0].http.get("/readyz").json()["code"] == "store_unavailable"
        assert pair[0].http.get("/healthz").status_code == 200
        assert "bide_store_up 0.0" in pair[0].http.get("/metrics").text
        assert time.monotonic() - began < 10
    until(lambda: pair[0].http.get("/readyz").status_code == 200)
    assert "bide_store_up 1.0" in pair[0].http.get("/metrics").text


def test_blobs_on_a_disk_that_hangs_are_an_outage_of_blobs_alone(
    server: LiveServer, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.server.blobs.BLOB_STEP_S", 0.3)
    folder = server.folder / "blobs" / "hanging"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "1")  # opening it for reading waits until somebody writes
    for _ in range(2):
        server.refused("GET", "/v1/blobs/hanging/1", 503, "store_unavailable")
    assert server.http.put("/v1/blobs/hanging/2", content=b"x").status_code == 201
    assert server.session(repo)["shown"] == "queued"
    os.close(os.open(folder / "1", os.O_RDWR | os.O_NONBLOCK))
