"""Starting, finding and steering sessions over HTTP."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bide.core.limits import NAMED_MAX
from bide.server.routes import questions
from tests.server.harness import LiveServer, Voice, held, repository, until


def test_a_session_says_at_once_what_holds_for_it_and_why_it_waits(server: LiveServer, repo: Path) -> None:
    body = {
        "repository": str(repo),
        "prompt": "Fix it\nplease",
        "runtime": "scripted",
        "pool": "empty",
        "ticket": "T-1",
    }
    started = server.ok("POST", "/v1/sessions", json=body | {"settings": {"online_window_s": 7}})
    session = started["session"]
    assert (session["shown"], session["must_act"], session["project"]) == ("queued", "runner", "widgets")
    assert session["reason"] == "no runner of pool empty is online; 1st in its queue"
    assert session["workspace"]["repository"] == str(repo)
    assert session["created_at"].endswith("Z")
    assert [(i["type"], i["status"], i["author"]) for i in started["inputs"]] == [("user.message", "accepted", "owner")]
    limits = {limit["name"]: (limit["value"], limit["origin"]) for limit in started["limits"]}
    assert limits["online_window_s"] == (7, "session")
    assert limits["recovery_window_s"] == (1.5, "server"), "half a lease of 3 s"
    assert limits["retention_s"] == (30 * 86400, "built_in")
    assert server.ok("GET", f"/v1/sessions/{session['id']}") == session
    assert session["id"] in [s["id"] for s in server.ok("GET", "/v1/sessions?ticket=T-1&shown=queued")["items"]]


def test_a_dry_run_says_the_same_and_leaves_nothing(server: LiveServer, tmp_path: Path) -> None:
    repo = repository(tmp_path / "untouched")
    started = server.ok(
        "POST", "/v1/sessions", json={"repository": str(repo), "prompt": "x", "runtime": "scripted", "dry_run": True}
    )
    assert started["session"]["project"] == "untouched"
    assert started["inputs"][0]["status"] == "accepted"
    server.refused("GET", f"/v1/sessions/{started['session']['id']}", 404, "no_session")
    server.refused("GET", "/v1/projects/untouched", 404, "no_project")


def test_two_repositories_with_one_last_name_do_not_share_a_project(server: LiveServer, tmp_path: Path) -> None:
    one, two = repository(tmp_path / "a" / "tools"), repository(tmp_path / "b" / "tools")
    first, second = server.session(one, pool="empty"), server.session(two, pool="empty")
    assert first["project"] != second["project"]
    assert server.session(one, pool="empty")["project"] == first["project"]
    assert server.session(two, pool="empty")["project"] == second["project"]


def test_a_request_that_is_repeated_starts_one_session(server: LiveServer, repo: Path) -> None:
    body = {"repository": str(repo), "prompt": "once", "runtime": "scripted", "pool": "empty"}

    def start(_: int) -> Any:
        return server.http.post("/v1/sessions", json=body, headers={"idempotency-key": "run-1"}).json()["session"]["id"]

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(start, range(16)))) == 1
    server.refused(
        "POST", "/v1/sessions", 409, "key_reused", json=body | {"prompt": "other"}, headers={"idempotency-key": "run-1"}
    )


@pytest.mark.parametrize(
    ("repository", "what"),
    [
        ("/no/such/folder", "not the folder"),
        ("widgets", "neither a git URL"),
        ("ext::sh -c touch% /tmp/x", "neither a git URL"),
        ("--upload-pack=touch", "not a repository"),
        ("https://user:secret@example.org/x.git", "credential"),
        ("file:///no/such/folder", "not the folder"),
        ("https://example.org", "neither a git URL"),
    ],
)
def test_a_repository_that_cannot_be_is_said_before_any_work(server: LiveServer, repository: str, what: str) -> None:
    problem = server.refused(
        "POST", "/v1/sessions", 422, "no_repository", json={"repository": repository, "prompt": "x"}
    )
    assert what in problem["detail"]


@pytest.mark.parametrize(
    "url", ["https://example.org/a/b.git", "git@example.org:a/b.git", "ssh://git@example.org/a/b", "http://h:8080/a"]
)
def test_every_usual_form_of_a_git_url_is_taken(server: LiveServer, url: str) -> None:
    body = {"repository": url, "prompt": "x", "runtime": "scripted", "pool": "empty", "dry_run": True}
    assert server.ok("POST", "/v1/sessions", json=body)["session"]["workspace"]["repository"] == url


def test_a_runtime_that_no_live_runner_has_is_refused_and_what_is_there_is_named(
    server: LiveServer, repo: Path
) -> None:
    runner = Voice(server, "poor", pool="poor")
    body = {"repository": str(repo), "prompt": "x", "runtime": "claude_code", "pool": "poor"}
    problem = server.refused("POST", "/v1/sessions", 422, "no_runtime", json=body)
    assert "scripted" in problem["detail"]
    runner.register(runtimes=[{"name": name, "version": "1"} for name in ("scripted", "claude_code")])
    assert server.ok("POST", "/v1/sessions", json=body)["session"]["reason"] != ""


@pytest.mark.parametrize(
    ("body", "code", "what"),
    [
        ({"prompt": "x"}, "no_repository", "neither a project nor a repository"),
        ({"project": "nowhere", "prompt": "x"}, "no_project", "nowhere"),
        ({"project": "nowhere"}, "malformed", "`prompt`"),
        ({"project": "nowhere", "prompt": 3}, "malformed", "$.prompt"),
        ({"project": "nowhere", "prompt": "x", "promt": "y"}, "malformed", "promt"),
        ({"project": "widgets", "prompt": "x", "settings": {"online_windw_s": 1}}, "bad_setting", "online_windw_s"),
        ({"project": "widgets", "prompt": "x", "settings": {"online_window_s": -1}}, "bad_setting", "online_window_s"),
        ({"project": "widgets", "prompt": "x", "settings": {"online_window_s": "1"}}, "bad_setting", "online_window_s"),
        ({"project": "../etc", "prompt": "x"}, "bad_name", "../etc"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(
    server: LiveServer, repo: Path, body: dict[str, Any], code: str, what: str
) -> None:
    server.ok("PUT", "/v1/projects/widgets", json={"repository": str(repo)})
    problem = server.http.post("/v1/sessions", json=body).json()
    assert problem["code"] == code
    assert what in problem["detail"]


def test_settings_of_a_project_hold_for_its_sessions_and_a_wrong_one_is_named(server: LiveServer, repo: Path) -> None:
    path = "/v1/projects/settled"
    project = server.ok("PUT", path, json={"repository": str(repo), "settings": {"retention_s": 3600, "pool": "empty"}})
    assert project["settings"]["online_window_s"] == 900, "the default of 15 min"
    assert project["settings"]["pool"] == "empty"
    assert server.ok("PUT", path, json={})["settings"]["retention_s"] == 3600, "what is left out stays"
    started = server.ok("POST", "/v1/sessions", json={"project": "settled", "prompt": "x", "runtime": "scripted"})
    assert started["session"]["limits"]["retention_s"] == 3600
    limits = {limit["name"]: limit for limit in server.ok("GET", "/v1/limits?project=settled")["items"]}
    assert (limits["retention_s"]["value"], limits["retention_s"]["origin"]) == (3600, "project")
    problem = server.refused("PUT", path, 422, "bad_setting", json={"settings": {"retenton_s": 1}})
    assert "retention_s" in problem["hint"]
    assert "settled" in [row["name"] for row in server.ok("GET", "/v1/projects")["items"]]


def test_a_list_goes_on_where_its_page_ended(server: LiveServer, repo: Path) -> None:
    made = [server.session(repo, pool="empty", ticket="many")["id"] for _ in range(5)]
    found: list[str] = []
    cursor = ""
    while True:
        page = server.ok("GET", f"/v1/sessions?ticket=many&limit=2&cursor={cursor}")
        found += [s["id"] for s in page["items"]]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert sorted(found) == sorted(made)
    assert found == sorted(found, reverse=True), "newest first"


def test_a_malformed_event_leaves_nothing_of_the_others(server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="empty")["id"]
    path, before = f"/v1/sessions/{session}/events", server.events(session)
    for wrong in (
        {"type": "user.shout", "text": "x"},
        {"type": "user.message"},
        {"type": "user.message", "text": "x", "to": "y"},
        {"type": "user.message", "text": 1},
        {"type": "user.message", "text": "x", "delivery": "soon"},
        {"type": "user.extend", "until": "tomorrow"},
        {"type": "session.ended", "outcome": "completed"},
    ):
        body = {"events": [{"type": "user.message", "text": "good"}, wrong]}
        assert "$.events[1]" in server.refused("POST", path, 422, "malformed", json=body)["detail"]
    for bytes_sent in (b"{", b'{"events": "\xff"}', b"[]", b""):
        server.refused("POST", path, 422, "malformed", content=bytes_sent, headers={"content-type": "application/json"})
    server.refused("POST", path, 422, "bad_id", json={"events": [{"type": "user.message", "text": "x", "id": "1"}]})
    assert server.events(session) == before


def test_an_input_that_is_sent_again_is_one_input(server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="empty")["id"]
    first = server.post(
        session, {"type": "user.message", "text": "one"}, {"type": "user.message", "text": "two"}, key="k"
    )
    assert first == server.post(
        session, {"type": "user.message", "text": "one"}, {"type": "user.message", "text": "two"}, key="k"
    )
    other = {"events": [{"type": "user.message", "text": "three"}]}
    path = f"/v1/sessions/{session}/events"
    server.refused("POST", path, 409, "key_reused", json=other, headers={"idempotency-key": "k"})
    listed = server.ok("GET", f"/v1/sessions/{session}/inputs")["items"]
    assert [row["text"] for row in listed] == ["Fix the test", "one", "two"]
    assert [row["id"] for row in listed[1:]] == [receipt["id"] for receipt in first]


def test_a_message_over_the_limit_and_an_unknown_session_are_refused(server: LiveServer, repo: Path) -> None:
    session = server.session(repo, pool="empty", prompt="short", settings={"message_bytes": 10})["id"]
    path = f"/v1/sessions/{session}/events"
    body = {"events": [{"type": "user.message", "text": "eleven bytes"}]}
    assert "10" in server.refused("POST", path, 413, "too_large", json=body)["detail"]
    nobody = "/v1/sessions/00000000-0000-7000-8000-000000000000"
    server.refused("POST", f"{nobody}/events", 404, "no_session", json=body)
    for tail in ("", "/events", "/events/stream", "/inputs", "/questions", "/checkpoints"):
        server.refused("GET", nobody + tail, 404, "no_session")
    server.refused("GET", "/v1/sessions/..%2f..%2fetc", 404, "no_route")
    server.refused("GET", "/v1/sessions/mine", 422, "bad_id")


def test_of_twenty_simultaneous_answers_one_wins_and_the_others_learn_who(server: LiveServer, repo: Path) -> None:
    runner = Voice(server, "asker", pool="askers")
    session = server.session(repo, pool="askers")["id"]
    grant = runner.claim()
    question = runner.ask(grant, "Which of two?")
    gate = threading.Barrier(20)

    def answer(i: int) -> tuple[int, dict[str, Any]]:
        with server.client(server.token) as client:
            gate.wait()
            sent = client.post(f"/v1/questions/{question}/answer", json={"text": f"answer {i}"})
            return sent.status_code, sent.json()

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(answer, range(20)))
    winners = [body for status, body in answers if status == 200]
    losers = [body for status, body in answers if status != 200]
    assert len(winners) == 1
    assert {(body["status"], body["code"]) for body in losers} == {(409, "already_answered")}
    assert all("owner has already answered" in body["detail"] for body in losers)
    assert {body["answer"]["text"] for body in losers} == {winners[0]["text"].partition("\n")[2] or winners[0]["text"]}
    assert all(body["text"].startswith("answer ") for body in losers), "nobody's words are thrown away"
    told = until(lambda: runner.sync(held(grant), wait_s=1)["commands"])[0]["inputs"]
    assert [i["type"] for i in told] == ["user.answer"]
    assert server.ok("GET", f"/v1/sessions/{session}/questions")["items"][0]["status"] == "answered"


def test_the_inbox_shows_first_what_holds_up_most(server: LiveServer, repo: Path) -> None:
    runner = Voice(server, "many", pool="inbox")
    server.session(repo, pool="inbox")
    grant = runner.claim()
    asked = [
        runner.ask(grant, text, blocking=blocking, impact=impact)
        for text, blocking, impact in (
            ("later", False, "high"), ("small", True, "low"), ("big", True, "high"), ("big too", True, "high"),
        )
    ]  # fmt: skip
    inbox = [q["id"] for q in server.ok("GET", "/v1/questions?status=open")["items"] if q["id"] in asked]
    assert inbox == [asked[2], asked[3], asked[1], asked[0]]
    server.refused("GET", "/v1/questions?status=lost", 422, "malformed")


def test_whoever_reads_the_inbox_on_misses_nothing_that_was_there_while_questions_come_and_go(
    server: LiveServer, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "LIST_MAX", 2)
    runner = Voice(server, "leafing", pool="leafing")
    server.session(repo, pool="leafing")
    grant = runner.claim()
    asked = [runner.ask(grant, f"question {n}", impact="low", blocking=False) for n in range(7)]
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = server.ok("GET", f"/v1/questions?status=open&cursor={cursor}")
        mine = [q["id"] for q in page["items"] if q["id"] in asked]
        found, cursor = found + mine, page["next"]
        if mine:  # what was just read is answered, and something else comes before it
            server.ok("POST", f"/v1/questions/{mine[0]}/answer", json={"decline": True})
            runner.ask(grant, f"before {mine[0]}", impact="high")
    assert found == asked
    for wrong in ("1", "ü", "x" * 5000, "WzksMS4wLCJ4Il0", "WzAsMS4wLCJ4Il0", "e30"):
        server.refused("GET", f"/v1/questions?cursor={wrong}", 422, "bad_value")


def test_a_question_is_found_by_its_id_and_by_the_beginning_of_it(server: LiveServer, repo: Path) -> None:
    runner = Voice(server, "named", pool="named")
    server.session(repo, pool="named")
    question = runner.ask(runner.claim(), "Who is it?")
    assert server.ok("GET", f"/v1/questions/{question}")["question"] == "Who is it?"
    named = server.ok("GET", f"/v1/questions?beginning={question[:30].replace('-', '').upper()}")
    assert ([q["id"] for q in named["items"]], named["next"]) == ([question], None)
    assert server.ok("GET", f"/v1/questions?beginning={question}&status=answered")["items"] == []
    assert 0 < len(server.ok("GET", f"/v1/questions?beginning={question[:6]}")["items"]) <= NAMED_MAX
    for wrong in (question[:5], "zzzzzz", question + "0"):
        server.refused("GET", f"/v1/questions?beginning={wrong}", 422, "bad_id")
    server.refused("GET", f"/v1/questions/{question[:-6]}000000", 404, "no_question")
