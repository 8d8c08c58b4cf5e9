"""Reads what is saved through, and says what of it could not be brought back."""

from __future__ import annotations

import sys
from contextlib import aclosing
from typing import Annotated

from cyclopts import Parameter

from bide.cli import inert, out, tables, when
from bide.cli.flags import FLAGS, Flags
from bide.client import shapes


async def fsck(
    session: Annotated[str, Parameter(help="Only this session's; else all.")] = "",
    /,
    *,
    deep: Annotated[bool, Parameter(help="Unpack every content, too, and compare it with its name.")] = False,
    flags: Flags = FLAGS,
) -> int:
    """Read saved checkpoints through, and name what is damaged. The exit code is 1 when something is.

    Every object is compared with the checksum of what was written, and every list of files is read.
    """
    counts, damaged, size = {"whole": 0, "damaged": 0, "gone": 0}, list[shapes.Checked](), 0
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
                _progress(sum(counts.values()), size)
    if flags.json:
        out.emit({"checkpoints": sum(counts.values()), **counts, "bytes": size, "items": damaged})
    else:
        gone = f", {counts['gone']} not kept any more" if counts["gone"] else ""
        whole = f"{when.count(counts['whole'], 'checkpoint')} whole ({when.size(size)} read)"
        out.say(f"{whole}, {counts['damaged']} damaged{gone}.")
    return 1 if damaged else 0


def _say(one: shapes.Checked) -> None:
    out.say(f"{tables.short(one['session_id'])}  checkpoint {one['checkpoint']} is damaged:")
    for lost in one["lost"]:
        size = f", {when.size(lost['bytes'])}" if lost["bytes"] else ""
        out.say(f"  {inert.line(lost['what'])}{size}: {inert.line(lost['reason'])}")
    if one["lost_more"]:
        out.say(f"  and {one['lost_more']} more")


def _progress(count: int, size: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{count} checkpoints, {when.size(size)} \r")
        sys.stderr.flush()
