"""`bide drain`: a person empties a runner and sees what becomes of each session."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.cli.conftest import Bide
from tests.server.harness import LiveServer, Voice, held, until

RESTORED = {"type": "environment.restored", "source": "fresh"}


def test_a_drain_ends_well_once_everything_is_saved_and_says_what_became_of_it(
    bide: Bide, server: LiveServer, repo: Path
) -> None:
    runner = Voice(server, "leaving", pool="leaving")
    session = server.session(repo, pool="leaving", title="Mend it")["id"]
    grant = runner.claim()
    runner.say(grant, RESTORED, {"type": "turn.started", "input_ids": [grant["job"]["inputs"][0]["id"]]})

    def obey() -> None:
        until(lambda: runner.sync(held(grant))["drain"])
        consumed = {"type": "user.receipt", "input_id": grant["job"]["inputs"][0]["id"], "status": "consumed"}
        runner.say(grant, consumed, {"type": "turn.ended", "result": "interrupted"}, {"type": "session.parked"})

    thread = threading.Thread(target=obey)
    thread.start()
    ran = bide("drain", "leaving", "--deadline", "10s", "--json")
    thread.join()
    assert ran.code == 0
    [line] = ran.json["items"]
    assert (line["session"], line["title"], line["result"]) == (session, "Mend it", "parked")
    assert "working: Its turn goes on" in ran.err
    assert "parked: Everything is saved." in ran.err
    told = bide("drain", "leaving", "--no-wait")
    assert (told.code, "told to drain" in told.out) == (0, True)
    assert "takes sessions again" in bide("drain", "leaving", "--undo").out
    assert bide("drain", "leaving").out.endswith("Runner leaving is empty.\n")
    assert "draining" in bide("runners").out


def test_a_drain_that_does_not_come_to_its_end_is_told_with_what_is_left(
    bide: Bide, server: LiveServer, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.cli.drain.DRAIN_LATE_S", 0.1)
    runner = Voice(server, "stubborn", pool="stubborn")
    server.session(repo, pool="stubborn")
    runner.say(runner.claim(), RESTORED, {"type": "turn.started", "input_ids": []})
    ran = bide("drain", "stubborn", "--deadline", "0.1s")
    assert ran.code == 8
    assert "still holds sessions" in ran.out
    assert "working" in ran.out
    assert bide("drain", "nobody", "--json").problem["code"] == "no_runner"
    assert bide("drain", "nobody").code == 4
