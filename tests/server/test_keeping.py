"""Retention over HTTP: bounds are known before and refused clearly, and what is no longer kept can be taken up anew."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bide.core import commands as c
from bide.core.handle import handle
from bide.core.refusals import Refused
from bide.server.config import load
from bide.store.base import perform_one
from bide.store.sqlite import SqliteStore
from tests.server.harness import LiveServer, parked, repository

DAY = 86400


def limits(server: LiveServer, query: str = "") -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in server.ok("GET", f"/v1/limits{query}")["items"]}


def time_passes(server: LiveServer, session: str, days: float) -> None:
    """The server is stopped, and started again when the session's time is over; wakes came when they were due."""
    server.stop()
    clock = [datetime.now(UTC).timestamp()]
    end = clock[0] + days * DAY
    store = SqliteStore(server.folder / "bide.sqlite", lambda: clock[0])
    while clock[0] < end:
        clock[0] += DAY / 48
        if session in store.claim_due(clock[0], 100, 1.0):
            perform_one(store, lambda: handle(session, c.Wake()))
    store.close()
    server.start()


def test_every_bound_is_listed_with_its_place_in_human_reach_fixed_ones_too(server: LiveServer) -> None:
    found = limits(server)
    assert {"retention_s", "retention_max_s", "workspace_bytes", "checkpoints_kept", "question_bytes"} <= set(found)
    for one in found.values():
        assert one["min"] <= one["value"] <= one["max"], one
        assert one["unit"] in ("s", "bytes", "count", "chars", "usd")
    assert found["workspace_bytes"]["value"] == 20 * 2**30
    assert found["question_bytes"]["min"] == found["question_bytes"]["max"], "nobody can set it"


def test_a_retention_beyond_what_the_project_allows_is_refused_before_anything_begins(
    server: LiveServer, tmp_path: Path
) -> None:
    repo, path = repository(tmp_path / "short"), "/v1/projects/short"
    given = {"repository": str(repo), "settings": {"retention_max_s": 7 * DAY, "pool": "empty"}}
    assert server.ok("PUT", path, json=given)["settings"]["retention_s"] == 7 * DAY, "the usual 30 days do not hold"
    found = limits(server, "?project=short")["retention_s"]
    assert (found["value"], found["max"], found["origin"]) == (7 * DAY, 7 * DAY, "project")
    body = {"project": "short", "prompt": "x", "runtime": "scripted", "settings": {"retention_s": 8 * DAY}}
    problem = server.refused("POST", "/v1/sessions", 422, "bad_setting", json=body | {"dry_run": True})
    assert "at most 7d" in problem["detail"]
    assert "project" in problem["hint"]
    server.refused("PUT", path, 422, "bad_setting", json={"settings": {"retention_max_s": DAY, "retention_s": 2 * DAY}})
    lifted = body | {"settings": {"retention_max_s": 90 * DAY}}
    assert "project" in server.refused("POST", "/v1/sessions", 422, "bad_setting", json=lifted)["detail"]
    fixed = body | {"settings": {"retention_s": DAY, "workspace_bytes": 2**30}}
    started = {one["name"]: one for one in server.ok("POST", "/v1/sessions", json=fixed)["limits"]}
    assert (started["retention_s"]["origin"], started["workspace_bytes"]["origin"]) == ("session", "session")
    assert started["retention_max_s"]["origin"] == "project"


def test_a_server_that_is_told_what_cannot_hold_does_not_start(tmp_path: Path) -> None:
    environ = {"BIDE_HOME": str(tmp_path), "BIDE_RETENTION_MAX_S": str(DAY)}
    assert load({}, environ).defaults == {"retention_max_s": DAY}
    with pytest.raises(Refused) as refused:
        load({}, environ | {"BIDE_RETENTION_S": str(2 * DAY)})
    assert refused.value.code == "bad_setting"


def test_an_extension_is_bounded_and_said(server: LiveServer, repo: Path) -> None:
    session = parked(server, repo, "extending")
    before = datetime.fromisoformat(server.ok("GET", f"/v1/sessions/{session}")["expires_at"])
    path = f"/v1/sessions/{session}/events"

    def until(when: datetime) -> dict[str, Any]:
        return {"events": [{"type": "user.extend", "until": when.isoformat()}]}

    [nearer] = server.ok("POST", path, json=until(before - timedelta(days=1)))["inputs"]
    assert (nearer["status"], nearer["how"]) == ("consumed", f"it is kept until {before:%Y-%m-%d %H:%M UTC} already")
    further = server.refused("POST", path, 422, "bad_value", json=until(before + timedelta(days=400)))
    assert "retention_max_s" in further["hint"]
    later = before + timedelta(days=3)
    [receipt] = server.ok("POST", path, json=until(later))["inputs"]
    assert receipt["status"] == "consumed"
    shown = server.ok("GET", f"/v1/sessions/{session}")
    assert datetime.fromisoformat(shown["expires_at"]) == later


def test_an_extension_is_of_one_thing_at_a_time_and_of_something(server: LiveServer, repo: Path) -> None:
    path = f"/v1/sessions/{parked(server, repo, 'costing')}/events"
    both = {"type": "user.extend", "until": "2099-01-01T00:00:00Z", "budget_usd": 5}
    for wrong in (both, {"type": "user.extend"}):
        server.refused("POST", path, 422, "bad_value", json={"events": [wrong]})
    server.refused("POST", path, 422, "malformed", json={"events": [{"type": "user.extend", "budget_usd": 0}]})
    more = {"events": [{"type": "user.extend", "budget_usd": 5, "working_s": 2 * DAY}]}
    assert server.ok("POST", path, json=more)["inputs"][0]["how"] == "allowed"
    now = server.ok("GET", path.removesuffix("/events"))
    assert (now["limits"]["budget_usd"], now["limits"]["working_s"]) == (5, 2 * DAY)
    assert now["cost"] == {"usd": 0, "tokens": 0, "worked_s": now["cost"]["worked_s"]}


def test_what_is_no_longer_kept_is_said_warned_of_and_taken_up_by_a_new_session(tmp_path: Path, repo: Path) -> None:
    server = LiveServer(tmp_path)
    try:
        session = parked(server, repo, "resting", model="m1")
        time_passes(server, session, 31)
        shown = server.ok("GET", f"/v1/sessions/{session}")
        assert (shown["lifecycle"], shown["outcome"], shown["environment"]["state"]) == ("ended", "expired", "expired")
        assert shown["checkpoint"] is None
        kinds = [event["type"] for event in server.events(session)]
        assert kinds.count("session.expiring") == 3
        assert "environment.expired" in kinds
        at = next(event["data"]["at"] for event in server.events(session) if event["type"] == "environment.expired")
        assert at.endswith("Z"), "a moment as every other"
        body = {"events": [{"type": "user.message", "text": "go on"}]}
        problem = server.refused("POST", f"/v1/sessions/{session}/events", 409, "expired", json=body)
        assert f"bide run --recap {session}" in problem["hint"]

        answer = server.http.post("/v1/sessions", json={"recap_of": session}, headers={"idempotency-key": "k"})
        assert answer.status_code == 200, answer.text
        fresh = answer.json()
        again = server.http.post("/v1/sessions", json={"recap_of": session}, headers={"idempotency-key": "k"}).json()
        assert again["session"]["id"] == fresh["session"]["id"]
        now = fresh["session"]
        assert (now["title"], now["pool"], now["runtime"], now["model"]) == (
            "Mend the export", "resting", "scripted", "m1",
        )  # fmt: skip
        told = fresh["inputs"][0]["text"]
        for part in (session, "Fix the test", "Tabs or spaces?", "I stand at step 3 of 5.", "Go on with the task"):
            assert part in told
        wanted = server.ok("POST", "/v1/sessions", json={"recap_of": session, "prompt": "Only the tests", "pool": "x"})
        assert wanted["inputs"][0]["text"].startswith("Only the tests\n\n")
        assert wanted["session"]["pool"] == "x"
    finally:
        server.stop()


def test_a_recap_of_what_never_was_is_refused(server: LiveServer) -> None:
    nothing = "00000000-0000-7000-8000-000000000000"
    server.refused("POST", "/v1/sessions", 404, "no_session", json={"recap_of": nothing})
    server.refused("POST", "/v1/sessions", 422, "bad_id", json={"recap_of": "it"})
