"""Every bound, its value, and where the value comes from: known before any work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from cyclopts import Parameter

from bide.cli import out, tables
from bide.cli.flags import FLAGS, Flags
from bide.client import shapes
from bide.core.quantities import amount


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
    each = list(found)
    rows = [
        (one["name"], amount(one["value"], one["unit"]), _bounds(one), one["origin"].replace("_", " "), one["kept"])
        for one in each
    ]
    tables.show(("limit", "value", "can be", "from", "what it means"), rows, wraps="what it means")
    if own := [one["name"] for one in each if one["origin"] != "built_in"]:
        out.tell(f"Not as built in: {', '.join(own)}.")


def _bounds(one: shapes.Limit) -> str:
    if one["min"] == one["max"]:
        return "fixed"
    return f"{amount(one['min'], one['unit'])} to {amount(one['max'], one['unit'])}"
