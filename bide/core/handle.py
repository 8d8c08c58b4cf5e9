"""The one write path: a generator of `Lock` and `Append` steps, performed by a store inside one transaction.

Server, tests and simulator all run this same generator; each store performs its two steps.
"""

from __future__ import annotations

from collections.abc import Generator

from msgspec import Struct

from bide.core import commands as c
from bide.core import facts as f
from bide.core.decide import decide, moved
from bide.core.refusals import Refused
from bide.core.session import Session


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


class Append(Struct, frozen=True, kw_only=True):
    """Write the facts (maybe none), the state after them, and its `wake_at`, all or nothing."""

    session: Session
    envelopes: tuple[f.Envelope, ...]


class Done(Struct, frozen=True, kw_only=True):
    """The state afterwards and what was added to get there. `repeated`: the input had been accepted before."""

    session: Session
    envelopes: tuple[f.Envelope, ...] = ()
    repeated: bool = False


Work = Generator[Lock | Append, Locked | None, Done]


def handle(session_id: str, command: c.Command) -> Work:
    """Locks, decides, appends. Raises `Refused` without having written anything."""
    input_id = command.id if isinstance(command, c.INPUTS) else ""
    locked = yield Lock(session=session_id, input_id=input_id)
    assert locked is not None
    if locked.known is not None and locked.session is not None:
        _require_same(locked.known, command)
        return Done(session=locked.session, repeated=True)
    draft = decide(session_id, locked.session, command, locked.now)
    after = draft.s
    if isinstance(command, c.Grant | c.Renew | c.Adopt) and after.lease is not None:
        after = moved(after, locked.now + command.lease_s)
    envelopes = tuple(draft.envelopes)
    if envelopes or after is not locked.session:
        yield Append(session=after, envelopes=envelopes)
    return Done(session=after, envelopes=envelopes)


_SAID = ("text", "delivery", "drop_queued", "question_id", "choices", "decline", "until")


def known_of(type: str, said: object) -> Known:
    """What makes two inputs of one id the same; of a fact and of a command alike."""
    return Known(type=type, text="\x1f".join(f"{name}={getattr(said, name)}" for name in _SAID if hasattr(said, name)))


def _require_same(known: Known, command: c.Command) -> None:
    name = "message" if isinstance(command, c.Say) else type(command).__name__.lower()
    if known != known_of(f"user.{name}", command):
        raise Refused("key_reused", "This id or idempotency key was used for a different input of this session.")
