"""Requests that nobody means well: each is refused in a sentence, none is a failure of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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
