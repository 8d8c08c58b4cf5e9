"""Reads checkpoints through, one after another, and says of each whether it could be brought back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec
from msgspec import Struct

from bide.core import facts as f
from bide.core import ids
from bide.core.branching import kept
from bide.core.limits import FSCK_PULSE_S, LIST_MAX, LOST_ITEMS_MAX
from bide.core.refusals import Refused
from bide.core.session import Session
from bide.server import shapes
from bide.server.parts import Parts
from bide.snapshots.depot import Depot
from bide.snapshots.fsck import Depth, Looked, look
from bide.snapshots.losses import Lost
from bide.store import keyrows
from bide.store.base import Page


class What(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which to look at: those of one session, or all. `deep`: unpack each content, too, and compare it with its name."""

    session: str = ""
    deep: bool = False


Looks = Callable[[str, Depot], Looked]


async def sessions(parts: Parts, what: What) -> AsyncIterator[Session]:
    """The sessions to look at, oldest last. `Refused('no_session')` comes before the first."""
    if what.session:
        session_id = ids.parse(what.session, "session id")
        found = await parts.store.session(session_id)
        if found is None:
            raise Refused("no_session", f"There is no session {session_id}.")
        return _these([found])
    return _all(parts)


async def lines(parts: Parts, found: AsyncIterator[Session], what: What) -> AsyncIterator[bytes]:
    """A line for each checkpoint, and where all are looked at one for each project's base. While one is read through an
    empty line comes now and then.
    """
    good = set[str]()  # packs are shared: each is read once
    looks = _by("deep" if what.deep else "written", good)
    async for session in found:
        saves = await parts.store.checkpoints(session.id)
        roots = {one.root for one in kept(session, saves)}
        for saved in saves:
            if saved.root not in roots:
                yield msgspec.json.encode(_gone(session.id, saved)) + b"\n"
                continue
            async for line in told(_checked(parts, session, saved, looks)):
                yield line
    for project in [] if what.session else await parts.store.keys(keyrows.DOMAIN):
        async for line in told(_base(parts, project, looks)):
            yield line


async def told(work: Awaitable[Struct | None]) -> AsyncIterator[bytes]:
    """What comes of something that may take long, as a line; empty lines meanwhile."""
    running = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait([running], timeout=FSCK_PULSE_S))[0]:
            yield b"\n"
    finally:
        running.cancel()
    if (done := await running) is not None:
        yield msgspec.json.encode(done) + b"\n"


async def look_at(parts: Parts, session: Session, saved: f.Checkpoint, *, full: bool) -> shapes.Checked:
    """One checkpoint; unless `full` only its lists, and whether each content that they name lies in a pack that is there."""
    return await _checked(parts, session, saved, _by("written" if full else "lists"))


def _by(depth: Depth, good: set[str] | None = None) -> Looks:
    return lambda root, depot: look(root, depot, depth, good)


async def _checked(parts: Parts, session: Session, saved: f.Checkpoint, looks: Looks) -> shapes.Checked:
    try:
        depot = await parts.archive.depot(session, saved.root)
        found = await parts.archive.long(lambda: looks(saved.root, depot))
    except Refused as refused:
        if refused.code != "checkpoint_gone":
            raise
        found = Looked(lost=(Lost(what="the whole checkpoint", bytes=saved.bytes, reason="its key is gone"),))
    if found.lost and not await _is_kept(parts, session.id, saved):  # erased, expired or dropped while it was read
        return _gone(session.id, saved)
    return _shown(found, session_id=session.id, checkpoint=saved.n)


async def _is_kept(parts: Parts, session_id: str, saved: f.Checkpoint) -> bool:
    s = await parts.store.session(session_id)
    return s is not None and saved.root in {one.root for one in kept(s, await parts.store.checkpoints(session_id))}


def _gone(session_id: str, saved: f.Checkpoint) -> shapes.Checked:
    return shapes.Checked(session_id=session_id, checkpoint=saved.n, state="gone")


async def _base(parts: Parts, project: str, looks: Looks) -> shapes.Checked | None:
    """What new sessions of the project build upon. None: it has none, or another by now."""
    root = await parts.keyring.base(project)
    if not root:
        return None
    try:
        depot = await parts.archive.base_depot(project, root)
        found = await parts.archive.long(lambda: looks(root, depot))
    except Refused as refused:
        if refused.code != "checkpoint_gone":
            raise
        found = Looked(lost=(Lost(what="the whole base", bytes=0, reason="its key is gone"),))
    return _shown(found, base=project) if not found.lost or await parts.keyring.base(project) == root else None


def _shown(found: Looked, *, session_id: str = "", checkpoint: int = 0, base: str | None = None) -> shapes.Checked:
    items = [shapes.Lost(what=one.what, bytes=one.bytes, reason=one.reason) for one in found.lost[:LOST_ITEMS_MAX]]
    return shapes.Checked(
        session_id=session_id,
        checkpoint=checkpoint,
        base=base,
        state="damaged" if found.lost else "whole",
        bytes=found.bytes,
        seconds=round(found.seconds, 3),
        lost=items,
        lost_more=len(found.lost) - len(items),
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
