"""Reads checkpoints through, one after another, and says of each whether it could be brought back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace

from bide.core import commands as c
from bide.core import facts as f
from bide.core import ids
from bide.core.branching import kept
from bide.core.limits import FSCK_PULSE_S, LIST_MAX, LOST_ITEMS_MAX, REASON_CHARS
from bide.core.refusals import Refused, Unavailable
from bide.core.session import Session
from bide.server import problems, shapes
from bide.server.parts import Parts
from bide.snapshots.depot import Depot
from bide.snapshots.fsck import Depth, Looked, look
from bide.snapshots.losses import Lost
from bide.store import keyrows
from bide.store.base import Page

LOG = structlog.get_logger("bide.server")


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
            async for line in told(_flagged(parts, session.id, _checked(parts, session, saved, looks))):
                yield line
    for project in [] if what.session else await parts.store.keys(keyrows.DOMAIN):
        async for line in told(_base(parts, project, looks)):
            yield line


async def to_the_end(parts: Parts, found: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same lines; what breaks them off is told as the last one, a problem."""
    try:
        async for line in found:
            yield line
    except Unavailable as error:
        LOG.warning("unavailable", what=error.what, why=error.why)
        yield problems.line(problems.away(error, reads=True))
    except Refused as refused:
        yield problems.line(refused)
    except Exception as error:
        parts.metrics.failures.labels("fsck").inc()
        LOG.error("failed", what="fsck", exc_info=error)
        yield problems.line(
            Refused("failed", "Something went wrong on the server; what was not told was not looked at.")
        )


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


async def flag(parts: Parts, session_id: str, seen: shapes.Checked) -> None:
    """Says in the session what was found out about a checkpoint, if it stands on it and that is news."""
    s = await parts.store.session(session_id)
    if s is None or s.checkpoint is None or s.checkpoint.n != seen.checkpoint or seen.state == "gone":
        return
    lost = tuple(f.Lost(what=one.what, bytes=one.bytes, reason=one.reason) for one in seen.lost)
    if s.lease is not None or bool(lost) == bool(s.flagged):
        return
    more = f", and {seen.lost_more} more" if seen.lost_more else ""
    reason = f"{lost[0].what} is damaged: {lost[0].reason}{more}" if lost else "it is whole again"
    LOG.warning("checkpoint_flagged", session=s.id, checkpoint=seen.checkpoint, damaged=len(lost) + seen.lost_more)
    await parts.handle(s.id, c.Flag(checkpoint=seen.checkpoint, what=lost, reason=reason))


async def _flagged(parts: Parts, session_id: str, look: Awaitable[shapes.Checked]) -> shapes.Checked:
    seen = await look
    try:
        await flag(parts, session_id, seen)
    except Refused as refused:
        LOG.info("not_flagged", session=session_id, why=str(refused))  # mostly it was deleted meanwhile
    return seen


def _by(depth: Depth, good: set[str] | None = None) -> Looks:
    return lambda root, depot: look(root, depot, depth, good)


async def _checked(parts: Parts, session: Session, saved: f.Checkpoint, looks: Looks) -> shapes.Checked:
    try:
        depot = await parts.archive.depot(session, saved.root)
        found = await _looked(
            parts, looks, saved.root, depot, Lost(what="the whole checkpoint", bytes=saved.bytes, reason="")
        )
    except Refused as refused:
        if refused.code != "checkpoint_gone":
            raise
        found = Looked(lost=(Lost(what="the whole checkpoint", bytes=saved.bytes, reason="its key is gone"),))
    if found.lost and not await _is_kept(parts, session.id, saved):  # erased, expired or dropped while it was read
        return _gone(session.id, saved)
    return _shown(found, session_id=session.id, checkpoint=saved.n)


async def _looked(parts: Parts, looks: Looks, root: str, depot: Depot, whole: Lost) -> Looked:
    """What this bide cannot read is lost like what is damaged, whatever it fails at, and those behind it are looked at."""
    try:
        return await parts.archive.long(lambda: looks(root, depot))
    except (Refused, Unavailable, OSError, MemoryError):
        raise  # they say nothing about the checkpoint
    except Exception as error:
        LOG.exception("cannot be read", root=root)
        reason = f"it cannot be read: {type(error).__name__}, {error}"[:REASON_CHARS]
        return Looked(lost=(replace(whole, reason=reason),))


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
        found = await _looked(parts, looks, root, depot, Lost(what="the whole base", bytes=0, reason=""))
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
