"""The server dies with `kill -9`, and comes back: its sessions have worked on, and the log tells all of it once."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.client import Connection, SyncClient
from tests.e2e.model import bash, said, word
from tests.e2e.stage import Session, Stage, processes_saying, staged, until


@pytest.fixture(scope="module")
def alone() -> Iterator[Stage]:
    """A server that may be killed, and its runner."""
    with staged() as stage:
        stage.runners("one")
        yield stage


class Follower:
    """A client that follows a session all the while."""

    def __init__(self, session: Session) -> None:
        self.seqs: list[int] = []
        self._client = SyncClient(connection=Connection(url=session.stage.url, token=session.stage.token))
        self._id = session.id
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        for event in self._client.follow(self._id):
            self.seqs.append(event["seq"])
            if event["type"] == "session.ended":
                return

    def close(self) -> None:
        self._thread.join(10)
        self._client.close()


def ticks(mark: str, count: int) -> dict[str, object]:
    """A tool that writes a numbered line with the time to a file, ten times a second."""
    loop = f"for i in $(seq {count}); do echo $i $(date +%s.%N) >> ticks; sleep 0.1; done; echo all-ticked"
    return bash(f"sh -c '{loop}' {mark}")


def finishing(mark: str, count: int) -> str:
    return said(word("task"), ticks(mark, count), {"tool": "mcp__bide__finish", "input": {"summary": "done"}})


def whole_and_once(s: Session, follower: Follower) -> None:
    assert s.first("session.ended")["data"]["outcome"] == "completed"
    follower.close()
    s.whole()
    assert follower.seqs == list(range(1, s.look()["last_seq"] + 1))
    for kind in ("turn.started", "turn.ended", "runtime.started", "session.leased", "environment.restored"):
        assert s.count(kind) == 1, s.story()
    assert not s.events("session.interrupted", "environment.rolled_back", "gap")
    results = [event["data"]["output"] for event in s.events("tool.result")]
    assert results[0].rstrip().endswith("all-ticked")


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_same_turn_goes_on_and_is_told_once(alone: Stage) -> None:
    mark = word("ticks")
    s = alone.session(finishing(mark, 25))
    follower = Follower(s)
    (pid, *_) = s.tool_running(mark)
    alone.parts["server"].kill()
    url, away = alone.url, len(alone.parts["one"].log.read_bytes())
    until(lambda: b"server_away" in alone.parts["one"].log.read_bytes()[away:])
    assert Path(f"/proc/{pid}").exists()
    alone.serve()
    assert alone.url == url
    whole_and_once(s, follower)


def test_a_server_that_is_away_for_longer_than_a_lease_finds_its_sessions_frozen_and_they_go_on(alone: Stage) -> None:
    mark = word("ticks")
    s = alone.session(finishing(mark, 50))
    follower = Follower(s)
    (pid, *_) = s.tool_running(mark)
    killed_at = time.monotonic()
    alone.parts["server"].kill()
    until(lambda: all(state_of(each) == "T" for each in processes_saying(mark)), alone.lease_s)
    frozen_after = time.monotonic() - killed_at
    assert frozen_after < alone.lease_s * 2 / 3 + 1, "before the server could give it to anybody else"
    until(lambda: time.monotonic() - killed_at > alone.lease_s + 2)
    assert state_of(pid) == "T"
    lines = (alone.folder / "one" / s.id / "workspace" / "ticks").read_text().splitlines()
    alone.serve()
    workspace = alone.folder / "one" / s.id / "workspace"
    whole_and_once(s, follower)
    after = (workspace / "ticks").read_text().splitlines()
    assert after[: len(lines)] == lines
    assert [int(line.split()[0]) for line in after] == list(range(1, 51)), "it went on where it stood"
    times = [float(line.split()[1]) for line in after]
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) > 2, "it did stand still"


def test_an_input_that_was_accepted_before_the_crash_is_delivered_once_after_it(alone: Stage) -> None:
    mark, late = word("ticks"), word("late")
    s = alone.session(said(word("task"), ticks(mark, 10), {"text": "done"}))
    s.tool_running(mark)
    accepted = s.send(late, {"text": "and that"})
    alone.parts["server"].kill()
    alone.serve()
    s.receipt(accepted, "consumed")
    s.first("assistant.message", text="and that")
    assert alone.model.openings(late) == 1
    s.whole()
