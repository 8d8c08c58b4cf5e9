"""How long a session holds its runner and is kept: park, resume, cancel, extend."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter

from bide.cli import out, tables, when
from bide.cli.flags import FLAGS, Flags, Moment, SessionName
from bide.client import shapes
from bide.core.keeping import KEPT_LONGER


async def park(session: SessionName, /, *, flags: Flags = FLAGS) -> None:
    """Save everything and free the runner; a message or an answer wakes the session again."""
    async with flags.client() as client:
        _receipt(await client.park(await client.session_id(session)), flags)


async def resume(session: SessionName, /, *, flags: Flags = FLAGS) -> None:
    """Bring a parked session back to a runner, without saying anything to it."""
    async with flags.client() as client:
        _receipt(await client.resume(await client.session_id(session)), flags)


async def cancel(session: SessionName, /, *, flags: Flags = FLAGS) -> None:
    """Stop a session, save it, and end it as cancelled. What it did is kept."""
    async with flags.client() as client:
        _receipt(await client.cancel(await client.session_id(session)), flags)


async def extend(
    session: SessionName,
    /,
    *,
    until: Annotated[Moment, Parameter(help="'in 3 days', monday, 'monday 09:00', or an ISO 8601 time.")],
    flags: Flags = FLAGS,
) -> None:
    """Keep a parked or ended session until then. A day without a time means the end of that day.

    What names no zone is read by this machine's clock. What was understood is shown with its zone.
    """
    async with flags.client() as client:
        found = await client.extend(await client.session_id(session), until.isoformat().replace("+00:00", "Z"))
    _receipt(found, flags)
    if not flags.json and found["how"] == KEPT_LONGER:
        out.tell(f"Until {when.local(until):%A %Y-%m-%d %H:%M %Z}, {when.span(_left_s(until))} from now.")


def _left_s(until: datetime) -> float:
    return (until - datetime.now(UTC)).total_seconds()


def _receipt(found: shapes.Receipt, flags: Flags) -> None:
    if flags.json:
        out.emit(found)
    else:
        out.say(tables.receipt(found))
