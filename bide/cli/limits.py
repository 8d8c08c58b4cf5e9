"""Every bound, its value, and where the value comes from: known before any work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from cyclopts import Parameter

from bide.cli import out, tables, when
from bide.cli.flags import FLAGS, Flags
from bide.client import shapes


async def limits(
    *, project: Annotated[str, Parameter(help="As they hold for this project.")] = "", flags: Flags = FLAGS
) -> None:
    """List every bound, its value, and where the value comes from."""
    async with flags.client() as client:
        found = await client.limits(project=project)
    if flags.json:
        out.listed(found)
    else:
        table(found)


def table(found: Iterable[shapes.Limit]) -> None:
    """Prints limits as people read them."""
    rows = [
        (one["name"], _value(one["value"], one["unit"]), one["origin"].replace("_", " "), one["kept"]) for one in found
    ]
    tables.show(("limit", "value", "from", "what it means"), rows, wraps="what it means")


def _value(value: float, unit: str) -> str:
    match unit:
        case "s":
            return when.span(value)
        case "bytes":
            return when.size(value)
    return f"{value:g}"
