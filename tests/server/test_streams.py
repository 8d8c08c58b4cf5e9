"""Following a session: whole, in order, once; across cuts, restarts and slow readers."""

from __future__ import annotations

import json
import random
import socket
import threading
from itertools import islice
from pathlib import Path

import pytest

from bide.core import limits
from tests.server.harness import LiveServer, following, until


def stir(server: LiveServer, session: str, count: int) -> None:
    """Adds `count` inputs to the log, two facts each."""
    for start in range(0, count, 50):
        server.post(session, *({"type": "user.interrupt"} for _ in range(min(50, count - start))))


def read(server: LiveServer, session: str, after: int, count: int, *, by_header: bool) -> list[int]:
    """The ids of the next `count` events, then the line is cut."""
    path = f"/v1/sessions/{session}/events/stream"
    headers = {"last-event-id": str(after)} if by_header else {}
    with following(server.http, path if by_header else f"{path}?after={after}", **headers) as frames:
        return [int(frame["id"]) for frame in islice((f for f in frames if "id" in f), count)]


def test_a_stream_shows_what_was_and_then_what_comes(server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="empty")["id"]
    with following(server.http, f"/v1/sessions/{session}/events/stream") as frames:
        assert next(frames) == {"retry": "1000"}
        seen = list(islice(frames, 3))
        assert [frame["id"] for frame in seen] == ["1", "2", "3"]
        assert [frame["event"] for frame in seen] == ["session.created", "user.message", "session.queued"]
        assert json.loads(seen[1]["data"])["data"]["text"] == "Fix the test"
        server.post(session, {"type": "user.message", "text": "live"})
        live = next(frames)
        assert (live["id"], json.loads(live["data"])["data"]["text"]) == ("4", "live")
    until(lambda: "bide_streams_open 0.0" in server.http.get("/metrics").text)


def test_a_reader_goes_on_from_any_cursor_across_a_restart_without_hole_or_double(tmp_path: Path, repo: Path) -> None:
    server = LiveServer(tmp_path / "restarted")
    try:
        session = server.session(repo, pool="empty")["id"]
        stir(server, session, 150)
        got: list[int] = []
        chance = random.Random(5)
        for cut in range(12):
            if cut == 6:
                before = (server.url, server.token)
                server.stop()
                server.start()
                assert (server.url, server.token) == before, "whoever had them goes on"
                stir(server, session, 150)
            got += read(server, session, len(got), chance.randint(1, 60), by_header=cut % 2 == 0)
        total = server.ok("GET", f"/v1/sessions/{session}")["last_seq"]
        got += read(server, session, len(got), total - len(got), by_header=False)
        assert got == list(range(1, total + 1))
        assert got == [event["seq"] for event in server.events(session)]
    finally:
        server.stop()


def test_a_server_that_ends_says_goodbye_to_its_readers_and_leaves_in_time(tmp_path: Path, repo: Path) -> None:
    server = LiveServer(tmp_path / "leaving")
    session = server.session(repo, pool="empty")["id"]
    words: list[dict[str, str]] = []
    reader = server.client(server.token)

    def follow() -> None:
        with following(reader, f"/v1/sessions/{session}/events/stream") as frames:
            words.extend(frames)

    thread = threading.Thread(target=follow)
    thread.start()
    until(lambda: len(words) >= 4)
    server.stop(but=reader)
    thread.join(10)
    assert not thread.is_alive()
    assert words[-1] == {"comment": "bye"}
    reader.close()


def test_one_stream_carries_many_sessions_and_each_goes_on_at_its_own_place(server: LiveServer, repo: Path) -> None:
    one, two = (server.session(repo, pool="empty")["id"] for _ in range(2))
    path = f"/v1/stream?sessions={one},{two}"
    with following(server.http, path) as frames:
        first = list(islice((f for f in frames if "id" in f), 4))
    stir(server, one, 1)
    with following(server.http, path, **{"last-event-id": first[-1]["id"]}) as frames:
        rest = list(islice((f for f in frames if "id" in f), 4))
    seen = [(event["session_id"], event["seq"]) for event in (json.loads(f["data"]) for f in first + rest)]
    assert sorted(seen) == sorted([*((one, n) for n in range(1, 6)), *((two, n) for n in range(1, 4))])
    server.refused("GET", path, 422, "bad_value", headers={"last-event-id": "12"})
    server.refused("GET", "/v1/stream?sessions=", 422, "bad_value")


def test_a_reader_that_stops_reading_is_closed_and_others_go_on(
    tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.server.feed.SSE_STALL_S", 0.5)
    server = LiveServer(tmp_path / "stalled")
    try:
        session = server.session(repo, pool="empty")["id"]
        text = "x" * (limits.MESSAGE_BYTES - 100)
        for _ in range(32):  # more than the kernel takes for a reader who takes nothing
            server.post(session, {"type": "user.message", "text": text})
        host, _, port = server.url.removeprefix("http://").partition(":")
        with socket.socket() as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.connect((host, int(port)))
            request = f"GET /v1/sessions/{session}/events/stream HTTP/1.1\r\nHost: {host}:{port}\r\n"
            line.sendall(f"{request}Authorization: Bearer {server.token}\r\n\r\n".encode())
            until(lambda: "bide_streams_open 1.0" in server.http.get("/metrics").text)
            until(lambda: "bide_streams_open 0.0" in server.http.get("/metrics").text)
        total = server.ok("GET", f"/v1/sessions/{session}")["last_seq"]
        assert read(server, session, 0, total, by_header=False) == list(range(1, total + 1))
    finally:
        server.stop()
