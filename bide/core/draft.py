"""One decision in the making: facts are added, each is numbered and applied, the next sees the state after it."""

from __future__ import annotations

from bide.core import facts as f
from bide.core import ids
from bide.core.evolve import COUNTED, created, evolve, require_legal
from bide.core.session import BIDE, Session

_INPUTS = (
    f.UserMessage, f.UserInterrupt, f.UserAnswer, f.UserCancel, f.UserPark, f.UserResume, f.UserExtend, f.UserFork,
    f.UserRewind, f.UserEdit, f.UserWithdraw, f.UserResolve,
)  # fmt: skip


class Draft:
    """The state `s` so far, and the `envelopes` that led to it. Lives for one call of `decide`."""

    def __init__(self, session_id: str, s: Session | None, now: float, saves: tuple[f.Checkpoint, ...] = ()) -> None:
        """`saves` are the checkpoints ever saved of the session, oldest first, where the decision is about them."""
        self.session_id, self._s, self.now, self.saves = session_id, s, now, saves
        self.envelopes: list[f.Envelope] = []
        self.fork: Draft | None = None  # of the session that begins with one of this one's checkpoints
        self.of = 0  # the epoch that a runner's facts are of; 0: the current one
        self._ids = ""
        self._counted: f.Envelope | None = None  # the last of those that `_s` has still to count

    @property
    def s(self) -> Session:
        """The state after everything added so far."""
        assert self._s is not None, "the first fact of a session is session.created"
        if self._counted is not None:
            self._s, self._counted = evolve(self._s, self._counted), None
        return self._s

    def add(self, *facts: f.Fact, actor: str = BIDE, n: int = -1) -> None:
        """Appends facts; `n` is the runner's count of the first of them, -1 for decided ones."""
        for fact in facts:
            if type(fact) in COUNTED and self._s is not None:
                self._count(fact, actor, n)
            else:
                self._apply(fact, actor, n)
            n = -1

    def _apply(self, fact: f.Fact, actor: str, n: int) -> None:
        if self._s is None:
            assert isinstance(fact, f.Created)
            self.envelopes.append(self._envelope(fact, 1, 0, 0, actor, n))
            self._s = created(self.session_id, fact, self.now)
            return
        s = self.s
        epoch = fact.epoch if isinstance(fact, f.Leased) else self.of if self.of and n >= 0 else s.epoch
        turn = s.turn.n + isinstance(fact, f.TurnStarted)
        envelope = self._envelope(fact, s.last_seq + 1, epoch, turn, actor, n)
        self._s = evolve(s, envelope)
        self.envelopes.append(envelope)
        if isinstance(fact, f.CheckpointSaved):
            self.saves = (*self.saves, fact.checkpoint)

    def _count(self, fact: f.Fact, actor: str, n: int) -> None:
        """One of a run of facts that only count: the state is made anew once, after the last of them."""
        s, before = self._s, self._counted
        assert s is not None
        if before is None or n < 0 or before.n < 0:
            s, before = self.s, None
        require_legal(s, fact)
        epoch = self.of if self.of and n >= 0 else s.epoch
        seq = (before.seq if before else s.last_seq) + 1
        self._counted = envelope = self._envelope(fact, seq, epoch, s.turn.n, actor, n)
        self.envelopes.append(envelope)

    def _envelope(self, fact: f.Fact, seq: int, epoch: int, turn: int, actor: str, n: int) -> f.Envelope:
        self._ids = self._ids or ids.series(self.now, self.session_id)
        return f.Envelope(
            id=fact.id if isinstance(fact, _INPUTS) else f"{self._ids}{seq:08x}", session_id=self.session_id, seq=seq,
            epoch=epoch, time=self.now, turn=turn, actor=actor, fact=fact, n=n,
        )  # fmt: skip
