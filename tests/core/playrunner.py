"""Conversations as data, the runner's side: what comes in stands left of `==`, the effects stand right, in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bide.core import effects as e
from bide.core import facts as f
from bide.core import runtime as r
from bide.core.kept import Left
from bide.core.runner import Runner
from bide.core.session import Pending
from bide.core.spool import Spool
from bide.core.wire import Gone, Granted, Job, News, Renewed
from tests.core.playbook import LEASE_S, TOTAL, uid


class Exit(Struct, frozen=True):
    """The runtime's process is gone; its state on disk contains these inputs (None: it cannot be read)."""

    memory: tuple[str, ...] | None = ()
    reason: str = "it crashed"


class Stored(Struct, frozen=True):
    """A whole output is with the server, or never will be."""

    name: str
    why_not: str = ""


class Recalled(Struct, frozen=True):
    """A look into the conversation of a runtime whose turn is over: it contains these inputs; None: it cannot be read."""

    memory: tuple[str, ...] | None = ()


def input_(name: str, seq: int, delivery: f.Delivery = "next_turn", **more: Any) -> Pending:
    return Pending(id=uid(name), type=more.pop("type", "user.message"), author="ann", seq=seq, text=name,
                   delivery=delivery, **more)  # fmt: skip


def job(*inputs: Pending, **more: Any) -> Job:
    return Job(
        **{
            "project": "p", "runtime": "scripted", "runtime_session_id": uid("runtime"), "model": "",
            "repository": "repo", "branch": "", "environment_id": uid("env"), "checkpoint": None, "inputs": inputs,
            "cursor": max((p.seq for p in inputs), default=0), "turn": 0, "blocking": (), "report": (),
            "limits": TOTAL, "resumed": False, "freed": more.get("turn", 0) + 1, **more,
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
        self.runner, self.now, self.asked_at, self.epoch = Runner(boot="1"), 0.0, 0.0, 1
        self.spool, self.boot = Spool("s"), "1"
        self.log: list[f.RunnerFact] = []
        self.stored: dict[int, int] = {}  # how many facts of each epoch the server has
        self.effects: list[e.Effect] = []
        self.deaf = False  # the server's acknowledgements are lost
        self.away = False  # nothing reaches the server
        self.made: str | None = None  # what the last tool call made
        self.recall: e.Recall | None = None  # the last look that was asked for

    def __lshift__(self, event: object) -> list[str]:
        return self._done(self._feed(event))

    def after(self, seconds: float) -> list[str]:
        """Time passes, and the machine looks at its clock."""
        self.now += seconds
        return self._done(self.runner.tick(self.now))

    def drain(self) -> list[str]:
        return self._done(self.runner.drain(self.now))

    def deadline(self) -> list[str]:
        """The end of a drain's time."""
        return self._done(self.runner.interrupt_all(self.now))

    def leave(self) -> list[str]:
        """The process must go, and no server answers."""
        return self._done(self.runner.leave(self.now))

    def renewed(self, ago: float = 0.0) -> list[str]:
        """The lease was renewed by a sync asked `ago` seconds before."""
        renewal = Renewed(session="s", epoch=self.epoch, ttl_s=LEASE_S, margin_s=LEASE_S / 3)
        return self._done(self.runner.renewed(renewal, self.now - ago, self.now))

    def gone(self) -> list[str]:
        return self._done(self.runner.gone(Gone(session="s", epoch=self.epoch, reason="another has it")))

    def granted(self, grant: Granted, ago: float = 0.0) -> list[str]:
        return self._done(self.runner.granted(grant, self.now - ago, self.now))

    def restart(self) -> Left:
        """The runner's process is killed, and the next one finds the disk as it is. What is left of the session."""
        left = self.spool.left()
        assert left is not None, "nothing was kept"
        self.boot = str(int(self.boot) + 1)
        self.runner = Runner(left=[left], boot=self.boot)
        self.away = self.deaf = False
        return left

    def adopted(self, *inputs: Pending, stored: int | None = None, **more: Any) -> list[str]:
        """The server grants what is left again, under the next epoch; it has `stored` facts of the one to tell."""
        (offer,) = self.runner.adoptable()
        self.epoch = offer.epoch + 1
        tail_n = self.stored.get(offer.of, 0) if stored is None else stored
        again = granted(*inputs, epoch=self.epoch, resumed=True, **more)
        return self.granted(replace(again, adopted_from=offer.of, tail_n=tail_n))

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
            case Stored(name=name, why_not=why_not):
                return runner.stored("s", epoch, name, why_not, now)
            case e.Asked() | e.Unasked() | e.Assumed() | e.Finish():
                self.made, effects = runner.called("s", epoch, event, now)
                return effects
            case Recalled(memory=memory):
                found = None if memory is None else frozenset(map(uid, memory))
                assert self.recall is not None
                return runner.recalled(self.recall, found, now)
            case Exit(memory=memory, reason=reason):
                found = None if memory is None else frozenset(map(uid, memory))
                return runner.exited("s", epoch, reason, found, now)
        return runner.heard("s", epoch, event, now)  # type: ignore[arg-type]

    def _done(self, effects: list[e.Effect]) -> list[str]:
        self.effects, words = [], []
        while effects:
            effect = effects.pop(0)
            if isinstance(effect, e.Keep):  # to disk, at once and silently; `restart` reads it
                self.spool.add(effect, self.boot)
                continue
            if isinstance(effect, e.Release):
                self.spool = Spool("s")
            if isinstance(effect, e.Recall):
                self.recall = effect
            if not isinstance(effect, e.Post):
                self.effects.append(effect)
                words.append(_word(effect))
                continue
            if self.away:
                continue
            of = effect.of or effect.epoch
            have = self.stored.get(of, 0)
            assert effect.first <= have, "no fact is passed over"
            self.log += effect.facts[have - effect.first :]
            self.stored[of] = next_n = max(have, effect.first + len(effect.facts))
            if not self.deaf:
                effects += self.runner.acked("s", effect.epoch, next_n, self.now, effect.of)
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
