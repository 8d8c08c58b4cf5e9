"""What a person on call sees: counted from what is stored, named as documented."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bide.server.metrics import Metrics
from tests.server.harness import LiveServer, Voice, following, held, until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "counted", lease_s=60)
    yield live
    live.stop()


def values(server: LiveServer) -> dict[str, float]:
    """Every sample, `name{label=value,…}`; those without labels by their name."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(server.http.get("/metrics").text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_every_metric_is_documented_and_no_other() -> None:
    families = Metrics().registry.collect()
    there = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    assert set(re.findall(r"^\| `(\w+)`", PAGE.read_text("utf-8"), re.MULTILINE)) == there


def test_autoscaling_sees_what_each_pool_has_to_do(counted: LiveServer, repo: Path) -> None:
    runner = Voice(counted, "machine-2", slots=2, pool="gpu")
    for _ in range(3):
        counted.session(repo, pool="gpu")
    grants = runner.sync()["grants"]
    runner.sync(*map(held, grants))
    Voice(counted, "idle-0", pool="idle").sync(free=4)
    seen = until(lambda: (found := values(counted)).get("bide_sessions_held{pool=gpu}") == 2 and found)
    assert seen["bide_sessions_queued{pool=gpu}"] == 1
    assert 0 < seen["bide_queue_oldest_seconds{pool=gpu}"] < 60
    assert seen["bide_sessions_queued{pool=idle}"] == seen["bide_sessions_held{pool=idle}"] == 0
    assert (seen["bide_slots{pool=gpu}"], seen["bide_slots_free{pool=gpu}"]) == (2, 0)
    assert (seen["bide_slots{pool=idle}"], seen["bide_slots_free{pool=idle}"]) == (4, 4)
    assert seen["bide_runners{pool=gpu,state=online}"] == 1
    assert seen["bide_runners_floor{pool=gpu}"] == 6, "machine-0 and machine-1 may not go before machine-2"
    assert seen["bide_runners_floor{pool=idle}"] == 0
    assert seen["bide_store_up"] == 1


def test_what_happened_is_counted_once_however_often_it_was_told(counted: LiveServer, repo: Path) -> None:
    runner = Voice(counted, "r")
    session = counted.session(repo)["id"]
    grant = runner.claim()
    runner.sync(held(grant))
    runner.ask(grant)
    saved = {
        "id": session, "n": 1, "epoch": 1, "root": "", "turn": 1, "bytes": 1000, "new_bytes": 10, "seconds": 3.0,
    }  # fmt: skip
    facts = ({"type": "checkpoint.saved", "checkpoint": saved}, {"type": "session.parked", "seconds": 4.0})
    first = runner.n[session, 1]
    for _ in range(3):
        assert runner.say(grant, *facts, first=first).status_code == 200
    seen = values(counted)
    assert seen["bide_leases_total{how=granted}"] == 1
    assert seen["bide_leases_total{how=renewed}"] >= 1
    assert seen["bide_resumes_total{source=fresh}"] == 1
    assert seen["bide_questions_total{what=asked}"] == 1
    assert seen["bide_checkpoints_total{result=saved}"] == 1
    assert (seen["bide_checkpoint_bytes_total"], seen["bide_checkpoint_new_bytes_total"]) == (1000, 10)
    assert (seen["bide_checkpoint_seconds_sum"], seen["bide_parks_total"]) == (3.0, 1)
    assert seen["bide_facts_total{type=session.parked}"] == 1
    assert seen["bide_store_commit_writes_count"] >= 4
    assert seen["bide_request_seconds_count{route=/v1/runners/{runner}/facts}"] >= 4


def test_a_reader_that_is_slow_to_hear_and_a_loop_that_is_late_are_seen(counted: LiveServer, repo: Path) -> None:
    session = counted.session(repo)["id"]
    with following(counted.http, f"/v1/sessions/{session}/events/stream") as frames:
        assert len(list(islice((f for f in frames if "id" in f), 3))) == 3
        assert values(counted)["bide_event_lag_seconds_count"] == 0, "what is replayed is not late"
        counted.post(session, {"type": "user.message", "text": "live"})
        until(lambda: next(frames).get("event") == "user.message")
    seen = until(lambda: (found := values(counted))["bide_event_lag_seconds_count"] == 1 and found)
    assert seen["bide_event_lag_seconds_sum"] < 5
    until(lambda: values(counted)["bide_loop_lag_seconds_count"] > 0)
