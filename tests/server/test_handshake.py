"""Runners of the release before and of the next one work with this server; others are refused in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.core.golden_wire.record import FOLDER, Said
from tests.server.harness import LiveServer, Voice, held

GOLDEN = {
    one.kind: msgspec.json.decode(one.body)
    for line in (FOLDER / "1.jsonl").read_bytes().splitlines()
    for one in [msgspec.json.decode(line, type=Said)]
}


def like(golden: dict[str, Any], **said: Any) -> dict[str, Any]:
    """A message with the fields of that release, and no others."""
    assert set(said) <= set(golden)
    return golden | said


def test_a_runner_of_the_first_release_registers_works_and_is_answered_in_its_own_words(
    server: LiveServer, repo: Path
) -> None:
    hello = like(
        GOLDEN["Register"], name="first", pool="first", root="/srv", isolation="none", boot="b1",
        runtimes=[like(GOLDEN["Register"]["runtimes"][0], name="scripted", version="1", problem="", hint="")],
    )  # fmt: skip
    registered = server.ok("POST", "/v1/runners", json=hello)
    assert set(registered) >= set(GOLDEN["Registered"])
    http = server.client(registered["token"])
    session = server.session(repo, pool="first")["id"]

    def sync(*leases: dict[str, Any]) -> dict[str, Any]:
        quiet = {"boot": "b1", "wait_s": 0.0, "draining": False, "leaving": False, "warm": []}
        answer = http.post(f"/v1/runners/{registered['id']}/sync", json=like(GOLDEN["Sync"], leases=leases, **quiet))
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    [grant] = sync()["grants"]
    was = GOLDEN["SyncReply"]["grants"][0]
    assert set(grant) >= set(was)
    assert set(grant["job"]) >= set(was["job"])
    assert set(grant["job"]["inputs"][0]) >= set(was["job"]["inputs"][0])
    facts = [{"type": "environment.restored", "source": "fresh"}, {"type": "note", "text": "x"}]
    post = like(GOLDEN["FactsPost"], session=session, epoch=1, first=0, facts=facts)
    assert http.post(f"/v1/runners/{registered['id']}/facts", json=post).json() == {"next": 2}
    server.post(session, {"type": "user.message", "text": "news"})
    reply = sync(held(grant))
    assert [renewed["session"] for renewed in reply["renewed"]] == [session]
    assert set(reply["commands"][0]) >= set(GOLDEN["SyncReply"]["commands"][0])
    assert not reply["drain"]


@pytest.mark.parametrize("protocol", [1, 2, 3])
def test_neighbouring_releases_work_together(server: LiveServer, protocol: int) -> None:
    runner = Voice(server, f"speaks-{protocol}", pool="languages")
    runner.register(protocol=protocol)
    assert runner.sync(protocol=protocol)["grants"] == []
    listed = {r["name"]: r["protocol"] for r in server.ok("GET", "/v1/runners")["items"]}
    assert listed[runner.name] == protocol


@pytest.mark.parametrize(("protocol", "side"), [(0, "runner"), (4, "server")])
def test_releases_too_far_apart_are_refused_with_the_side_to_update(
    server: LiveServer, protocol: int, side: str
) -> None:
    problem = server.refused("POST", "/v1/runners", 409, "wrong_protocol", json={"name": "far", "protocol": protocol})
    assert f"Update the {side}" in problem["hint"]
    runner = Voice(server, "drifted", pool="languages")
    answer = runner.http.post(f"/v1/runners/{runner.id}/sync", json={"boot": "b1", "protocol": protocol})
    assert (answer.status_code, answer.json()["code"]) == (409, "wrong_protocol")
