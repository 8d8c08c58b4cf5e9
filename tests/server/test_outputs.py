"""What a log has no room for, whole: only its own runner brings it, only its people read it, and it goes with its session."""

from __future__ import annotations

import random
import secrets
from pathlib import Path
from typing import Any

import apsw
import httpx2
import pytest

from bide.core.limits import PIECE_FRAME_BYTES
from bide.store import pieces
from tests.server.harness import LiveServer, Voice, until

TEXT = random.Random(1).randbytes(3 * PIECE_FRAME_BYTES + 77)


@pytest.fixture
def voice(server: LiveServer, repo: Path) -> tuple[Voice, dict[str, Any]]:
    """A runner that holds a session."""
    pool = f"pool-{secrets.token_hex(4)}"
    runner = Voice(server, pool, pool=pool)
    server.session(repo, pool=pool)
    return runner, runner.claim()


def put(voice: Voice, session: str, name: str, content: bytes = TEXT) -> httpx2.Response:
    return voice.http.put(f"/v1/sessions/{session}/outputs/{name}", content=content)


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("code", "")


def at_rest(voice: Voice, grant: dict[str, Any]) -> None:
    voice.ask(grant)
    checkpoint = {"id": grant["session"], "n": 1, "epoch": 1, "root": "x", "turn": 1, "at_n": 7, "consumed": []}
    for fact in ({"type": "checkpoint.saved", "checkpoint": checkpoint}, {"type": "session.parked", "checkpoint": 1}):
        assert voice.say(grant, fact).status_code == 200


def bytes_everywhere(server: LiveServer) -> bytes:
    return b"".join(path.read_bytes() for path in server.folder.rglob("*") if path.is_file())


def test_an_output_comes_back_bit_for_bit_and_in_any_part(
    server: LiveServer, voice: tuple[Voice, dict[str, Any]]
) -> None:
    runner, grant = voice
    session = grant["session"]
    path = f"/v1/sessions/{session}/outputs/1-4"
    assert put(runner, session, "1-4").status_code == 201
    whole = server.http.get(path)
    assert (whole.status_code, whole.content) == (200, TEXT)
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert whole.headers["content-disposition"].startswith("attachment")
    frame = PIECE_FRAME_BYTES
    for first, last in ((0, 0), (frame - 1, frame), (frame, 2 * frame - 1), (5, 3 * frame + 9), (3 * frame, 10**9)):
        part = server.http.get(path, headers={"range": f"bytes={first}-{last}"})
        assert (part.status_code, part.content) == (206, TEXT[first : last + 1])
    tail = server.http.get(path, headers={"range": "bytes=-5"})
    assert tail.content == TEXT[-5:]
    beyond = server.http.get(path, headers={"range": f"bytes={len(TEXT)}-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(TEXT)}")
    head = server.http.head(path)
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(TEXT)))
    assert put(runner, session, "1-5", b"").status_code == 201
    assert server.http.get(f"/v1/sessions/{session}/outputs/1-5").content == b""
    listed = server.ok("GET", f"/v1/sessions/{session}/outputs?limit=1")
    assert [(one["name"], one["bytes"]) for one in listed["items"]] == [("1-4", len(TEXT))]
    rest = server.ok("GET", f"/v1/sessions/{session}/outputs?cursor={listed['next']}")
    assert ([one["name"] for one in rest["items"]], rest["next"]) == (["1-5"], None)


def test_what_is_stored_is_encrypted(server: LiveServer, voice: tuple[Voice, dict[str, Any]]) -> None:
    runner, grant = voice
    canary = f"canary{secrets.token_hex(16)}".encode()
    assert put(runner, grant["session"], "1-0", canary * 10_000).status_code == 201
    assert canary not in bytes_everywhere(server)


def test_a_second_bringing_changes_nothing(server: LiveServer, voice: tuple[Voice, dict[str, Any]]) -> None:
    runner, grant = voice
    assert put(runner, grant["session"], "1-0").status_code == 201
    again = put(runner, grant["session"], "1-0", b"another" * 1_000_000)
    assert (again.status_code, again.json()) == (200, {"created": False})
    assert server.http.get(f"/v1/sessions/{grant['session']}/outputs/1-0").content == TEXT


def test_a_runner_without_the_lease_cannot_bring_or_replace_one(
    server: LiveServer, voice: tuple[Voice, dict[str, Any]]
) -> None:
    runner, grant = voice
    session = grant["session"]
    stranger = Voice(server, f"stranger-{secrets.token_hex(4)}")
    assert code(put(stranger, session, "1-0")) == (403, "forbidden")
    assert code(put(runner, session, "2-0")) == (409, "fenced"), "of an epoch that nobody was granted"
    for name in ("x", "1-0-1", "1-x", "-1-0", "%2E%2E%2F1-0"):
        assert put(runner, session, name).status_code in (404, 409), name
    assert code(put(runner, secrets.token_hex(4), "1-0")) == (422, "bad_id")
    assert code(put(runner, "00000000-0000-7000-8000-000000000000", "1-0")) == (403, "forbidden")
    at_rest(runner, grant)
    assert code(put(runner, session, "1-0")) == (409, "fenced"), "its last word is said"
    for name in ("1-0", "2-0"):
        server.refused("GET", f"/v1/sessions/{session}/outputs/{name}", 404, "no_output")
    assert runner.http.get(f"/v1/sessions/{session}/outputs/1-0").status_code == 403


def test_another_sessions_output_is_not_found(
    server: LiveServer, repo: Path, voice: tuple[Voice, dict[str, Any]]
) -> None:
    runner, grant = voice
    assert put(runner, grant["session"], "1-0").status_code == 201
    other = server.session(repo, pool="nobody")["id"]
    server.refused("GET", f"/v1/sessions/{other}/outputs/1-0", 404, "no_output")
    server.refused("GET", f"/v1/sessions/{grant['session']}/outputs/..%2F{other}", 404, "no_route")


def test_one_that_is_not_there_says_whether_it_may_still_come(
    server: LiveServer, voice: tuple[Voice, dict[str, Any]]
) -> None:
    runner, grant = voice
    path = f"/v1/sessions/{grant['session']}/outputs/1-9"
    assert "may still bring it" in server.refused("GET", path, 404, "no_output")["detail"]
    at_rest(runner, grant)
    assert "was not kept" in server.refused("GET", path, 404, "no_output")["detail"]


def test_too_much_is_refused_and_leaves_nothing(
    server: LiveServer, voice: tuple[Voice, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, grant = voice
    session = grant["session"]
    monkeypatch.setattr("bide.server.routes.outputs.OUTPUT_BYTES", 1000)
    assert code(put(runner, session, "1-0", b"x" * 1001)) == (413, "too_large")
    streamed = runner.http.put(f"/v1/sessions/{session}/outputs/1-0", content=iter([b"x" * 600, b"x" * 600]))
    assert code(streamed) == (413, "too_large"), "also when its size is not said before"
    monkeypatch.setattr("bide.server.pieces.OUTPUTS_BYTES", 1500)
    assert put(runner, session, "1-1", b"x" * 1000).status_code == 201
    assert code(put(runner, session, "1-2", b"x" * 1000)) == (413, "too_large")
    monkeypatch.setattr("bide.server.pieces.OUTPUTS_MAX", 1)
    assert code(put(runner, session, "1-3", b"x")) == (413, "too_many")
    listed = server.ok("GET", f"/v1/sessions/{session}/outputs")["items"]
    assert [one["name"] for one in listed] == ["1-1"]
    objects = [path for path in (server.folder / "blobs").rglob("*") if path.is_file() and session in str(path)]
    assert len(objects) <= 1 + 1, "what the last try wrote is condemned, and goes with the next round"


def test_outputs_of_a_deleted_session_are_nowhere(server: LiveServer, voice: tuple[Voice, dict[str, Any]]) -> None:
    runner, grant = voice
    session = grant["session"]
    for n in range(3):
        assert put(runner, session, f"1-{n}").status_code == 201
    at_rest(runner, grant)
    assert server.http.get(f"/v1/sessions/{session}/outputs/1-0").content == TEXT, "it outlives its lease"
    assert server.http.delete(f"/v1/sessions/{session}").status_code == 200
    server.refused("GET", f"/v1/sessions/{session}/outputs/1-0", 404, "no_session")
    blobs = server.folder / "blobs"
    until(lambda: not [path for path in blobs.rglob("*") if path.is_file() and session in str(path)])
    with apsw.Connection(str(server.folder / "bide.sqlite"), flags=apsw.SQLITE_OPEN_READONLY) as database:
        kinds = (pieces.PIECE, pieces.BEGUN, pieces.PIECES)
        left = database.execute(
            f"select kind, key from document where kind in {kinds!r} and instr(key, ?)", (session,)
        ).fetchall()
    assert left == []
    assert code(put(runner, session, "1-7")) == (403, "forbidden")


def test_damage_is_told_and_never_passed_on(server: LiveServer, voice: tuple[Voice, dict[str, Any]]) -> None:
    runner, grant = voice
    session = grant["session"]
    assert put(runner, session, "1-0").status_code == 201
    (object_,) = [path for path in (server.folder / "blobs").rglob("output-1-0-*") if session in str(path)]
    content = bytearray(object_.read_bytes())
    content[PIECE_FRAME_BYTES + 100] ^= 1  # in its second frame
    object_.chmod(0o600)
    object_.write_bytes(content)
    path = f"/v1/sessions/{session}/outputs/1-0"
    assert server.http.get(path, headers={"range": "bytes=0-99"}).content == TEXT[:100]
    with pytest.raises(httpx2.RemoteProtocolError):
        server.http.get(path)
    content[100] ^= 1
    object_.write_bytes(content)
    assert code(server.http.get(path)) == (503, "store_unavailable")
    object_.unlink()
    assert server.http.get(path).status_code in (404, 503)
