"""The answer to a question: a text, one of its options, or that there will be none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from bide.cli import out, tables
from bide.cli.flags import FLAGS, Flags, KeyText, text_of
from bide.core.refusals import Refused


async def answer(
    question: Annotated[str, Parameter(help="The question's id, or the beginning of it; see `bide inbox`.")],
    text: Annotated[str, Parameter(help="The answer; `-` reads it from stdin.", allow_leading_hyphen=True)] = "",
    /,
    *,
    choice: Annotated[
        tuple[str, ...], Parameter(help="One of the options: its text, or its number. May be given again.")
    ] = (),
    decline: Annotated[bool, Parameter(help="There will be no answer: the session has to decide by itself.")] = False,
    withdraw: Annotated[
        bool, Parameter(negative="", help="The question is of no use any more; the text says why.")
    ] = False,
    key: Annotated[KeyText, Parameter(help="Idempotency key: answering twice with one key is one answer.")] = "",
    flags: Flags = FLAGS,
) -> None:
    """Answer a question. A parked session wakes for it."""
    async with flags.client() as client:
        named = await client.question_id(question)
        if any(one.isdecimal() for one in choice):
            options = (await client.question(named))["options"]
            choice = tuple(numbered(one, options) for one in choice)
        words = text_of(text)
        try:
            found = await client.answer(
                named, words, choices=choice, decline=decline, withdraw=withdraw, via="cli", key=key
            )
        except Refused:
            if words and text == "-" and not flags.json:  # what was piped in stands nowhere else
                out.tell(words)
            raise
    if flags.json:
        out.emit(found)
    else:
        out.say(tables.receipt(found))


def numbered(given: str, options: Sequence[str]) -> str:
    """The option of that number, unless an option is called so."""
    if given in options or not given.isdecimal() or not 1 <= int(given) <= len(options):
        return given
    return options[int(given) - 1]


def meant(typed: str, options: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """What a line typed as an answer means, as (text, choices): an option by number or name, else a text."""
    option = numbered(typed, options)
    return ("", (option,)) if option in options else (typed, ())
