"""What lies in the blob store that nobody can open, and keys whose objects are not there: each with what becomes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import islice

from bide.core.limits import LIST_MAX
from bide.core.quantities import span
from bide.server import render, shapes
from bide.server.checking import told
from bide.server.erasing import PATIENCE
from bide.server.parts import Parts
from bide.store import collecting
from bide.store import strays as rows

NEXT = {
    "underway": "A save may be under way. What it does not come to name is collected later.",
    "unfinished": "Left by a save that was cut off. It is deleted {due}.",
    "condemned": "Nobody has its key any more. It is deleted {due}.",
    "unknown": "Nothing in this database is about it, and nobody here has its key. It is left alone: delete it by hand if "
    "no other database uses this store.",
}  # fmt: skip
NEXT_OF_KEYS = {
    "underway": "A save may be under way that has still to write it.",
    "spare": "No checkpoint that is kept needs it. The next collection takes the key away.",
}


async def lines(parts: Parts) -> AsyncIterator[bytes]:
    """A line for each, and empty ones meanwhile. What belongs to a checkpoint that is kept is not looked at here."""
    homes: dict[str, str] = {}
    after: str | None = ""
    while after is not None:
        page = await parts.store.read(lambda reader, after=after: collecting.families(reader, after, LIST_MAX))  # type: ignore[misc]
        after = page[-1] if len(page) == LIST_MAX else None
        for family in page:
            yield b"\n"
            spare = await parts.store.read(lambda reader, family=family: rows.spare(reader, family))  # type: ignore[misc]
            homes |= spare.homes
            for stray in spare.strays:
                async for line in told(_key(parts, stray)):
                    yield line
    for prefix in ("roots/", "packs/", "pieces/"):
        listing = parts.blobs.store.list(prefix)
        while keys := await parts.archive.long(lambda listing=listing: list(islice(listing, LIST_MAX))):  # type: ignore[misc]
            yield b"\n"
            found = await parts.store.read(lambda reader, keys=keys: rows.strays(reader, keys, homes, PATIENCE))  # type: ignore[misc]
            for stray in found:
                async for line in told(_object(parts, stray)):
                    yield line


async def _key(parts: Parts, stray: rows.Stray) -> shapes.Stray | None:
    there = await _is_there(parts, stray.object)
    return None if there else _shown(parts, stray, "key", NEXT_OF_KEYS[stray.fate])


async def _object(parts: Parts, stray: rows.Stray) -> shapes.Stray | None:
    """None: it was deleted between the look at the store and the one at the rows."""
    there = await _is_there(parts, stray.object)
    return _shown(parts, stray, "object", NEXT[stray.fate]) if there else None


async def _is_there(parts: Parts, key: str) -> bool:
    try:
        return await parts.archive.long(lambda: parts.blobs.store.has(key))
    except ValueError:
        return True  # it was listed, and bide gives no such names


def _shown(parts: Parts, stray: rows.Stray, what: shapes.StrayKind, becomes: str) -> shapes.Stray:
    left_s = max(60.0, stray.due - parts.store.now())
    return shapes.Stray(
        what=what, object=stray.object, state=stray.fate, due_at=render.moment(stray.due),
        next=becomes.format(due=f"in about {span(left_s)}"),
    )  # fmt: skip
