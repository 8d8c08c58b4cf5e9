"""A duty of all servers together is done once when it is due, whoever does it, whatever the clock and other releases do."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from bide.server.loops.base import ROUND, Round, claim, keep
from bide.store.memory import MemoryStore
from tests.store.story import Clock


class Counted(Round, frozen=True, kw_only=True):
    done: int = 0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(clock: Clock) -> MemoryStore:
    return MemoryStore(clock)


def test_of_all_servers_one_does_the_round_and_the_next_is_due_later(engine: MemoryStore, clock: Clock) -> None:
    first = claim(engine, "duty", Counted, 30.0)
    assert first is not None
    keep(engine, "duty", replace(first, done=1))
    clock.time += 29
    assert claim(engine, "duty", Counted, 30.0) is None
    assert claim(engine, "another", Counted, 30.0) is not None
    clock.time += 1
    second = claim(engine, "duty", Counted, 30.0)
    assert second is not None
    assert (second.done, second.passed_s) == (1, 30.0), "it goes on from where the last one came to"


def test_a_round_that_wants_rest_is_not_followed_before(engine: MemoryStore, clock: Clock) -> None:
    first = claim(engine, "duty", Counted, 30.0)
    assert first is not None
    keep(engine, "duty", replace(first, due=clock.time + 3600))
    clock.time += 3599
    assert claim(engine, "duty", Counted, 30.0) is None
    clock.time += 1
    assert claim(engine, "duty", Counted, 30.0) is not None


def test_a_clock_that_was_set_back_stops_no_duty(engine: MemoryStore, clock: Clock) -> None:
    assert claim(engine, "duty", Counted, 30.0) is not None
    clock.time -= 86400
    again = claim(engine, "duty", Counted, 30.0)
    assert again is not None
    assert again.passed_s == 0
    assert claim(engine, "duty", Counted, 30.0) is None


@pytest.mark.parametrize("body", [b'{"at": 1.0, "done": 7, "more": {}}', msgspec.msgpack.encode({"at": 4e9}), b"\xff"])
def test_what_another_release_wrote_stops_no_duty(engine: MemoryStore, body: bytes) -> None:
    engine.put(ROUND, "duty", body)
    assert claim(engine, "duty", Counted, 30.0) is not None
    assert claim(engine, "duty", Counted, 30.0) is None
