"""What is read of an earlier session for a new one that takes it up."""

from __future__ import annotations

from msgspec import Struct

from bide.core import facts as f
from bide.core import ids
from bide.core.limits import LIST_MAX, RECAP_LOOKS_MAX
from bide.core.recap import recap
from bide.core.refusals import Refused
from bide.store.base import Reader


class Earlier(Struct, frozen=True, kw_only=True):
    """How a session began, and its history in words."""

    began: f.Created
    history: str


def read(reader: Reader, named: str) -> Earlier:
    """The session of that id, running or not, kept or not; or `Refused('no_session')`."""
    session_id = ids.parse(named, "session id")
    s = reader.session(session_id)
    first = reader.events(session_id, 0, 1)
    if s is None or not first:
        raise Refused("no_session", f"There is no session {session_id}.")
    began = first[0].fact
    assert isinstance(began, f.Created), "the first fact of every log"
    said = [row.text for row in reader.inputs(session_id) if row.type == "user.message" and row.author != "bide"]
    return Earlier(
        began=began, history=recap(s, said, reader.questions(session_id), _last_words(reader, session_id, s.last_seq))
    )


def _last_words(reader: Reader, session_id: str, last_seq: int) -> str:
    """The runtime's own last message; empty where the end of a long log has none."""
    for look in range(1, RECAP_LOOKS_MAX + 1):
        after = max(0, last_seq - look * LIST_MAX)
        said = [
            e.fact.text for e in reader.events(session_id, after, LIST_MAX) if isinstance(e.fact, f.AssistantMessage)
        ]
        if said or not after:
            return said[-1] if said else ""
    return ""
