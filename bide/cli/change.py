"""Thinking again: what was sent and is not delivered yet is changed or taken back, and a doubt is settled."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from bide.cli import out, tables
from bide.cli.commands import WrongUse
from bide.cli.flags import FLAGS, Flags, SessionName, text_of
from bide.client import shapes

InputName = Annotated[str, Parameter(help="The input's id, or the beginning of it; see `bide show`.")]


async def edit(
    session: SessionName,
    input: InputName,
    text: Annotated[str, Parameter(help="What it is to say; `-` reads it from stdin.", allow_leading_hyphen=True)] = "",
    /,
    *,
    delivery: Annotated[
        Literal["next_turn", "steer", "interrupt"] | None,
        Parameter(help="When it is to be delivered; else as it was sent."),
    ] = None,
    flags: Flags = FLAGS,
) -> None:
    """Change a message that is not delivered yet. It keeps its place in the order."""
    if not text and delivery is None:
        raise WrongUse("Nothing would change.", "Give a text, or --delivery.")
    async with flags.client() as client:
        named = await client.session_id(session)
        found = await client.edit(named, await client.input_id(named, input), text_of(text), delivery=delivery)
    _receipt(found, flags)


async def withdraw(session: SessionName, input: InputName, /, *, flags: Flags = FLAGS) -> None:
    """Take a message or an answer back that is not delivered yet. The question of an answer waits again."""
    async with flags.client() as client:
        named = await client.session_id(session)
        found = await client.withdraw(named, await client.input_id(named, input))
    _receipt(found, flags)


async def resolve(
    session: SessionName,
    input: InputName,
    /,
    *,
    again: Annotated[bool, Parameter(negative="", help="Deliver it again: what it asked for was not done.")] = False,
    delivered: Annotated[bool, Parameter(negative="", help="It was delivered: never deliver it again.")] = False,
    flags: Flags = FLAGS,
) -> None:
    """Say of an unconfirmed input whether it was delivered. `bide logs` shows what the session did."""
    if again == delivered:
        raise WrongUse("Either --again or --delivered.", "`bide logs` shows what the session did after it.")
    async with flags.client() as client:
        named = await client.session_id(session)
        choice: Literal["again", "delivered"] = "again" if again else "delivered"
        found = await client.resolve(named, await client.input_id(named, input), choice)
    _receipt(found, flags)


def _receipt(found: shapes.Receipt, flags: Flags) -> None:
    if flags.json:
        out.emit(found)
    else:
        out.say(tables.receipt(found))
