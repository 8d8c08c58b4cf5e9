"""Forks and rewinds with real servers, runners and workspaces: two ways on from one checkpoint, and the way back."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.model import said, word
from tests.e2e.stage import Session, Stage, until


def write(text: str) -> dict[str, object]:
    return {"write": {"path": "way.txt", "text": text}}


def turned(s: Session, count: int) -> None:
    """Waits for so many turns, and for the checkpoint after the last."""
    until(lambda: s.count("turn.ended") == count, why=s.story)
    ended = s.events("turn.ended")[-1]["seq"]
    until(lambda: any(e["seq"] > ended for e in s.events("checkpoint.saved")), why=s.story)


def way(stage: Stage, s: Session) -> str:
    """What the file says in the session's folder, on the runner that had it last."""
    name = s.events("session.leased")[-1]["data"]["runner_name"]
    return Path(stage.folder / name / s.id / "workspace" / "way.txt").read_text()


def told(s: Session, text: str, count: int) -> None:
    """A message and its turn."""
    s.send(text, write(text), {"recall": True})
    turned(s, count)


def test_a_fork_of_a_parked_session_goes_its_own_way_with_the_same_past(shared: Stage) -> None:
    shared.runners("fork-one", "fork-two", pool="fork")
    s = shared.session(said(word("task"), write("first")), runtime="scripted", pool="fork")
    turned(s, 1)
    told(s, "second", 2)
    s.parked()
    parent = s.look()["checkpoint"]
    asked = {"checkpoint": s.events("checkpoint.saved")[-1]["data"]["checkpoint"]["n"], "title": "another way"}
    made = shared.ok("POST", f"{s.path}/fork", json=asked)
    other = Session(shared, made["id"])
    assert made["forked_from"] == {"session": s.id, "checkpoint": parent["n"]}
    assert made["checkpoint"]["root"] == parent["root"], "no byte is copied"
    other.send("third", {"run": "cat way.txt"}, write("other"), {"recall": True})
    turned(other, 1)
    first = other.events("environment.restored")[0]["data"]
    assert (first["source"], first["checkpoint"]) == ("checkpoint", parent["n"])
    assert other.events("runtime.resumed")[0]["data"]["rung"] == "native"
    assert "second" in other.events("tool.result")[0]["data"]["output"], "the workspace is the parent's"
    recalled = [e["data"]["text"] for e in other.events("assistant.message")][-1]
    assert all(
        r["id"] in recalled for r in shared.ok("GET", f"{s.path}/inputs")["items"] if r["type"] == "user.message"
    )
    told(s, "mine", 3)
    assert (way(shared, s), way(shared, other)) == ("mine", "other")
    later = shared.ok("GET", f"{s.path}/inputs")["items"][-1]["id"]
    other.send("again", {"recall": True})
    turned(other, 2)
    assert later not in [e["data"]["text"] for e in other.events("assistant.message")][-1]
    for each in (s, other):
        each.parked()
        each.whole()


def test_a_rewind_brings_back_what_a_file_said_and_a_second_one_what_it_says_now(shared: Stage) -> None:
    shared.runners("back-one", pool="back")
    s = shared.session(said(word("task"), write("first")), runtime="scripted", pool="back")
    turned(s, 1)
    n = s.events("checkpoint.saved")[-1]["data"]["checkpoint"]["n"]
    told(s, "second", 2)
    working = s.send("third", write("third"), {"sleep": 60})
    until(lambda: way(shared, s) == "third", why=s.story)
    (order,) = s.post({"type": "user.rewind", "checkpoint": n})
    assert order["status"] == "accepted"
    now = s.shown("parked")
    assert (now["checkpoint"]["n"], now["rewound_to"]) == (n, n)
    assert s.receipt(working)["status"] == "abandoned"
    left = s.events("checkpoint.saved")[-1]["data"]["checkpoint"]["n"]
    assert left > n
    s.send("look", {"run": "cat way.txt"}, {"recall": True})
    turned(s, 4)
    assert "first" in s.events("tool.result")[-1]["data"]["output"]
    assert working not in s.events("assistant.message")[-1]["data"]["text"]
    assert not s.events("environment.rolled_back", "environment.lost"), "all of what it left was saved"
    s.post({"type": "user.rewind", "checkpoint": left})
    until(lambda: s.look()["rewound_to"] == left and s.look()["shown"] == "parked", why=s.story)
    assert s.receipt(working)["status"] == "consumed"
    s.send("look again", {"run": "cat way.txt"})
    turned(s, 5)
    assert "third" in s.events("tool.result")[-1]["data"]["output"]
    numbers = [e["data"]["checkpoint"]["n"] for e in s.events("checkpoint.saved")]
    assert numbers == sorted(set(numbers))
    s.parked()
    s.whole()


def test_a_diff_tells_what_the_first_turn_did_however_soon_it_did_it(shared: Stage) -> None:
    shared.runners("diff-one", pool="diff")
    s = shared.session(said(word("task"), write("at once")), runtime="scripted", pool="diff")
    turned(s, 1)
    found = shared.ok("GET", f"{s.path}/diff")
    assert found["since_is"] == "clone", s.story()
    assert [(one["path"], one["change"]) for one in found["items"]] == [("way.txt", "added")]
