"""A runner dies and comes back with its disk: the sessions go on where they stood, and nothing is told or done twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.model import ask, bash, said, word
from tests.e2e.stage import Session, Stage, processes_within, staged, until


@pytest.fixture(scope="module")
def alone() -> Iterator[Stage]:
    """A server that may be killed. Each test brings its own pool and runner."""
    with staged() as stage:
        yield stage


def killed_in_mid_turn(stage: Stage, pool: str, **settings: Any) -> tuple[Session, dict[str, str]]:
    """A session whose second turn had made a file that no checkpoint has when its runner was killed."""
    (doomed,) = stage.runners(pool, pool=pool)
    words = {name: word(name) for name in ("task", "second", "busy")}
    s = stage.session(said(words["task"], {"text": "ready"}), pool=pool, **settings)
    until(lambda: s.count("checkpoint.saved") >= 2, why=s.story)
    s.send(
        words["second"],
        bash("echo unsaved > untracked.txt; echo first"),
        bash(f"echo begun >> untracked.txt; sh -c 'sleep 300; true' {words['busy']}"),
    )
    s.tool_running(words["busy"])
    doomed.kill()
    until(lambda: not processes_within(stage.folder / pool), 5)
    return s, words


def went_on(s: Session, turns: int) -> None:
    """The turn that was cut and the one that took it up are over."""
    s.first("runtime.resumed", rung="native")
    until(lambda: s.count("turn.ended") == turns, why=s.story)
    s.shown("waiting")


def nothing_lost(s: Session) -> None:
    assert not s.events("environment.rolled_back", "environment.lost", "gap"), s.story()
    assert s.look()["environment"]["reset_count"] == 0
    ended = [e["turn"] for e in s.events("turn.ended")]
    started = [e["turn"] for e in s.events("turn.started")]
    assert len(ended) == len(set(ended)), s.story()
    assert started[: len(ended)] == ended, s.story()
    s.whole()


def test_a_turn_cut_by_a_kill_goes_on_in_the_same_folder_and_each_input_is_taken_once(alone: Stage) -> None:
    s, words = killed_in_mid_turn(alone, "midway")
    alone.runner("midway", "midway")
    went_on(s, 3)
    assert (alone.root_of(s) / "workspace" / "untracked.txt").read_text() == "unsaved\nbegun\n"
    assert [alone.model.openings(words[each]) for each in ("task", "second")] == [1, 1]
    assert [e["data"]["source"] for e in s.events("environment.restored")] == ["fresh", "warm"]
    assert [e["data"]["result"] for e in s.events("turn.ended")] == ["completed", "interrupted", "completed"]
    nothing_lost(s)
    s.send(after := word("after"), {"text": "still here"})
    s.first("assistant.message", text="still here")
    assert alone.model.openings(after) == 1


def test_a_question_that_was_open_at_the_kill_is_still_open_and_its_answer_goes_on(alone: Stage) -> None:
    (doomed,) = alone.runners("asked", pool="asked")
    s = alone.session(said(word("task"), bash("echo unsaved > untracked.txt"), ask("Which colour?")), pool="asked")
    question = s.question()
    s.shown("waiting")
    doomed.kill()
    mark = word("answer")
    s.answer(question, mark, {"text": "thanks"})  # while nobody is there to hear it
    alone.runner("asked", "asked")
    s.first("assistant.message", text="thanks")
    s.shown("waiting")
    assert alone.model.openings(mark) == 1
    assert (alone.root_of(s) / "workspace" / "untracked.txt").read_text() == "unsaved\n"
    assert s.count("question.asked") == s.count("question.answered") == 1
    nothing_lost(s)


def test_what_was_not_told_when_server_and_runner_died_is_told_once_both_are_back(alone: Stage) -> None:
    (doomed,) = alone.runners("untold", pool="untold")
    words = {name: word(name) for name in ("task", "busy")}
    s = alone.session(
        said(
            words["task"],
            bash(f"sh -c 'until [ -e go ]; do sleep 0.05; done' {words['busy']}; echo unsaved | tee untracked.txt"),
            ask("Which colour?"),
        ),
        pool="untold",
    )
    s.tool_running(words["busy"])
    workspace = alone.root_of(s) / "workspace"
    alone.parts["server"].kill()
    (workspace / "go").touch()
    spool = alone.folder / "untold" / ".spool" / s.id
    until(lambda: b'"turn.ended"' in spool.read_bytes(), why=spool.read_text)
    doomed.kill()
    alone.serve()
    alone.runner("untold", "untold")
    question = s.question()
    assert s.events("tool.result")[0]["data"]["output"].strip() == "unsaved"
    s.answer(question, word("answer"), {"text": "thanks"})
    s.first("assistant.message", text="thanks")
    s.shown("waiting")
    assert s.count("question.asked") == 1
    assert s.events("turn.ended")[0]["data"]["result"] == "completed"
    assert alone.model.openings(words["task"]) == 1
    assert (workspace / "untracked.txt").read_text() == "unsaved\n"
    nothing_lost(s)


def test_a_runner_that_comes_back_too_late_finds_its_session_with_another_and_keeps_the_folder(alone: Stage) -> None:
    s, _ = killed_in_mid_turn(alone, "late", recovery_window_s=0)
    alone.runner("late-two", "late")
    s.first("session.leased", runner_name="late-two", within_s=3 * alone.lease_s)
    late = alone.online(alone.runner("late", "late"))
    until(lambda: "salvage" in late.tail(), why=late.tail)
    s.first("runtime.resumed")
    assert s.count("environment.rolled_back") == 1
    assert s.look()["runner_name"] == "late-two"
    (salvage,) = (alone.folder / "late" / ".salvage").iterdir()
    assert salvage.name.startswith(s.id)
    assert (salvage / "workspace" / "untracked.txt").read_text() == "unsaved\nbegun\n"
    assert not (alone.folder / "late" / s.id).exists()
    assert not (alone.folder / "late" / ".spool" / s.id).exists()
    s.whole()


def test_a_runner_told_to_go_while_the_server_is_away_names_what_it_leaves_and_the_next_takes_it_up(
    alone: Stage,
) -> None:
    going = alone.online(alone.runner("alone", "alone", more=("--drain-deadline", "1s")))
    words = {name: word(name) for name in ("task", "busy")}
    s = alone.session(
        said(words["task"], bash(f"echo unsaved > untracked.txt; sh -c 'sleep 300; true' {words['busy']}")),
        pool="alone",
    )
    s.tool_running(words["busy"])
    alone.parts["server"].kill()
    assert going.stop() == 1
    assert f"session={s.id}" in going.tail().rpartition("left_here")[2]
    assert not processes_within(alone.folder / "alone")
    assert b'"closed":true' in (alone.folder / "alone" / ".spool" / s.id).read_bytes()
    alone.serve()
    alone.runner("alone", "alone")
    went_on(s, 2)
    assert (alone.root_of(s) / "workspace" / "untracked.txt").read_text() == "unsaved\n"
    assert alone.model.openings(words["task"]) == 1
    nothing_lost(s)


def test_the_runner_of_bide_up_is_started_again_after_a_kill_and_goes_on() -> None:
    with staged(runner=True) as stage:
        data = stage.folder / "server"
        words = {name: word(name) for name in ("task", "busy")}
        s = stage.session(
            said(words["task"], bash(f"echo unsaved > untracked.txt; sh -c 'sleep 300; true' {words['busy']}"))
        )
        s.tool_running(words["busy"])
        os.kill(json.loads((data / "runner.json").read_bytes())["pid"], signal.SIGKILL)
        went_on(s, 2)
        assert (data / "runner" / s.id / "workspace" / "untracked.txt").read_text() == "unsaved\n"
        assert stage.model.openings(words["task"]) == 1
        nothing_lost(s)
