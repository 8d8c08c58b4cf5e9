"""Questions under steering: each answer reaches its own question, once, whatever happened to the session meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.e2e.model import ask, finish, said, user_texts, word
from tests.e2e.stage import Session, Stage, until


def opened(s: Session, count: int = 2) -> list[dict[str, Any]]:
    """The open questions in the order of their asking, once there are so many."""

    def found() -> list[dict[str, Any]] | None:
        questions = [q for q in s.stage.ok("GET", f"{s.path}/questions")["items"] if q["status"] == "open"]
        return questions if len(questions) == count else None

    return list(until(found, why=s.story))


def heard(stage: Stage, task: str, *answers: str) -> list[str]:
    """Each user text of the last request that holds one of the answers."""
    return [text for text in user_texts(stage.model.about(task)[-1]) if any(each in text for each in answers)]


def asked_twice(task: str) -> str:
    return said(task, ask("Which colour?", blocking=False), ask("Which size?"))


def test_two_open_questions_answered_in_reverse_order_reach_the_right_one(stage: Stage) -> None:
    task, colour, size = word("task"), word("colour"), word("size")
    s = stage.session(asked_twice(task))
    first, second = opened(s)
    s.answer(second, size, {"text": "noted"})
    s.answer(first, colour, {"text": "noted, too"})
    until(lambda: s.count("turn.ended") == 3, why=s.story)
    told = heard(stage, task, colour, size)
    assert [("Which size?" in text, size in text) for text in told[:1]] == [(True, True)]
    assert [("Which colour?" in text, colour in text) for text in told[1:]] == [(True, True)]
    assert [stage.model.openings(each) for each in (colour, size)] == [1, 1]


def test_two_open_questions_are_answered_across_a_park_and_another_runner(shared: Stage) -> None:
    (first_runner,) = shared.runners("ask-one", pool="asks")
    task, colour, size = word("task"), word("colour"), word("size")
    s = shared.session(asked_twice(task), pool="asks")
    first, second = opened(s)
    s.answer(second, size, {"text": "noted"})
    until(lambda: s.count("turn.ended") == 2, why=s.story)
    s.parked()
    second_runner = shared.runner("ask-two", "asks")
    assert shared.online(second_runner).alive
    assert first_runner.stop() == 0
    s.answer(first, colour, finish("both"))
    assert s.first("session.ended")["data"]["outcome"] == "completed"
    told = heard(shared, task, colour, size)
    assert ["Which size?" in told[0], "Which colour?" in told[1], len(told)] == [True, True, 2]
    assert [shared.model.openings(each) for each in (task, colour, size)] == [1, 1, 1]
    assert [e["data"]["runner_name"] for e in s.events("session.leased")] == ["ask-one", "ask-two"]
    s.whole()


def test_twenty_answers_at_once_one_wins_and_the_session_hears_one(stage: Stage) -> None:
    s = stage.session(said(word("task"), {"ask": {"question": "Which?"}}), runtime="scripted")
    question = s.question()

    def answer(i: int) -> int:
        with stage.client(stage.token) as client:
            sent = client.post(
                f"/v1/questions/{question['id']}/answer", json={"text": said(f"answer {i}", {"say": "ok"})}
            )
            return int(sent.status_code)

    with ThreadPoolExecutor(20) as pool:
        codes = sorted(pool.map(answer, range(20)))
    assert codes == [200, *[409] * 19]
    until(lambda: s.count("turn.ended") == 2, why=s.story)
    assert [len(e["data"]["input_ids"]) for e in s.events("turn.started")] == [1, 1]
    assert len(s.events("user.answer")) == 1


def test_an_answer_to_a_replaced_question_is_refused_with_the_reason_and_can_be_sent_as_a_message(stage: Stage) -> None:
    task, late = word("task"), word("late")
    s = stage.session(said(task, {"ask": {"question": "Which?"}}), runtime="scripted")
    old = s.question()
    better = {"question": "Which of these two?", "replaces": old["id"]}
    s.send(word("again"), {"call": {"name": "ask_human", "input": better}})
    s.first("question.superseded")
    no = stage.refused("POST", f"/v1/questions/{old['id']}/answer", 409, "question_closed", json={"text": late})
    assert ("Which of these two?" in no["detail"], no["offer"]["text"]) == (True, late)
    message = s.post(no["offer"])[0]["id"]
    s.receipt(message, "consumed")
    (question,) = opened(s, 1)
    assert question["question"] == "Which of these two?"
    s.send(
        word("found"),
        {"call": {"name": "withdraw_question", "input": {"question_id": question["id"], "reason": "found"}}},
        {"finish": "done"},
    )
    assert s.first("session.ended")["data"]["outcome"] == "completed"
    assert s.events("question.withdrawn")[-1]["data"]["reason"] == "found"


def test_the_runtimes_own_question_tool_never_holds_a_resumed_session(stage: Stage) -> None:
    """It is switched off; a model that calls it all the same gets an error, and the turn ends."""
    task, again = word("task"), word("again")
    s = stage.session(said(task, {"text": "first"}))
    s.first("turn.ended")
    s.parked()
    native = {"questions": [{"question": "Which?", "header": "h", "options": [{"label": "a"}, {"label": "b"}]}]}
    s.send(again, {"tool": "AskUserQuestion", "input": native}, {"text": "went on without"})
    until(lambda: s.count("turn.ended") == 2, why=s.story)
    assert [e["data"]["ok"] for e in s.events("tool.result")] == [False]
    assert s.events("assistant.message")[-1]["data"]["text"] == "went on without"
