"""Empties a runner, and says of each session what has become of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter

from bide.cli import inert, out, tables, when
from bide.cli.commands import WrongUse
from bide.cli.flags import FLAGS, Duration, Flags
from bide.client import Client, shapes
from bide.core.limits import DRAIN_LATE_S, DRAIN_LOOK_S
from bide.core.refusals import EXIT_CODE, Kind, Refused


async def drain(
    runner: Annotated[str, Parameter(help="The runner's name or id; see `bide runners`.")],
    /,
    *,
    deadline: Annotated[
        Duration | None, Parameter(help="How long sessions that work may still take, e.g. 10m (1m).")
    ] = None,
    no_wait: Annotated[bool, Parameter(help="Only give the order.")] = False,
    undo: Annotated[bool, Parameter(help="Take the order back.")] = False,
    flags: Flags = FLAGS,
) -> int:
    """Empty a runner: it takes nothing more; what waits is saved at once, what works at the end of its turn.

    Sessions that still work at the deadline are interrupted and saved. Nothing is lost; each goes on elsewhere when it
    has something to do. Returns once nothing is left on the runner (exit code 8 when that takes too long, 1 when the
    runner was restarted, which ends the order, or the order was taken back).
    """
    if undo and (deadline is not None or no_wait):
        raise WrongUse("--undo takes the order back: neither --deadline nor --no-wait goes with it.", "Leave one out.")
    async with flags.client() as client:
        if undo:
            await client.undo_drain(runner)
            _print([], f"Runner {runner} takes sessions again.", flags)
            return 0
        ordered = await client.drain(runner, deadline_s=deadline)
        if no_wait:
            _print(ordered["sessions"], f"Runner {ordered['name']} is told to drain.", flags)
            return 0
        found = await _wait(client, ordered)
    over = found["state"] == "drained"
    sentence = f"Runner {found['name']} is empty." if over else f"Runner {found['name']} still holds sessions."
    _print(found["sessions"], sentence, flags)
    return 0 if over else EXIT_CODE[Kind.TIMED_OUT]


async def _wait(client: Client, now: shapes.Drain) -> shapes.Drain:
    """Returns it drained, or as it stands when there has been time enough. A server that is away is waited for."""
    until = time.monotonic() + _seconds(now["asked_at"], now["deadline_at"]) + DRAIN_LATE_S
    told: dict[str, str] = {}
    away = False
    try:
        while True:
            _tell(now["sessions"], told)
            if now["state"] == "drained" or time.monotonic() >= until:
                return now
            await asyncio.sleep(DRAIN_LOOK_S)
            try:
                now, away = await client.drained(now["runner"]), False
            except Refused as refused:
                if refused.code == "no_drain":  # it was there a moment ago
                    raise Refused("failed", refused.sentence, refused.hint) from None
                if refused.kind is not Kind.UNREACHABLE:
                    raise
                if not away:
                    out.tell(f"{refused.sentence} The drain goes on; waiting for the server.")
                away = True
    except asyncio.CancelledError:  # Ctrl-C
        out.tell(f"Left. The drain goes on; `bide drain {now['name']} --undo` takes it back.")
        raise


def _tell(lines: Iterable[shapes.DrainLine], told: dict[str, str]) -> None:
    """Says what has changed."""
    for line in lines:
        if told.get(line["session"]) != line["sentence"]:
            told[line["session"]] = line["sentence"]
            clock = f"{datetime.now(UTC).astimezone():%H:%M:%S}"
            out.tell(f"{clock}  {tables.short(line['session'])}  {line['result']}: {line['sentence']}")


def _print(lines: list[shapes.DrainLine], sentence: str, flags: Flags) -> None:
    if flags.json:
        out.listed(lines)
        return
    if lines:
        rows = [
            (
                tables.short(line["session"]), line["result"], line["checkpoint"] or "",
                f"{inert.line(line['title'])}\n{line['sentence']}".lstrip(),
            )
            for line in lines
        ]  # fmt: skip
        last = "task and what became of it"
        tables.show(("session", "result", "checkpoint", last), rows, wraps=last)
    out.say(sentence)


def _seconds(start: str, end: str) -> float:
    begin, finish = when.parsed(start), when.parsed(end)
    return (finish - begin).total_seconds() if begin and finish else 0.0
