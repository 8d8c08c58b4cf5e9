"""Conversations as data: what is told to a machine stands left of `==`, what it does about it stands right."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bide.core import commands as c
from bide.core import effects as e
from bide.core import facts as f
from bide.core import ids
from bide.core import runtime as r
from bide.core.evolve import created, evolve
from bide.core.handle import handle
from bide.core.limits import LIMITS
from bide.core.refusals import Refused
from bide.core.runner import Runner
from bide.core.session import Pending, Session, wake_at
from bide.core.wire import Gone, Granted, Job, News, Renewed
from bide.store.memory import MemoryStore
from bide.store.rows import InputRow

START = 1_800_000_000.0
LEASE_S = 120.0
WINDOW_S = 60.0  # shorter than a lease, so that a story needs no renewals on its way to a park
TOTAL = {name: limit.default for name, limit in LIMITS.items()} | {"online_window_s": WINDOW_S}
PROMPT = ids.mint(START, "prompt")


def uid(name: object) -> str:
    """A fixed id for a name, so that a test can speak of `m1`."""
    return ids.mint(START, "test", name)


SESSION = ids.mint(START, "session")


def qid(name: object) -> str:
    """The public id of the question that the story's runner calls by this name."""
    return ids.question_id(SESSION, uid(name))


# -- the session's side: commands in, facts out -----------------------------------------------------------------------


def create(**more: Any) -> c.Create:
    return c.Create(
        **{
            "project": "p", "runtime": "scripted", "title": "t", "ticket": "", "pool": "default", "repository": "repo",
            "branch": "", "model": "", "author": "ann", "prompt": "Fix it.", "input_id": PROMPT, "limits": TOTAL,
            **more,
        }
    )  # fmt: skip


def say(name: str, text: str = "", delivery: f.Delivery = "next_turn") -> c.Say:
    return c.Say(id=uid(name), author="ann", text=text or name, delivery=delivery)


def answer(name: str, question: str, text: str = "yes", by: str = "ann", **more: Any) -> c.Answer:
    return c.Answer(id=uid(name), author=by, question_id=qid(question), text=text, **more)


def interrupt(name: str, *, drop: bool = False) -> c.Interrupt:
    return c.Interrupt(id=uid(name), author="ann", drop_queued=drop)


def cancel(name: str = "cancel") -> c.Cancel:
    return c.Cancel(id=uid(name), author="ann")


def park(name: str = "park") -> c.Park:
    return c.Park(id=uid(name), author="ann")


def resume(name: str = "resume") -> c.Resume:
    return c.Resume(id=uid(name), author="ann")


def grant(runner: str = "r1", boot: str = "1") -> c.Grant:
    return c.Grant(runner=runner, runner_name=runner, boot=boot, lease_s=LEASE_S)


def renew(epoch: int, runner: str = "r1", boot: str = "1") -> c.Renew:
    return c.Renew(runner=runner, runner_name=runner, boot=boot, epoch=epoch, lease_s=LEASE_S)


RESTORED = f.EnvironmentRestored(source="fresh", workspace=f.Workspace(repository="repo"))
DONE = f.TurnEnded(result="completed")
EDIT = f.ToolCall(id="t1", name="Edit", input='{"file_path": "src/app.py"}')


def began(*names: str) -> f.TurnStarted:
    return f.TurnStarted(input_ids=tuple(map(uid, names)))


def receipt(name: str, status: f.ReceiptStatus) -> f.Receipt:
    return f.Receipt(input_id=PROMPT if name == "prompt" else uid(name), status=status)


def asks(name: str, *options: str, blocking: bool = True) -> f.QuestionAsked:
    question = f.Question(id=uid(name), session_id="", question=f"{name}?", options=options, blocking=blocking)
    return f.QuestionAsked(question=question)


class Story:
    """One session in the in-memory store. `story << command` gives the types of the facts, or `no: code`.

    A tuple of facts is a runner's report. After every step the log must fold to the state.
    """

    def __init__(self, **more: Any) -> None:
        self.now = START
        self.store = MemoryStore(lambda: self.now)
        self.id = SESSION
        self.facts: list[f.Fact] = []
        self.refusal: Refused | None = None
        assert self << create(**more) == ["session.created", "user.message", "session.queued"]

    @property
    def s(self) -> Session:
        found = self.store.session(self.id)
        assert found is not None
        return found

    def __lshift__(self, command: c.Command | tuple[f.RunnerFact, ...]) -> list[str] | str:
        if isinstance(command, tuple):
            command = c.Report(runner=self.s.last_runner, epoch=self.s.epoch, first=self.s.n, facts=command)
        before = self.store.session(self.id)
        told: c.Command = command
        (done,) = self.store.perform([lambda: handle(self.id, told)])
        self.facts, self.refusal = [], None
        if isinstance(done, Refused):
            assert self.store.session(self.id) == before, "a refusal changes nothing"
            self.refusal = done
            return f"no: {done.code}"
        if isinstance(done, Exception):
            raise done
        self.facts = [envelope.fact for envelope in done.envelopes]
        assert replace(self.folded(), lease=None) == replace(self.s, lease=None)
        return [envelope.type for envelope in done.envelopes]

    def after(self, seconds: float) -> list[str] | str:
        """Time passes, and whoever asks for what is due finds this session if it wants to be woken."""
        self.now += seconds
        return self << c.Wake() if self.id in self.store.due(self.now, 10) else []

    def log(self) -> list[f.Envelope]:
        return self.store.events(self.id, 0, 10_000)

    def folded(self) -> Session:
        first, *rest = self.log()
        assert isinstance(first.fact, f.Created)
        s = created(self.id, first.fact, first.time)
        for envelope in rest:
            s = evolve(s, envelope)
        return s

    def fate(self, name: str) -> str:
        row = self.row(name)
        return row.status

    def row(self, name: str) -> InputRow:
        row = self.store.input(self.id, PROMPT if name == "prompt" else uid(name))
        assert row is not None, f"{name} was never accepted"
        return row

    def one(self, kind: type[Any]) -> Any:
        """The only fact of this type in the last step."""
        (found,) = [fact for fact in self.facts if isinstance(fact, kind)]
        return found

    def wakes_in(self) -> float | None:
        at = wake_at(self.s)
        return None if at is None else at - self.now

    def saves(self, *consumed: str, n: int = 0, epoch: int = 0) -> f.CheckpointSaved:
        """A checkpoint of this moment, containing these inputs."""
        n = n or (self.s.checkpoint.n + 1 if self.s.checkpoint else 1)
        inputs = tuple(PROMPT if name == "prompt" else uid(name) for name in consumed)
        checkpoint = f.Checkpoint(
            id=uid(("checkpoint", n)), n=n, epoch=epoch or self.s.epoch, root=f"{self.s.epoch}-{n}", turn=self.s.turn.n,
            turn_open=self.s.turn.open, consumed=inputs, at_n=self.s.n, workspace=f.Workspace(repository="repo"),
        )  # fmt: skip
        return f.CheckpointSaved(checkpoint=checkpoint)


def leased(**more: Any) -> Story:
    """r1 was given it and restores."""
    story = Story(**more)
    assert story << grant() == ["session.leased"]
    return story


def working(**more: Any) -> Story:
    """The first prompt was taken, its turn runs, nothing is saved."""
    story = leased(**more)
    assert isinstance(story << (RESTORED, began(), receipt("prompt", "delivered"), receipt("prompt", "consumed")), list)
    return story


def waiting(*questions: f.QuestionAsked, **more: Any) -> Story:
    """The first turn is over and saved; it waits, with these questions open."""
    story = working(**more)
    assert isinstance(story << (*questions, DONE), list)
    assert story << (story.saves("prompt"),) == ["checkpoint.saved"]
    return story


def parked(*questions: f.QuestionAsked, **more: Any) -> Story:
    """Its window passed, and it parked."""
    story = waiting(*questions, **more)
    assert story.after(WINDOW_S) == ["session.parking"]
    assert story << (f.Parked(checkpoint=1),) == ["session.parked"]
    return story


def ended(**more: Any) -> Story:
    """It finished."""
    story = waiting(**more)
    assert story << (f.Ended(outcome="completed", summary="done"),) == ["session.ended"]
    return story


# -- the runner's side: what comes in, effects out --------------------------------------------------------------------


class Exit(Struct, frozen=True):
    """The runtime's process is gone; its state on disk contains these inputs (None: it cannot be read)."""

    memory: tuple[str, ...] | None = ()
    reason: str = "it crashed"


def input_(name: str, seq: int, delivery: f.Delivery = "next_turn", **more: Any) -> Pending:
    return Pending(id=uid(name), type=more.pop("type", "user.message"), author="ann", seq=seq, text=name,
                   delivery=delivery, **more)  # fmt: skip


def job(*inputs: Pending, **more: Any) -> Job:
    return Job(
        **{
            "project": "p", "runtime": "scripted", "runtime_session_id": uid("runtime"), "model": "",
            "repository": "repo", "branch": "", "environment_id": uid("env"), "checkpoint": None, "inputs": inputs,
            "cursor": max((p.seq for p in inputs), default=0), "turn": 0, "blocking": (), "report": (),
            "limits": TOTAL, "resumed": False, **more,
        }
    )  # fmt: skip


def granted(*inputs: Pending, epoch: int = 1, **more: Any) -> Granted:
    return Granted(session="s", epoch=epoch, ttl_s=LEASE_S, margin_s=LEASE_S / 3, job=job(*inputs, **more))


def news(*inputs: Pending, epoch: int = 1, **more: Any) -> News:
    return News(session="s", epoch=epoch, inputs=inputs, cursor=max((p.seq for p in inputs), default=0), **more)


HERE = e.Restored(source="fresh", workspace=f.Workspace(repository="repo"))
READY = r.Ready(version="1", runtime_session_id="x", rung="new", capabilities=r.Capabilities(steer=True))
IDLE = r.Idle(result="completed")
SAVED = e.Captured(root="root")
FAILED = e.NotCaptured(code="blob_store_unavailable", reason="503")


class Machine:
    """A runner, and a server that takes every fact at once. `machine << event` gives the effects, in short words."""

    def __init__(self) -> None:
        self.runner, self.now, self.asked_at, self.epoch = Runner(), 0.0, 0.0, 1
        self.log: list[f.RunnerFact] = []
        self.effects: list[e.Effect] = []
        self.deaf = False  # the server's acknowledgements are lost
        self.made: str | None = None  # what the last tool call made

    def __lshift__(self, event: object) -> list[str]:
        return self._done(self._feed(event))

    def after(self, seconds: float) -> list[str]:
        """Time passes, and the machine looks at its clock."""
        self.now += seconds
        return self._done(self.runner.tick(self.now))

    def drain(self) -> list[str]:
        return self._done(self.runner.drain(self.now))

    def renewed(self, ago: float = 0.0) -> list[str]:
        """The lease was renewed by a sync asked `ago` seconds before."""
        renewal = Renewed(session="s", epoch=self.epoch, ttl_s=LEASE_S, margin_s=LEASE_S / 3)
        return self._done(self.runner.renewed(renewal, self.now - ago, self.now))

    def gone(self) -> list[str]:
        return self._done(self.runner.gone(Gone(session="s", epoch=self.epoch, reason="another has it")))

    def granted(self, grant: Granted, ago: float = 0.0) -> list[str]:
        return self._done(self.runner.granted(grant, self.now - ago, self.now))

    def _feed(self, event: object) -> list[e.Effect]:
        runner, epoch, now = self.runner, self.epoch, self.now
        match event:
            case Granted():
                self.epoch = event.epoch
                return runner.granted(event, now, now)
            case News():
                return runner.news(event, now)
            case e.Restored() | e.NotRestored():
                return runner.restored("s", epoch, event, now)
            case e.Captured() | e.NotCaptured():
                return runner.captured("s", epoch, event, now)
            case e.Asked() | e.Assumed() | e.Finish():
                self.made, effects = runner.called("s", epoch, event, now)
                return effects
            case Exit(memory=memory, reason=reason):
                found = None if memory is None else frozenset(map(uid, memory))
                return runner.exited("s", epoch, reason, found, now)
        return runner.heard("s", epoch, event, now)  # type: ignore[arg-type]

    def _done(self, effects: list[e.Effect]) -> list[str]:
        self.effects, words = [], []
        while effects:
            effect = effects.pop(0)
            if not isinstance(effect, e.Post):
                self.effects.append(effect)
                words.append(_word(effect))
                continue
            have = len(self.log)
            self.log += effect.facts[max(0, have - effect.first) :]
            if not self.deaf:
                effects += self.runner.acked("s", effect.epoch, effect.first + len(effect.facts), self.now)
        return words

    @property
    def said(self) -> list[str]:
        """The types of everything the server has, in order."""
        return [f.tag_of(type(fact)) for fact in self.log]

    def receipts(self, name: str) -> list[str]:
        return [fact.status for fact in self.log if isinstance(fact, f.Receipt) and fact.input_id == uid(name)]

    def facts(self, kind: type[Any]) -> list[Any]:
        return [fact for fact in self.log if isinstance(fact, kind)]

    def order(self) -> Any:
        """The one order of the last step."""
        (told,) = [effect.order for effect in self.effects if isinstance(effect, e.Tell)]
        return told


def _word(effect: e.Effect) -> str:
    match effect:
        case e.Tell(order=r.Deliver(text=text)):
            return f"deliver {text}"
        case e.Tell(order=r.Steer(text=text)):
            return f"steer {text}"
        case e.Stop(force=True):
            return "stop by force"
        case e.Capture(n=n):
            return f"capture {n}"
        case e.Release(keep=keep):
            return f"release {keep}"
        case e.Tell(order=order):
            return type(order).__name__.lower()
    return type(effect).__name__.lower()


def feed(machine: Machine, events: Iterable[object]) -> list[str]:
    """Several events; the effects of the last."""
    words: list[str] = []
    for event in events:
        words = machine << event
    return words


def idle(*inputs: Pending, **more: Any) -> Machine:
    """The runtime is ready; the first checkpoint is saved."""
    machine = Machine()
    assert machine << granted(*inputs, **more) == ["restore"]
    first = machine << HERE
    assert "spawn" in first
    if "capture 1" in first:
        assert machine << SAVED == []
    assert isinstance(machine << READY, list)
    return machine


def busy(*more: Pending) -> Machine:
    """The runtime works on `m1`."""
    machine = idle(input_("m1", 2), *more)
    assert machine << r.Busy() == []
    assert machine << r.Consumed(input_id=uid("m1")) == []
    return machine
