"""Whatever people, runners and time do, in whatever groups: SQLite and PostgreSQL answer like the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bide.core import commands as c
from bide.core import facts as f
from bide.core.handle import Done
from bide.core.refusals import Refused
from bide.core.session import Lifecycle, Session
from bide.store.base import Engine, Page
from bide.store.memory import MemoryStore
from bide.store.postgres import PostgresStore
from bide.store.rows import session_of
from bide.store.sqlite import SqliteStore
from tests.store.postgres_server import PostgresServer
from tests.store.story import LEASE_S, Clock, create, grant, job, question, runner, saved, uid, whole

SESSIONS = [uid("session", n) for n in range(3)]
RUNNERS = ["r1", "r2"]
session_ids = st.sampled_from(SESSIONS)
few = st.integers(0, 5)
IMPACTS: tuple[f.Impact, ...] = ("low", "medium", "high")


def plausible(s: Session, kind: int, n: int) -> f.RunnerFact:
    """A fact that a runner could report; whether it fits the moment is the session's business."""
    input_id = s.inputs[n % len(s.inputs)].id if s.inputs else uid("nothing")
    facts: list[Callable[[], f.RunnerFact]] = [
        lambda: f.EnvironmentRestored(source="fresh"),
        lambda: f.TurnStarted(input_ids=(input_id,)),
        lambda: f.AssistantMessage(text=f"words {n}"),
        lambda: f.ToolCall(id=uid("call", n), name="Edit", input=f'{{"file_path":"/w/{n}"}}'),
        lambda: f.Receipt(input_id=input_id, status="delivered", how="pipe", turn=s.turn.n),
        lambda: f.Receipt(input_id=input_id, status="consumed"),
        lambda: f.QuestionAsked(question=question((s.id, n), s.id, blocking=n % 2 == 0, impact=IMPACTS[n % 3])),
        lambda: f.TurnEnded(result="completed"),
        lambda: saved(s, n),
        lambda: f.CheckpointFailed(code="full", reason="no space"),
        lambda: f.Parked(checkpoint=n),
        lambda: f.EnvironmentLost(reason="its blobs are gone"),
        lambda: f.Ended(outcome="completed", summary="done"),
        lambda: f.Cost(usd=0.1, tokens=n, model="m"),
    ]
    return facts[kind % len(facts)]()


class OnePostgres:
    """One store for all examples, emptied for each: a database of its own would take longer than the example."""

    store: PostgresStore
    clock = Clock()

    @classmethod
    def emptied(cls) -> tuple[PostgresStore, Clock]:
        cls.store._link.execute("truncate session, event, input, question, checkpoint, runner, document")
        cls.clock.time = Clock().time
        return cls.store, cls.clock


@pytest.fixture(autouse=True, scope="module")
def one_postgres(postgres: PostgresServer) -> Iterator[None]:
    name = postgres.create("empty")
    OnePostgres.store = PostgresStore(postgres.url(name), OnePostgres.clock)
    yield
    OnePostgres.store.close()
    postgres.drop(name)


class StoresAgree(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.postgres, self.clock = OnePostgres.emptied()
        self.oracle, self.sqlite = MemoryStore(self.clock), SqliteStore(":memory:", self.clock)
        self.engines: list[Engine] = [self.oracle, self.sqlite, self.postgres]
        self.group: list[tuple[str, c.Command]] = []
        self.grouping = False

    def teardown(self) -> None:
        self.sqlite.close()
        with self.postgres.snapshot():  # at the end of the story: at each step it would take most of the time
            self.tells_the_same(self.postgres)

    # -- what happens -----------------------------------------------------------------------------------------------

    def want(self, session: str, command: c.Command) -> None:
        self.group.append((session, command))
        if not self.grouping:
            self.commit()

    def commit(self) -> None:
        jobs = [job(session, command) for session, command in self.group]
        ours, *others = [engine.perform(jobs) for engine in self.engines]
        for theirs in others:
            assert [told(r) for r in ours] == [told(r) for r in theirs]
        for result in ours:
            if isinstance(result, Exception) and not isinstance(result, Refused):
                raise result
        self.group = []

    @initialize(session=session_ids)
    def one_session_works(self, session: str) -> None:
        self.want(session, create(SESSIONS.index(session)))
        self.want(session, grant())
        self.reported_now(session, [0, 1], 0)

    @rule(session=session_ids)
    def created(self, session: str) -> None:
        self.want(session, create(SESSIONS.index(session), ticket="T"))

    @rule(session=session_ids, n=few, delivery=st.sampled_from(["next_turn", "steer", "interrupt"]))
    def said(self, session: str, n: int, delivery: f.Delivery) -> None:
        self.want(session, c.Say(id=uid("say", n), author="ada", text=f"text {n}", delivery=delivery))

    @rule(session=session_ids, n=few, kind=st.sampled_from([c.Cancel, c.Park, c.Resume, c.Interrupt]))
    def asked(self, session: str, n: int, kind: Any) -> None:
        self.want(session, kind(id=uid(kind.__name__, n), author="bob"))

    @rule(session=session_ids, n=few, decline=st.booleans(), choice=few)
    def answered(self, session: str, n: int, choice: int, *, decline: bool) -> None:
        s = self.oracle.session(session)
        open_ones = s.questions if s else ()
        asked = open_ones[n % len(open_ones)] if open_ones else question((session, n), session)
        choices = () if decline or not asked.options else (asked.options[choice % len(asked.options)],)
        answer = c.Answer(
            id=uid("answer", session, n), author="eve", question_id=asked.id, choices=choices, decline=decline
        )
        self.want(session, answer)

    @rule(session=session_ids, name=st.sampled_from(RUNNERS))
    def granted(self, session: str, name: str) -> None:
        self.want(session, grant(name))

    @rule(session=session_ids, name=st.sampled_from(RUNNERS), stale=few)
    def renewed(self, session: str, name: str, stale: int) -> None:
        s = self.oracle.session(session)
        epoch = (s.epoch if s else 1) - (stale == 0)
        self.want(session, c.Renew(runner=name, runner_name=name, boot=f"boot-{name}", epoch=epoch, lease_s=LEASE_S))

    @rule(session=session_ids, name=st.sampled_from(RUNNERS))
    def disowned(self, session: str, name: str) -> None:
        s = self.oracle.session(session)
        self.want(session, c.Disown(runner=name, epoch=s.epoch if s else 1, reason="restarted"))

    @rule(
        session=session_ids,
        kinds=st.lists(st.integers(0, 13), max_size=5),
        n=few,
        shift=st.sampled_from([0, 0, 0, -1, -2, 1]),
    )
    def reported(self, session: str, kinds: list[int], n: int, shift: int) -> None:
        self.reported_now(session, kinds, n, shift)

    def reported_now(self, session: str, kinds: list[int], n: int, shift: int = 0) -> None:
        s = self.oracle.session(session)
        if s is not None:
            facts = tuple(plausible(s, kind, n) for kind in kinds)
            first = max(0, s.n + shift)
            self.want(session, c.Report(runner=s.last_runner, epoch=s.epoch, first=first, facts=facts))

    @rule(seconds=st.sampled_from([0.5, 10.0, 130.0, 1000.0, 100_000.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.time += seconds

    @rule(session=session_ids)
    def woken(self, session: str) -> None:
        self.want(session, c.Wake())

    @rule()
    @precondition(lambda self: not self.grouping)
    def a_group_begins(self) -> None:
        self.grouping = True

    @rule()
    @precondition(lambda self: self.grouping)
    def a_group_is_committed(self) -> None:
        self.commit()
        self.grouping = False

    @rule(name=st.sampled_from(RUNNERS), free=few)
    def put(self, name: str, free: int) -> None:
        for engine in self.engines:
            engine.put_runner(runner(name, slots_free=free, boot=str(free)))
            engine.put("project", name, str(free).encode())
            if free == 0:
                engine.delete("project", name)

    @rule(name=st.sampled_from(RUNNERS), boot=few)
    def heard(self, name: str, boot: int) -> None:
        ours, *others = [engine.hear(runner(name, slots_free=9, boot=str(boot))) for engine in self.engines]
        assert others == [ours, ours]

    @rule(name=st.sampled_from(RUNNERS), free=few)
    def forgotten(self, name: str, free: int) -> None:
        wanted = runner(name, slots_free=free, boot=str(free))
        told = []
        for engine in self.engines:
            with engine.alone():
                told.append(engine.forget_runner(wanted))
        assert len(set(told)) == 1

    @rule(limit=st.integers(1, 3), hold_s=st.sampled_from([0.5, 20.0]))
    @precondition(lambda self: not self.grouping)
    def due_ones_are_claimed(self, limit: int, hold_s: float) -> None:
        ours, *others = [engine.claim_due(self.clock.time, limit, hold_s) for engine in self.engines]
        assert others == [ours, ours]

    # -- what must hold ---------------------------------------------------------------------------------------------

    @invariant()
    def sqlite_tells_the_same(self) -> None:
        self.tells_the_same(self.sqlite)

    def tells_the_same(self, engine: Engine) -> None:
        assert whole(engine, SESSIONS, RUNNERS) == whole(self.oracle, SESSIONS, RUNNERS)
        for word in Lifecycle:
            page = Page(limit=2, lifecycles=(word,), ticket="T")
            assert engine.sessions(page) == self.oracle.sessions(page)

    @invariant()
    def the_state_is_what_the_facts_say(self) -> None:
        for session in SESSIONS:
            s = self.oracle.session(session)
            if s is not None:
                log = self.sqlite.events(session, 0, 100_000)
                assert session_of(log, s.lease.until if s.lease else None) == s


def told(result: Done | Refused | Exception) -> object:
    """A result as something that can be compared."""
    match result:
        case Refused():
            return result.code, result.sentence, result.hint, result.more
        case Exception():
            return type(result), str(result)
    return result


StoresAgree.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStoresAgree = StoresAgree.TestCase
