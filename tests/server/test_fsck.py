"""What a check of everything finds is known to everybody from then on, and one that cannot be done says why."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bide.client.sync import SyncClient
from bide.core.refusals import Refused
from tests.server.harness import LiveServer, Voice, repository
from tests.server.test_files import checkpoint


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "server", lease_s=60.0)  # nobody renews here
    yield live
    live.stop()


@pytest.fixture
def parked(server: LiveServer, tmp_path: Path) -> str:
    voice, work = Voice(server, "r", pool="fsck"), tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (work / "precious").write_bytes(secrets.token_bytes(5000))
    session = str(server.session(repository(tmp_path / "widgets"), pool="fsck")["id"])
    grant = voice.claim()
    prompt = grant["job"]["inputs"][0]["id"]
    voice.say(
        grant,
        {"type": "environment.restored", "source": "fresh", "workspace": {"cwd": "/w"}},
        {"type": "turn.started", "input_ids": [prompt]},
        {"type": "user.receipt", "input_id": prompt, "status": "consumed"},
        {"type": "turn.ended", "result": "completed"},
    )
    checkpoint(voice, grant, 1, work)
    server.post(session, {"type": "user.park"})
    voice.say(grant, {"type": "session.parked", "checkpoint": 1, "seconds": 0.1})
    return session


def checked(server: LiveServer) -> list[dict[str, Any]]:
    answer = server.http.post("/v1/fsck", json={})
    return [json.loads(line) for line in answer.text.splitlines() if line]


def kinds(server: LiveServer, session: str) -> list[str]:
    wanted = ("checkpoint.flagged", "question.asked", "question.withdrawn")
    return [event["type"] for event in server.events(session) if event["type"] in wanted]


def test_damage_that_was_found_is_said_in_the_session_and_nobody_builds_upon_it(
    server: LiveServer, parked: str
) -> None:
    (pack,) = (server.folder / "blobs" / "packs" / parked).iterdir()
    whole = pack.read_bytes()
    assert [one["state"] for one in checked(server)] == ["whole"]
    assert kinds(server, parked) == []
    pack.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    for _ in range(2):
        assert [one["state"] for one in checked(server)] == ["damaged"]
    assert kinds(server, parked) == ["checkpoint.flagged", "question.asked"], "once, and in the inbox"
    server.refused("POST", f"/v1/sessions/{parked}/fork", 409, "checkpoint_damaged", json={})
    rewind = {"events": [{"type": "user.rewind", "checkpoint": 1}]}
    server.refused("POST", f"/v1/sessions/{parked}/events", 409, "checkpoint_damaged", json=rewind)
    pack.write_bytes(whole)
    assert [one["state"] for one in checked(server)] == ["whole"]
    assert kinds(server, parked)[2:] == ["checkpoint.flagged", "question.withdrawn"]


def test_a_check_without_the_blob_store_says_that_it_is_away_and_calls_nothing_damaged(
    server: LiveServer, parked: str, tmp_path: Path
) -> None:
    (server.folder / "blobs").rename(tmp_path / "unplugged")
    with SyncClient(server.url, server.token) as client:
        for look in (client.fsck, client.strays):
            with pytest.raises(Refused) as refused:
                list(look())
            assert (refused.value.code, "blob" in refused.value.sentence.lower()) == ("store_unavailable", True)
            assert "Idempotency-Key" not in refused.value.hint, "a look needs none"
    assert kinds(server, parked) == []


def test_who_deletes_a_session_while_the_blob_store_is_away_hears_that_it_is_deleted_and_what_is_still_there(
    server: LiveServer, parked: str, tmp_path: Path
) -> None:
    fork = server.ok("POST", f"/v1/sessions/{parked}/fork", json={})["id"]
    (server.folder / "blobs").rename(tmp_path / "unplugged")
    gone = server.ok("DELETE", f"/v1/sessions/{parked}")
    assert (gone["deleted"], gone["held_by"]) == ([parked], [fork])
    server.refused("GET", f"/v1/sessions/{parked}", 404, "no_session")
    again = server.ok("DELETE", f"/v1/sessions/{fork}")
    assert (again["deleted"], again["held_by"]) == ([fork], [])
    assert "out of reach" in again["later"], "what nobody holds any more is still there"
    (tmp_path / "unplugged").rename(server.folder / "blobs")
