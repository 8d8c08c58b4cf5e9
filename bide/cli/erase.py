"""Deleting what was made: one session, or all of a ticket's. Nothing of it can be read from that moment on."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from bide.cli import out, tables
from bide.cli.flags import FLAGS, Flags, SessionName
from bide.client import Client, shapes
from bide.core.limits import CANCELLING_S
from bide.core.refusals import Refused

ticket = App(name="ticket", help="Delete all sessions of a ticket.")


async def rm(
    session: SessionName,
    /,
    *,
    cancel: Annotated[bool, Parameter(help="Cancel it first, if a runner holds it, and wait for that.")] = False,
    flags: Flags = FLAGS,
) -> None:
    """Delete a session: its history, workspace and conversation cannot be read from that moment on, and are gone soon.

    Forks go on; those that still hold content of the session are named.
    """
    async with flags.client() as client:
        named = await client.session_id(session)
        try:
            gone = await client.delete_session(named)
        except Refused as refused:
            if refused.code != "not_at_rest" or not cancel:
                raise
            gone = await _cancelled_and_gone(client, named)
    told(gone, flags)


async def _cancelled_and_gone(client: Client, session: str) -> shapes.Erased:
    await client.cancel(session)
    out.tell("Cancelling it first.")
    await client.wait_for(session, "parked", timeout_s=2 * CANCELLING_S)
    return await client.delete_session(session)


@ticket.command(name="rm")
async def rm_ticket(
    key: Annotated[str, Parameter(help="The ticket's key, as sessions were started with it.")],
    /,
    *,
    flags: Flags = FLAGS,
) -> None:
    """Delete all sessions of a ticket, unless a runner holds one of them."""
    async with flags.client() as client:
        told(await client.delete_ticket(key), flags)


def told(gone: shapes.Erased, flags: Flags) -> None:
    """What was deleted, and who still holds content of it."""
    if flags.json:
        out.emit(gone)
        return
    for session in gone["deleted"]:
        out.say(session)
    count = len(gone["deleted"])
    out.tell(f"Deleted {'one session' if count == 1 else f'{count} sessions'}.")
    if gone["held_by"]:
        forks = ", ".join(tables.short(session) for session in gone["held_by"])
        out.tell(f"Content that they share with these forks is kept until those are deleted, too: {forks}.")
    if later := gone.get("later"):
        out.tell(later)
