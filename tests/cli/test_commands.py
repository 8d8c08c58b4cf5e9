"""Every command against a real server: what a person reads, what a program reads, and how it ends."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Bide
from tests.server.harness import LiveServer, Voice, repository

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[bold red]:smile:[/] \x7f"


def start(bide: Bide, repo: Path, *words: str, pool: str = "empty") -> dict[str, Any]:
    ran = bide("run", str(repo), "Fix it", "--runtime", "scripted", "--pool", pool, "--json", *words)
    assert ran.code == 0, ran.err
    return dict(ran.json)


def take(voice: Voice, grant: dict[str, Any]) -> None:
    """The runtime has what people said so far."""
    for one in grant["job"]["inputs"]:
        voice.say(
            grant,
            *({"type": "user.receipt", "input_id": one["id"], "status": way} for way in ("delivered", "consumed")),
        )


def test_run_prints_the_session_and_makes_or_reuses_the_project(bide: Bide, repo: Path) -> None:
    session = start(bide, repo, "--online-window", "2h30m", "--retention", "3d", "--title", "T", "--ticket", "K-1")
    assert (session["title"], session["ticket"], session["shown"]) == ("T", "K-1", "queued")
    assert (session["limits"]["online_window_s"], session["limits"]["retention_s"]) == (9000, 259200)
    assert start(bide, repo)["project"] == session["project"] == "widgets"
    plain = bide("run", str(repo), "Fix it", "--runtime", "scripted", "--pool", "empty")
    assert len(plain.out.strip()) == 36, "only the id, so that a script can use it"
    assert "bide attach" in plain.err


def test_run_takes_a_path_as_a_person_gives_it(
    bide: Bide, repo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (repo / "deep" / "down").mkdir(parents=True, exist_ok=True)
    for where, given in ((repo, "."), (repo / "deep", "down"), (repo.parent, "widgets")):
        monkeypatch.chdir(where)
        session = bide("run", given, "x", "--runtime", "scripted", "--pool", "empty", "--json").json
        assert session["project"] == "widgets"
    nowhere = bide("run", str(tmp_path / "none"), "x", "--json")
    assert (nowhere.code, nowhere.problem["code"]) == (3, "no_repository")
    assert bide("run", "git@host.example:a/b.git", "x", "--pool", "empty", "--dry-run", "--json").code == 0


def test_a_dry_run_says_every_limit_and_starts_nothing(bide: Bide, tmp_path: Path) -> None:
    other = repository(tmp_path / "other")
    ran = bide("run", str(other), "x", "--pool", "empty", "--online-window", "7m", "--dry-run", "--json")
    found = {one["name"]: one for one in ran.json["limits"]}
    assert (found["online_window_s"]["value"], found["online_window_s"]["origin"]) == (420, "session")
    assert "other" not in [one["name"] for one in bide("project", "ls", "--json").json["items"]]
    plain = bide("run", str(other), "x", "--pool", "empty", "--dry-run").out
    assert "Nothing was started" in plain
    assert "retention_s" in plain


def test_a_session_is_named_by_the_beginning_of_its_id(bide: Bide, repo: Path) -> None:
    one, two = (start(bide, repo)["id"] for _ in range(2))
    assert bide("show", one[:20], "--json").json["id"] == one
    shared = bide("show", one[:7], "--json")
    assert (shared.code, shared.problem["code"]) == (3, "bad_id")
    assert {one, two} <= set(shared.problem["candidates"])
    assert bide("show", one[:5], "--json").problem["code"] == "bad_id"
    gone = bide("show", "0123456789", "--json")
    assert (gone.code, gone.problem["code"]) == (4, "no_session")


def test_what_people_say_gives_receipts(bide: Bide, repo: Path) -> None:
    session = start(bide, repo)["id"]
    first, again = (bide("send", session, "hello", "--key", "k", "--json").json for _ in range(2))
    assert (first, first["type"], first["status"]) == (again, "user.message", "accepted")
    assert bide("send", session, "-", "--json", stdin="- from a pipe\n").json["text"] == "- from a pipe"
    assert bide("send", session, "- a list", "--json").json["text"] == "- a list"
    assert bide("steer", session, "look", "--json").json["type"] == "user.message"
    assert bide("interrupt", session, "--json").json["type"] == "user.interrupt"
    assert bide("interrupt", session, "--drop-queued", "--json").json["type"] == "user.interrupt"
    assert bide("interrupt", session, "do that", "--json").json["text"] == "do that"
    assert bide("interrupt", session, "or that", "--drop-queued", "--json").json["text"] == "or that"
    assert bide("send", session, "plain").out == f"The message is accepted; session {session[:13]} gets it.\n"
    assert bide("interrupt", session).out == "Nothing was running.\n"
    assert bide("resume", session).out == "It was running already.\n"
    over = bide("send", session, "x" * 300_000, "--json")
    assert (over.code, over.problem["code"]) == (6, "too_large")


def test_what_was_said_is_changed_and_taken_back(bide: Bide, repo: Path) -> None:
    session = start(bide, repo)["id"]
    one, two = (bide("send", session, text, "--json").json["id"] for text in ("one", "two"))
    assert bide("edit", session, one, "three", "--json").json["text"] == "three"
    assert bide("edit", session, one[:20], "--delivery", "steer").out == "It is changed.\n"
    assert (bide("edit", session, one).code, bide("edit", session, "0123456789", "x").code) == (2, 4)
    assert bide("withdraw", session, two).out == "It is taken back.\n"
    again = bide("withdraw", session, two, "--json")
    assert (again.code, again.problem["code"], again.problem["text"]) == (3, "not_editable", "two")
    assert (bide("resolve", session, one).code, bide("resolve", session, one, "--again", "--delivered").code) == (2, 2)
    assert bide("resolve", session, one, "--again", "--json").problem["code"] == "not_unconfirmed"
    shown = bide("show", session).out
    assert f"{one[:13]}  three" in shown, "with the id that `edit` and `withdraw` take"
    assert f"takes {two[:13]} back" in bide("logs", session).out


def test_a_session_is_ended_kept_and_extended(bide: Bide, repo: Path) -> None:
    session = start(bide, repo)["id"]
    assert bide("park", session, "--json").problem["code"] == "not_waiting"
    assert bide("resume", session, "--json").json["type"] == "user.resume"
    ran = bide("extend", session, "--until", "+40d", "--json")
    assert ran.json["type"] == "user.extend"
    kept = datetime.fromisoformat(bide("show", session, "--json").json["expires_at"])
    assert 39.9 < (kept - datetime.now(UTC)).total_seconds() / 86400 < 40.1
    said = bide("extend", session, "--until", "+41d").err
    assert re.search(r"Until \w+day \d{4}-\d\d-\d\d \d\d:\d\d \S+, 4\d+d", said), "with its zone, and how long that is"
    over = bide("extend", session, "--until", "in 500 days", "--json").problem
    assert (over["code"], "365d from now" in over["detail"]) == ("bad_value", True)
    nearer = bide("extend", session, "--until", "monday 09:00")
    assert (nearer.code, nearer.out[:17], nearer.err) == (0, "It is kept until ", ""), "less than it has is no mistake"
    assert bide("cancel", session, "--json").json["type"] == "user.cancel"
    assert bide("ps", "--shown", "ended", "--json").json["items"][0]["outcome"] == "cancelled"
    assert bide("extend", session, "--until", "+42d", "--json").problem["code"] == "ended", "nothing of it was saved"
    assert "kept until" not in bide("show", session).out


def test_what_a_session_may_cost_is_set_shown_and_extended(bide: Bide, repo: Path) -> None:
    session = start(bide, repo, "--budget", "2.50", "--lifetime", "8h")["id"]
    limits = bide("show", session, "--json").json["limits"]
    assert (limits["budget_usd"], limits["working_s"]) == (2.5, 8 * 3600)
    assert bide("extend", session, "--budget", "5", "--lifetime", "1d").out.startswith("Allowed")
    limits = bide("show", session, "--json").json["limits"]
    assert (limits["budget_usd"], limits["working_s"]) == (5, 86400)
    less = bide("extend", session, "--budget", "4", "--json").problem
    assert (less["code"], "5.00 USD to 100,000.00 USD" in less["detail"]) == ("bad_value", True)
    assert "5.00 USD in all and 1d of work in all" in bide("logs", session).out
    assert "budget_usd" in bide("limits").out
    assert bide("run", str(repo), "x", "--budget", "1000000", "--json").problem["code"] == "bad_setting"


def test_a_question_is_found_shown_and_answered(server: LiveServer, bide: Bide, repo: Path) -> None:
    voice = Voice(server, "asking", pool="asking")
    session = start(bide, repo, pool="asking")["id"]
    grant = voice.claim()
    take(voice, grant)
    question = voice.ask(grant, f"Which fix? {HOSTILE}", options=["quote", "drop"], context=HOSTILE)
    waiting = bide("run", str(repo), "x", "--pool", "asking", "--runtime", "scripted", "--wait", "queued", "--json")
    assert waiting.json["shown"] == "queued"
    listed = bide("inbox", "--json").json["items"]
    assert question in [one["id"] for one in listed]
    assert "Which fix?" in bide("inbox").out
    assert bide("show", session, "--json").json["questions"][0]["id"] == question
    plain = bide("show", session).out
    assert "waiting for answer" in plain
    assert "1. quote" in plain
    receipt = bide("answer", question, "--choice", "2", "--json").json
    assert (receipt["type"], receipt["session_id"]) == ("user.answer", session)
    shown = bide("show", session, "--json").json["questions"][0]
    assert (shown["answer"]["choices"], shown["answer"]["via"]) == (["drop"], "cli")
    late = bide("answer", question, "quote", "--json")
    assert (late.code, late.problem["code"], late.problem["answer"]["choices"]) == (3, "already_answered", ["drop"])


def test_what_was_lost_stands_in_show(server: LiveServer, bide: Bide, repo: Path) -> None:
    voice = Voice(server, "losing", pool="losing")
    session = start(bide, repo, pool="losing")["id"]
    grant = voice.claim()
    item = {"what": "src/export.py", "bytes": 2048, "reason": "its chunk is gone", "recovery": "salvage in /x"}
    said = voice.say(grant, {"type": "environment.lost", "reason": "blobs deleted", "lost": [item]})
    assert said.status_code == 200, said.text
    loss = bide("show", session, "--json").json["losses"][0]
    assert (loss["type"], loss["reason"], loss["lost"][0]) == ("environment.lost", "blobs deleted", item)
    plain = bide("show", session).out
    assert "src/export.py (2 KiB): its chunk is gone. Way back: salvage in /x" in plain


def test_a_failed_turn_and_what_holds_now_stand_in_ps_and_show(server: LiveServer, bide: Bide, repo: Path) -> None:
    voice = Voice(server, "failing", pool="failing")
    session = start(bide, repo, pool="failing")["id"]
    grant = voice.claim()
    take(voice, grant)
    said = voice.say(
        grant,
        {"type": "environment.restored", "source": "fresh", "workspace": {"cwd": "/workspace", "head": "abc"}},
        {"type": "runtime.resumed", "rung": "fresh", "reason": "there was no conversation to restore"},
        {"type": "turn.started", "input_ids": []},
        {"type": "turn.ended", "result": "failed", "detail": "Invalid API key"},
    )
    assert said.status_code == 200, said.text
    for words in (("ps",), ("show", session)):
        assert "The last turn failed: Invalid API key" in " ".join(bide(*words).out.split())
    shown = bide("show", session).out
    assert "then parks" in shown
    assert "kept until" not in shown, "its time has not begun"
    assert "conversation resumed: fresh — there was no conversation to restore" in bide("logs", session).out
    bide("cancel", session)
    voice.say(grant, {"type": "session.ended", "outcome": "cancelled"})


def test_a_runner_is_called_by_its_name_where_work_was_lost(server: LiveServer, bide: Bide, repo: Path) -> None:
    voice = Voice(server, "named", pool="named")
    session = start(bide, repo, pool="named")["id"]
    grant = voice.claim()
    lost = [{"what": "x", "recovery": f"the folder on runner {voice.id}"}]
    assert voice.say(grant, {"type": "environment.lost", "reason": "gone", "lost": lost}).status_code == 200
    for words in (("show", session), ("logs", session)):
        assert "the folder on runner named" in bide(*words).out


def test_nothing_a_stranger_wrote_reaches_the_terminal_raw(server: LiveServer, bide: Bide, repo: Path) -> None:
    voice = Voice(server, "hostile", pool="hostile")
    session = start(bide, repo, "--title", "T" + HOSTILE.replace("\x1b", ""), pool="hostile")["id"]
    grant = voice.claim()
    take(voice, grant)
    for fact in (
        {"type": "assistant.message", "text": HOSTILE}, {"type": "assistant.thought", "text": HOSTILE},
        {"type": "tool.call", "id": "1", "name": HOSTILE, "input": HOSTILE},
        {"type": "tool.result", "id": "1", "ok": True, "output": HOSTILE},
        {"type": "error", "code": "x", "sentence": HOSTILE, "hint": HOSTILE}, {"type": "note", "text": HOSTILE},
        {"type": "raw", "runtime": "scripted", "frame": HOSTILE},
    ):  # fmt: skip
        assert voice.say(grant, fact).status_code == 200
    voice.ask(grant, HOSTILE, options=[HOSTILE], context=HOSTILE)
    assert "ASKS" in bide("logs", session).out
    lost = {"type": "environment.lost", "reason": HOSTILE, "lost": [{"what": HOSTILE, "recovery": HOSTILE}]}
    assert voice.say(grant, lost).status_code == 200
    bide("cancel", session)
    for words in (("logs", session), ("attach", session), ("show", session), ("ps",), ("inbox",)):
        for more in ((), ("--json",)):
            ran = bide(*words, *more)
            assert ran.code == 0, ran.err
            assert not set(ran.out + ran.err) & set("\x1b\x07\x9b\u202e\x7f"), words
    assert "[bold red]:smile:[/]" in bide("logs", session).out, "nor is it taken for markup"


def test_logs_and_attach_print_envelopes_one_a_line(server: LiveServer, bide: Bide, repo: Path) -> None:
    session = start(bide, repo)["id"]
    bide("cancel", session)
    events = server.events(session)
    assert bide("logs", session, "--json").lines == events
    assert bide("attach", session, "--json").lines == events
    assert bide("logs", session, "--json", "--follow", "--after", "2").lines == events[2:]
    assert bide("logs", session, "--json", "--after", "99").out == ""
    plain = bide("logs", session).out
    assert len(plain.splitlines()) == len(events) + 1
    assert "Fix it" in plain


def test_run_waits_for_the_word_and_says_how_it_ended(server: LiveServer, bide: Bide, repo: Path) -> None:
    words = ("run", str(repo), "x", "--pool", "empty", "--runtime", "scripted", "--json")
    late = bide(*words, "--wait", "waiting", "--timeout", "1s")
    assert (late.code, late.problem["code"]) == (8, "timed_out")
    session = late.problem["session"]
    bide("cancel", session)
    ended = bide(*words, "--wait", "queued")
    assert (ended.code, ended.json["shown"]) == (0, "queued")


@pytest.mark.parametrize(
    "words",
    [
        ("ps",), ("ps", "--shown", "ended"), ("ps", "--project", "nothing"), ("limits",), ("runners",), ("runtimes",),
        ("inbox",), ("project", "ls"),
    ],
)  # fmt: skip
def test_lists_are_lists_for_programs_and_fit_the_page_for_people(
    bide: Bide, repo: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    start(bide, repo)
    assert set(bide(*words, "--json").json) == {"items", "next"}
    monkeypatch.setenv("COLUMNS", "80")
    ran = bide(*words)
    assert ran.code == 0
    if words[0] != "inbox":
        assert max(map(len, ran.out.splitlines()), default=0) <= 80


def test_ps_goes_on_where_a_page_ended(bide: Bide, repo: Path) -> None:
    ids = [start(bide, repo)["id"] for _ in range(3)]
    page = bide("ps", "--limit", "2", "--json").json
    assert [one["id"] for one in page["items"]] == ids[:0:-1]
    assert bide("ps", "--limit", "1", "--cursor", page["next"], "--json").json["items"][0]["id"] == ids[0]
    assert page["next"] in bide("ps", "--limit", "2").err


def test_a_project_is_set_up_and_keeps_what_is_not_named(bide: Bide, tmp_path: Path) -> None:
    place = repository(tmp_path / "shop")
    made = bide("project", "set", "shop", "--repository", str(place), "online_window_s=2h", "pool=big", "--json").json
    assert (made["settings"]["online_window_s"], made["settings"]["pool"]) == (7200, "big")
    bide("project", "set", "shop", "retention_s=90d")
    assert "Nothing builds upon the base of shop" in bide("project", "drop-base", "shop").out
    now = bide("project", "show", "shop", "--json").json["settings"]
    assert (now["online_window_s"], now["pool"], now["retention_s"]) == (7200, "big", 7776000)
    assert bide("project", "set", "shop", "pool=", "--json").json["settings"]["pool"] == "default"
    for wrong, code in (
        ("nonsense", "bad_setting"),
        ("online_window_s=soon", "bad_value"),
        ("colour=red", "bad_setting"),
    ):
        ran = bide("project", "set", "shop", wrong, "--json")
        assert (ran.code, ran.problem["code"]) == (3, code)
    assert bide("project", "show", "nothing", "--json").code == 4
    assert "shop" in bide("project", "ls").out


def test_a_wrong_token_is_exit_code_5(bide: Bide) -> None:
    ran = bide("ps", "--token", "wrong", "--json")
    assert (ran.code, ran.problem["code"]) == (5, "unauthenticated")


def test_the_doctor_asks_the_server_too(server: LiveServer, bide: Bide) -> None:
    Voice(server, "there").sync()
    checks = {one["name"]: one for one in bide("doctor", "--json").json["checks"]}
    assert (checks["server"]["ok"], checks["clock"]["ok"], checks["runners"]["ok"]) == (True, True, True)
    wrong = json.loads(bide("doctor", "--json", "--token", "wrong").out)
    assert {"name": "token", "ok": False} in [{k: one[k] for k in ("name", "ok")} for one in wrong["checks"]]
