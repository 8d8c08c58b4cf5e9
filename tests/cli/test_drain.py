"""`bide drain`: a person empties a runner and sees what becomes of each session."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bide.cli import drain
from bide.cli.flags import Flags
from bide.client import shapes
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


def test_an_order_that_ended_with_its_process_is_not_taken_for_an_empty_runner(
    bide: Bide, server: LiveServer, repo: Path
) -> None:
    runner = Voice(server, "restarting", pool="restarting")
    server.session(repo, pool="restarting")
    grant = runner.claim()
    runner.say(grant, RESTORED, {"type": "turn.started", "input_ids": []})

    def restart() -> None:
        until(lambda: runner.sync(held(grant))["drain"])
        runner.boot = "b2"
        runner.register()

    thread = threading.Thread(target=restart)
    thread.start()
    ran = bide("drain", "restarting", "--deadline", "1h")
    thread.join()
    assert ran.code == 1
    assert "Runner restarting was restarted: the order ended with its process." in ran.err


def test_an_undo_with_a_deadline_is_no_order(bide: Bide, server: LiveServer) -> None:
    Voice(server, "staying")
    assert bide("drain", "staying", "--undo", "--deadline", "5m").code == 2
    assert "staying" in bide("drain", "staying", "--undo").out
    far = bide("drain", "staying", "--deadline", "400d", "--json").problem
    assert (far["code"], "--deadline 10m" in far["hint"]) == ("bad_value", True)


def test_what_became_of_a_session_with_a_long_title_can_be_read_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    sentence = "Its turn goes on; it is interrupted and saved at the deadline."
    line: shapes.DrainLine = {
        "session": "0190f3a2-7c11-7000-8000-000000000001", "title": "Mend the export " * 12, "result": "working",
        "checkpoint": 12, "sentence": sentence,
    }  # fmt: skip
    drain._print([line], "Runner x still holds sessions.", Flags())
    shown = capsys.readouterr().out
    column = shown.splitlines()[0].index("TASK")
    assert sentence in " ".join(row[column:].strip() for row in shown.splitlines())
    assert max(map(len, shown.splitlines())) <= 80
