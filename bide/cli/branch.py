"""Other ways on from a checkpoint: a second session that begins with it, or the same session taken back to it."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bide.cli import out, tables
from bide.cli.flags import FLAGS, Count, Flags, KeyText, SessionName, text_of

Key = Annotated[KeyText, Parameter(help="Idempotency key: the same key is the same fork or rewind.")]


async def fork(
    session: SessionName,
    /,
    *,
    checkpoint: Annotated[Count | None, Parameter(help="Its number in `bide show`; else the newest.")] = None,
    title: Annotated[str, Parameter(help="What the new session is called; else like the old one.")] = "",
    say: Annotated[
        str, Parameter(help="Its first message, `-` reads it from stdin; else it waits.", allow_leading_hyphen=True)
    ] = "",
    key: Key = "",
    flags: Flags = FLAGS,
) -> None:
    """Start another session from a checkpoint, with its workspace and conversation. The old one is left as it is."""
    async with flags.client() as client:
        named = await client.session_id(session)
        made = await client.fork(named, checkpoint=checkpoint, title=title, text=text_of(say), key=key)
    if flags.json:
        out.emit(made)
        return
    out.say(made["id"])
    name = tables.short(made["id"])
    out.tell(f"{tables.state(made)}; {made['reason']}\nGo on there with `bide send {name} TEXT`.")


async def rewind(
    session: SessionName,
    /,
    *,
    checkpoint: Annotated[Count, Parameter(help="Its number in `bide show`.")],
    key: Key = "",
    flags: Flags = FLAGS,
) -> None:
    """Take a session back to a checkpoint. What came after is kept: a later rewind can return to it.

    A turn that runs is stopped and saved first.
    """
    async with flags.client() as client:
        found = await client.rewind(await client.session_id(session), checkpoint, key=key)
    if flags.json:
        out.emit(found)
    else:
        out.say(tables.receipt(found))
