"""People and programs that use sessions: they say, answer, interrupt, park and cancel, click twice, and try again."""

from __future__ import annotations

from bide.core import commands as c
from bide.core import ids
from bide.core.bounds import LIMITS
from bide.core.handle import Done
from bide.core.limits import DAY, WORKING_S_MIN
from bide.core.refusals import Unavailable
from bide.core.session import Lifecycle, Session, deliverable
from bide.store.base import Engine
from sim.clock import Clock
from sim.faults import HEALS_AT
from sim.fleet import Need
from sim.network import PEOPLE
from sim.servers import LEASE_S, Answer, Servers

TEXTS = ("work", "work", "ask", "ask", "work")
PATIENCE_S = 4.0  # without an answer the same click is made again


class People:
    """Everybody who is not a machine. What they see, they see at once; what they send, travels."""

    def __init__(self, clock: Clock, servers: Servers, store: Engine, needs: list[Need]) -> None:
        self.clock, self.servers, self.store = clock, servers, store
        self.sessions: list[str] = []
        self.sent = 0
        self.promised: list[tuple[str, str]] = []  # (session, input) that a server said it has accepted
        for index, need in enumerate(needs):
            session_id = ids.mint(0, "session", index)
            self.sessions.append(session_id)
            self.clock.after(self.clock.rng.uniform(0, 10), lambda s=session_id, n=need: self._create(s, n))  # type: ignore[misc]
        self.clock.after(1.0, self._act)

    def _create(self, session: str, need: Need) -> None:
        self.send(session, self._first(session, need), tries=100)

    def _first(self, session: str, need: Need) -> c.Create:
        rng = self.clock.rng
        limits = {name: float(limit.default) for name, limit in LIMITS.items()}  # as every store gives them back
        limits |= {"online_window_s": rng.choice((0.0, 5.0, 20.0)), "recovery_window_s": LEASE_S / 2}
        limits |= {"runtime_silence_s": 10.0}  # virtual seconds are few
        limits["checkpoint_interval_s"] = rng.choice((10.0, 600.0))
        limits["checkpoints_kept"] = 2.0  # the fewest: what is collected too early is missed soon
        limits |= {"budget_usd": rng.choice((0.0, 0.0, 0.1)), "working_s": rng.choice((DAY, DAY, WORKING_S_MIN))}
        return c.Create(
            project="p", runtime="scripted", title="t", ticket="", pool=need.pool, repository="r", branch="", model="",
            author="ann", prompt=rng.choice(TEXTS), input_id=ids.mint(0, session, "prompt"), limits=limits,
            on_loss=rng.choice(("ask", "ask", "continue", "fail")), labels=need.labels,
        )  # fmt: skip

    def send(self, session: str, command: c.Command, tries: int = 3) -> None:
        """A click travels like everything else, is sometimes made twice, and again where no answer comes."""
        answered = [False]

        def reply(answer: Answer) -> None:
            if isinstance(answer, Done):
                self._accepted(session, command)
            answered[0] = answered[0] or not isinstance(answer, Unavailable)

        def again() -> None:
            if not answered[0]:
                self.send(session, command, tries - 1)

        for _ in range(2 if self.clock.chance(0.1) else 1):
            self.servers.request(PEOPLE, session, command, reply)
        if tries > 1:
            self.clock.after(PATIENCE_S, again)

    def _accepted(self, session: str, command: c.Command) -> None:
        input_id = command.input_id if isinstance(command, c.Create) else getattr(command, "id", "")
        self.promised.append((session, input_id))

    def _act(self) -> None:
        self.clock.after(self.clock.rng.uniform(0.3, 2.0), self._act)
        s = self.store.session(self.clock.rng.choice(self.sessions))
        if s is None:
            return
        if s.questions and self.clock.chance(0.5):
            self._answer(s)
        elif self.clock.now > HEALS_AT:
            self._close(s)
        else:
            self._disturb(s.id)

    def _answer(self, s: Session) -> None:
        question = self.clock.rng.choice(s.questions)
        for author in ("ann", "ben")[: self.clock.rng.choice((1, 1, 2))]:
            choice = self.clock.rng.choice(question.options) if question.options else ""
            self.send(
                s.id,
                c.Answer(
                    id=self._id(s.id),
                    author=author,
                    question_id=question.id,
                    choices=(choice,) if choice else (),
                    text="" if choice else "yes",
                ),
            )

    def _close(self, s: Session) -> None:
        """After the world has healed: bring everything to an end."""
        if s.lifecycle is not Lifecycle.ENDED and not s.questions and not deliverable(s) and not s.turn.open:
            self.send(s.id, c.Say(id=self._id(s.id), author="ann", text="finish"), tries=1)

    def _disturb(self, session: str) -> None:
        roll, input_id = self.clock.rng.random(), self._id(session)
        delivery = self.clock.rng.choice(("next_turn", "next_turn", "steer", "interrupt"))
        if roll < 0.35:
            text = self.clock.rng.choice((*TEXTS, "finish"))
            self.send(session, c.Say(id=input_id, author="ben", text=text, delivery=delivery))  # type: ignore[arg-type]
        elif roll < 0.45:
            self.send(session, c.Interrupt(id=input_id, author="ann", drop_queued=self.clock.chance(0.3)))
        elif roll < 0.52:
            self.send(session, c.Park(id=input_id, author="ann"))
        elif roll < 0.57:
            self.send(session, c.Resume(id=input_id, author="ann"))
        elif roll < 0.585:
            self.send(session, c.Cancel(id=input_id, author="ann"))
        elif roll < 0.6:
            self.send(session, c.Extend(id=input_id, author="ben", budget_usd=self.clock.rng.choice((0.05, 0.2, 0.5))))

    def _id(self, session: str) -> str:
        self.sent += 1
        return ids.mint(self.clock.now, session, "input", self.sent)
