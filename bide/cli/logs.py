"""A session's events, as text or as envelopes: those there are, and with --follow those that come."""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated

from cyclopts import Parameter

from bide.cli import out, tables
from bide.cli.flags import FLAGS, Flags, SessionName
from bide.cli.timeline import Timeline


async def logs(
    session: SessionName,
    /,
    *,
    after: Annotated[int, Parameter(help="Only events with a greater seq.")] = 0,
    follow: Annotated[bool, Parameter(help="Go on with what comes, until the session has ended.")] = False,
    flags: Flags = FLAGS,
) -> None:
    """Print a session's events; with --json one envelope a line."""
    lines = Timeline(width=tables.room())
    async with flags.client() as client:
        named = await client.session_id(session)
        events = (
            client.follow(named, after=after, until_ended=True, on_trouble=out.tell)
            if follow
            else client.history(named, after=after)
        )
        async with aclosing(events):
            async for event in events:
                if flags.json:
                    out.emit(event)
                else:
                    out.say("\n".join(lines.lines(event)))
