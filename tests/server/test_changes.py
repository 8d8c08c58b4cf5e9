"""What a reader of many sessions is told: of all that changed, in time, and of none at another's cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from bide.core import ids
from bide.core.limits import CHANGES_S, WAKEUPS_MAX
from bide.server.hints import Hints
from bide.store.wakeups import QUEUE, Wakeup, decided
from tests.server.harness import LiveServer, following

ONE, OTHER = (ids.mint(1_000_000.0, name) for name in ("one", "other"))


def told(frame: bytes) -> object:
    head, _, rest = frame.decode().partition("\ndata: ")
    assert head == "event: changes"
    return json.loads(rest)


def test_whoever_comes_is_told_to_look_at_everything_once() -> None:
    hints = Hints()
    assert hints.within_s(100.0) == 0.0
    assert told(hints.frame(100.0)) == {"everything": True}
    assert hints.within_s(100.0) is None
    assert hints.frame(200.0) == b""


def test_changes_are_named_each_once_and_not_too_often() -> None:
    hints = Hints()
    hints.frame(100.0)
    hints.take(Wakeup(sessions=frozenset({ONE, QUEUE, decided(ONE)})))
    assert hints.frame(100.0 + CHANGES_S / 2) == b""
    assert hints.within_s(100.0 + CHANGES_S / 2) == pytest.approx(CHANGES_S / 2)
    hints.take(Wakeup(sessions=frozenset({ONE, OTHER})))
    assert told(hints.frame(100.0 + CHANGES_S)) == {"sessions": sorted({ONE, OTHER})}
    assert hints.frame(200.0) == b""


def test_more_than_can_be_named_is_everything() -> None:
    hints = Hints()
    hints.frame(100.0)
    many = frozenset(ids.mint(1_000_000.0, n) for n in range(WAKEUPS_MAX + 1))
    hints.take(Wakeup(sessions=many))
    hints.take(Wakeup(sessions=frozenset({ONE})))
    assert told(hints.frame(101.0)) == {"everything": True}
    hints.take(Wakeup(everything=True))
    assert told(hints.frame(102.0)) == {"everything": True}


def changes(frames: Iterator[dict[str, str]]) -> Iterator[dict[str, object]]:
    return (json.loads(frame["data"]) for frame in frames if frame.get("event") == "changes")


def test_a_reader_hears_of_sessions_that_it_did_not_name(server: LiveServer, repo: Path) -> None:
    with following(server.http, "/v1/stream?changes=true") as frames:
        said = changes(frames)
        assert next(said) == {"everything": True}
        fresh = server.session(repo, pool="empty")["id"]
        assert next(said) == {"sessions": [fresh]}
        server.post(fresh, {"type": "user.message", "text": "more"})
        assert next(said) == {"sessions": [fresh]}


def test_hints_come_beside_events_and_move_no_ones_place_in_the_log(server: LiveServer, repo: Path) -> None:
    followed, other = (server.session(repo, pool="empty")["id"] for _ in range(2))
    with following(server.http, f"/v1/stream?changes=true&sessions={followed}&after={followed}:1") as frames:
        found = list(islice((f for f in frames if "data" in f), 3))
        assert sorted(f["event"] for f in found) == ["changes", "session.queued", "user.message"]
        assert [f["id"] for f in found if "id" in f] == [f"{followed}:2", f"{followed}:3"]
        server.post(other, {"type": "user.message", "text": "not followed"})
        server.post(followed, {"type": "user.message", "text": "followed"})
        rest = list(islice((f for f in frames if "id" in f), 1))
        assert json.loads(rest[0]["data"])["data"]["text"] == "followed"
    server.refused("GET", "/v1/stream", 422, "bad_value")


def test_one_busy_session_does_not_keep_the_others_from_a_reader(server: LiveServer, repo: Path) -> None:
    busy, quiet = (server.session(repo, pool="empty")["id"] for _ in range(2))
    for _ in range(4):
        server.post(busy, *({"type": "user.interrupt"} for _ in range(80)))
    assert busy < quiet, "it would be read first"
    with following(server.http, f"/v1/stream?sessions={busy},{quiet}") as frames:
        order = [json.loads(f["data"])["session_id"] for f in islice((f for f in frames if "id" in f), 200)]
    assert order.index(quiet) <= 64, "after one batch of the busy one at most"
