"""Questions that wait for a person, the most impactful first; in a terminal they can be answered one by one."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime

from bide.cli import answer, inert, out, tables, when
from bide.cli.flags import FLAGS, Flags
from bide.client import Client, shapes
from bide.core.refusals import Refused

INDENT = "   "


async def inbox(*, flags: Flags = FLAGS) -> None:
    """List the questions that wait for a person. In a terminal, asks which to answer."""
    async with flags.client() as client:
        found = await client.questions(status="open")
        if flags.json:
            out.listed(found)
            return
        if not found:
            out.tell("No questions.")
            return
        now, names = datetime.now(UTC), [one["id"] for one in found]
        for place, one in enumerate(found, 1):
            out.say(_shown(place, one, names, now))
        if sys.stdin.isatty() and sys.stdout.isatty():
            await _ask(client, found)
        else:
            out.tell("Answer with `bide answer Q TEXT`.")


def _shown(place: int, one: shapes.Question, names: list[str], now: datetime) -> str:
    marks = [f"{one['impact']} impact"] + ["blocking"] * one["blocking"] + [one["kind"]] * (one["kind"] != "ask")
    head = f"{place}. {tables.short(one['id'], names)}  {', '.join(marks)}, {when.since(one['asked_at'], now)} ago"
    lines = [f"{head}, session {tables.short(one['session_id'])}", *one["question"].splitlines()]
    lines += one["context"].splitlines()
    lines += [f"  {number}) {inert.line(option)}" for number, option in enumerate(one["options"], 1)]
    if room := tables.room():
        lines = [part for line in lines for part in tables.wrapped(inert.text(line), room - len(INDENT))]
    return f"\n{INDENT}".join(lines) + "\n"


async def _ask(client: Client, found: list[shapes.Question]) -> None:
    """Until Enter alone: which one, then what."""
    while True:
        which = await _typed("Which one do you answer? (number, or Enter to leave) ")
        if not which:
            return
        if not which.isdecimal() or not 1 <= int(which) <= len(found):
            out.tell(f"There are 1 to {len(found)}.")
            continue
        asked = found[int(which) - 1]
        typed = await _typed("The answer (a number takes that option; Enter leaves it): ")
        if not typed:
            continue
        text, choices = answer.meant(typed, asked["options"])
        try:
            out.say(tables.receipt(await client.answer(asked["id"], text, choices=choices, via="cli")))
        except Refused as refused:
            out.tell(f"{refused.sentence} {refused.hint}")


async def _typed(prompt: str) -> str:
    sys.stdout.write(prompt)
    sys.stdout.flush()
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()
