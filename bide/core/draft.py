"""One decision in the making: facts are added, each is numbered and applied, the next sees the state after it."""

from __future__ import annotations

from bide.core import facts as f
from bide.core import ids
from bide.core.evolve import created, evolve
from bide.core.session import Session

_INPUTS = (
    f.UserMessage, f.UserInterrupt, f.UserAnswer, f.UserCancel, f.UserPark, f.UserResume, f.UserExtend,
)  # fmt: skip
BIDE = "bide"  # the actor of what nobody asked for by name


class Draft:
    """The state `s` so far, and the `envelopes` that led to it. Lives for one call of `decide`."""

    def __init__(self, session_id: str, s: Session | None, now: float) -> None:
        self.session_id, self._s, self.now = session_id, s, now
        self.envelopes: list[f.Envelope] = []

    @property
    def s(self) -> Session:
        """The state after everything added so far."""
        assert self._s is not None, "the first fact of a session is session.created"
        return self._s

    def add(self, *facts: f.Fact, actor: str = BIDE, n: int = -1) -> None:
        """Appends facts; `n` is the runner's count of the first of them, -1 for decided ones."""
        for fact in facts:
            s = self._s
            seq = s.last_seq + 1 if s else 1
            opening = isinstance(fact, f.TurnStarted)
            envelope = f.Envelope(
                id=fact.id if isinstance(fact, _INPUTS) else ids.mint(self.now, self.session_id, seq),
                session_id=self.session_id,
                seq=seq,
                epoch=fact.epoch if isinstance(fact, f.Leased) else s.epoch if s else 0,
                time=self.now,
                turn=(s.turn.n if s else 0) + opening,
                actor=actor,
                fact=fact,
                n=n,
            )
            if s is None:
                assert isinstance(fact, f.Created)
                self._s = created(self.session_id, fact, self.now)
            else:
                self._s = evolve(s, envelope)
            self.envelopes.append(envelope)
            n = -1
