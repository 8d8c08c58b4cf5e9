"""One log, whoever reads it and whatever happens meanwhile: nothing is missing, nothing comes twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import jsonschema
import pytest

from bide.client import Connection, SyncClient
from bide.client.shapes import Event
from tests.e2e.model import ask, bash, finish, said, word
from tests.e2e.stage import Session, Stage, staged, until


@pytest.fixture(scope="module")
def alone() -> Iterator[Stage]:
    """A server that may be killed."""
    with staged() as stage:
        yield stage


class Reader:
    """A client that follows a session all the while, until it has ended."""

    def __init__(self, session: Session) -> None:
        self.events: list[Event] = []
        self.client = SyncClient(connection=Connection(url=session.stage.url, token=session.stage.token))
        self._session = session
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        self.events.extend(self.client.follow(self._session.id, until_ended=True))

    def whole(self) -> list[Event]:
        """All of it, once the session has ended: the same as the log, as it was published."""
        self._thread.join(30)
        self.client.close()
        log = self._session.events()
        assert [event["seq"] for event in self.events] == list(range(1, len(log) + 1))
        assert self.events == log
        fits = jsonschema.Draft202012Validator(self._session.stage.ok("GET", "/v1/schemas/events"))
        for event in log:
            fits.validate(event)
        return self.events


def test_one_cursor_goes_on_across_park_another_runner_a_server_restart_and_another_runtime(alone: Stage) -> None:
    (one,) = alone.runners("one")
    s = alone.session(said(word("task"), ask("Which?")))
    reader = Reader(s)
    question = s.question()
    s.parked()
    one.stop()
    alone.runners("two")
    s.answer(question, "this one", bash("echo; sleep 2"), {"text": "elsewhere"})
    s.first("tool.call", name="Bash")
    alone.parts["server"].kill()
    alone.serve()
    until(lambda: s.count("turn.ended") == 2, why=s.story)
    s.send("and now", finish())
    s.first("session.ended")
    events = reader.whole()
    called = [event["data"]["name"] for event in events if event["type"] == "tool.call"]
    assert called == ["mcp__bide__ask_human", "Bash", "mcp__bide__finish"], "each once"
    assert [e["data"]["text"] for e in events if e["type"] == "assistant.message"] == ["elsewhere"]
    leased = [event["data"]["runner_name"] for event in events if event["type"] == "session.leased"]
    assert {leased[0], leased[-1]} == {"one", "two"}
    assert sum(event["type"] == "runtime.resumed" for event in events) == 1
    assert not any(event["type"] in ("gap", "environment.lost", "environment.rolled_back") for event in events)


def test_three_resumes_of_a_running_session_start_no_second_runtime_and_double_no_event(stage: Stage) -> None:
    s = stage.session(said(word("task"), bash("echo; sleep 2"), finish()))
    readers = [Reader(s) for _ in range(2)]
    s.first("tool.call")
    for reader in (*readers, readers[0]):
        reader.client.resume(s.id)
    s.first("session.ended")
    for reader in readers:
        kinds = [event["type"] for event in reader.whole()]
        assert kinds.count("runtime.started") == 1
        assert kinds.count("session.leased") == 1
        assert (kinds.count("tool.call"), kinds.count("tool.result")) == (2, 2)


def test_ten_thousand_events_with_nobody_listening_are_all_there_later(stage: Stage) -> None:
    steps = [{"say": str(n)} for n in range(10_000)]
    s = stage.session(said(word("task"), *steps), runtime="scripted")
    s.first("turn.ended", within_s=60)
    with SyncClient(connection=Connection(url=stage.url, token=stage.token)) as client:
        log = list(client.history(s.id))
    assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
    assert [e["data"]["text"] for e in log if e["type"] == "assistant.message"] == [str(n) for n in range(10_000)]
