"""Deleting what people made: a session, all of a ticket's, a project with everything in it, or its base alone."""

from __future__ import annotations

from bide.core import ids
from bide.server import erasing, shapes
from bide.server.calls import Call, Table

TABLE = Table()


@TABLE.delete("/v1/sessions/{session}", status=200)
async def delete_session(call: Call) -> shapes.Erased:
    """Erases a session that no runner holds: it cannot be read from this moment on, and is gone a little later."""
    session = call.id("session")
    return _told(await erasing.erase_session(call.parts, session), session)


@TABLE.delete("/v1/tickets/{ticket:path}", status=200)
async def delete_ticket(call: Call) -> shapes.Erased:
    """Erases all sessions of a ticket. Broken off, it may be repeated: it goes on."""
    return _told(await erasing.erase_ticket(call.parts, call.path("ticket")))


@TABLE.delete("/v1/projects/{project}", status=200)
async def delete_project(call: Call) -> shapes.Erased:
    """Erases a project with all its sessions; none of them can be read from this moment on."""
    return _told(await erasing.erase_project(call.parts, ids.name(call.path("project"), "project")))


@TABLE.delete("/v1/projects/{project}/base", status=204)
async def delete_base(call: Call) -> None:
    """Drops what the project's sessions build upon: whoever saves anew saves all, and a new clone makes another base."""
    await erasing.drop_base(call.parts, ids.name(call.path("project"), "project"))


def _told(gone: erasing.Gone, session: str = "") -> shapes.Erased:
    return shapes.Erased(session_id=session, deleted=gone.deleted, held_by=gone.held_by, later=gone.later)
