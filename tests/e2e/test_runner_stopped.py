"""A runner is stopped where it stands and its sessions are not: past the lease they must not act, and nothing is lost."""

from __future__ import annotations

import itertools
import os
import signal
import time
from pathlib import Path
from typing import Any

from tests.e2e.model import bash, said, word
from tests.e2e.stage import Session, Stage, processes_saying, until


def ticks(mark: str, count: int) -> dict[str, object]:
    loop = f"for i in $(seq {count}); do echo $i $(date +%s.%N) >> ticks; sleep 0.1; done; echo all-ticked"
    return bash(f"sh -c '{loop}' {mark}")


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def stopped_past_its_lease(stage: Stage, pool: str, **settings: Any) -> tuple[Session, str, list[str], int]:
    """A session in mid-turn whose runner alone was stopped, until the server had given the lease up."""
    (runner,) = stage.runners(pool, pool=pool)
    mark = word("ticks")
    s = stage.session(said(word("task"), {"text": "ready"}), pool=pool, **settings)
    until(lambda: s.count("checkpoint.saved") >= 2, why=s.story)
    s.send(word("second"), ticks(mark, 70), {"text": "done"})
    s.tool_running(mark)
    os.kill(runner.pid, signal.SIGSTOP)
    stopped_at = time.monotonic()
    until(lambda: all(state_of(each) == "T" for each in processes_saying(mark)), stage.lease_s)
    assert time.monotonic() - stopped_at < stage.lease_s * 2 / 3 + 1, "before the server could give it to anybody else"
    lines = (stage.folder / pool / s.id / "workspace" / "ticks").read_text().splitlines()
    assert 0 < len(lines) < 70
    s.first("session.interrupted", within_s=3 * stage.lease_s)
    return s, mark, lines, runner.pid


def test_a_stopped_runner_that_wakes_before_anybody_else_was_granted_goes_on_where_it_stood(shared: Stage) -> None:
    s, _, lines, pid = stopped_past_its_lease(shared, "stopped")
    ticked = shared.folder / "stopped" / s.id / "workspace" / "ticks"
    assert ticked.read_text().splitlines() == lines, "it acted past its lease"
    os.kill(pid, signal.SIGCONT)
    s.first("assistant.message", text="done")
    after = ticked.read_text().splitlines()
    assert after[: len(lines)] == lines
    assert [int(line.split()[0]) for line in after] == list(range(1, 71))
    times = [float(line.split()[1]) for line in after]
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) > 2, "it did stand still"
    assert s.count("turn.started") == 2
    assert not s.events("environment.rolled_back", "gap", "runtime.resumed")
    s.whole()


def test_a_stopped_runner_that_wakes_after_another_took_over_ends_its_session_and_is_not_heard(shared: Stage) -> None:
    s, mark, lines, pid = stopped_past_its_lease(shared, "fenced", recovery_window_s=0)
    old = set(processes_saying(mark))
    shared.runners("fenced-two", pool="fenced")
    leased = s.first("session.leased", runner_name="fenced-two", within_s=3 * shared.lease_s)
    os.kill(pid, signal.SIGCONT)
    until(lambda: not old & set(processes_saying(mark)), 5)
    (salvage,) = until(lambda: list((shared.folder / "fenced" / ".salvage").glob("*")))
    assert (salvage / "workspace" / "ticks").read_text().splitlines() == lines, "it acted past its lease"
    s.first("assistant.message", text="done")
    assert {e["epoch"] for e in s.events(after=leased["seq"] - 1)} == {leased["epoch"]}
    assert s.count("environment.rolled_back") == 1
    s.whole()
