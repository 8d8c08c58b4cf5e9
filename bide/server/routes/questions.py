"""The inbox: questions that wait for a human, the most impactful first."""

from __future__ import annotations

import base64
from typing import Literal

import msgspec
from msgspec import Struct

from bide.core import facts as f
from bide.core import ids
from bide.core.limits import LIST_MAX, NAMED_MAX
from bide.core.refusals import Refused
from bide.server import render, shapes
from bide.server.calls import Call, Table
from bide.store.rows import RANKS, Place, place_of

TABLE = Table()
_encode = msgspec.json.Encoder().encode
_places = msgspec.json.Decoder(tuple[int, float, str])


class Which(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which questions to list; all where no status is given. With a `beginning`: a few of those whose ids begin so."""

    status: f.QuestionStatus | Literal[""] = ""
    beginning: str = ""
    cursor: str = ""


@TABLE.get("/v1/questions")
async def list_questions(call: Call, query: Which) -> shapes.Items[shapes.Question]:
    """Questions of all sessions: blocking ones first, then by impact, then the oldest."""
    store = call.parts.store
    if query.beginning:
        prefix = ids.beginning(query.beginning, "question")
        named = await store.questions_beginning(prefix, query.status, NAMED_MAX)
        return shapes.Items(items=[render.question(q) for q in named])
    found = await store.inbox(query.status, _place(query.cursor), LIST_MAX + 1)
    shown, rest = found[:LIST_MAX], found[LIST_MAX:]
    return shapes.Items(items=[render.question(q) for q in shown], next=_cursor(shown[-1]) if rest else None)


@TABLE.get("/v1/questions/{question}")
async def get_question(call: Call) -> shapes.Question:
    """One question, and what became of it."""
    return render.question(await require(call))


async def require(call: Call) -> f.Question:
    """The question named in the path, or `Refused('no_question')`."""
    question_id = call.id("question")
    found = await call.parts.store.question(question_id)
    if found is None:
        raise Refused("no_question", f"There is no question {question_id}.")
    return found


def _cursor(q: f.Question) -> str:
    """A place in the order, not a count or an id: what is asked, answered or deleted meanwhile moves nothing."""
    return base64.urlsafe_b64encode(_encode(place_of(q))).decode().rstrip("=")


def _place(cursor: str) -> Place | None:
    if not cursor:
        return None
    try:
        place = _places.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except ValueError:  # of base64, or msgspec
        place = (0, 0.0, "")
    if place[0] not in RANKS or not ids.is_id(place[2]):
        raise Refused("bad_value", f"{cursor[:80]!r} is not a cursor.", "Pass `next` of the page before, unchanged.")
    return place
