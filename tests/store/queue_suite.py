"""What every store must do for those who wait: for their time, and for a runner. `StoreSuite` inherits it."""

from __future__ import annotations

from bide.core import commands as c
from bide.core.session import Session
from bide.store.base import Engine, Load
from tests.store.story import LEASE_S, START, Clock, begin, create, do, grant, queue_of, say, uid


class QueueSuite:
    """The part of `StoreSuite` about waking and the queue."""

    def test_the_longest_overdue_session_is_woken_first_and_by_one_server(self, engine: Engine, clock: Clock) -> None:
        sessions = [begin(engine, n) for n in range(3)]
        for n, s in enumerate(reversed(sessions)):
            clock.time = START + n
            do(engine, s.id, c.Renew(runner="r1", runner_name="r1", boot="boot-r1", epoch=1, lease_s=LEASE_S))
        waking = [s.id for s in reversed(sessions)]
        assert engine.claim_due(START + LEASE_S - 0.001, 10, 5.0) == []
        assert engine.claim_due(START + LEASE_S, 10, 5.0) == waking[:1], "the very moment counts"
        now = START + LEASE_S + 2
        assert engine.claim_due(now, 1, 5.0) == waking[1:2], "the first is another's for 5 seconds"
        assert engine.claim_due(now, 10, 5.0) == waking[2:]
        assert engine.claim_due(now, 10, 5.0) == []
        assert engine.claim_due(START + LEASE_S + 5, 10, 5.0) == waking[:1], "whoever had it may be dead"
        assert engine.claim_due(now + 100, 10, 5.0) == [*sorted(waking[1:]), waking[0]]

    def test_a_claimed_session_is_woken_when_it_says_once_it_was_written(self, engine: Engine, clock: Clock) -> None:
        s = begin(engine)
        at = START + LEASE_S
        assert engine.claim_due(at, 10, 50.0) == [s.id]
        do(engine, s.id, say(1))  # its wake-up is what it was
        assert engine.claim_due(at, 10, 50.0) == [s.id]
        clock.time = at
        do(engine, s.id, c.Wake())
        assert engine.claim_due(at, 10, 50.0) == [], "interrupted, and its own runner may still come back"
        assert engine.claim_due(at + 3600, 10, 50.0) == [s.id]

    def test_the_queue_is_served_in_the_order_of_arrival(self, engine: Engine, clock: Clock) -> None:
        order = [4, 2, 3, 1]
        for place, n in enumerate(order):
            clock.time = START + place // 2  # two at one moment: the id decides
            do(engine, uid("session", n), create(n))
        ids = [uid("session", n) for n in order]
        assert [s.id for s in queue_of(engine)] == [*sorted(ids[:2]), *sorted(ids[2:])]
        do(engine, ids[0], grant())
        assert ids[0] not in [s.id for s in queue_of(engine)]
        assert [s.id for s in engine.leased_to("r1")] == [ids[0]]
        assert engine.leased_to("r2") == []

    def test_a_runner_sees_only_what_it_could_take_and_page_by_page(self, engine: Engine, clock: Clock) -> None:
        for n in range(12):
            clock.time = START + n // 3
            pool, runtime = ("gpu", "cpu")[n % 2], ("claude_code", "codex", "scripted")[n % 3]
            do(engine, uid("session", n), create(n, pool=pool, runtime=runtime))
        do(engine, uid("session", 0), grant())
        names = {uid("session", n): n for n in range(12)}

        def numbers(found: list[Session]) -> list[int]:
            assert found == sorted(found, key=lambda s: (s.queued_at, s.id))
            return sorted(names[s.id] for s in found)

        for page in (1, 2, 100):
            assert numbers(queue_of(engine, "gpu", ["codex"], page)) == [4, 10]
            assert numbers(queue_of(engine, "gpu", ["codex", "scripted"], page)) == [2, 4, 8, 10]
            assert numbers(queue_of(engine, "gpu", ["claude_code", "codex", "scripted"], page)) == [2, 4, 6, 8, 10]
            assert queue_of(engine, "tpu", ["codex"], page) == queue_of(engine, "gpu", ["acp"], page) == []
        assert engine.queued("gpu", [], None, 10) == []

    def test_a_person_is_told_how_many_wait_before_their_session(self, engine: Engine, clock: Clock) -> None:
        for n in range(6):
            clock.time = START + n // 2
            do(engine, uid("session", n), create(n, pool="gpu" if n < 5 else "cpu"))
        waiting = queue_of(engine, "gpu")
        assert [engine.ahead("gpu", s.queued_at, s.id) for s in waiting] == [0, 1, 2, 3, 4]
        assert engine.ahead("cpu", START + 2, uid("session", 5)) == 0
        assert engine.ahead("tpu", START + 100, uid("anybody")) == 0
        do(engine, waiting[0].id, grant())
        assert [engine.ahead("gpu", s.queued_at, s.id) for s in waiting[1:]] == [0, 1, 2, 3]

    def test_the_load_of_each_pool_is_what_waits_and_what_is_held(self, engine: Engine, clock: Clock) -> None:
        assert engine.load() == {}
        for n in range(5):
            clock.time = START + n
            do(engine, uid("session", n), create(n, pool="gpu" if n < 4 else "cpu"))
        for n in (0, 4):
            do(engine, uid("session", n), grant())
        do(engine, uid("session", 1), c.Cancel(id=uid("cancel"), author="ada"))
        assert engine.load() == {"gpu": Load(queued=2, held=1, oldest=START + 2), "cpu": Load(held=1)}

    def test_a_stream_learns_how_far_each_log_goes(self, engine: Engine) -> None:
        s = begin(engine)
        assert engine.last_seqs([s.id, uid("nobody")]) == {s.id: s.last_seq}
        s = do(engine, s.id, say(1)).session
        assert engine.last_seqs([s.id]) == {s.id: s.last_seq}
        assert engine.last_seqs([]) == {}
