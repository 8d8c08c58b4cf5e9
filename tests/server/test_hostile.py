"""Requests that nobody means well: each is refused in a sentence, none is a failure of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bide.core.limits import FACTS_PER_POST_MAX, SYNC_SESSIONS_MAX, WARM_TOLD_MAX
from bide.server import render
from tests.server.harness import LiveServer, Voice

HUGE = 10**400


@pytest.mark.parametrize(
    "query",
    [
        "events?after=-1", f"events?after={10**30}", "events?limit=0", "events?limit=501", "events?limit=x",
        "events?befor=1", f"events/stream?after={10**30}", "events/stream?after=x",
    ],
)  # fmt: skip
def test_a_cursor_that_cannot_be_is_refused(server: LiveServer, repo: Path, query: str) -> None:
    session = server.session(repo, pool="empty")["id"]
    server.refused("GET", f"/v1/sessions/{session}/{query}", 422, "malformed")


@pytest.mark.parametrize("last", ["-1", "x", "9" * 5000, "1,2"])
def test_an_event_id_that_cannot_be_is_refused(server: LiveServer, repo: Path, last: str) -> None:
    session = server.session(repo, pool="empty")["id"]
    server.refused("GET", f"/v1/sessions/{session}/events/stream", 422, "bad_value", headers={"last-event-id": last})


@pytest.mark.parametrize(
    "body",
    [
        b'{"project":"p","prompt":"x","settings":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
        b'{"project":"p","prompt":"\\ud800"}',
        b'{"project":"p","prompt":"\xed\xa0\x80"}',
        b'{"project":"p","prompt":"x","settings":{"online_window_s":%d}}' % HUGE,
        b'{"project":"p","prompt":"x","settings":{"online_window_s":1e999}}',
        b'{"project":"p","prompt":"x","settings":{"on_loss":"pray"}}',
        b'{"project":"p","prompt":"x","settings":{"model":"a\\u0000b"}}',
        b'{"project":"p","prompt":"x","title":"%s"}' % (b"t" * 201),
        b'{"project":"p","prompt":"x","branch":"--upload-pack=x"}',
        b'{"project":"p","prompt":"   "}',
    ],
)
def test_a_body_that_cannot_be_is_refused_and_starts_nothing(server: LiveServer, repo: Path, body: bytes) -> None:
    server.ok("PUT", "/v1/projects/p", json={"repository": str(repo), "settings": {"pool": "empty"}})
    answer = server.http.post("/v1/sessions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert server.ok("GET", "/v1/sessions?project=p")["items"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"session": "x", "epoch": 1, "first": 0, "facts": []},
        {"session": "00000000-0000-7000-8000-000000000000", "epoch": HUGE, "first": HUGE, "facts": []},
        {"session": "00000000-0000-7000-8000-000000000000", "epoch": 1, "first": 0, "facts": [{"type": "nothing"}]},
        {"epoch": 1},
    ],
)
def test_a_runner_out_of_its_mind_is_refused(server: LiveServer, body: dict[str, Any]) -> None:
    runner = Voice(server, "mad", pool="mad")
    answer = runner.http.post(f"/v1/runners/{runner.id}/facts", json=body)
    assert answer.status_code in (404, 422), answer.text


def test_text_of_any_kind_comes_back_as_it_was_sent(server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="empty")["id"]
    texts = [
        "nul \x00 byte",
        "emoji 👩‍👩‍👧",
        "\x1b[31mred",
        "<script>alert(1)</script>",
        "line\r\nid: 7\n\ndata: x",
        "עברית",
    ]
    for text in texts:
        server.post(session, {"type": "user.message", "text": text})
    assert [row["text"] for row in server.ok("GET", f"/v1/sessions/{session}/inputs")["items"]][1:] == texts
    sent = [event["data"]["text"] for event in server.events(session) if event["type"] == "user.message"]
    assert sent[1:] == texts


def test_a_runner_that_names_its_process_by_what_no_database_holds_is_told_so(
    server: LiveServer, pair: tuple[LiveServer, LiveServer]
) -> None:
    for live in (server, pair[0]):
        live.refused("POST", "/v1/runners", 422, "bad_value", json={"name": "nul", "boot": "a\0b"})


def test_a_checkpoint_with_absurd_numbers_spoils_no_list(server: LiveServer, repo: Path) -> None:
    runner = Voice(server, "absurd", pool="absurd")
    session = server.session(repo, pool="absurd")["id"]
    grant = runner.claim()
    absurd = {
        "id": grant["session"], "n": 2**70, "epoch": 1, "root": "x", "turn": -7, "verified_at": 1e300, "at_n": -1,
        "saved_at": -1e300, "seconds": 1e300, "bytes": -(2**70), "files": 2**70, "event_seq": 2**70,
    }  # fmt: skip
    answer = runner.say(
        grant,
        {"type": "environment.restored", "source": "fresh", "seconds": -1e300, "bytes": 2**70},
        {"type": "checkpoint.failed", "code": "x", "reason": "y", "retry_at": 1e300},
        {"type": "checkpoint.saved", "checkpoint": absurd},
    )
    assert answer.status_code == 200, answer.text
    shown = server.ok("GET", f"/v1/sessions/{session}")["checkpoint"]
    assert (shown["verified_at"][:4], shown["bytes"], shown["turn"]) == ("9999", 0, 0)
    assert session in [one["id"] for one in server.ok("GET", "/v1/sessions?limit=500")["items"]]
    server.ok("GET", "/v1/sessions/" + session + "/checkpoints")
    assert server.events(session)[-1]["type"] == "checkpoint.saved"


@pytest.mark.parametrize("seconds", [1e300, -1e300, float("inf"), float("nan")])
def test_a_moment_that_an_older_server_has_stored_is_shown_whatever_it_is(seconds: float) -> None:
    assert render.at(seconds).year in (1970, 9999)
    render.moment(seconds)


def test_a_runner_that_names_or_tells_too_much_at_once_is_told_so(server: LiveServer, repo: Path) -> None:
    runner = Voice(server, "torrent", pool="torrent")
    session = server.session(repo, pool="torrent")["id"]
    grant = runner.claim()
    lease = {"session": session, "epoch": 1}
    for body, code in (
        ({"leases": [lease] * (SYNC_SESSIONS_MAX + 1)}, "too_many"),
        ({"warm": [session] * (WARM_TOLD_MAX + 1)}, "too_many"),
        ({"leases": [{"session": "a\0b", "epoch": 1}]}, "bad_id"),
    ):
        answer = runner.http.post(f"/v1/runners/{runner.id}/sync", json={"boot": "b1"} | body)
        assert (answer.status_code // 100, answer.json()["code"]) == (4, code), answer.text
    note = {"type": "note", "text": "x"}
    answer = runner.say(grant, *[note] * (FACTS_PER_POST_MAX + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_many")
    assert runner.say(grant, *[note] * FACTS_PER_POST_MAX).status_code == 200


@pytest.mark.parametrize(
    "said",
    [
        {"root": "a\0b"},
        {"isolation": "prayer"},
        {"home": "h" * 101},
        {"runtimes": [{"name": "x" * 101, "version": "1"}]},
    ],
)
def test_a_registration_that_cannot_be_is_refused(server: LiveServer, said: dict[str, Any]) -> None:
    server.refused("POST", "/v1/runners", 422, "bad_value", json={"name": "odd"} | said)
