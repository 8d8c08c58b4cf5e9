"""What people say to a session that works: when it arrives, how often, and that nothing of it is lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.e2e.model import ask, bash, finish, said, user_texts, word
from tests.e2e.stage import Stage, processes_saying, until

STUBBORN = (
    'python3 -c "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);'
    ' signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGHUP, signal.SIG_IGN); time.sleep(300)" {}'
)


def test_a_message_sent_during_a_turn_is_delivered_when_it_ends_and_each_is_seen_once_in_order(stage: Stage) -> None:
    task, late, later = word("task"), word("late"), word("later")
    s = stage.session(said(task, bash("echo; sleep 1.5"), {"text": "first"}))
    s.first("tool.call")
    one, two = s.send(late, {"text": "second"}), s.send(later, {"text": "third"})
    assert s.receipt(one)["status"] == "accepted"
    until(lambda: s.count("turn.ended") == 3, why=s.story)
    opened = [event["data"]["input_ids"] for event in s.events("turn.started")]
    assert opened[1:] == [[one], [two]], "one at a time, in the order of acceptance"
    delivered = {
        e["data"]["input_id"]: e["data"] for e in s.events("user.receipt") if e["data"]["status"] == "delivered"
    }
    assert [(delivered[each]["how"], delivered[each]["turn"]) for each in (one, two)] == [
        ("next_turn", 2),
        ("next_turn", 3),
    ]
    assert s.receipt(one, "consumed")["turn"] == 2
    assert [stage.model.openings(each) for each in (task, late, later)] == [1, 1, 1]
    heard = [each for text in user_texts(stage.model.about(task)[-1]) for each in (task, late, later) if each in text]
    assert heard == [task, late, later]
    assert s.count("runtime.started") == 1
    s.whole()


def test_a_receipt_still_says_how_an_input_was_delivered_once_the_coding_agent_has_it(stage: Stage) -> None:
    s = stage.session(said(word("task"), bash("echo; sleep 1"), {"text": "done"}))
    s.first("tool.call")
    steered = s.send(word("aside"), delivery="steer")
    s.first("turn.ended")
    assert s.receipt(steered, "consumed")["how"] == "steer"
    first = s.events("user.message")[0]["data"]["id"]
    assert s.receipt(first, "consumed")["how"] == "next_turn"


def test_a_steer_reaches_the_running_turn(stage: Stage) -> None:
    task, aside = word("task"), word("aside")
    s = stage.session(said(task, bash("echo; sleep 1"), bash("echo again"), {"text": "done"}))
    s.first("tool.call")
    steered = s.send(aside, delivery="steer")
    s.first("turn.ended")
    s.receipt(steered, "consumed")
    receipt = next(e["data"] for e in s.events("user.receipt") if e["data"]["input_id"] == steered)
    assert (receipt["status"], receipt["how"], receipt["turn"]) == ("delivered", "steer", 1)
    assert s.count("turn.started") == s.count("turn.ended") == 1
    assert s.events("assistant.message")[-1]["data"]["text"] == "done", "the turn goes on with what it was doing"
    last = user_texts(stage.model.about(task)[-1])
    assert sum(aside in text for text in last) == 1


def test_two_steers_in_one_breath_are_two_messages_in_their_order(stage: Stage) -> None:
    task, one, two = word("task"), word("one"), word("two")
    steps = [bash("echo; sleep 1"), *[bash(f"echo {n}; sleep 0.3") for n in range(4)], {"text": "done"}]
    s = stage.session(said(task, *steps))
    s.first("tool.call")
    steered = [s.send(each, delivery="steer") for each in (one, two)]
    s.first("turn.ended")
    assert [s.receipt(each, "consumed")["turn"] for each in steered] == [1, 1]
    heard = [text for text in user_texts(stage.model.about(task)[-1]) if one in text or two in text]
    assert [(one in text, two in text) for text in heard] == [(True, False), (False, True)]


def test_a_message_taken_back_before_its_turn_is_never_seen_by_the_model(stage: Stage) -> None:
    task, kept, gone = word("task"), word("kept"), word("gone")
    s = stage.session(said(task, bash("echo; sleep 1.5"), {"text": "first"}))
    s.first("tool.call")
    taken_back, stays = s.send(gone, {"text": "never"}), s.send(word("other"), {"text": "never"})
    s.stage.ok("DELETE", f"{s.path}/events/{taken_back}")
    s.stage.ok("PATCH", f"{s.path}/events/{stays}", json={"text": said(kept, {"text": "changed"})})
    assert s.receipt(taken_back, "withdrawn")["how"] == "taken back by owner"
    until(lambda: s.count("turn.ended") == 2, why=s.story)
    assert [event["data"]["text"] for event in s.events("assistant.message")] == ["first", "changed"]
    assert [stage.model.openings(each) for each in (kept, gone)] == [1, 0]
    assert not any(gone in text for text in user_texts(stage.model.about(task)[-1]))


@pytest.mark.parametrize(
    ("command", "bound_s"),
    [
        (
            "sh -c 'sleep 300; true' {0} & (setsid sh -c 'sleep 301; true' {0} &); nohup sh -c 'sleep 302; true' {0}",
            1.0,
        ),
        (f"{STUBBORN} & (setsid {STUBBORN} &); {STUBBORN}", 2.0),
    ],
    ids=["its children and daemons within 1 s", "what ignores TERM within 2 s"],
)
def test_an_interrupt_ends_the_running_tool_with_all_it_began(stage: Stage, command: str, bound_s: float) -> None:
    mark, after = word("busy"), word("after")
    # The model's own words hold the mark too, but only as text that is written, never as a command line.
    s = stage.session(said(word("task"), bash(command.replace("{}", "{0}").format(mark)), {"text": "never"}))
    s.tool_running(mark, 3)
    asked = time.monotonic()
    (interrupt,) = s.post({"type": "user.interrupt"})
    until(lambda: not processes_saying(mark), why=lambda: (processes_saying(mark), s.story()))
    assert time.monotonic() - asked < bound_s
    assert s.first("turn.ended")["data"]["result"] == "interrupted"
    assert s.receipt(interrupt["id"], "consumed")["turn"] == 1
    now = s.shown("waiting")
    assert now["runner"], "the slot is still held"
    s.send(after, {"text": "went on"})
    until(lambda: s.count("turn.ended") == 2, why=s.story)
    assert s.events("assistant.message")[-1]["data"]["text"] == "went on"
    assert s.count("runtime.started") == 1, "the same process goes on"
    assert "never" not in [event["data"]["text"] for event in s.events("assistant.message")]


def test_a_redirect_stops_the_turn_and_is_what_comes_next_before_what_was_queued(stage: Stage) -> None:
    mark, queued, instead = word("busy"), word("queued"), word("instead")
    s = stage.session(said(word("task"), bash(f"sh -c 'sleep 300; true' {mark}"), {"text": "never"}))
    s.tool_running(mark)
    waits = s.send(queued, {"text": "the queued one"})
    asked = time.monotonic()
    redirect = s.send(instead, {"text": "the redirect"}, delivery="interrupt")
    until(lambda: not processes_saying(mark), why=s.story)
    assert time.monotonic() - asked < 1
    until(lambda: s.count("turn.ended") == 3, why=s.story)
    assert [event["data"]["result"] for event in s.events("turn.ended")] == ["interrupted", "completed", "completed"]
    assert [event["data"]["input_ids"] for event in s.events("turn.started")][1:] == [[redirect], [waits]]
    assert [event["data"]["text"] for event in s.events("assistant.message")] == ["the redirect", "the queued one"]
    assert [stage.model.openings(each) for each in (instead, queued)] == [1, 1]
    assert s.receipt(redirect, "consumed")["how"] == "interrupt"
    assert s.receipt(waits, "consumed")["how"] == "next_turn"


def test_an_interrupt_can_drop_what_is_queued_and_says_so(stage: Stage) -> None:
    mark, queued = word("busy"), word("queued")
    s = stage.session(said(word("task"), {"run": f"sh -c 'sleep 300; true' {mark}"}), runtime="scripted")
    s.tool_running(mark)
    dropped = s.send(queued, {"say": "never"})
    s.post({"type": "user.interrupt", "drop_queued": True})
    assert s.receipt(dropped, "withdrawn")["code"] == "dropped"
    s.shown("waiting")
    assert s.count("turn.started") == 1


def test_a_message_during_the_finishing_turn_opens_the_next_turn_and_then_the_session_ends(stage: Stage) -> None:
    task, late = word("task"), word("late")
    s = stage.session(said(task, bash("echo; sleep 1"), finish("too early")))
    s.first("tool.call")
    message = s.send(late, {"text": "that too", **finish("both done")})
    ended = s.first("session.ended")
    assert (ended["data"]["outcome"], ended["data"]["summary"]) == ("completed", "both done")
    assert [event["data"]["input_ids"] for event in s.events("turn.started")][1:] == [[message]]
    assert "too early" in s.first("note", code="not_finished")["data"]["text"]
    assert [stage.model.openings(each) for each in (task, late)] == [1, 1]


def test_a_message_between_finish_and_the_end_is_never_swallowed(stage: Stage) -> None:
    """The message is posted the moment the finishing turn has ended: while it stops, saves, or just after its end."""
    task, late = word("task"), word("late")
    s = stage.session(said(task, finish("first")))
    s.first("turn.ended")
    message = s.send(late, {"text": "and this", **finish("second")})
    s.receipt(message, "consumed")
    until(lambda: (now := s.look())["shown"] == "ended" and now["summary"] == "second", why=s.story)
    assert [stage.model.openings(each) for each in (task, late)] == [1, 1]
    assert s.look()["outcome"] == "completed"
    s.whole()


def test_a_blocking_question_keeps_a_session_from_finishing(stage: Stage) -> None:
    s = stage.session(
        said(word("task"), {"ask": {"question": "Sure?"}}, {"finish": "unsure"}), runtime="scripted"
    )  # fmt: skip
    question = s.question()
    s.shown("waiting")
    assert s.look()["turn"]["waiting_for"] == "answer"
    s.answer(question, "yes", {"finish": "sure"})
    assert s.first("session.ended")["data"]["summary"] == "sure"


def test_a_runtime_that_is_started_says_which_process_it_is(stage: Stage) -> None:
    s = stage.session(said(word("task"), bash("echo"), ask("Which?")))
    s.question()
    pid = s.events("runtime.started")[0]["data"]["pid"]
    assert pid > 0
    assert Path(f"/proc/{pid}").exists()
