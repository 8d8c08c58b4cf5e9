"""How long a session holds its runner and is kept: park, resume, cancel, extend."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter

from bide.cli import out, tables, when
from bide.cli.commands import WrongUse
from bide.cli.flags import FLAGS, Duration, Flags, Moment, SessionName, Usd
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
    until: Annotated[
        Moment | None, Parameter(help="Keep it until then: 'in 3 days', monday, 'monday 09:00', or an ISO 8601 time.")
    ] = None,
    budget: Annotated[Usd | None, Parameter(help="What its model may cost in all from now on.")] = None,
    lifetime: Annotated[Duration | None, Parameter(help="How long it may work in all from now on, e.g. 2d.")] = None,
    flags: Flags = FLAGS,
) -> None:
    """Keep a parked or ended session for longer, or allow it more money or working time.

    A day without a time means the end of that day. What names no zone is read by this machine's clock. What was
    understood is shown with its zone.
    """
    costs = budget is not None or lifetime is not None
    if costs == (until is not None):
        raise WrongUse("It needs --until, or else --budget and --lifetime or one of them.", "See `bide extend --help`.")
    async with flags.client() as client:
        named = await client.session_id(session)
        if until is None:
            found = await client.allow(named, budget_usd=budget, working_s=lifetime)
        else:
            found = await client.extend(named, until.isoformat().replace("+00:00", "Z"))
    _receipt(found, flags)
    if until is not None and not flags.json and found["how"] == KEPT_LONGER:
        out.tell(f"Until {when.local(until):%A %Y-%m-%d %H:%M %Z}, {when.span(_left_s(until))} from now.")


def _left_s(until: datetime) -> float:
    return (until - datetime.now(UTC)).total_seconds()


def _receipt(found: shapes.Receipt, flags: Flags) -> None:
    if flags.json:
        out.emit(found)
    else:
        out.say(tables.receipt(found))
