"""The one write path: a generator of `Lock`, `Recall` and `Append` steps, performed by a store in one transaction.

Server, tests and simulator all run this same generator; each store performs its steps.
"""

from __future__ import annotations

from collections.abc import Generator

from msgspec import Struct

from bide.core import commands as c
from bide.core import facts as f
from bide.core.decide import decide, moved
from bide.core.refusals import Refused
from bide.core.session import Session, rewinding


class Known(Struct, frozen=True, kw_only=True):
    """An input of this id that the session has already: what it said, to tell a repeat from a clash."""

    type: str
    text: str


class Locked(Struct, frozen=True, kw_only=True):
    """The answer to `Lock`: nobody else writes this session until the transaction ends."""

    session: Session | None
    now: float
    known: Known | None = None


class Lock(Struct, frozen=True, kw_only=True):
    """Lock one session's row and read it; `input_id` asks whether that input exists already."""

    session: str
    input_id: str = ""


class Recall(Struct, frozen=True, kw_only=True):
    """Read the checkpoints ever saved of a session that is locked, oldest first."""

    session: str


class Append(Struct, frozen=True, kw_only=True):
    """Write the facts (maybe none), the state after them, and its `wake_at`, all or nothing."""

    session: Session
    envelopes: tuple[f.Envelope, ...]


class Done(Struct, frozen=True, kw_only=True):
    """The state afterwards and what was added to get there. `repeated`: the input had been accepted before.

    `fork`: the same of the session that began with a checkpoint of this one.
    """

    session: Session
    envelopes: tuple[f.Envelope, ...] = ()
    repeated: bool = False
    fork: Done | None = None

    @property
    def told(self) -> tuple[f.Envelope, ...]:
        """All that was added, also to the session that began."""
        return self.envelopes + (self.fork.envelopes if self.fork else ())


Step = Lock | Recall | Append
Answer = Locked | tuple[f.Checkpoint, ...] | None
Work = Generator[Step, Answer, Done]


def handle(session_id: str, command: c.Command) -> Work:
    """Locks, decides, appends. Raises `Refused` without having written anything."""
    input_id = command.id if isinstance(command, c.INPUTS) else ""
    locked = yield Lock(session=session_id, input_id=input_id)
    assert isinstance(locked, Locked)
    if locked.known is not None and locked.session is not None:
        _require_same(locked.known, command)
        return Done(session=locked.session, repeated=True)
    saves: Answer = ()
    if locked.session is not None and (isinstance(command, c.Fork | c.Rewind) or rewinding(locked.session)):
        saves = yield Recall(session=session_id)
    assert isinstance(saves, tuple)
    draft = decide(session_id, locked.session, command, locked.now, saves)
    after = draft.s
    if isinstance(command, c.Grant | c.Renew | c.Adopt) and after.lease is not None:
        after = moved(after, locked.now + command.lease_s)
    envelopes = tuple(draft.envelopes)
    if envelopes or after is not locked.session:
        yield Append(session=after, envelopes=envelopes)
    if draft.fork is None:
        return Done(session=after, envelopes=envelopes)
    fork = Done(session=draft.fork.s, envelopes=tuple(draft.fork.envelopes))
    yield Append(session=fork.session, envelopes=fork.envelopes)
    return Done(session=after, envelopes=envelopes, fork=fork)


_SAID = (
    "text",
    "delivery",
    "drop_queued",
    "question_id",
    "choices",
    "decline",
    "until",
    "checkpoint",
    "title",
    "input_id",
    "choice",
)
# What later releases gave to an input tells only where it is said: a repeat may meet what an older server took.
_SAID_SINCE = {
    "user.message": ("drop_queued",),
    "user.interrupt": ("turn",),
    "user.extend": ("budget_usd", "working_s"),
    "user.answer": ("withdraw",),
}


def known_of(type: str, said: object) -> Known:
    """What makes two inputs of one id the same; of a fact and of a command alike."""
    since = _SAID_SINCE.get(type, ())
    names = [name for name in _SAID if name not in since and hasattr(said, name)]
    names += [name for name in since if getattr(said, name)]
    return Known(type=type, text="\x1f".join(f"{name}={getattr(said, name)}" for name in names))


def _require_same(known: Known, command: c.Command) -> None:
    name = "message" if isinstance(command, c.Say) else type(command).__name__.lower()
    if known != known_of(f"user.{name}", command):
        raise Refused("key_reused", "This id or idempotency key was used for a different input of this session.")
