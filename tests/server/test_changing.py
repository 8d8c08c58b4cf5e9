"""What people take back or change over HTTP: the receipt says what came of it, and a refusal why nothing did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.requests import Request

from bide.core import ids
from bide.server.accepting import input_id
from bide.server.auth import Actor
from bide.server.calls import Call
from bide.server.posts import Message
from tests.server.harness import LiveServer, Voice, held, parked, until

CHANGES = "/v1/sessions/{}/events/{}"


def sent(server: LiveServer, session: str, text: str, **more: Any) -> str:
    return str(server.post(session, {"type": "user.message", "text": text, **more})[0]["id"])


def test_a_message_is_changed_and_taken_back_before_anybody_gets_it(server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="empty")["id"]
    message = sent(server, session, "one")
    path = CHANGES.format(session, message)
    changed = server.ok("PATCH", path, json={"text": "two", "delivery": "steer"})
    assert (changed["id"], changed["status"], changed["text"], changed["code"]) == (
        message,
        "accepted",
        "two",
        "edited",
    )
    gone = server.ok("DELETE", path)
    assert (gone["id"], gone["status"], gone["how"]) == (message, "withdrawn", "taken back by owner")
    assert server.refused("DELETE", path, 409, "not_editable")["text"] == "two"
    assert [e["type"] for e in server.events(session) if e["type"].startswith("user.")] == [
        "user.message", "user.message", "user.edit", "user.receipt", "user.edited", "user.receipt", "user.withdraw",
        "user.receipt", "user.receipt",
    ]  # fmt: skip


def test_a_change_repeated_with_its_key_is_one_change(server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="empty")["id"]
    path, key = CHANGES.format(session, sent(server, session, "one")), {"idempotency-key": "k"}
    first = server.ok("PATCH", path, json={"text": "two"}, headers=key)
    assert server.ok("PATCH", path, json={"text": "two"}, headers=key) == first
    server.refused("PATCH", path, 409, "key_reused", json={"text": "three"}, headers=key)
    gone = server.ok("DELETE", path, headers={"idempotency-key": "d"})
    assert server.ok("DELETE", path, headers={"idempotency-key": "d"}) == gone


def test_what_a_runner_has_is_taken_back_once_it_says_so(server: LiveServer, repo: Path) -> None:
    runner = Voice(server, "holder", pool="holders")
    session = server.session(repo, pool="holders")["id"]
    grant = runner.claim()
    runner.ask(grant, "Which?")
    message = sent(server, session, "never mind")
    assert server.ok("DELETE", CHANGES.format(session, message))["status"] == "withdrawing"
    told = until(lambda: runner.sync(held(grant), wait_s=1)["commands"])[0]["inputs"]
    assert [(i["type"], i["target"]) for i in told] == [("user.withdraw", message)], "the message itself is not told"
    runner.say(grant, {"type": "user.receipt", "input_id": message, "status": "withdrawn", "code": "taken_back"})
    listed = {row["id"]: row["status"] for row in server.ok("GET", f"/v1/sessions/{session}/inputs")["items"]}
    assert (listed[message], listed[told[0]["id"]]) == ("withdrawn", "consumed")


def test_what_was_delivered_is_refused_with_what_became_of_it(server: LiveServer, repo: Path) -> None:
    session = parked(server, repo, "delivered")
    prompt = server.ok("GET", f"/v1/sessions/{session}/inputs")["items"][0]["id"]
    no = server.refused("PATCH", CHANGES.format(session, prompt), 409, "not_editable", json={"text": "other"})
    assert ("consumed" in no["detail"], no["text"]) == (True, "Fix the test")
    nothing = CHANGES.format(session, "00000000-0000-7000-8000-000000000000")
    server.refused("DELETE", nothing, 404, "no_input")
    server.refused("PATCH", CHANGES.format(session, "mine"), 422, "bad_id", json={"text": "x"})
    order = server.post(session, {"type": "user.resume"})[0]["id"]
    assert "user.resume" in server.refused("DELETE", CHANGES.format(session, order), 409, "not_editable")["detail"]


def test_an_answer_that_is_taken_back_puts_its_question_into_the_inbox_again(server: LiveServer, repo: Path) -> None:
    session = parked(server, repo, "rethinks")
    (question,) = server.ok("GET", f"/v1/sessions/{session}/questions")["items"]
    answer = server.ok("POST", f"/v1/questions/{question['id']}/answer", json={"text": "tabs"})["id"]
    server.ok("DELETE", CHANGES.format(session, answer))
    assert server.ok("GET", f"/v1/questions/{question['id']}")["status"] == "open"
    assert server.ok("POST", f"/v1/questions/{question['id']}/answer", json={"text": "spaces"})["status"] == "accepted"


def test_a_doubt_is_shown_and_settled(server: LiveServer, repo: Path) -> None:
    session = parked(server, repo, "doubts")
    message = sent(server, session, "deploy")
    runner = Voice(server, "doubter", pool="doubts", boot="b2")
    grant = runner.claim()
    runner.say(
        grant,
        {"type": "environment.restored", "source": "checkpoint", "workspace": {}},
        {"type": "turn.started", "input_ids": [message]},
        {"type": "user.receipt", "input_id": message, "status": "delivered", "turn": 2},
        {"type": "user.receipt", "input_id": message, "status": "unconfirmed"},
        {"type": "turn.ended", "result": "completed"},
    )
    assert server.ok("GET", f"/v1/sessions/{session}")["unconfirmed"] == 1
    wish = {"type": "user.resolve", "input_id": message, "choice": "delivered"}
    assert server.post(session, wish)[0]["status"] == "consumed"
    assert server.ok("GET", f"/v1/sessions/{session}")["unconfirmed"] == 0
    server.refused("POST", f"/v1/sessions/{session}/events", 409, "not_unconfirmed", json={"events": [wish]})


def test_two_senders_with_one_key_do_not_take_each_others_words() -> None:
    """A key is its sender's own: whoever else used `1` before, this is another message."""

    def minted(sender: str) -> str:
        request = Request({"type": "http", "headers": [(b"idempotency-key", b"1")]})
        call = Call(None, request, Actor(role="owner", name=sender))  # type: ignore[arg-type]
        return input_id(call, ids.mint(0, "session"), Message(text="same"), 0)

    assert minted("ann") == minted("ann") != minted("ben")
