"""Following a session: whole, in order, once; across cuts, restarts and slow readers."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading
import time
from itertools import islice
from pathlib import Path

import httpx2
import msgspec
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


def stuck(server: LiveServer, session: str) -> socket.socket:
    """A reader that asks for a stream, and then reads nothing at all."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.connect((host, int(port)))
    request = f"GET /v1/sessions/{session}/events/stream HTTP/1.1\r\nHost: {host}:{port}\r\n"
    line.sendall(f"{request}Authorization: Bearer {server.token}\r\n\r\n".encode())
    return line


def long_session(server: LiveServer, repo: Path, megabytes: int) -> str:
    """A session with more in its log than the kernel takes for a reader that takes nothing."""
    session = str(server.session(repo, pool="empty")["id"])
    text = "x" * (limits.MESSAGE_BYTES - 100)
    for _ in range(4 * megabytes):
        server.post(session, {"type": "user.message", "text": text})
    return session


def descriptors() -> int:
    """How many files and lines this process, and so the server in it, has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def open_streams(server: LiveServer) -> float:
    lines = server.http.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("bide_streams_open "))


def test_a_reader_that_stopped_reading_is_really_gone(
    tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("bide.server.feed.SSE_STALL_S", 0.5)
    server = LiveServer(tmp_path / "gone")
    try:
        session = long_session(server, repo, 8)
        before = descriptors()
        with stuck(server, session) as line:
            until(lambda: open_streams(server) == 1)
            until(lambda: open_streams(server) == 0)
            until(lambda: descriptors() <= before + 1)  # ours is left
            line.settimeout(10)
            with contextlib.suppress(ConnectionError):
                assert not line.makefile("rb").read().endswith(b"0\r\n\r\n"), "it knows that it has not all of it"
        assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []
    finally:
        server.stop()


def test_a_server_with_readers_that_stopped_reading_ends_as_fast_as_one_without(tmp_path: Path, repo: Path) -> None:
    server = LiveServer(tmp_path / "ending")
    session = long_session(server, repo, 8)
    lines = [stuck(server, session) for _ in range(3)]
    try:
        until(lambda: open_streams(server) == 3)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < limits.SHUTDOWN_S - 1
    finally:
        for line in lines:
            line.close()
        server.stop()


def test_a_reader_of_a_deleted_session_is_told_so(server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="empty")["id"]
    server.post(session, {"type": "user.cancel"})
    with following(server.http, f"/v1/sessions/{session}/events/stream") as frames:
        assert len(list(islice((f for f in frames if "id" in f), 3))) == 3
        other = server.client(server.token)
        assert other.delete(f"/v1/sessions/{session}").status_code < 300
        assert list(frames)[-1] == {"comment": "bye"}
    server.refused("GET", f"/v1/sessions/{session}/events/stream", 404, "no_session")


def test_an_idle_stream_says_that_it_lives(server: LiveServer, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.server.feed.SSE_PING_S", 0.1)
    session = server.session(repo, pool="empty")["id"]
    with following(server.http, f"/v1/sessions/{session}/events/stream?after=3") as frames:
        assert list(islice(frames, 4)) == [{"retry": "1000"}, *[{"comment": "ping"}] * 3]


def test_a_page_of_long_events_ends_early_and_says_so(server: LiveServer, repo: Path) -> None:
    session = long_session(server, repo, 6)
    page = server.ok("GET", f"/v1/sessions/{session}/events?limit=500")
    assert len(msgspec.json.encode(page)) < limits.LIST_BYTES + 2 * limits.MESSAGE_BYTES
    assert page["next"] == str(page["items"][-1]["seq"])
    assert [event["seq"] for event in server.events(session)] == list(range(1, 28))
    page = server.ok("GET", f"/v1/sessions/{session}/events?limit=3")
    assert ([event["seq"] for event in page["items"]], page["next"]) == ([1, 2, 3], "3")
    page = server.ok("GET", f"/v1/sessions/{session}/events?limit=3&after=24")
    assert ([event["seq"] for event in page["items"]], page["next"]) == ([25, 26, 27], None)


def test_who_waits_for_an_event_has_it_as_soon_as_it_is_there(server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="empty")["id"]
    path = f"/v1/sessions/{session}/events?after=3&wait_s="
    assert server.ok("GET", path + "0.05") == {"items": [], "next": None}
    other = server.client(server.token)
    answers: list[httpx2.Response] = []
    waiting = threading.Thread(target=lambda: answers.append(other.get(path + "20")))
    began = time.monotonic()
    waiting.start()
    server.post(session, {"type": "user.message", "text": "now"})
    waiting.join(10)
    assert [event["data"]["text"] for event in answers[0].json()["items"]] == ["now"]
    assert time.monotonic() - began < 5
    server.refused("GET", path + "21", 422, "malformed")


def test_nobody_who_waits_for_an_event_holds_up_the_end_of_a_server(tmp_path: Path, repo: Path) -> None:
    server = LiveServer(tmp_path / "waited")
    session = server.session(repo, pool="empty")["id"]
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        request = f"GET /v1/sessions/{session}/events?after=3&wait_s=20 HTTP/1.1\r\nHost: {host}:{port}\r\n"
        line.sendall(f"{request}Authorization: Bearer {server.token}\r\n\r\n".encode())
        assert server.http.get("/healthz").status_code == 200, "what came before it was read before it"
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < limits.SHUTDOWN_S - 1
        assert line.makefile("rb").readline().split()[1] in (b"200", b"503")
