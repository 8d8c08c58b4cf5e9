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
from bide.core.limits import DIFF_BYTES_MAX

STYLES = (("+++", "bold"), ("---", "bold"), ("diff ", "bold"), ("@@", "cyan"), ("+", "green"), ("-", "red"), ("#", "yellow"))  # fmt: skip


async def diff(
    session: SessionName,
    path: Annotated[str, Parameter(help="Only what is there or below.")] = "",
    /,
    *,
    since: Annotated[Count | None, Parameter(help="The checkpoint to start from; else the session's first.")] = None,
    checkpoint: Numbered = None,
    stat: Annotated[bool, Parameter(help="Only how much changed, file by file.")] = False,
    tree: TreeName = "workspace",
    flags: Flags = FLAGS,
) -> None:
    """Show what changed from one checkpoint to another; git's own files are left out.

    A new folder with very many files is one line; name it as PATH to look into it. Piped, it can be given to `git apply`:
    what is not in the patch stands in a line that begins with #. What it is compared with is said on stderr.
    """
    async with flags.client() as client:
        named = await client.session_id(session)
        page = await client.diff(named, path, since=since or 0, checkpoint=checkpoint or 0, tree=tree)
        first, last, is_, items = page["since"], page["checkpoint"], page["since_is"], list[shapes.FileDiff]()
        count = added = removed = 0
        while True:
            for one in page["items"]:
                count, added, removed = count + 1, added + one["added"], removed + one["removed"]
                if not flags.json:
                    _say(one, stat=stat)
            items += page["items"] if flags.json else []
            if page["next"] is None:
                break
            page = await client.diff(named, path, since=first, checkpoint=last, tree=tree, cursor=page["next"])
    if flags.json:
        out.emit({"since": first, "since_is": is_, "checkpoint": last, "tree": tree, "items": items, "next": None})
    elif first == last:
        asked = since or checkpoint
        out.tell(f"Checkpoint {last} is compared with itself." if asked else _only_one(last, is_))
    else:
        what = f"{count} changed" if count else "Nothing changed"
        lines = f": {when.count(added, 'line')} added, {removed} removed" if stat and count else ""
        out.tell(f"{what} from checkpoint {first} to {last}{lines}. {_origin(first, is_)}")


def _origin(n: int, is_: str) -> str:
    """What the older side is."""
    return {
        "clone": f"Checkpoint {n} is the fresh clone.",
        "fork": f"Checkpoint {n} is what the session was forked from.",
        "first": f"Checkpoint {n} is the first that was saved, and not the clone: what changed before it is not told.",
    }.get(is_, f"Checkpoint {n} is not the first: what changed before it is not told.")


def _only_one(n: int, is_: str) -> str:
    return f"Checkpoint {n} is the only one to compare; another follows with the next turn. {_origin(n, is_)}"


def _say(one: shapes.FileDiff, *, stat: bool) -> None:
    if stat:
        out.say(f"{one['added']:>6} +{one['removed']:>6} -  {_summary(one)}")
        return
    patch = urlsafe_b64decode(one["patch_b64"]) if one["patch_b64"] else (one["patch"] or "").encode()
    if one["patch"] is None:
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
    if one["left_out"]:
        why = {"bytes": f"more than {when.size(DIFF_BYTES_MAX)} are not compared", "lines": "too many lines differ"}
        return f"{name} {one['change']}, {one['size']} bytes: {why[one['left_out']]}"
    if one["binary"]:
        return f"{name} {one['change']}, {one['size']} bytes, no text"
    if one["change"] == "changed" and one["old_mode"] != one["new_mode"]:
        return f"{name} mode {one['old_mode']} -> {one['new_mode']}"
    return f"{name} {one['change']}"
