"""Half sentences are seen live by who watches, and by nobody else, ever."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bide.core.limits import GLIMPSES_HELD_BYTES
from bide.core.wire import Glimpse
from bide.server.glimpses import Glimpses
from tests.server.harness import LiveServer, Voice, following, until

Held = tuple[Voice, dict[str, Any]]


@pytest.fixture
def voice(server: LiveServer, repo: Path) -> Held:
    """A runner that holds a session."""
    pool = f"pool-{secrets.token_hex(4)}"
    runner = Voice(server, pool, pool=pool)
    server.session(repo, pool=pool)
    return runner, runner.claim()


def show(runner: Voice, grant: dict[str, Any], text: str, n: int | None = None, **more: Any) -> httpx2.Response:
    n = runner.n.get((grant["session"], grant["epoch"]), 0) if n is None else n
    glimpse = {"session": grant["session"], "epoch": grant["epoch"], "n": n, "turn": 1, "kind": "text", "text": text}
    return runner.http.post(f"/v1/runners/{runner.id}/glimpses", json={"glimpses": [glimpse | more]})


def watched(runner: Voice, grant: dict[str, Any], text: str, **more: Any) -> list[str]:
    answer = show(runner, grant, text, **more)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["watched"])


def stream(grant: dict[str, Any], after: int = 0, asks: str = "&glimpses=true") -> str:
    return f"/v1/sessions/{grant['session']}/events/stream?after={after}{asks}"


def next_glimpse(frames: Iterator[dict[str, str]]) -> dict[str, Any]:
    frame = next(frame for frame in frames if frame.get("event") == "glimpse")
    assert "id" not in frame, "a cursor is never moved by a glimpse"
    return dict(json.loads(frame["data"]))


def test_half_sentences_are_seen_live_and_are_nowhere_in_the_log(server: LiveServer, voice: Held) -> None:
    runner, grant = voice
    canary = f"canary{secrets.token_hex(8)}"
    with following(server.http, stream(grant)) as frames:
        until(lambda: watched(runner, grant, f"half a {canary}") == [grant["session"]])
        assert next_glimpse(frames) == {
            "session_id": grant["session"], "turn": 1, "kind": "text", "text": f"half a {canary}",
        }  # fmt: skip
    assert canary not in json.dumps(server.events(grant["session"]))
    with following(server.http, stream(grant)) as frames:
        last = server.ok("GET", f"/v1/sessions/{grant['session']}")["last_seq"]
        replayed = list(islice((frame for frame in frames if "id" in frame or "event" in frame), last))
    assert [frame["id"] for frame in replayed] == [str(n) for n in range(1, last + 1)]
    assert canary.encode() not in b"".join(path.read_bytes() for path in server.folder.rglob("*") if path.is_file())


def test_a_reader_that_did_not_ask_gets_no_glimpses(server: LiveServer, voice: Held) -> None:
    runner, grant = voice
    last = server.ok("GET", f"/v1/sessions/{grant['session']}")["last_seq"]
    with following(server.http, stream(grant, last, "")) as plain:
        assert next(plain) == {"retry": "1000"}
        assert watched(runner, grant, "half a") == [], "nobody watches"
        with following(server.http, stream(grant, last)) as frames:
            until(lambda: watched(runner, grant, "half a"))
            assert next_glimpse(frames)["text"] == "half a"
            assert runner.say(grant, {"type": "note", "text": "whole"}).status_code == 200
            assert next(plain)["event"] == "note"


def test_the_stream_of_many_sessions_shows_each_as_its_own(server: LiveServer, repo: Path, voice: Held) -> None:
    runner, grant = voice
    other = server.session(repo, pool=runner.pool)["id"]
    held = {"session": grant["session"], "epoch": grant["epoch"], "cursor": grant["job"]["cursor"]}
    (second,) = until(lambda: runner.sync(held, wait_s=1)["grants"])
    assert second["session"] == other
    with following(server.http, f"/v1/stream?sessions={grant['session']},{other}&glimpses=true") as frames:
        until(lambda: watched(runner, grant, "one"))
        watched(runner, second, "two")
        assert [next_glimpse(frames)["session_id"] for _ in range(2)] == [grant["session"], other]


def test_a_fact_makes_void_what_was_glimpsed_before_it(server: LiveServer, voice: Held) -> None:
    runner, grant = voice
    with following(server.http, stream(grant)) as frames:
        until(lambda: watched(runner, grant, "first"))
        assert next_glimpse(frames)["text"] == "first"
        assert runner.say(grant, {"type": "note", "text": "whole"}).status_code == 200
        assert watched(runner, grant, "late", n=0) == [grant["session"]], "it is watched, and this is of the past"
        watched(runner, grant, "new")
        assert next_glimpse(frames)["text"] == "new"


def test_a_zombies_glimpses_are_shown_to_nobody(server: LiveServer, voice: Held) -> None:
    runner, grant = voice
    stranger = Voice(server, f"stranger-{secrets.token_hex(4)}")
    with following(server.http, stream(grant)) as frames:
        until(lambda: watched(runner, grant, "mine", kind="progress"))
        assert next_glimpse(frames)["kind"] == "progress"
        assert watched(stranger, grant, "not mine") == []
        watched(runner, grant, "of an epoch before", epoch=0)
        watched(runner, grant, "mine again")
        assert next_glimpse(frames)["text"] == "mine again"
    other = stranger.http.post(f"/v1/runners/{runner.id}/glimpses", json={"glimpses": []})
    assert other.status_code == 403


def test_a_flood_of_glimpses_delays_no_fact_and_costs_a_bounded_memory(server: LiveServer, voice: Held) -> None:
    runner, grant = voice
    with following(server.http, stream(grant)) as frames:
        until(lambda: watched(runner, grant, "here"))
        for _ in range(300):
            watched(runner, grant, "x" * 8000)
        began = time.monotonic()
        assert runner.say(grant, {"type": "note", "text": "whole"}).status_code == 200
        assert next(frame for frame in frames if frame.get("event") == "note")
        assert time.monotonic() - began < 2


def test_a_reader_that_is_slow_keeps_the_newest() -> None:
    hub = Glimpses()
    with hub.watching(["s"]) as watching:
        for n in range(100):
            hub.show([Glimpse(session="s", epoch=1, n=0, turn=1, kind="text", text=f"{n:04d}" * 1000)])
        shown = watching.frames()
        assert shown.endswith(b'0099"}\n\n')
        assert len(shown) < GLIMPSES_HELD_BYTES + 10_000
        assert watching.frames() == b"", "each once"
        hub.show([Glimpse(session="s", epoch=1, n=0, turn=1, kind="text", text="")] * 10_000)
        assert len(watching.frames()) < 2 * GLIMPSES_HELD_BYTES, "they cost something without a word, too"
        hub.show([Glimpse(session="other", epoch=1, n=0, turn=1, kind="text", text="x")])
        assert watching.frames() == b""
    assert hub.watched(["s"]) == frozenset()
