"""Every no, as a program and as a person gets it: a code, a sentence, a hint, and an exit code that says what kind."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.model import said, word
from tests.e2e.stage import Stage, until

NOBODY = "00000000-0000-7000-8000-000000000000"


def problem(ran: subprocess.CompletedProcess[str], code: int, name: str) -> dict[str, Any]:
    """What the command line said: nothing on stdout, the problem as the last line of stderr."""
    assert (ran.returncode, ran.stdout) == (code, ""), ran
    told: dict[str, Any] = json.loads(ran.stderr.splitlines()[-1])
    assert told["code"] == name, told
    assert told["detail"]
    assert told["hint"]
    return told


def start(stage: Stage, **body: Any) -> dict[str, Any]:
    return {"json": {"repository": str(stage.repository()), "prompt": "x", "runtime": "scripted"} | body}


def test_a_path_without_a_repository_is_refused_before_anything_begins(stage: Stage, tmp_path: Path) -> None:
    missing = str(tmp_path / "not-there")
    told = stage.refused("POST", "/v1/sessions", 422, "no_repository", **start(stage, repository=missing))
    assert missing in told["detail"]
    problem(stage.cli("run", missing, "x", "--json"), 3, "no_repository")
    plain = stage.cli("run", missing, "x")
    assert plain.returncode == 3
    assert missing in plain.stderr
    assert told["hint"] in plain.stderr


def test_a_repository_that_cannot_be_cloned_ends_the_session_as_failed_with_gits_own_words(
    stage: Stage, tmp_path: Path
) -> None:
    url = "http://127.0.0.1:9/nothing/here.git"
    body = start(stage, repository=url)["json"]
    session = stage.ok("POST", "/v1/sessions", json=body)["session"]["id"]
    ended = until(lambda: (now := stage.ok("GET", f"/v1/sessions/{session}"))["shown"] == "ended" and now)
    assert (ended["outcome"], ended["checkpoint"], ended["runner"]) == ("failed", None, None)
    events = stage.ok("GET", f"/v1/sessions/{session}/events?limit=100")["items"]
    error = next(event["data"] for event in events if event["type"] == "error")
    assert error["code"] == "no_repository"
    assert url in error["sentence"]
    assert error["hint"]
    assert not any(event["type"] == "turn.started" for event in events)
    ran = stage.cli("run", url, "x", "--runtime", "scripted", "--wait", "ended", "--json")
    assert ran.returncode == 1
    assert json.loads(ran.stdout)["outcome"] == "failed"
    message = {"events": [{"type": "user.message", "text": "again"}]}
    stage.refused("POST", f"/v1/sessions/{session}/events", 409, "ended", json=message)


def test_a_wrong_token_opens_nothing_and_says_what_to_pass(stage: Stage) -> None:
    stranger = stage.client("not-the-token")
    for path in ("/v1/sessions", f"/v1/sessions/{NOBODY}", "/v1/questions", "/v1/runners", "/v1/limits"):
        answer = stranger.get(path)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        assert "token" in answer.json()["hint"]
    problem(stage.cli("ps", "--json", BIDE_TOKEN="not-the-token"), 5, "unauthenticated")


def test_an_unknown_session_or_question_is_said_to_be_unknown(stage: Stage) -> None:
    stage.refused("GET", f"/v1/sessions/{NOBODY}", 404, "no_session")
    message = {"events": [{"type": "user.message", "text": "hi"}]}
    stage.refused("POST", f"/v1/sessions/{NOBODY}/events", 404, "no_session", json=message)
    stage.refused("POST", f"/v1/questions/{NOBODY}/answer", 404, "no_question", json={"text": "yes"})
    problem(stage.cli("show", NOBODY, "--json"), 4, "no_session")
    problem(stage.cli("send", NOBODY, "hi", "--json"), 4, "no_session")
    problem(stage.cli("answer", NOBODY, "yes", "--json"), 4, "no_question")


@pytest.mark.parametrize(
    ("events", "place"),
    [
        ([{"type": "user.mesage", "text": "x"}], "user.mesage"),
        ([{"type": "user.message"}], "text"),
        ([{"type": "user.message", "text": 7}], "$.events[0].text"),
        ([{"type": "user.message", "text": "x", "delivery": "later"}], "$.events[0].delivery"),
        ("nonsense", "$.events"),
    ],
)
def test_a_malformed_event_is_refused_with_the_place_where_it_is_wrong(
    stage: Stage, events: object, place: str
) -> None:
    s = stage.session(said(word("task"), {"say": "hi"}), runtime="scripted")
    seq = s.shown("waiting")["last_seq"]
    told = stage.refused("POST", f"{s.path}/events", 422, "malformed", json={"events": events})
    assert place in told["detail"]
    assert not s.events("user.message", after=seq), "nothing of it was taken"
    s.post({"type": "user.cancel"})


def test_a_message_over_the_limit_is_refused_with_the_limit(stage: Stage) -> None:
    s = stage.session(said(word("task"), {"say": "hi"}), runtime="scripted")
    limit = next(each for each in stage.ok("GET", "/v1/limits")["items"] if each["name"] == "message_bytes")["value"]
    text = "x" * (int(limit) + 1)
    message = {"events": [{"type": "user.message", "text": text}]}
    told = stage.refused("POST", f"{s.path}/events", 413, "too_large", json=message)
    assert str(int(limit)) in told["detail"]
    stage.refused("POST", "/v1/sessions", 413, "too_large", **start(stage, prompt=text))
    file = stage.folder / "long.txt"
    file.write_text(text)
    with file.open() as stdin:
        ran = subprocess.run(
            stage.argv("send", s.id, "-", "--json"), env=stage.env(), stdin=stdin, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    problem(ran, 6, "too_large")
    s.post({"type": "user.message", "text": text[1:]})
    s.post({"type": "user.cancel"})


def test_a_runtime_that_no_runner_of_the_pool_has_is_refused_and_without_a_runner_the_session_waits(
    stage: Stage,
) -> None:
    told = stage.refused("POST", "/v1/sessions", 422, "no_runtime", **start(stage, runtime="gpt-pilot"))
    assert "gpt-pilot" in told["detail"]
    problem(stage.cli("run", str(stage.repository()), "x", "--runtime", "gpt-pilot", "--json"), 3, "no_runtime")
    s = stage.session("x", runtime="scripted", pool="nobody-there")
    now = s.look()
    assert (now["shown"], now["must_act"]) == ("queued", "runner")
    assert now["reason"] == "no runner of pool nobody-there is online; 1st in its queue"
    s.post({"type": "user.cancel"})
    assert s.look()["outcome"] == "cancelled"
    dry = stage.cli("run", str(stage.repository()), "x", "--pool", "nobody-there", "--dry-run", "--json")
    assert json.loads(dry.stdout)["session"]["reason"] == "no runner of pool nobody-there is online; 1st in its queue"


def test_settings_limits_and_usage_that_cannot_be_are_named(stage: Stage) -> None:
    stage.refused("POST", "/v1/sessions", 422, "bad_setting", **start(stage, settings={"online_window": 5}))
    stage.refused("POST", "/v1/sessions", 422, "bad_setting", **start(stage, settings={"online_window_s": -1}))
    assert stage.cli("sned", "x").returncode == 2
    assert stage.cli("run", "--json").returncode == 2
    assert stage.cli("ps", BIDE_SERVER="http://127.0.0.1:9").returncode == 7
    ran = stage.cli("run", str(stage.repository()), said("x", {"sleep": 9}), "--runtime", "scripted", "--wait", "parked",
                    "--timeout", "1s", "--json")  # fmt: skip
    told = problem(ran, 8, "timed_out")
    assert stage.ok("POST", f"/v1/sessions/{told['session']}/events", json={"events": [{"type": "user.cancel"}]})
