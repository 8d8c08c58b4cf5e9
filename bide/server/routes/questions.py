"""The inbox: questions that wait for a human, the most impactful first."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from bide.core import facts as f
from bide.core.limits import LIST_MAX
from bide.server import render, shapes
from bide.server.calls import Call, Table

TABLE = Table()
_IMPACT: dict[f.Impact, int] = {"high": 0, "medium": 1, "low": 2}


class Which(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which questions to list; all where no status is given."""

    status: f.QuestionStatus | Literal[""] = ""
    cursor: str = ""


@TABLE.get("/v1/questions")
async def list_questions(call: Call, query: Which) -> shapes.Items[shapes.Question]:
    """Questions of all sessions: blocking ones first, then by impact, then the oldest."""
    found = await call.parts.store.questions(status=query.status)
    ranked = sorted(found, key=lambda q: (not q.blocking, _IMPACT[q.impact], q.asked_at, q.id))
    return render.items([render.question(q) for q in ranked], query.cursor, LIST_MAX)
