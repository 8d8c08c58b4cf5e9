"""What a person says to a session: a message, a word into the running turn, stop."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from bide.cli import out, tables
from bide.cli.flags import FLAGS, Flags, KeyText, SessionName, text_of
from bide.client import shapes

Text = Annotated[str, Parameter(help="The message; `-` reads it from stdin.", allow_leading_hyphen=True)]
Key = Annotated[KeyText, Parameter(help="Idempotency key: sending twice with one key is one message.")]


async def send(
    session: SessionName,
    text: Text,
    /,
    *,
    delivery: Annotated[
        Literal["next_turn", "steer", "interrupt"],
        Parameter(help="next_turn (when the turn ends, the default), steer (into it), interrupt (instead of it)."),
    ] = "next_turn",
    key: Key = "",
    flags: Flags = FLAGS,
) -> None:
    """Send a message. A parked or ended session wakes for it."""
    async with flags.client() as client:
        found = await client.send(await client.session_id(session), text_of(text), delivery=delivery, key=key)
    _receipt(found, flags)


async def steer(session: SessionName, text: Text, /, *, key: Key = "", flags: Flags = FLAGS) -> None:
    """Send a message into the running turn, where the runtime can; else at the next turn, as the receipt says."""
    await send(session, text, delivery="steer", key=key, flags=flags)


async def interrupt(
    session: SessionName,
    text: Annotated[
        str, Parameter(help="What to do instead; `-` reads it from stdin.", allow_leading_hyphen=True)
    ] = "",
    /,
    *,
    drop_queued: Annotated[
        bool, Parameter(help="Drop messages that are not delivered yet; else they go on at once.")
    ] = False,
    key: Key = "",
    flags: Flags = FLAGS,
) -> None:
    """Stop the running turn. The session goes on with the text and what is queued, or waits for what you send next."""
    async with flags.client() as client:
        named, words = await client.session_id(session), text_of(text)
        if words:
            found = await client.send(named, words, delivery="interrupt", drop_queued=drop_queued, key=key)
        else:
            found = await client.interrupt(named, drop_queued=drop_queued, key=key)
    _receipt(found, flags)


def _receipt(found: shapes.Receipt, flags: Flags) -> None:
    if flags.json:
        out.emit(found)
    else:
        out.say(tables.receipt(found))
