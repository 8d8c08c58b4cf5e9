"""Tables that fit the terminal, and the pieces of text that several commands show."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bide.cli import inert, when
from bide.client import shapes
from bide.core.holding import ALLOWED
from bide.core.keeping import KEPT_LONGER

WIDTH, PIPED_WIDTH, NARROWEST = 80, 120, 40
SHORT_ID = 13  # as far as the time in an id goes: ids of different milliseconds differ within it


def width() -> int:
    """Columns to fill: the terminal's; where stdout is none, what COLUMNS says."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size((WIDTH, 24)).columns
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) >= 40 else PIPED_WIDTH


def room() -> int:
    """Columns that text has to fit in; 0 where stdout is no terminal, and lines may be as long as they are."""
    return max(width(), NARROWEST) if sys.stdout.isatty() else 0


def wrapped(line: str, columns: int) -> list[str]:
    """A line as several, none wider than the columns, broken between words where that is possible."""
    columns = max(columns, NARROWEST // 2)
    console = Console(file=sys.stdout, width=columns)
    return [part.plain.rstrip() for part in Text(line).wrap(console, columns, overflow="fold")] or [""]


def show(headings: Sequence[str], rows: Iterable[Sequence[object]], *, wraps: str = "") -> None:
    """Prints rows under headings; the column `wraps` takes the room that is left, over several lines."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    for heading in headings:
        wrapping = heading == wraps
        table.add_column(
            heading.upper(), overflow="fold" if wrapping else "ellipsis", no_wrap=not wrapping,
            ratio=1 if wrapping else None,
        )  # fmt: skip
    for row in rows:
        table.add_row(*(Text(inert.text(cell).replace("\t", " ")) for cell in row))
    table.expand = bool(wraps) and sys.stdout.isatty()
    console = Console(file=sys.stdout, width=width(), highlight=False, emoji=False, markup=False)
    with console.capture() as captured:
        console.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    sys.stdout.flush()


def fields(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values, aligned; what is empty is left out, and further lines of a value stand under its first."""
    filled = [(name, value) for name, value in pairs if value]
    room = max((len(name) for name, _ in filled), default=0)
    return "\n".join(
        f"  {name:<{room}}  {inert.text(value).replace(chr(10), chr(10) + ' ' * (room + 4))}" for name, value in filled
    )


def short(id: str, among: Iterable[str] = ()) -> str:
    """As much of an id as names it among the others."""
    others = [other for other in among if other != id]
    end = SHORT_ID
    while end < len(id) and any(other.startswith(id[:end]) for other in others):
        end += 1
    return id[:end].rstrip("-")


def state(session: shapes.Session) -> str:
    """The shown word with what belongs to it: `waiting for answer`, `ended completed`."""
    if session["shown"] == "ended":
        return f"ended {session['outcome'] or ''}".strip()
    if session["shown"] in ("waiting", "parked") and session["turn"]["waiting_for"]:
        return f"{session['shown']} for {session['turn']['waiting_for']}"
    return session["shown"]


def step(session: shapes.Session) -> str:
    """What is next, and why. The reason of one that is queued says both: what it waits for."""
    reason = session["reason"].rstrip(".")
    if reason and session["shown"] == "queued":
        return f"{reason[:1].upper()}{reason[1:]}."
    return session["next_step"] + (f" ({reason})" if reason else "")


def kept(session: shapes.Session, now: datetime) -> str:
    """Until when something of a session is kept that is parked or has ended; empty where nothing is."""
    gone = session["environment"]["state"] == "expired"
    if session["shown"] not in ("parked", "ended") or not session["expires_at"]:
        return ""
    return f"{when.until(session['expires_at'], now)}{', then deleted' if gone else ''}"


def told(session: shapes.Session, now: datetime) -> str:
    """One session in one sentence."""
    return f"{short(session['id'])}  {state(session)} for {when.since(session['since'], now)}: {session['next_step']}"


def receipt(found: shapes.Receipt) -> str:
    """What became of an input, as a sentence."""
    kind, status, how = found["type"].removeprefix("user."), found["status"], found["how"] or ""
    session = short(found["session_id"])
    match kind, status:
        case ("extend", "consumed") if how == KEPT_LONGER:
            return "It is kept longer."
        case ("extend", "consumed") if how == ALLOWED:
            return "Allowed; what it was held for is over."
        case ("extend", "consumed"):
            return f"{how[:1].upper()}{how[1:]}."
        case ("park" | "interrupt" | "resume", "consumed") if how and how != "resumed":
            return f"{how[:1].upper()}{how[1:]}."
        case ("park", "accepted"):
            return "Parking; `bide ps` shows when it is done."
        case ("cancel", "accepted"):
            return "Cancelling; `bide ps` shows when it is done."
        case ("cancel", "consumed"):
            return "Cancelled."
        case ("interrupt", "accepted"):
            return f"Stopping the turn; `bide attach {session}` shows it."
        case ("resume", "consumed"):
            return "Resuming; `bide ps` shows when it is there."
        case ("resume", "accepted"):
            return "Still parking; then it resumes."
        case ("rewind", "accepted"):
            return "It stops and is saved first, then it goes back; `bide ps` shows when it is done."
        case ("rewind", "consumed"):
            return f"{how[:1].upper()}{how[1:]}. A message goes on from there."
        case ("resolve", "consumed"):
            return f"{how[:1].upper()}{how[1:]}."
        case ("resolve", "accepted"):
            return f"Its runner delivers it again; `bide show {session}` says when it has."
        case ("message" | "answer", "withdrawing"):
            return f"It is taken back unless its runner delivers it first; `bide show {session}` says which."
        case ("message", "accepted") if how.endswith("changes it"):
            return f"It is changed unless its runner delivers it first; `bide show {session}` says which."
        case ("message", "accepted") if found["code"] == "edited":
            return "It is changed."
        case ("message" | "answer", "withdrawn") if found["code"] == "taken_back":
            return "It is taken back."
        case ("message" | "answer", "accepted"):
            return f"The {kind} is accepted; session {session} gets it."
    what = {"message": "The message", "answer": "The answer"}.get(kind, f"The order to {kind}")
    return f"{what} is {status}" + (f": {how.replace('_', ' ')}" if how else "") + f" (session {session})."


def runtimes(found: Iterable[Mapping[str, Any]]) -> str:
    """What a runner can run on one line, then what it cannot, each with what helps."""
    each = tuple(found)
    usable = ", ".join(f"{one['name']} {one['version']}".rstrip() for one in each if not one["problem"])
    broken = [f"{one['name']}: {one['problem']} {one['hint']}".rstrip() for one in each if one["problem"]]
    return "\n".join(filter(None, (usable, *broken)))
