"""An answer: to a session that still waits, and to one that was parked and goes on elsewhere."""

from __future__ import annotations

from tests.e2e.model import ask, bash, finish, said, user_texts, word
from tests.e2e.stage import Stage, until


def test_an_answer_while_it_waits_continues_the_same_process(stage: Stage) -> None:
    task, reply = word("task"), word("reply")
    s = stage.session(said(task, bash("export KEPT=1; echo $PPID"), ask("Which one?", options=["a", "b"])))
    question = s.question()
    assert question["options"] == ["a", "b"]
    now = s.shown("waiting")
    assert (now["turn"]["waiting_for"], now["must_act"]) == ("answer", "human")
    s.answer(question, reply, bash("echo $PPID"), {"text": "thanks"}, choices=["a"])
    until(lambda: s.count("turn.ended") == 2, why=s.story)
    before, after = [event["data"]["output"] for event in s.events("tool.result") if "output" in event["data"]][::2]
    assert before == after, "the shell's parent is the same process of the runtime"
    assert s.count("runtime.started") == s.count("environment.restored") == s.count("session.leased") == 1
    assert stage.model.openings(task) == stage.model.openings(reply) == 1
    answered = next(q for q in stage.ok("GET", f"{s.path}/questions")["items"] if q["id"] == question["id"])
    assert answered["status"] == "answered"
    assert answered["answer"]["choices"] == ["a"]
    assert reply in answered["answer"]["text"]
    late = {"text": "too late"}
    stage.refused("POST", f"/v1/questions/{question['id']}/answer", 409, "already_answered", json=late)


def test_after_the_window_the_same_conversation_goes_on_elsewhere_and_the_first_prompt_never_runs_twice(
    shared: Stage,
) -> None:
    (first,) = shared.runners("wait-one", pool="wait")
    task, aside, reply = word("task"), word("aside"), word("reply")
    s = shared.session(
        said(task, bash("pwd > where.txt; sleep 0.5"), {"text": "one"}), pool="wait",
        online_window_s=1,
    )  # fmt: skip
    s.first("tool.call")
    s.send(aside, ask("Which one?"))
    question = s.question()
    second = shared.runner("wait-two", "wait")
    parked = s.shown("parked")
    assert "longer than 1 s" in parked["reason"]
    assert parked["runner"] is None
    assert parked["expires_at"]
    conversation = parked["runtime_session_id"]
    assert shared.online(second).alive
    assert first.stop() == 0
    requests = len(shared.model.about(task))
    s.answer(question, reply, bash("cat where.txt"), finish("done"))
    assert s.first("session.ended")["data"]["outcome"] == "completed"
    assert [e["data"]["runner_name"] for e in s.events("session.leased")] == ["wait-one", "wait-two"]
    assert s.events("runtime.resumed")[-1]["data"]["rung"] == "native"
    assert s.look()["runtime_session_id"] == conversation
    assert [shared.model.openings(each) for each in (task, aside, reply)] == [1, 1, 1]
    request = shared.model.about(task)[requests]
    heard = [each for text in user_texts(request) for each in (task, aside, reply) if each in text]
    assert heard == [task, aside, reply], "the whole history, each once"
    assert "/workspace" in s.events("tool.result")[-2]["data"]["output"], "the workspace is at the same path"
    s.whole()


def test_an_answer_that_meets_a_leaving_runner_does_not_go_down_with_it(shared: Stage) -> None:
    """The answer comes while the runner, told to go, still has an unanswered question to the server on the line."""
    (leaving,) = shared.runners("leave-one", pool="leave")
    s = shared.session(said(word("task"), {"ask": {"question": "Which?"}}), runtime="scripted", pool="leave")
    question = s.question()
    s.parked()
    until(lambda: "released" in leaving.tail())
    second = shared.runner("leave-two", "leave")
    asked = last_seen(shared, "leave-one")
    until(lambda: last_seen(shared, "leave-one") != asked)  # so that its next question has just begun to wait
    leaving.process.terminate()
    until(lambda: "draining" in leaving.tail())
    s.answer(question, "go on", {"say": "went on"})
    assert leaving.process.wait(10) == 0
    shared.online(second)
    s.first("assistant.message", text="went on")
    assert not s.events("session.interrupted"), "it was leased to a runner that no longer listened"
    s.whole()


def last_seen(stage: Stage, runner: str) -> str:
    return next(str(r["last_seen_at"]) for r in stage.ok("GET", "/v1/runners")["items"] if r["name"] == runner)
