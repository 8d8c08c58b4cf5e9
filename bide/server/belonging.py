"""Which blob store is the database's own: each of the two holds the same mark.

A folder that is missing, or empty because its disk is not mounted, or another than before, must not be taken for the one
that checkpoints lie in: all of them would be told as lost, and new ones go where nobody looks for them later.
"""

from __future__ import annotations

import secrets

from bide.core.limits import BLOB_MARK_ROOTS, LIST_MAX
from bide.core.refusals import Refused, Unavailable
from bide.server.blobs import Blobs
from bide.snapshots.blobs.base import MARK_KEY, BlobStore
from bide.snapshots.blobs.layers import read_mark
from bide.snapshots.blobs.local import LocalBlobs
from bide.store.base import Engine, Page, Reader
from bide.store.threaded import Store

MARK = ("blobs", "mark")


async def own(store: Store, blobs: BlobStore, url: str) -> Blobs:
    """The database's blob store, ready to be used; one that was there was proved. A database that names nothing yet takes
    what it is given.

    Raises `Refused('other_blobs')` with nothing made, and `Unavailable`.
    """
    there = Blobs(blobs)
    known = (await store.get(*MARK) or b"").decode()
    found = await there.ask(lambda: mark_of(blobs))
    if not known or found != known:
        named = await store.read(roots)
        await there.ask(lambda: require(blobs, url, known, named, shared=store.shared))
    if isinstance(blobs, LocalBlobs):
        made = blobs.made
        await there.ask(blobs.make)
        if not made:
            await there.prove()
    if not found:
        given = known or secrets.token_hex(16)
        await there.ask(lambda: blobs.put(MARK_KEY, given.encode()))
        found = await there.ask(lambda: read_mark(blobs))  # of two that put one only one did
    if found != known:
        known = await store.write(lambda engine: _keep(engine, found))
    if found != known:
        raise not_its_own(url, known, found, shared=store.shared)
    return Blobs(blobs, known)


def not_its_own(url: str, known: str, found: str, *, shared: bool) -> Refused:
    """What stands there instead."""
    what = "the blobs of the other servers of this database" if shared else "the blobs of this database"
    why = "they have the mark of another one" if found else "none of its checkpoints is there"
    lost = f" Should its objects be lost for good, write {known} into its object {MARK_KEY}" if known else ""
    return Refused(
        "other_blobs",
        f"These are not {what}: {why} ({url.partition('?')[0][:200]}).",
        "Mount its disk, or give --blobs as before, on all servers the same."
        + (f"{lost}: sessions whose state is lost then say so." if lost else ""),
    )


def require(blobs: BlobStore, url: str, known: str, named: tuple[str, ...], *, shared: bool) -> None:
    """Refuses a store that cannot be the one of a database that knows this mark, or none, and names these roots."""
    found = mark_of(blobs)
    absent = isinstance(blobs, LocalBlobs) and not blobs.made
    if known:
        fine = found == known or not (shared or named)
    else:  # it is from before there were marks, or names nothing yet
        fine = not named or (not absent and any(blobs.has(f"roots/{root}") for root in named))
    if not fine:
        raise not_its_own(url, known, found, shared=shared)


def roots(reader: Reader) -> tuple[str, ...]:
    """Some of the newest sessions' checkpoints; none where the database names none."""
    found: list[str] = []
    page = Page(limit=LIST_MAX)
    while len(found) < BLOB_MARK_ROOTS and (sessions := reader.sessions(page)):
        found += [s.checkpoint.root for s in sessions if s.checkpoint is not None]
        page = Page(limit=LIST_MAX, before=sessions[-1].id)
    return tuple(found[:BLOB_MARK_ROOTS])


def mark_of(blobs: BlobStore) -> str:
    """The mark of a store that may not be there yet."""
    try:
        return read_mark(blobs)
    except Unavailable:
        if isinstance(blobs, LocalBlobs) and not blobs.made:
            return ""
        raise


def _keep(engine: Engine, found: str) -> str:
    """Of servers that share a database the first one says which blobs are theirs."""
    if engine.get(*MARK) is None or not engine.shared:
        engine.put(*MARK, found.encode())
    return (engine.get(*MARK) or b"").decode()
