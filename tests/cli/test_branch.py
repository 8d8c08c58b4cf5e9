"""Forks and rewinds from the command line."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Bide
from tests.server.harness import LiveServer, held, parked
from tests.server.test_branching import saved, two_turns
from tests.server.test_keeping import time_passes


def test_a_fork_prints_the_new_session_and_how_to_go_on(server: LiveServer, bide: Bide, repo: Path) -> None:
    _, grant, _ = two_turns(server, repo, "cli-forks")
    parent = grant["session"]
    made = bide("fork", parent, "--checkpoint", "1", "--title", "other way", "--json").json
    assert made["forked_from"] == {"session": parent, "checkpoint": 1}
    assert made["title"] == "other way"
    plain = bide("fork", parent, "--say", "Try again.")
    assert plain.out.strip() != parent
    assert "Go on there with `bide send" in plain.err
    shown = bide("show", plain.out.strip()).out
    assert f"session {parent}, checkpoint 2" in shown
    assert "Try again." in shown
    assert f"with checkpoint 2 of session {parent[:13]}" in bide("logs", plain.out.strip()).out
    assert "begins with checkpoint 1" in bide("logs", parent).out
    refused = bide("fork", parent, "--checkpoint", "9", "--json")
    assert (refused.code, refused.problem["code"]) == (3, "checkpoint_gone")
    first, again = (bide("fork", parent, "--key", "k", "--json").json["id"] for _ in range(2))
    assert first == again


def test_a_rewind_says_what_it_waits_for_and_shows_the_lines(server: LiveServer, bide: Bide, repo: Path) -> None:
    voice, grant, _ = two_turns(server, repo, "cli-back")
    session = grant["session"]
    assert bide("rewind", session).code == 2
    assert bide("rewind", session, "--checkpoint", "1").out.startswith("It stops and is saved first")
    assert voice.sync(held(grant), wait_s=1)["commands"]
    voice.say(grant, saved(3, 2), {"type": "session.ended", "outcome": "cancelled", "summary": ""})
    assert "last taken back to checkpoint 1" in bide("show", session).out
    assert "is back at checkpoint 1: 1 input abandoned" in bide("logs", session).out
    receipt = bide("rewind", session, "--checkpoint", "2", "--json").json
    assert (receipt["type"], receipt["status"]) == ("user.rewind", "consumed")
    assert bide("rewind", session, "--checkpoint", "1").out.startswith("Back at checkpoint 1, saved ")


def test_what_is_no_longer_kept_cannot_be_forked_or_gone_back_to_and_the_way_on_is_named(
    server: LiveServer, bide: Bide, repo: Path
) -> None:
    session = parked(server, repo, "cli-expired")
    time_passes(server, session, 31)
    for words in (("fork", session), ("rewind", session, "--checkpoint", "1"), ("files", session), ("diff", session)):
        refused = bide(*words, "--json")
        assert (refused.code, refused.problem["code"]) == (3, "expired"), words
        assert refused.problem["hint"].endswith(f"`bide run --recap {session}`.")
    shown = bide("show", session).out
    assert "not kept any more" in shown
    assert "nothing yet" not in shown
    plain = bide("fork", session)
    assert "workspace and conversation are deleted" in plain.err
    assert f"bide run --recap {session}" in plain.err
