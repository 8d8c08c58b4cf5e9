"""People and programs that use sessions: they say, answer, interrupt, park and cancel, and click twice."""

from __future__ import annotations

from bide.core import commands as c
from bide.core import ids
from bide.core.limits import LIMITS
from bide.core.session import Lifecycle, deliverable
from sim.clock import Clock
from sim.faults import HEALS_AT
from sim.servers import LEASE_S, Servers

TEXTS = ("work", "work", "ask", "ask", "work")


class People:
    """Everybody who is not a machine."""

    def __init__(self, clock: Clock, servers: Servers, sessions: int) -> None:
        self.clock, self.servers, self.store = clock, servers, servers.store
        self.sessions: list[str] = []
        self.sent = 0
        for index in range(sessions):
            session_id = ids.mint(0, "session", index)
            self.sessions.append(session_id)
            self.clock.after(self.clock.rng.uniform(0, 10), lambda s=session_id: self._create(s))  # type: ignore[misc]
        self.clock.after(1.0, self._act)

    def _create(self, session: str) -> None:
        if self.store.session(session) is None:
            self._send(session, self._first(session))
            self.clock.after(self.clock.rng.uniform(1, 5), lambda: self._create(session))

    def _first(self, session: str) -> c.Create:
        rng = self.clock.rng
        limits = {name: limit.default for name, limit in LIMITS.items()}
        limits |= {"online_window_s": rng.choice((0.0, 5.0, 20.0)), "recovery_window_s": LEASE_S / 2}
        limits["checkpoint_interval_s"] = rng.choice((10.0, 600.0))
        return c.Create(
            project="p", runtime="scripted", title="t", ticket="", pool="default", repository="r", branch="", model="",
            author="ann", prompt=rng.choice(TEXTS), input_id=ids.mint(0, session, "prompt"), limits=limits,
            on_loss=rng.choice(("ask", "ask", "continue", "fail")),
        )  # fmt: skip

    def _send(self, session: str, command: c.Command) -> None:
        """A person's click travels like everything else, and is sometimes made twice."""
        for _ in range(2 if self.clock.chance(0.1) else 1):
            self.clock.send(lambda: self.servers.request(session, command, lambda done: None))

    def _act(self) -> None:
        self.clock.after(self.clock.rng.uniform(0.3, 2.0), self._act)
        session = self.clock.rng.choice(self.sessions)
        s = self.store.session(session)
        if s is None:
            return
        if s.questions and self.clock.chance(0.5):
            self._answer(session)
        elif self.clock.now > HEALS_AT:
            self._close(session)
        else:
            self._disturb(session)

    def _answer(self, session: str) -> None:
        s = self.store.session(session)
        assert s is not None
        question = self.clock.rng.choice(s.questions)
        for author in ("ann", "ben")[: self.clock.rng.choice((1, 1, 2))]:
            choice = self.clock.rng.choice(question.options) if question.options else ""
            self._send(
                session,
                c.Answer(
                    id=self._id(session),
                    author=author,
                    question_id=question.id,
                    choices=(choice,) if choice else (),
                    text="" if choice else "yes",
                ),
            )

    def _close(self, session: str) -> None:
        """After the network healed: bring everything to an end."""
        s = self.store.session(session)
        assert s is not None
        if s.lifecycle is not Lifecycle.ENDED and not s.questions and not deliverable(s) and not s.turn.open:
            self._send(session, c.Say(id=self._id(session), author="ann", text="finish"))

    def _disturb(self, session: str) -> None:
        roll, input_id = self.clock.rng.random(), self._id(session)
        delivery = self.clock.rng.choice(("next_turn", "next_turn", "steer", "interrupt"))
        if roll < 0.35:
            text = self.clock.rng.choice((*TEXTS, "finish"))
            self._send(session, c.Say(id=input_id, author="ben", text=text, delivery=delivery))  # type: ignore[arg-type]
        elif roll < 0.45:
            self._send(session, c.Interrupt(id=input_id, author="ann", drop_queued=self.clock.chance(0.3)))
        elif roll < 0.52:
            self._send(session, c.Park(id=input_id, author="ann"))
        elif roll < 0.57:
            self._send(session, c.Resume(id=input_id, author="ann"))
        elif roll < 0.585:
            self._send(session, c.Cancel(id=input_id, author="ann"))

    def _id(self, session: str) -> str:
        self.sent += 1
        return ids.mint(self.clock.now, session, "input", self.sent)
