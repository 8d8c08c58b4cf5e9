"""What the store tests tell: a clock that is moved by hand, sessions, and plausible runner facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest
from msgspec.structs import replace

from bide.core import commands as c
from bide.core import facts as f
from bide.core import ids
from bide.core.bounds import LIMITS
from bide.core.handle import Append, Done, Lock, Locked, Work, handle
from bide.core.placement import Runner
from bide.core.session import Session
from bide.store.base import Engine, Job, Page, Reader, perform_one
from bide.store.rows import place_of

START = 1_800_000_000.0
LEASE_S = 120.0


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> float:
        return self.time


def uid(*parts: object) -> str:
    return ids.mint(START, "test", *parts)


def create(
    n: int = 0,
    *,
    project: str = "p",
    ticket: str = "",
    prompt: str = "Fix it. ünïcode\0 🙂",
    pool: str = "default",
    runtime: str = "scripted",
) -> c.Create:
    return c.Create(
        project=project, runtime=runtime, title="t", ticket=ticket, pool=pool, repository="repo", branch="",
        model="", author="ada", prompt=prompt, input_id=uid("prompt", n),
        limits={name: limit.value for name, limit in LIMITS.items()},
    )  # fmt: skip


def grant(runner: str = "r1") -> c.Grant:
    return c.Grant(runner=runner, runner_name=runner, boot=f"boot-{runner}", lease_s=LEASE_S)


def say(n: object, text: str = "hello") -> c.Say:
    return c.Say(id=uid("say", n), author="ada", text=text)


def question(n: object, session: str, *, blocking: bool = True, impact: f.Impact = "medium") -> f.Question:
    return f.Question(
        id=uid("question", n), session_id=session, question="Which?", options=("a", "b"), blocking=blocking,
        impact=impact,
    )  # fmt: skip


def report(s: Session, *facts: f.RunnerFact, first: int | None = None, epoch: int | None = None) -> c.Report:
    return c.Report(
        runner=s.last_runner,
        epoch=s.epoch if epoch is None else epoch,
        first=s.n if first is None else first,
        facts=facts,
    )


def words(count: int, size: int = 200) -> tuple[f.RunnerFact, ...]:
    return tuple(f.AssistantMessage(text=f"{n} " + "x" * size) for n in range(count))


def job(session: str, command: c.Command) -> Job:
    return lambda: handle(session, command)


def do(engine: Engine, session: str, command: c.Command) -> Done:
    return perform_one(engine, job(session, command))


def begin(engine: Engine, n: int = 0) -> Session:
    """A session on runner r1 whose turn is open."""
    s = do(engine, uid("session", n), create(n)).session
    s = do(engine, s.id, grant()).session
    restored = f.EnvironmentRestored(source="fresh")
    started = f.RuntimeStarted(runtime="scripted", version="1")
    return do(engine, s.id, report(s, restored, started, f.TurnStarted(input_ids=(uid("prompt", n),)))).session


def saved(s: Session, n: int) -> f.CheckpointSaved:
    return f.CheckpointSaved(
        checkpoint=f.Checkpoint(
            id=uid("checkpoint", s.id, n), n=n, epoch=s.epoch, root=f"root-{n}", turn=s.turn.n, at_n=s.n
        )
    )


def damaged_in_the_middle(engine: Engine, damage: Callable[[str, int], object]) -> None:
    """What one event of a session, made unreadable by `damage`, may cost: itself, and nothing that is shown."""
    s = begin(engine)
    s = do(engine, s.id, report(s, *words(3))).session
    whole = engine.shown(s.id, 0, 100)
    assert whole == engine.events(s.id, 0, 100)
    damage(s.id, s.last_seq - 1)
    *before, one, after = engine.shown(s.id, 0, 100)
    assert [*before, after] == [*whole[:-2], whole[-1]]
    assert (one.seq, one.type, one.fact) == (
        s.last_seq - 1, "assistant.message", f.Opaque(kind="assistant.message", body={"damaged": True}),
    )  # fmt: skip
    assert engine.shown(s.id, s.last_seq - 1, 1) == [after]
    with pytest.raises(msgspec.MsgspecError):
        engine.events(s.id, 0, 100)  # nothing may be decided after it


def whole(engine: Engine, sessions: Sequence[str], runners: Sequence[str]) -> dict[str, object]:
    """Everything a store can be asked, to be compared with another's."""
    page = Page(limit=100)
    return {
        **{f"session {s}": engine.session(s) for s in sessions},
        **{f"events {s}": engine.events(s, 0, 10_000) for s in sessions},
        **{f"inputs {s}": engine.inputs(s) for s in sessions},
        **{f"checkpoints {s}": engine.checkpoints(s) for s in sessions},
        **{f"questions {s}": engine.questions(s) for s in sessions},
        **{f"leased to {r}": engine.leased_to(r) for r in runners},
        **{f"inbox {status}": inbox_of(engine, status) for status in ("", "open", "answered", "declined", "withdrawn")},
        **{f"questions {prefix}": engine.questions_beginning(prefix, "", 3) for prefix in (uid()[:6], "ffffff")},
        "open questions": engine.questions_beginning(uid()[:6], "open", 2),
        "sessions": engine.sessions(page),
        "queued": queue_of(engine, page=100),
        "queued, paged": queue_of(engine),
        "ahead": [engine.ahead(s.pool, s.queued_at, s.id) for s in queue_of(engine)],
        "load": engine.load(),
        "last seqs": engine.last_seqs([*sessions, uid("nobody")]),
        "runners": engine.runners(),
        "runner": engine.runner(uid("runner", "r1")),
        "kinds": [engine.keys(kind) for kind in ("project", "token")],
        "documents": [engine.documents("project", after, 1) for after in ("", "r1", "r2")],
    }


def inbox_of(engine: Reader, status: str = "", page: int = 2) -> list[f.Question]:
    """The inbox, read page by page."""
    found: list[f.Question] = []
    after = None
    while some := engine.inbox(status, after, page):
        assert len(some) <= page
        found += some
        after = place_of(some[-1])
    return found


def queue_of(
    engine: Reader, pool: str = "default", runtimes: Sequence[str] = ("scripted", "none"), page: int = 2
) -> list[Session]:
    """A pool's queue, read page by page."""
    found: list[Session] = []
    after = None
    while some := engine.queued(pool, runtimes, after, page):
        assert len(some) <= page
        found += some
        after = (some[-1].queued_at, some[-1].id)
    return found


def runner(name: str, slots_free: int = 0, *, boot: str = "", pool: str = "default") -> Runner:
    return Runner(id=uid("runner", name), name=name, pool=pool, slots=4, slots_free=slots_free, boot=boot)


def writing_then_breaking(session: str) -> Job:
    """A job with a bug behind its write: what it wrote must go, and nobody else's with it."""

    def steps() -> Work:
        locked = yield Lock(session=session)
        assert isinstance(locked, Locked)
        assert locked.session is not None
        seq = locked.session.last_seq + 1
        fact = f.UserMessage(id=uid("half"), text="half")
        envelope = f.Envelope(
            id=fact.id, session_id=session, seq=seq, epoch=1, time=locked.now, turn=1, actor="ada", fact=fact
        )
        yield Append(session=replace(locked.session, last_seq=seq), envelopes=(envelope,))
        raise RuntimeError("too late")

    return steps
