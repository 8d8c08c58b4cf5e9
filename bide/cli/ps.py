"""The list of sessions: state, since when, who must act, what is next."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter

from bide.cli import inert, out, tables, when
from bide.cli.flags import FLAGS, Count, Flags
from bide.client import shapes


async def ps(
    *,
    project: Annotated[str, Parameter(help="Only sessions of this project.")] = "",
    shown: Annotated[shapes.Shown | None, Parameter(help="Only sessions in this state.")] = None,
    limit: Annotated[Count, Parameter(help="At most so many (100).")] = 100,
    cursor: Annotated[str, Parameter(help="Where a list that was cut goes on.")] = "",
    flags: Flags = FLAGS,
) -> None:
    """List sessions, the newest first."""
    async with flags.client() as client:
        page = await client.sessions(project=project, shown=shown or "", limit=limit, cursor=cursor)
    if flags.json:
        out.listed(page["items"], page["next"])
        return
    now, names = datetime.now(UTC), [one["id"] for one in page["items"]]
    if not names:
        out.tell("No sessions. Start one with `bide run REPO TASK`.")
        return
    rows = [_row(one, names, now) for one in page["items"]]
    tables.show(("session", "state", "since", "task and next step"), rows, wraps="task and next step")
    if page["next"]:
        out.tell(f"There are more: bide ps --cursor {page['next']}")


def _row(one: shapes.Session, names: list[str], now: datetime) -> tuple[str, ...]:
    ended = one["shown"] == "ended"
    step = one["summary"] or one["next_step"] if ended else f"{one['must_act']}: {tables.step(one)}"
    kept = tables.kept(one, now)
    title = inert.line(f"{one['project']}: {one['title']}")
    return (
        tables.short(one["id"], names), one["shown"], when.since(one["since"], now),
        "\n".join(filter(None, (title, inert.line(step), f"kept until {kept}" if kept else ""))),
    )  # fmt: skip
