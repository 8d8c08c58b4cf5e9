"""A session's events, as text or as envelopes: those there are, and with --follow those that come; or one text whole."""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated

from cyclopts import Parameter

from bide.cli import files, out, tables
from bide.cli.commands import WrongUse
from bide.cli.flags import FLAGS, Count, Flags, SessionName
from bide.cli.timeline import Timeline
from bide.client import Client
from bide.core.refusals import Refused

_TEXTS = ("text", "output", "input", "frame")


async def logs(
    session: SessionName,
    /,
    *,
    after: Annotated[int, Parameter(help="Only events with a greater seq.")] = 0,
    follow: Annotated[bool, Parameter(help="Go on with what comes, until the session has ended.")] = False,
    whole: Annotated[Count | None, Parameter(help="Print all of the text of the event with this seq.")] = None,
    flags: Flags = FLAGS,
) -> None:
    """Print a session's events; with --json one envelope a line."""
    if whole is not None and (follow or after or flags.json):
        raise WrongUse("--whole prints one text and nothing else.", "Leave out --after, --follow and --json.")
    lines = Timeline(width=tables.room())
    async with flags.client() as client:
        named = await client.session_id(session)
        if whole is not None:
            await _whole(client, named, whole)
            return
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


async def _whole(client: Client, session: str, seq: int) -> None:
    """All that an event says, also where the event has only a part of it."""
    last = (await client.session(session))["last_seq"]
    found = (await client.events(session, after=seq - 1, limit=1))["items"] if 0 < seq <= last else []
    event = found[0] if found else None
    text = next((str(event["data"][name]) for name in _TEXTS if event and name in event["data"]), None)
    if event is None or text is None:
        sentence = f"There is no event {seq}." if event is None else f"Event {seq} ({event['type']}) has no text."
        raise Refused("no_output", sentence, "`bide logs SESSION --json` shows each with its seq.")
    if event["data"].get("cut") and not event["data"].get("blob"):
        raise Refused("no_output", f"The text of event {seq} was not kept whole.")
    if event["data"].get("cut"):
        await files.pour(client.output(session, event["data"]["blob"]))
    else:
        out.say(text)
