"""Conversations as data: what is told to a session stands left of `==`, what it does about it stands right."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from bide.core import commands as c
from bide.core import facts as f
from bide.core import ids
from bide.core.bounds import LIMITS
from bide.core.branching import chosen
from bide.core.evolve import created, evolve
from bide.core.handle import handle
from bide.core.refusals import Refused
from bide.core.session import Session, wake_at
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


def fork(name: str = "fork", checkpoint: int = 0, **more: Any) -> c.Fork:
    return c.Fork(id=uid(name), author="ben", session=uid((name, "session")), checkpoint=checkpoint, **more)


def rewind(checkpoint: int, name: str = "rewind") -> c.Rewind:
    return c.Rewind(id=uid(name), author="ann", checkpoint=checkpoint)


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
        self.facts: list[f.Fact | f.Opaque] = []
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
        told: c.Command = self.held(command) if isinstance(command, c.Fork) else command
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

    def held(self, wanted: c.Fork) -> c.Fork:
        """The wish with its root, as if it was kept for it."""
        source = chosen(self.s, self.store.checkpoints(self.id), wanted.checkpoint)
        return replace(wanted, held=source.root) if source else wanted

    def after(self, seconds: float) -> list[str] | str:
        """Time passes, and whoever asks for what is due finds this session if it wants to be woken."""
        self.now += seconds
        return self << c.Wake() if self.id in self.store.claim_due(self.now, 10, 0.0) else []

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
        n = n or self.s.checkpoint_n + 1
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


def forgotten(story: Story) -> Story:
    """All its warnings were given, nobody came, and its retention is over."""
    while (
        not isinstance(story.log()[-1].fact, f.Ended | f.EnvironmentExpired) or story.s.environment.state != "expired"
    ):
        left = story.wakes_in()
        assert left is not None, "it is kept for ever"
        assert isinstance(story.after(left), list)
    return story


def ended(**more: Any) -> Story:
    """It finished."""
    story = waiting(**more)
    assert story << (f.Ended(outcome="completed", summary="done"),) == ["session.ended"]
    return story
