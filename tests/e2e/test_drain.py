"""A runner is emptied by order: it stays, takes nothing more, and each session is saved and goes on elsewhere."""

from __future__ import annotations

from tests.e2e.model import bash, said, word
from tests.e2e.stage import Stage, until


def test_a_drained_runner_loses_nothing_stays_there_and_takes_sessions_again_when_told(shared: Stage) -> None:
    (one,) = shared.runners("drained", pool="drain")
    words = {name: word(name) for name in ("wait", "work", "busy")}
    waits = shared.session(said(words["wait"], {"text": "ready"}), pool="drain")
    works = shared.session(
        said(words["work"], bash(f"echo unsaved > untracked.txt; sh -c 'sleep 300; true' {words['busy']}")),
        pool="drain",
    )
    works.tool_running(words["busy"])
    waits.shown("waiting")
    shared.ok("POST", "/v1/runners/drained/drain", json={"deadline_s": 4})
    waits.shown("parked")
    assert works.count("turn.ended") == 0, "what works has time until the deadline"
    works.first("session.parked")
    until(lambda: not (shared.folder / "drained" / ".spool" / works.id).exists())
    assert one.alive
    later = shared.session(said(word("later"), {"text": "ready"}), pool="drain")
    assert later.look()["shown"] == "queued"
    assert works.events("turn.ended")[0]["data"]["result"] == "interrupted"
    assert shared.http.delete("/v1/runners/drained/drain").status_code < 300
    later.shown("waiting")
    until(lambda: works.count("turn.ended") == 2, why=works.story)  # by a word of ours, where it was cut
    assert (shared.root_of(works) / "workspace" / "untracked.txt").read_text() == "unsaved\n"
    assert [shared.model.openings(words[each]) for each in ("wait", "work")] == [1, 1]
    for s in (waits, works, later):
        assert not s.events("environment.rolled_back", "environment.lost", "gap")
        s.whole()


def test_a_runner_told_to_go_saves_everything_within_its_deadline_and_goes_without_a_word(shared: Stage) -> None:
    going = shared.online(shared.runner("going", "going", more=("--drain-deadline", "1s")))
    words = {name: word(name) for name in ("work", "busy")}
    works = shared.session(
        said(words["work"], bash(f"echo unsaved > untracked.txt; sh -c 'sleep 300; true' {words['busy']}")),
        pool="going",
    )
    works.tool_running(words["busy"])
    assert going.stop() == 0, going.tail()
    assert f"result=saved session={works.id}" in going.tail()
    works.first("session.parked")
    assert works.events("turn.ended")[0]["data"]["result"] == "interrupted"
    shared.runners("going-two", pool="going")
    until(lambda: works.count("turn.ended") == 2, why=works.story)
    assert (shared.root_of(works) / "workspace" / "untracked.txt").read_text() == "unsaved\n"
    assert shared.model.openings(words["work"]) == 1
    works.whole()
