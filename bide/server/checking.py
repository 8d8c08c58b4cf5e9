"""Reads checkpoints through, one after another, and says of each whether it could be brought back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

import msgspec
from msgspec import Struct

from bide.core import facts as f
from bide.core import ids
from bide.core.limits import FSCK_PULSE_S, LIST_MAX, LOST_ITEMS_MAX
from bide.core.refusals import Refused
from bide.core.session import Session
from bide.server import shapes
from bide.server.parts import Parts
from bide.snapshots.blobs.base import Missing
from bide.snapshots.depot import Depot
from bide.snapshots.losses import Damaged, Hostile, Lost
from bide.snapshots.root import open_root
from bide.snapshots.verify import Verified, damage, verify
from bide.store.base import Page

How = Callable[[str, Depot], Verified]  # reads a checkpoint through; raises what `verify` raises


class What(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which to look at: those of one session, or all. `deep`: unpack each content, too, and compare it with its name."""

    session: str = ""
    deep: bool = False


async def sessions(parts: Parts, what: What) -> AsyncIterator[Session]:
    """The sessions to look at, oldest last. `Refused('no_session')` comes before the first."""
    if what.session:
        session_id = ids.parse(what.session, "session id")
        found = await parts.store.session(session_id)
        if found is None:
            raise Refused("no_session", f"There is no session {session_id}.")
        return _these([found])
    return _all(parts)


async def lines(parts: Parts, found: AsyncIterator[Session], *, deep: bool) -> AsyncIterator[bytes]:
    """A line for each checkpoint. While one is read through an empty line comes now and then."""
    how = partial(verify, deep=deep, known_good=set[str]())  # packs are shared: each is read once
    async for session in found:
        for saved in await parts.store.checkpoints(session.id):
            running = asyncio.ensure_future(_checked(parts, session, saved, how))
            try:
                while not (await asyncio.wait([running], timeout=FSCK_PULSE_S))[0]:
                    yield b"\n"
            finally:
                running.cancel()
            yield msgspec.json.encode(await running) + b"\n"


async def look(parts: Parts, session: Session, saved: f.Checkpoint, *, full: bool) -> shapes.Checked:
    """One checkpoint; unless `full` only its lists, and whether each content that they name lies in a pack that is there."""
    return await _checked(parts, session, saved, partial(verify, deep=False) if full else _glance)


async def _checked(parts: Parts, session: Session, saved: f.Checkpoint, how: How) -> shapes.Checked:
    try:
        depot = await parts.archive.depot(session, saved.root)
    except Refused as refused:
        if refused.code != "checkpoint_gone":
            raise
        return shapes.Checked(session_id=session.id, checkpoint=saved.n, state="gone")
    return await parts.archive.long(lambda: _looked(session, saved, depot, how))


def _looked(session: Session, saved: f.Checkpoint, depot: Depot, how: How) -> shapes.Checked:
    try:
        done = how(saved.root, depot)
    except Damaged as damaged:
        return _damaged(session, saved, damaged.items)
    except Hostile as hostile:
        return _damaged(session, saved, [Lost(what=hostile.path, bytes=0, reason=hostile.reason)])
    except Missing as missing:
        lost = Lost(what="the whole checkpoint", bytes=saved.bytes, reason=f"its object {missing.key} is missing")
        return _damaged(session, saved, [lost])
    return shapes.Checked(
        session_id=session.id, checkpoint=saved.n, state="whole", bytes=done.bytes, seconds=round(done.seconds, 3)
    )


def _glance(root: str, depot: Depot) -> Verified:
    """As `verify`, without reading contents."""
    started = time.monotonic()
    opened = open_root(root, depot)
    if items := damage(opened, opened.trees, {}):
        raise Damaged(items)
    return Verified(objects=1 + len(opened.record.packs), bytes=0, seconds=time.monotonic() - started)


def _damaged(session: Session, saved: f.Checkpoint, items: Sequence[Lost]) -> shapes.Checked:
    return shapes.Checked(
        session_id=session.id,
        checkpoint=saved.n,
        state="damaged",
        lost=[shapes.Lost(what=one.what, bytes=one.bytes, reason=one.reason) for one in items[:LOST_ITEMS_MAX]],
        lost_more=max(0, len(items) - LOST_ITEMS_MAX),
    )


async def _these(found: Sequence[Session]) -> AsyncIterator[Session]:
    for one in found:
        yield one


async def _all(parts: Parts) -> AsyncIterator[Session]:
    before = ""
    while True:
        page = Page(limit=LIST_MAX, before=before)
        found = await parts.store.read(lambda reader, page=page: reader.sessions(page))  # type: ignore[misc]
        if not found:
            return
        for one in found:
            yield one
        before = found[-1].id
