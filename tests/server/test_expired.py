"""What is no longer kept is not offered: every way to it is refused alike, and what others still stand on stays theirs."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bide.core import ids
from tests.server.harness import LiveServer, Voice
from tests.server.test_files import checkpoint
from tests.server.test_keeping import time_passes


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "server")
    yield live
    live.stop()


def parked(server: LiveServer, repo: Path, work: Path, **body: Any) -> str:
    """A session with two checkpoints of `work`, parked."""
    voice = Voice(server, f"r-{secrets.token_hex(4)}", pool=secrets.token_hex(4))
    session = str(server.session(repo, pool=voice.pool, **body)["id"])
    grant = voice.claim()
    prompt = grant["job"]["inputs"][0]["id"]
    voice.say(
        grant,
        {"type": "environment.restored", "source": "fresh", "workspace": {"cwd": "/w"}},
        {"type": "turn.started", "input_ids": [prompt]},
        {"type": "user.receipt", "input_id": prompt, "status": "consumed"},
        {"type": "turn.ended", "result": "completed"},
    )
    (work / "sub").mkdir(parents=True, exist_ok=True)
    for n in (1, 2):
        (work / "file").write_text(f"state {n}\n")
        checkpoint(voice, grant, n, work)
    server.post(session, {"type": "user.park"})
    assert voice.say(grant, {"type": "session.parked", "checkpoint": 2}).status_code == 200
    return session


def test_every_way_to_a_session_that_is_no_longer_kept_is_refused_with_the_same_words(
    server: LiveServer, repo: Path, tmp_path: Path
) -> None:
    session = parked(server, repo, tmp_path / "work")
    fork = server.ok("POST", f"/v1/sessions/{session}/fork", json={})["id"]
    time_passes(server, session, 31)
    path = f"/v1/sessions/{session}"
    listed = server.ok("GET", f"{path}/checkpoints")["items"]
    assert [(one["n"], one["available"]) for one in listed] == [(1, False), (2, False)], "what there was is still told"
    ways = [
        ("GET", "/files", None), ("GET", "/files?checkpoint=1", None), ("GET", "/files/content?path=file", None),
        ("GET", "/diff", None), ("GET", "/checkpoints/2/tar", None), ("GET", "/checkpoints/2/keys", None),
        ("POST", "/fork", {}), ("POST", "/fork", {"checkpoint": 1}),
        ("POST", "/events", {"events": [{"type": "user.rewind", "checkpoint": 1}]}),
    ]  # fmt: skip
    said = {server.refused(way, f"{path}{rest}", 409, "expired", json=body)["detail"] for way, rest, body in ways}
    assert len(said) == 1, said
    problem = server.refused("POST", f"{path}/fork", 409, "expired", json={})
    assert f"bide run --recap {session}" in problem["hint"]
    (mine,) = server.ok("GET", f"/v1/sessions/{fork}/checkpoints")["items"]
    assert (mine["root"], mine["available"]) == (f"{session}/1-2", True), "the fork stands on it"
    content = server.http.get(f"/v1/sessions/{fork}/files/content?path=file")
    assert content.text == "state 2\n"


def test_a_checkpoint_that_is_not_kept_is_refused_alike_whoever_asks_for_it(
    server: LiveServer, repo: Path, tmp_path: Path
) -> None:
    session = parked(server, repo, tmp_path / "work", settings={"checkpoints_kept": 2})
    voice = Voice(server, "again", pool=server.ok("GET", f"/v1/sessions/{session}")["pool"])
    server.post(session, {"type": "user.resume"})
    grant = voice.claim()
    voice.say(grant, {"type": "environment.restored", "source": "checkpoint", "checkpoint": 2})
    checkpoint(voice, grant, 3, tmp_path / "work")
    checkpoint(voice, grant, 4, tmp_path / "work")
    path = f"/v1/sessions/{session}"
    listed = server.ok("GET", f"{path}/checkpoints")["items"]
    assert [one["available"] for one in listed] == [True, False, True, True]
    rewind = {"events": [{"type": "user.rewind", "checkpoint": 2}]}
    problems = [
        server.refused("GET", f"{path}/files?checkpoint=2", 409, "checkpoint_gone"),
        server.refused("GET", f"{path}/diff?since=2", 409, "checkpoint_gone"),
        server.refused("GET", f"{path}/checkpoints/2/tar", 409, "checkpoint_gone"),
        server.refused("POST", f"{path}/fork", 409, "checkpoint_gone", json={"checkpoint": 2}),
        server.refused("POST", f"{path}/events", 409, "checkpoint_gone", json=rewind),
    ]
    assert {(one["detail"], one["hint"]) for one in problems} == {
        ("Checkpoint 2 of this session is not kept.", "There are: 1, 3, 4.")
    }
    assert server.ok("GET", f"{path}/diff")["since"] == 1, "the first is always kept: all that it changed is told"


def test_the_forks_of_a_deleted_session_keep_what_they_began_with(
    server: LiveServer, repo: Path, tmp_path: Path
) -> None:
    session = parked(server, repo, tmp_path / "work")
    fork = server.ok("POST", f"/v1/sessions/{session}/fork", json={"checkpoint": 1})["id"]
    deeper = server.ok("POST", f"/v1/sessions/{fork}/fork", json={})["id"]
    assert sorted(server.ok("DELETE", f"/v1/sessions/{session}")["held_by"]) == sorted([fork, deeper])
    for one in (fork, deeper):
        (mine,) = server.ok("GET", f"/v1/sessions/{one}/checkpoints")["items"]
        assert (mine["n"], mine["available"]) == (1, True)
        assert server.http.get(f"/v1/sessions/{one}/files/content?path=file").text == "state 1\n"
    server.refused("POST", f"/v1/sessions/{session}/fork", 404, "no_session", json={})
    assert server.ok("DELETE", f"/v1/sessions/{fork}")["held_by"] == [deeper]
    again = server.ok("POST", f"/v1/sessions/{deeper}/fork", json={"id": ids.mint(1.0, "last")})
    assert again["forked_from"] == {"session": deeper, "checkpoint": 1}
    assert server.ok("DELETE", f"/v1/sessions/{again['id']}")["held_by"] == [deeper]
    assert server.ok("DELETE", f"/v1/sessions/{deeper}")["held_by"] == []
    assert not server.ok("GET", "/v1/blobs?prefix=packs/")["items"]
