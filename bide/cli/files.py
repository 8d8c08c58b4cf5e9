"""The files of a checkpoint, while its session is parked: list a folder, print a file. Nothing wakes."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from cyclopts import Parameter

from bide.cli import inert, out, tables, when
from bide.cli.flags import FLAGS, Count, Flags, SessionName
from bide.client import Client, shapes
from bide.core.limits import LIST_MAX, PRINTED_LINE_BYTES

Numbered = Annotated[Count | None, Parameter(help="A checkpoint's number in `bide show`; else the newest.")]
TreeName = Annotated[str, Parameter(help="What was saved: workspace, home or runtime.")]


async def files(
    session: SessionName,
    path: Annotated[str, Parameter(help="A folder or a file; else the whole workspace.")] = "",
    /,
    *,
    checkpoint: Numbered = None,
    tree: TreeName = "workspace",
    flags: Flags = FLAGS,
) -> None:
    """List what stands in a folder of a checkpoint, or print a file of it. With --json a file is described, not printed."""
    async with flags.client() as client:
        named = await client.session_id(session)
        found = await _listed(client, named, path, checkpoint or 0, tree)
        if flags.json:
            out.emit(found)
        elif found["kind"] == "file":
            await _print(client, named, path, found["checkpoint"], tree)
        else:
            _show(found)


async def _listed(client: Client, session: str, path: str, checkpoint: int, tree: str) -> shapes.Files:
    found = await client.files(session, path, checkpoint=checkpoint, tree=tree, limit=LIST_MAX)
    while found["next"] is not None:
        page = await client.files(
            session, path, checkpoint=found["checkpoint"], tree=tree, cursor=found["next"], limit=LIST_MAX
        )
        found["items"] += page["items"]
        found["next"] = page["next"]
    return found


async def _print(client: Client, session: str, path: str, checkpoint: int, tree: str) -> None:
    await pour(client.read_file(session, path, checkpoint=checkpoint, tree=tree))


async def pour(source: AsyncGenerator[bytes, None]) -> None:
    """Prints bytes: as they are where a program reads; on a terminal nothing in them acts."""
    to_terminal = sys.stdout.isatty()
    async with aclosing(source) as parts:
        line = Line()
        async for part in parts:
            if to_terminal:
                first, *others = part.split(b"\n")
                line.grow(first)
                for other in others:
                    line.end()
                    line.grow(other)
            else:
                sys.stdout.buffer.write(part)
        if line.size:
            line.end()
    sys.stdout.flush()


class Line:
    """A line of a file on its way to a terminal: its beginning, and how long it is in all."""

    def __init__(self) -> None:
        self._begins, self.size = bytearray(), 0

    def grow(self, part: bytes) -> None:
        """More of it has come."""
        self._begins += part[: max(0, PRINTED_LINE_BYTES - len(self._begins))]
        self.size += len(part)

    def end(self) -> None:
        """It is whole: it is said, and the next one begins."""
        out.say(inert.text(self._begins.decode("utf-8", "replace")))
        if left := self.size - len(self._begins):
            out.tell(f"{when.size(left)} of this line are left out on a terminal; pipe the file to have all of it.")
        self._begins, self.size = bytearray(), 0


def _show(found: shapes.Files) -> None:
    if not found["items"]:
        out.tell("Nothing stands there.")
        return
    out.tell(f"Checkpoint {found['checkpoint']}, {inert.line(found['path']) or found['tree']}")
    rows = [
        (one["mode"], when.clock(one["mtime"]), "" if one["kind"] == "folder" else when.size(one["size"]), _name(one))
        for one in found["items"]
    ]
    tables.show(("mode", "changed", "size", "name"), rows)


def _name(one: shapes.FileEntry) -> str:
    name = inert.line(one["name"])
    if one["kind"] == "folder":
        return f"{name}/"
    return f"{name} -> {inert.line(one['target'])}" if one["kind"] == "link" else name
