"""A session as it works, line by line; in a terminal, what is typed is said to it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter

from bide.cli import answer, out, tables
from bide.cli.flags import FLAGS, Flags, SessionName
from bide.cli.timeline import Timeline
from bide.client import Client
from bide.core.refusals import Refused

HELP = """\
A line you type is sent as a message.
  /interrupt [TEXT]      stop the turn, and do this instead
  /answer [Q] TEXT       answer the open question
  /park  /resume  /cancel
  /quit                  leave; the session goes on"""


@dataclass
class Seen:
    """The newest turn that is on the screen: who says stop means that one, never the next."""

    turn: int


async def attach(
    session: SessionName,
    /,
    *,
    verbose: Annotated[bool, Parameter(help="Also say when each input was delivered and consumed.")] = False,
    flags: Flags = FLAGS,
) -> None:
    """Follow a session as it works, from its beginning, until it has ended.

    In a terminal, a line you type is sent as a message; /help lists what else can be said.
    """
    try:
        await _attach(session, verbose, flags)
    except asyncio.CancelledError:  # Ctrl-C
        out.tell(out.LEFT)
        raise


async def _attach(session: str, verbose: bool, flags: Flags) -> None:
    async with flags.client() as client:
        named = await client.session_id(session)
        found = await client.session(named)
        seen = Seen(found["turn"]["n"])
        if flags.json:
            await _follow(client, named, verbose, flags, seen)
            return
        out.tell(tables.told(found, datetime.now(UTC)))
        if not sys.stdin.isatty():
            await _follow(client, named, verbose, flags, seen)
            return
        out.tell("Type a message, or /help.")
        following = asyncio.ensure_future(_follow(client, named, verbose, flags, seen))
        talking = asyncio.ensure_future(_talk(client, named, seen))
        try:
            done, _ = await asyncio.wait((following, talking), return_when=asyncio.FIRST_COMPLETED)
        finally:  # also on Ctrl-C: a reader must not outlive the connection it reads
            for task in (following, talking):
                task.cancel()
            await asyncio.gather(following, talking, return_exceptions=True)
        for task in done:
            task.result()


async def _follow(client: Client, session: str, verbose: bool, flags: Flags, seen: Seen) -> None:
    lines = Timeline(width=tables.room(), receipts=verbose)
    async with aclosing(client.follow(session, until_ended=True, on_trouble=out.tell)) as events:
        async for event in events:
            seen.turn = max(seen.turn, event["turn"])
            if flags.json:
                out.emit(event)
            elif shown := lines.lines(event):
                out.say("\n".join(shown))


async def _talk(client: Client, session: str, seen: Seen) -> None:
    """Takes lines until /quit or the end of input."""
    async for typed in _typed():
        line = typed.strip()
        if line in ("/quit", "/q", "/detach"):
            break
        if not line:
            continue
        try:
            await _say(client, session, line, seen)
        except Refused as refused:
            out.tell(f"{refused.sentence} {refused.hint}")
    out.tell(out.LEFT)


async def _say(client: Client, session: str, line: str, seen: Seen) -> None:
    verb, _, rest = line.partition(" ")
    match verb:
        case "/interrupt" if rest.strip():
            await client.send(session, rest.strip(), delivery="interrupt")
        case "/interrupt":
            await client.interrupt(session, turn=seen.turn)
        case "/park":
            await client.park(session)
        case "/resume":
            await client.resume(session)
        case "/cancel":
            await client.cancel(session)
        case "/answer":
            await _answer(client, session, rest.strip())
        case "/help":
            out.tell(HELP)
        case _ if verb.startswith("/") and verb[1:].isalpha():
            out.tell(f"There is no {verb}. /help lists what there is.")
        case _:
            await client.send(session, line)


async def _answer(client: Client, session: str, rest: str) -> None:
    """Answers the one open question, or the one whose id comes first."""
    waiting = await client.questions(session, status="open")
    first, _, text = rest.partition(" ")
    named = [q for q in waiting if len(first) >= tables.SHORT_ID and q["id"].startswith(first)]
    if named:
        waiting, rest = named, text.strip()
    if not waiting:
        out.tell("No question is open. What you type is sent as a message.")
    elif len(waiting) > 1:
        out.tell("Several questions are open. Begin with the id of the one you mean:")
        for one in waiting:
            out.tell(f"  {tables.short(one['id'])}  {one['question']}")
    elif not rest:
        out.tell("What is the answer? /answer TEXT")
    else:
        text, choices = answer.meant(rest, waiting[0]["options"])
        await client.answer(waiting[0]["id"], text, choices=choices, via="cli")


async def _typed() -> AsyncIterator[str]:
    """Lines from the terminal, without blocking what comes from the session."""
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
    chunks: asyncio.Queue[bytes] = asyncio.Queue()

    def ready() -> None:
        chunk = os.read(descriptor, 65536)
        if not chunk:
            loop.remove_reader(descriptor)
        chunks.put_nowait(chunk)

    loop.add_reader(descriptor, ready)
    rest = b""
    try:
        while chunk := await chunks.get():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", "replace")
        if rest:
            yield rest.decode("utf-8", "replace")
    finally:
        loop.remove_reader(descriptor)
