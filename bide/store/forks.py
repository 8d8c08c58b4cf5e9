"""What a fork needs besides its decision: its checkpoint has to stay, and who asks again has to find it."""

from __future__ import annotations

from msgspec.structs import replace

from bide.core import commands as c
from bide.core import facts as f
from bide.core.branching import chosen
from bide.core.keyring import family_of
from bide.core.limits import PIN_S
from bide.core.refusals import Refused
from bide.core.session import Session
from bide.store.base import Engine, Reader
from bide.store.keyrows import pin
from bide.store.rows import InputRow


def hold(engine: Engine, parent: str, wanted: c.Fork) -> c.Fork:
    """The wish with the root that it is to begin with, which is kept for the new session from now on. A wish that was
    granted before, or has nothing to begin with, stays as it is. Called `alone`. Raises `Refused('checkpoint_gone')`.
    """
    s = engine.session(parent)
    if s is None or engine.input(parent, wanted.id) is not None:
        return wanted
    source = chosen(s, engine.checkpoints(parent), wanted.checkpoint)
    if source is None:
        return wanted
    pin(engine, family_of(s), source.root, wanted.session)
    return replace(wanted, held=source.root, held_until=engine.now() + PIN_S / 2)


def made_by(reader: Reader, row: InputRow) -> Session:
    """The session that began with this input. Raises `Refused('no_session')` when it has been deleted since."""
    (asked,) = reader.events(row.session_id, row.seq - 1, 1)
    assert isinstance(asked.fact, f.UserFork), "the row of a fork is made of its fact"
    found = reader.session(asked.fact.session)
    if found is None:
        raise Refused("no_session", f"Session {asked.fact.session}, which was forked, is deleted.")
    return found
