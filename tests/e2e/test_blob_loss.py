"""The saved state of a parked session is damaged or gone: it says so, asks, and never begins in an empty folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.model import bash, finish, newest_texts, said, word
from tests.e2e.stage import Session, Stage, until

RETRY, EARLIER, START_OVER, END = (
    "Try the same checkpoint again", "Go back to the checkpoint before", "Start over from the repository",
    "End the session",
)  # fmt: skip


def saved_objects(stage: Stage, s: Session) -> list[Path]:
    """Every object whose key speaks of the session."""
    return sorted(path for path in stage.blobs.rglob("*") if path.is_file() and s.id in str(path))


def parked(stage: Stage, *steps: dict[str, Any], runtime: str = "scripted") -> tuple[Session, str]:
    """A parked session whose folder no runner keeps any more, and the word of its task."""
    task = word("task")
    s = stage.session(said(task, *steps), runtime=runtime)
    s.first("turn.ended")
    s.parked()
    until(lambda: not stage.ok("GET", s.path)["runner"])
    until(lambda: any((stage.folder / name / ".warm" / s.id).exists() for name in ("one", "two")))
    stage.evict(s)
    return s, task


def lost(s: Session) -> dict[str, Any]:
    """Wakes the session; it must say that its state is lost, ask how to go on, and hold no runner."""
    before = len(s.events("environment.restored"))
    s.first("environment.lost", within_s=10)
    question = s.question("loss")
    now = s.shown("parked")
    assert (now["environment"]["state"], now["must_act"], now["runner"]) == ("lost", "human", None)
    assert "lost" in now["next_step"]
    assert len(s.events("environment.restored")) == before, "nothing began in an empty folder"
    return question


def away(objects: list[Path], to: Path) -> None:
    to.mkdir()
    for place, path in enumerate(objects):
        shutil.move(path, to / str(place))


def back(objects: list[Path], source: Path) -> None:
    for place, path in enumerate(objects):
        shutil.move(source / str(place), path)


@pytest.mark.parametrize("part", ["all of it", "the content alone", "one letter of it"])
def test_what_is_lost_is_named_and_a_person_is_asked(stage: Stage, tmp_path: Path, part: str) -> None:
    s, _ = parked(stage, {"run": "head -c 50000 /dev/urandom > precious.bin; echo note > note.txt"})
    objects = saved_objects(stage, s)
    assert objects
    content = max(objects, key=lambda path: path.stat().st_size)
    if part == "one letter of it":
        raw = bytearray(content.read_bytes())
        raw[len(raw) // 2] ^= 1
        content.chmod(0o600)
        content.write_bytes(raw)
    else:
        away(objects if part == "all of it" else [content], tmp_path / "away")
    waiting = s.send("go on", {"say": "never"})
    question = lost(s)
    fact = s.events("environment.lost")[-1]["data"]
    assert fact["reason"]
    assert fact["lost"]
    assert all(item["what"] and item["reason"] for item in fact["lost"])
    if part != "all of it":
        assert any("precious.bin" in item["what"] for item in fact["lost"]), fact
        assert sum(item["bytes"] for item in fact["lost"]) >= 50000
    assert {RETRY, START_OVER, END} <= set(question["options"])
    assert (question["blocking"], question["impact"]) == (True, "high")
    assert s.receipt(waiting)["status"] == "accepted", "the message waits with the session"
    assert "lost" in stage.cli("show", s.id).stdout
    stage.refused("POST", f"{s.path}/events", 409, "not_waiting", json={"events": [{"type": "user.resume"}]})
    s.answer(question, choices=[END])
    ended = s.first("session.ended")["data"]
    assert ended["outcome"] == "failed"
    assert s.receipt(waiting)["status"] == "refused"


def test_the_same_checkpoint_is_tried_again_once_its_blobs_are_back(stage: Stage, tmp_path: Path) -> None:
    s, task = parked(stage, bash("echo precious > precious.txt"), {"text": "done"}, runtime="claude_code")
    objects = saved_objects(stage, s)
    away(objects, tmp_path / "away")
    late = word("late")
    s.send(late, bash("cat precious.txt"), finish("found"))
    question = lost(s)
    s.answer(question, choices=[RETRY])
    question = until(lambda: another(s, question), why=s.story)
    back(objects, tmp_path / "away")
    s.answer(question, choices=[RETRY])
    assert s.first("session.ended")["data"]["summary"] == "found"
    assert s.events("environment.restored")[-1]["data"]["source"] == "checkpoint"
    assert "precious" in s.events("tool.result")[-2]["data"]["output"]
    assert [stage.model.openings(each) for each in (task, late)] == [1, 1]
    assert s.look()["environment"]["reset_count"] == 0
    assert not any("lost" in text for text in newest_texts(stage.model.about(late)[-1])), "nothing is lost after all"
    s.whole()


def another(s: Session, question: dict[str, Any]) -> dict[str, Any] | None:
    """The question that is open since that one was answered."""
    found = s.question("loss")
    return found if found["id"] != question["id"] else None


@pytest.mark.parametrize("message", ["", "and use tabs"], ids=["by itself", "with a message that waited"])
def test_starting_over_begins_in_a_fresh_clone_and_tells_the_coding_agent_why_and_what(
    stage: Stage, tmp_path: Path, message: str
) -> None:
    s, task = parked(stage, bash("echo precious > precious.txt"), {"text": "done"}, runtime="claude_code")
    environment = s.look()["environment"]["id"]
    away(saved_objects(stage, s), tmp_path / "away")
    mark = word("late")
    if message:
        s.send(f"{message} {mark}", bash("ls"), finish("redone"))
    else:
        s.post({"type": "user.resume"})
    s.answer(lost(s), choices=[START_OVER])
    s.first("environment.restored", source="fresh", after=s.events("environment.lost")[-1]["seq"])
    said_last = mark if message else task
    until(lambda: stage.model.openings(said_last) == (1 if message else 2), why=s.story)
    told = "\n".join(next(newest_texts(r) for r in reversed(stage.model.about(said_last)) if opens(r)))
    assert "are lost" in told
    assert task in told, "what it is to do"
    assert message in told
    now = s.look()
    assert now["environment"]["id"] != environment
    assert now["environment"]["reset_count"] == 1
    until(lambda: s.count("turn.ended") >= 2, why=s.story)
    leased_to = s.events("session.leased")[-1]["data"]["runner_name"]
    assert (stage.folder / leased_to / s.id / "workspace" / "README.md").exists()
    s.whole()


def opens(request: dict[str, Any]) -> bool:
    """Whether a conversation begins with this request."""
    return all(message["role"] != "assistant" for message in request["messages"])


def test_going_back_to_the_checkpoint_before_says_what_it_costs(stage: Stage) -> None:
    """Only the newest root is gone: an older one is still whole."""
    s, _ = parked(stage, {"run": "echo one > one.txt"})
    s.send("more", {"run": "echo two > two.txt"})
    until(lambda: s.count("turn.ended") == 2, why=s.story)
    s.parked()
    until(lambda: any((stage.folder / name / ".warm" / s.id).exists() for name in ("one", "two")))
    stage.evict(s)
    newest = stage.ok("GET", f"{s.path}/checkpoints")["items"][-1]
    roots = [path for path in saved_objects(stage, s) if newest["root"] in str(path)]
    assert roots
    for path in roots:
        path.unlink()
    s.send("go on", {"run": "ls > listing.txt"})
    question = lost(s)
    assert EARLIER in question["options"]
    s.answer(question, choices=[EARLIER])
    rolled = s.first("environment.rolled_back")["data"]
    assert rolled["checkpoint"] < newest["n"]
    assert rolled["lost"]
    until(lambda: s.count("turn.ended") == 3, why=s.story)
    workspace = stage.root_of(s) / "workspace"
    assert (workspace / "one.txt").exists()
    s.whole()
