"""One event that nobody can read costs no other: not of its batch, not of its session, not of who reads the log."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.server.harness import LiveServer, Voice, following, until

NOTE = {"type": "note", "text": "hello"}


def working(server: LiveServer, repo: Path, pool: str) -> tuple[Voice, str, dict[str, Any]]:
    """A runner that holds a session, and has told its first fact."""
    voice = Voice(server, pool, pool=pool)
    session = str(server.session(repo, pool=pool)["id"])
    grant = voice.claim()
    assert voice.say(grant, {"type": "environment.restored", "source": "fresh"}).status_code == 200
    return voice, session, grant


def told(server: LiveServer, session: str) -> list[str]:
    """What the runner told, in short."""
    shown = {"note": "text", "error": "code", "raw": "frame"}
    return [
        event["data"].get(shown.get(event["type"], ""), event["type"])
        for event in server.events(session)
        if event["actor"] in ("runner", "runtime")
    ][1:]


@pytest.mark.parametrize(
    "bad",
    [
        {"type": "cost", "usd": None, "tokens": 1, "model": "m"}, {"type": "note"}, {"no": "type"}, 7, None, "x", [],
        {"type": "tool.call", "id": {"a": 1}, "name": "n", "input": ""},
        {"type": "session.created"}, {"type": "turn.ended", "result": "a word of the future"},
    ],
    ids=lambda bad: json.dumps(bad)[:40],
)  # fmt: skip
def test_one_event_that_nobody_can_read_costs_no_other_event_of_its_batch(
    server: LiveServer, repo: Path, bad: object
) -> None:
    pool = f"bad{abs(hash(json.dumps(bad))) % 10**9}"
    voice, session, grant = working(server, repo, pool)
    answer = voice.say(grant, {**NOTE, "text": "before"}, bad, {**NOTE, "text": "after"})  # type: ignore[arg-type]
    assert answer.json() == {"next": 4}
    assert told(server, session) == ["before", "bad_event", "after"]
    assert voice.say(grant, NOTE).json() == {"next": 5}, "the count goes on"


def test_a_runner_one_release_ahead_tells_a_new_kind_of_event_and_keeps_its_lease(
    server: LiveServer, repo: Path
) -> None:
    voice, session, grant = working(server, repo, "ahead")
    new = {"type": "assistant.song", "text": "la", "notes": [1, 2]}
    assert voice.say(grant, NOTE, new, NOTE).json() == {"next": 4}
    before, frame, after = told(server, session)
    assert (before, after) == ("hello", "hello")
    assert json.loads(frame) == new, "kept as it is, for whoever knows what it means"
    assert server.ok("GET", f"/v1/sessions/{session}")["runner_name"] == "ahead"


def test_events_that_the_store_lost_are_named_as_a_gap_and_the_session_goes_on(tmp_path: Path, repo: Path) -> None:
    server = LiveServer(tmp_path / "lost", lease_s=60.0)
    try:
        voice, session, grant = working(server, repo, "lost")
        voice.say(grant, {**NOTE, "text": "kept"})
        server.stop()
        shutil.copytree(server.folder, tmp_path / "backup")
        server.start()
        voice.http = server.client(voice.token)
        assert voice.say(grant, *({**NOTE, "text": f"lost {n}"} for n in range(3))).json() == {"next": 5}
        ahead = server.events(session)[-1]["seq"]
        server.stop()
        shutil.rmtree(server.folder)
        shutil.copytree(tmp_path / "backup", server.folder)
        server.start()
        voice.http = server.client(voice.token)
        refused = voice.say(grant, {**NOTE, "text": "next"})
        assert (refused.status_code, refused.json()["code"], refused.json()["next"]) == (409, "gap", 2)
        body = {"session": session, "epoch": grant["epoch"], "first": 5, "facts": [{**NOTE, "text": "next"}], "lost": 3}
        answer = voice.http.post(f"/v1/runners/{voice.id}/facts", json=body)
        assert answer.json() == {"next": 6}
        again = voice.http.post(f"/v1/runners/{voice.id}/facts", json=body)
        assert again.json() == {"next": 6}, "a repeat adds nothing"
        log = server.events(session)
        assert [event["seq"] for event in log] == list(range(1, len(log) + 1)), "the log itself has no hole"
        kept, gap, after = log[-3:]
        assert [kept["data"]["text"], after["data"]["text"]] == ["kept", "next"]
        assert (gap["type"], gap["data"]["from"], gap["data"]["to"]) == ("gap", 2, 4)
        problem = server.refused("GET", f"/v1/sessions/{session}/events?after={ahead}", 409, "cursor_ahead")
        assert problem["last_seq"] == len(log)
    finally:
        server.stop()


def test_more_than_was_lost_is_never_passed_over(server: LiveServer, repo: Path) -> None:
    voice, session, grant = working(server, repo, "over")
    for lost, status in ((2, 409), (-5, 409), (3, 200)):
        body = {"session": session, "epoch": grant["epoch"], "first": 4, "facts": [NOTE], "lost": lost}
        assert voice.http.post(f"/v1/runners/{voice.id}/facts", json=body).status_code == status


def test_a_cursor_beyond_the_end_of_the_log_is_refused_instead_of_skipping(server: LiveServer, repo: Path) -> None:
    one, two = (server.session(repo, pool="empty")["id"] for _ in range(2))
    for path, headers in (
        (f"/v1/sessions/{one}/events?after=4", {}),
        (f"/v1/sessions/{one}/events?after=4&wait_s=20", {}),
        (f"/v1/sessions/{one}/events/stream?after=4", {}),
        (f"/v1/sessions/{one}/events/stream", {"last-event-id": "4"}),
        (f"/v1/stream?sessions={one},{two}", {"last-event-id": f"{two}:3,{one}:4"}),
    ):
        assert server.refused("GET", path, 409, "cursor_ahead", headers=headers)["last_seq"] == 3
    assert server.ok("GET", f"/v1/sessions/{one}/events?after=3")["items"] == []


def damaged(server: LiveServer, session: str, seq: int) -> None:
    """A disk makes something else of one event."""
    with closing(apsw.Connection(str(server.folder / "bide.sqlite"))) as database:
        database.set_busy_timeout(5000)
        database.execute("update event set body = x'7b00ff' where session = ? and seq = ?", (session, seq))


def test_a_damaged_event_says_so_and_hides_no_other(server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="empty")["id"]
    server.post(session, {"type": "user.message", "text": "last"})
    damaged(server, session, 2)
    shown = server.events(session)
    assert [(event["seq"], event["type"]) for event in shown] == [
        (1, "session.created"), (2, "user.message"), (3, "session.queued"), (4, "user.message"),
    ]  # fmt: skip
    assert shown[1]["data"] == {"damaged": True}
    assert shown[3]["data"]["text"] == "last"
    with following(server.http, f"/v1/sessions/{session}/events/stream") as frames:
        streamed = [json.loads(frame["data"]) for frame in islice((f for f in frames if "id" in f), 4)]
    assert streamed == shown
    until(lambda: "bide_events_damaged_total 2.0" in server.http.get("/metrics").text)
