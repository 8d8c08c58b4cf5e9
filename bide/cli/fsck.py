"""Reads what is saved through, says what of it could not be brought back, and what lies there that nobody needs."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import aclosing
from typing import Annotated

from cyclopts import Parameter

from bide.cli import inert, out, tables, when
from bide.cli.flags import FLAGS, Flags
from bide.client import Client, shapes
from bide.core.limits import NAMED_MAX


async def fsck(
    session: Annotated[
        str, Parameter(help="Only this session's; else all, and whatever else is in the blob store.")
    ] = "",
    /,
    *,
    deep: Annotated[bool, Parameter(help="Unpack every content, too, and compare it with its name.")] = False,
    flags: Flags = FLAGS,
) -> int:
    """Read saved checkpoints through, and name what is damaged. The exit code is 1 when something is.

    Every object is compared with the checksum of what was written, and every list of files is read. What nobody can open
    is named, too, with what becomes of it: it is no damage.
    """
    counts, damaged, size = Counter[str](), list[shapes.Checked](), 0
    async with flags.client() as client:
        named = await client.session_id(session) if session else ""
        async with aclosing(client.fsck(named, deep=deep)) as found:
            async for one in found:
                counts[one["state"]] += 1
                size += one["bytes"]
                if one["state"] == "damaged":
                    damaged.append(one)
                    if not flags.json:
                        _say(one)
                _progress(counts.total(), size)
        strays = [] if session else await _strays(client)
    if flags.json:
        states = {state: counts[state] for state in ("whole", "damaged", "gone")}
        out.emit({"checkpoints": counts.total(), **states, "bytes": size, "items": damaged, "strays": strays})
        return 1 if damaged else 0
    gone = f", {counts['gone']} not kept any more" if counts["gone"] else ""
    whole = f"{when.count(counts['whole'], 'checkpoint')} whole ({when.size(size)} read)"
    for line in _told(strays):
        out.say(line)
    out.say(f"{whole}, {counts['damaged']} damaged{gone}.")
    return 1 if damaged else 0


async def _strays(client: Client) -> list[shapes.Stray]:
    async with aclosing(client.strays()) as found:
        return [one async for one in found]


def _told(strays: list[shapes.Stray]) -> list[str]:
    """Of each kind how many there are, what becomes of them, and the first of them by name."""
    kinds: dict[tuple[str, str], list[shapes.Stray]] = {}
    for one in strays:
        kinds.setdefault((one["what"], one["state"]), []).append(one)
    lines: list[str] = []
    for (what, _), some in kinds.items():
        first = min(some, key=lambda one: one["due_at"] or "")
        number = when.count(len(some), what) + (" without an object" if what == "key" else "")
        lines.append(f"{number}: {inert.line(first['next'])}")
        lines += [f"  {inert.line(one['object'])}" for one in some[:NAMED_MAX]]
        if len(some) > NAMED_MAX:
            lines.append(f"  and {len(some) - NAMED_MAX} more: --json names them")
    return lines


def _say(one: shapes.Checked) -> None:
    base = one.get("base")
    of = f"The base of project {inert.line(base)}" if base else f"{tables.short(one['session_id'])}  checkpoint"
    out.say(f"{of} is damaged:" if base else f"{of} {one['checkpoint']} is damaged:")
    for lost in one["lost"]:
        size = f", {when.size(lost['bytes'])}" if lost["bytes"] else ""
        out.say(f"  {inert.line(lost['what'])}{size}: {inert.line(lost['reason'])}")
    if one["lost_more"]:
        out.say(f"  and {one['lost_more']} more")
    if base:
        out.say("  No session is lost by it: those that build upon it are checked on their own.")
        out.say(f"  `bide project drop-base {inert.line(base)}` lets nothing more build upon it.")


def _progress(count: int, size: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{count} checkpoints, {when.size(size)} \r")
        sys.stderr.flush()
