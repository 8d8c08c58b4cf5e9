"""Until when a session is kept is said wherever it is shown, with its zone; warnings and the end stand in its log."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bide.cli import tables, timeline
from tests.cli.conftest import Bide
from tests.server.harness import LiveServer, parked

UNTIL = r"[A-Z][a-z]{2} \d+ [A-Z][a-z]{2} (\d{4} )?\d\d:\d\d \S+ \(in (29d 23h|30d)\)"
NOW = datetime(2031, 5, 1, 9, tzinfo=UTC)


def event(kind: str, **body: Any) -> Any:
    return {"type": kind, "time": "2031-05-01T09:00:00Z", "actor": "bide", "data": body}


def told(kind: str, **body: Any) -> str:
    return "\n".join(timeline.Timeline().lines(event(kind, **body)))


def test_a_parked_session_says_until_when_it_is_kept(server: LiveServer, bide: Bide, repo: Path) -> None:
    session = parked(server, repo, "kept")
    assert re.search(rf"kept until +{UNTIL}\n", bide("show", session).out)
    assert re.search(rf"kept until {UNTIL}\n", bide("ps").out)
    assert re.search(r"kept until [A-Z][a-z]{2} \d+ [A-Z][a-z]{2} \d{4} \d\d:\d\d \S+\n", bide("logs", session).out)


def test_one_that_is_no_longer_kept_says_so() -> None:
    gone: Any = {
        "shown": "ended", "expires_at": "2031-04-30T09:00:00Z", "environment": {"state": "expired"},
    }  # fmt: skip
    assert tables.kept(gone, NOW).endswith(", then deleted")
    assert "(in " not in tables.kept(gone, NOW)
    assert tables.kept(gone | {"shown": "working"}, NOW) == ""
    assert tables.kept(gone | {"expires_at": None}, NOW) == ""


def test_warnings_and_the_end_stand_in_the_log_in_plain_words() -> None:
    warning = told("session.expiring", expires_at="2031-05-01T10:00:00Z", left_s=3600.0)
    assert "deleted in 1h" in warning
    assert "bide extend" in warning
    assert "LOSS" in told("environment.expired", at="2031-05-01T09:00:00Z")
    ended = told("session.ended", outcome="expired", summary="Nobody came back.", expires_at="2031-05-01T09:00:00Z")
    assert "kept until" not in ended


def test_a_new_session_takes_up_what_an_earlier_one_left(server: LiveServer, bide: Bide, repo: Path) -> None:
    earlier = parked(server, repo, "left")
    started = bide("run", "--recap", earlier, "--json").json
    assert (started["pool"], started["title"]) == ("left", "Mend the export")
    [first] = bide("show", started["id"], "--json").json["inputs"]
    assert first["text"].startswith("Go on with the task")
    assert "step 3 of 5" in first["text"]
    own = bide("run", str(repo), "Only the tests", "--recap", earlier, "--pool", "empty", "--json").json
    assert own["pool"] == "empty"


@pytest.mark.parametrize("words", [("limits",), ("run", "--dry-run", "REPO", "x", "--pool", "empty")])
def test_limits_are_shown_in_human_quantities_with_their_bounds_and_where_they_come_from(
    bide: Bide, repo: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    lines = bide(*(str(repo) if word == "REPO" else word for word in words)).out.splitlines()
    row = {line.split()[0]: " ".join(line.split()) for line in lines if line[:1].islower()}
    assert row["retention_s"].startswith("retention_s 30d 1m to 365d built in ")
    assert row["workspace_bytes"].startswith("workspace_bytes 20 GiB 1 MiB to 1 TiB built in ")
    assert row["question_bytes"].startswith("question_bytes 64 KiB fixed built in ")
