"""What a fleet's servers are given alike: tokens that come from outside, hold while they are given, and are never printed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bide.core.limits import TOKEN_CHARS_MIN
from bide.core.refusals import Refused
from bide.server.config import load
from tests.server.harness import LiveServer, Voice

OWNER, ENROLMENT = "owner-" + "o" * 40, "enrolment-" + "e" * 40
REGISTRATION = {"name": "fleet-0", "pool": "fleet", "slots": 1, "runtimes": [{"name": "scripted", "version": "1"}]}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path, owner_token=OWNER, enrolment_token=ENROLMENT)
    yield live
    live.stop()


def test_every_server_of_a_fleet_takes_the_owners_token_that_all_were_given(fleet: LiveServer) -> None:
    assert fleet.serving.token == OWNER
    assert json.loads((fleet.folder / "client.json").read_text())["token"] == OWNER
    assert fleet.client(OWNER).get("/v1/sessions").status_code == 200


def test_a_token_that_is_taken_out_of_the_settings_opens_nothing_any_more(fleet: LiveServer) -> None:
    fleet.stop()
    fleet.flags = {name: value for name, value in fleet.flags.items() if not name.endswith("token")}
    fleet.start()
    assert fleet.token != OWNER
    for token in (OWNER, ENROLMENT):
        assert fleet.client(token).get("/v1/runners").status_code == 401
    assert all(OWNER.encode() not in path.read_bytes() for path in fleet.folder.rglob("*") if path.is_file())


def test_a_runner_comes_with_the_enrolment_token_and_comes_again_under_its_name(fleet: LiveServer) -> None:
    enrolling = fleet.client(ENROLMENT)
    first = enrolling.post("/v1/runners", json=REGISTRATION)
    again = enrolling.post("/v1/runners", json=REGISTRATION | {"boot": "b2"})
    assert (first.status_code, again.status_code) == (200, 200), again.text
    assert first.json()["id"] == again.json()["id"]
    asking = fleet.client(again.json()["token"])
    assert (
        asking.post(f"/v1/runners/{again.json()['id']}/sync", json={"boot": "b2", "free_slots": 1}).status_code == 200
    )


def test_whoever_steals_the_enrolment_token_reads_and_answers_nothing(fleet: LiveServer) -> None:
    runner = fleet.client(ENROLMENT).post("/v1/runners", json=REGISTRATION).json()["id"]
    thief = fleet.client(ENROLMENT)
    a_uuid = "00000000-0000-7000-8000-000000000000"
    asked: list[tuple[str, str, Any]] = [
        ("GET", "/v1/sessions", None),
        ("GET", "/v1/questions", None),
        ("GET", f"/v1/questions/{a_uuid}", None),
        ("POST", f"/v1/questions/{a_uuid}/answer", {"text": "yes"}),
        ("POST", f"/v1/runners/{runner}/sync", {}),
        ("POST", f"/v1/runners/{runner}/facts", {"session": a_uuid, "epoch": 1, "first": 0, "facts": []}),
        ("DELETE", f"/v1/runners/{runner}/drain", None),
        ("GET", "/v1/blobs/k", None),
        ("PUT", "/v1/blobs/k", None),
    ]
    for method, path, body in asked:
        answer = thief.request(method, path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), (method, path, answer.text)


@pytest.mark.parametrize("name", ["owner_token", "enrolment_token"])
@pytest.mark.parametrize("token", ["short", "x" * (TOKEN_CHARS_MIN - 1), "has a space " + "x" * 40, "ü" * 40])
def test_a_token_that_could_be_tried_out_or_not_be_sent_is_refused_at_the_start(name: str, token: str) -> None:
    with pytest.raises(Refused) as refused:
        load({}, {"BIDE_HOME": "/nonexistent", f"BIDE_{name.upper()}": token})
    assert refused.value.code == "bad_setting"
    assert token not in refused.value.sentence


def test_a_token_that_every_runner_has_is_never_the_owners() -> None:
    with pytest.raises(Refused) as refused:
        load({}, {"BIDE_HOME": "/nonexistent", "BIDE_OWNER_TOKEN": OWNER, "BIDE_ENROLMENT_TOKEN": f" {OWNER}\n"})
    assert refused.value.code == "bad_setting"
    assert OWNER not in refused.value.sentence


def test_the_newline_that_a_file_of_secrets_ends_with_is_not_part_of_the_token() -> None:
    assert load({}, {"BIDE_HOME": "/nonexistent", "BIDE_OWNER_TOKEN": f"{OWNER}\n"}).owner_token == OWNER


def test_a_pod_that_goes_drains_itself_with_the_enrolment_token_and_learns_nothing_of_its_sessions(
    fleet: LiveServer, repo: Path
) -> None:
    fleet.session(repo, title="Secret plans", pool="fleet")
    runner = Voice(fleet, "fleet-0", pool="fleet")
    grant = runner.claim()
    leaving = fleet.client(ENROLMENT)
    for answer in (
        leaving.post("/v1/runners/fleet-0/drain", json={"deadline_s": 600}),
        leaving.get("/v1/runners/fleet-0/drain"),
    ):
        assert answer.status_code == 200, answer.text
        assert [line["session"] for line in answer.json()["sessions"]] == [grant["session"]]
        assert "Secret plans" not in answer.text
    assert "Secret plans" in fleet.http.get("/v1/runners/fleet-0/drain").text
    other = Voice(fleet, "fleet-1", pool="fleet")
    assert other.http.post("/v1/runners/fleet-0/drain", json={}).status_code == 403
    assert other.http.get("/v1/runners/fleet-0/drain").status_code == 403
