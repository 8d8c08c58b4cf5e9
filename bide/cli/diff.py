"""What changed from one checkpoint to another, as git would show it."""

from __future__ import annotations

import sys
from base64 import urlsafe_b64decode
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from bide.cli import inert, out, when
from bide.cli.files import Numbered, TreeName
from bide.cli.flags import FLAGS, Count, Flags, SessionName
from bide.client import shapes

STYLES = (("+++", "bold"), ("---", "bold"), ("diff ", "bold"), ("@@", "cyan"), ("+", "green"), ("-", "red"), ("#", "yellow"))  # fmt: skip


async def diff(
    session: SessionName,
    path: Annotated[str, Parameter(help="Only what is there or below.")] = "",
    /,
    *,
    since: Annotated[
        Count | None, Parameter(help="The checkpoint to start from; else the oldest that is kept.")
    ] = None,
    checkpoint: Numbered = None,
    stat: Annotated[bool, Parameter(help="Only how much changed, file by file.")] = False,
    tree: TreeName = "workspace",
    flags: Flags = FLAGS,
) -> None:
    """Show what changed from one checkpoint to another; git's own files are left out.

    A new folder with very many files is one line; name it as PATH to look into it. Piped, it can be given to `git apply`.
    """
    async with flags.client() as client:
        named = await client.session_id(session)
        page = await client.diff(named, path, since=since or 0, checkpoint=checkpoint or 0, tree=tree)
        first, last, items, shown = page["since"], page["checkpoint"], page["items"], 0
        while True:
            if not flags.json:
                for one in items[shown:]:
                    _say(one, named, stat=stat)
                shown = len(items)
            if page["next"] is None:
                break
            page = await client.diff(named, path, since=first, checkpoint=last, tree=tree, cursor=page["next"])
            items += page["items"]
    if flags.json:
        out.emit({"since": first, "checkpoint": last, "tree": tree, "items": items, "next": None})
    elif not items:
        out.tell(f"Nothing changed from checkpoint {first} to {last}." if first != last else _only_one(last))
    elif stat:
        added, removed = (sum(one[word] for one in items) for word in ("added", "removed"))
        out.tell(
            f"{len(items)} changed from checkpoint {first} to {last}: {when.count(added, 'line')} added, {removed} removed."
        )


def _only_one(n: int) -> str:
    return f"Checkpoint {n} is the only one to compare; another follows with the next turn."


def _say(one: shapes.FileDiff, session: str, *, stat: bool) -> None:
    if stat:
        out.say(f"{one['added']:>6} +{one['removed']:>6} -  {_summary(one)}")
        return
    patch = urlsafe_b64decode(one["patch_b64"]) if one["patch_b64"] else (one["patch"] or "").encode()
    name = inert.line(one["path"])
    if one["cut"]:
        patch += f"# the rest of {name} is left out: `bide files {session} {name}` has all of it\n".encode()
    elif one["patch"] is None:
        patch += f"# {_summary(one)}\n".encode()
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(patch)
        sys.stdout.flush()
        return
    console = Console(file=sys.stdout, highlight=False, emoji=False, markup=False, soft_wrap=True)
    for line in patch.decode("utf-8", "replace").splitlines():
        style = next((style for begins, style in STYLES if line.startswith(begins)), "")
        console.print(Text(inert.text(line).replace("\n", " "), style=style))


def _summary(one: shapes.FileDiff) -> str:
    """One line about a path that has no patch, or whose patch is not wanted."""
    name = inert.line(one["path"])
    if one["kind"] == "folder":
        return (
            f"{name}/ {one['change']} with {one['files']} files" if one["files"] else f"{name}/ {one['change']}, empty"
        )
    if one["large"]:
        return f"{name} {one['change']}, {one['size']} bytes: too large to compare line by line"
    if one["binary"]:
        return f"{name} {one['change']}, {one['size']} bytes, no text"
    if one["change"] == "changed" and one["old_mode"] != one["new_mode"]:
        return f"{name} mode {one['old_mode']} -> {one['new_mode']}"
    return f"{name} {one['change']}"
