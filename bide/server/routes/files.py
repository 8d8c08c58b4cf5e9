"""Files of a checkpoint, while its session is parked or ended or works on: list, read, compare, take out. Only reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

import structlog
from msgspec import Meta, Struct
from starlette.responses import Response, StreamingResponse

from bide.core import facts as f
from bide.core.branching import kept, origin, require
from bide.core.keeping import require_kept
from bide.core.limits import DIFF_LOOK_S, DIFF_PAGE_BYTES, DIFF_PAGE_S, LIST_DEFAULT, LIST_MAX
from bide.core.refusals import Refused
from bide.core.session import Session
from bide.server import checking, files, shapes, strays
from bide.server.archive import Archive
from bide.server.calls import Call, Table
from bide.snapshots import left_out
from bide.snapshots.diff import Changed, Side, looks, require_there
from bide.snapshots.exported import exported
from bide.snapshots.listing import listed
from bide.snapshots.reader import Reader
from bide.snapshots.tar import tar

TABLE = Table()
LOG = structlog.get_logger("bide.server")
_WHOLE = "Take out all that is whole with `bide export SESSION --tar FILE --skip-damaged`."
N = Annotated[int, Meta(ge=0, le=2**31)]
PAGE = Annotated[int, Meta(ge=1, le=LIST_MAX)]


class Place(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path in a tree of a checkpoint; 0 is the one that the session stands on. `path_b64` is for any bytes."""

    path: str = ""
    path_b64: str = ""
    tree: str = "workspace"
    checkpoint: N = 0


class Folder(Place, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same, page by page."""

    cursor: str = ""
    limit: PAGE = LIST_DEFAULT


class Between(Folder, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to compare: from the checkpoint `since` (0: the oldest that is kept) to `checkpoint`."""

    since: N = 0


class Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a checkpoint to take out; of a damaged one, with `skip_damaged`, all that is whole."""

    path: str = ""
    path_b64: str = ""
    tree: str = "workspace"
    skip_damaged: bool = False


@TABLE.get("/v1/sessions/{session}/files")
async def list_files(call: Call, query: Folder) -> shapes.Files:
    """What stands in a folder of a checkpoint."""
    saved, reader = await _opened(call, query.checkpoint)
    path = await _path(call, query, saved, reader)
    after = files.unpacked(query.cursor)
    page = await call.parts.archive.step(lambda: listed(reader, query.tree, path, after, query.limit))
    return shapes.Files(
        checkpoint=saved.n,
        tree=query.tree,
        path=files.shown(path),
        kind=page.kind,
        items=[files.entry(one) for one in page.entries],
        next=files.packed(page.next) or None,
    )


@TABLE.get("/v1/sessions/{session}/files/content")
async def get_content(call: Call, query: Place) -> Response:
    """The bytes of a file in a checkpoint; a Range of them, too."""
    saved, reader = await _opened(call, query.checkpoint)
    path, archive = await _path(call, query, saved, reader), call.parts.archive
    entry = await archive.step(lambda: reader.file(query.tree, path))
    wanted = files.range_of(call.request.headers.get("range", ""), entry.size)
    head = files.AS_FILE | {"accept-ranges": "bytes", "content-disposition": files.attachment(path.rpartition(b"/")[2])}
    if wanted is None:
        return Response(status_code=416, headers=head | {"content-range": f"bytes */{entry.size}"})
    head["content-length"] = str(wanted.stop - wanted.start)
    if wanted.partial:
        head["content-range"] = f"bytes {wanted.start}-{wanted.stop - 1}/{entry.size}"
    if call.request.method == "HEAD":
        return Response(headers=head, media_type="application/octet-stream")
    made = reader.content(query.tree, path, entry, wanted.start, wanted.stop)
    body = await _begun(archive.parts(made, f"{files.shown(path)} of {reader.root.name}"))
    return StreamingResponse(body, 206 if wanted.partial else 200, head, media_type="application/octet-stream")


@TABLE.get("/v1/sessions/{session}/diff")
async def get_diff(call: Call, query: Between) -> shapes.Diff:
    """What changed from one checkpoint to another, file by file; git's own files left out."""
    saved, reader = await _opened(call, query.checkpoint)
    first, before = await _opened(call, query.since, oldest=True)
    path, after = await _path(call, query, saved, before, reader), files.unpacked(query.cursor)
    if b".git" in path.split(b"/"):
        raise Refused("bad_value", "Git's own files are not compared.", "`bide files SESSION .git` lists them.")
    old, new = Side(before, query.tree), Side(reader, query.tree)
    await call.parts.archive.step(lambda: require_there(old, new, path))
    session = await _session(call)
    origin_ = origin(session, await call.parts.store.checkpoints(session.id), first)
    found, more = await _page(call.parts.archive, looks(old, new, path, after), query.limit)
    return shapes.Diff(
        since=first.n,
        since_is=origin_,
        checkpoint=saved.n,
        tree=query.tree,
        items=[files.changed(one) for one in found],
        next=files.packed(found[-1].path) if more else None,
    )


@TABLE.get("/v1/sessions/{session}/checkpoints/{n}/tar", timed=False)
async def get_tar(call: Call, query: Part) -> Response:
    """A tree of a checkpoint, or what is at a path of it, as a tar archive. Of a damaged one, with `skip_damaged`, all
    that is whole: what is not is named in its last file, which `x-bide-lost` names.
    """
    saved, reader = await _opened(call, _n(call))
    path, archive = await _path(call, query, saved, reader), call.parts.archive
    try:
        made = await archive.step(lambda: tar(reader, query.tree, path, query.skip_damaged))
        body = await _begun(archive.parts(made, f"the archive of {reader.root.name}"))
    except Refused as refused:
        if refused.code == "checkpoint_damaged" and not query.skip_damaged:
            raise Refused(refused.code, refused.sentence, _WHOLE, **refused.more) from None
        raise
    name = f"{call.path('session')}-{saved.n}-{query.tree}.tar".encode()
    head = files.AS_FILE | {"content-disposition": files.attachment(name)}
    head |= {"x-bide-lost": left_out.NAME.decode()} if query.skip_damaged else {}
    return StreamingResponse(body, headers=head, media_type="application/x-tar")


@TABLE.get("/v1/sessions/{session}/checkpoints/{n}/keys")
async def get_checkpoint_keys(call: Call) -> Response:
    """What opens a checkpoint without bide: docs/reference/checkpoint-format.md. Whoever has it can read all of it."""
    session = await _session(call)
    saved = await _chosen(call, session, _n(call))
    keys = await call.parts.keyring.keys(session, saved.root)
    LOG.warning("keys given out", session=session.id, checkpoint=saved.n, to=call.actor.name)
    return Response(exported(saved.root, keys), headers={"cache-control": "no-store"}, media_type="application/json")


@TABLE.post("/v1/fsck", timed=False)
async def post_fsck(call: Call, body: checking.What) -> Response:
    """Reads checkpoints through and says of each whether it is whole: one JSON line each, and empty ones meanwhile."""
    lines = checking.lines(call.parts, await checking.sessions(call.parts, body), body)
    return StreamingResponse(checking.to_the_end(call.parts, lines), media_type="application/x-ndjson")


@TABLE.get("/v1/fsck/strays", timed=False)
async def get_strays(call: Call) -> Response:
    """What lies in the blob store that nobody can open, and keys without their objects: one JSON line each, and empty
    ones meanwhile.
    """
    return StreamingResponse(
        checking.to_the_end(call.parts, strays.lines(call.parts)), media_type="application/x-ndjson"
    )


async def _opened(call: Call, n: int, *, oldest: bool = False) -> tuple[f.Checkpoint, Reader]:
    session = await _session(call)
    saved = await _chosen(call, session, n, oldest=oldest)
    return saved, await call.parts.archive.reader(session, saved.root)


async def _path(call: Call, query: Place | Part, saved: f.Checkpoint, *readers: Reader) -> bytes:
    """The path that a request means, seen from the tree's top."""
    cwd = saved.workspace.cwd if query.tree == "workspace" else ""
    given = files.path_of(query.path, query.path_b64, cwd)
    return await call.parts.archive.step(lambda: files.meant(given, query.tree, *readers))


async def _session(call: Call) -> Session:
    session_id = call.id("session")
    found = await call.parts.store.session(session_id)
    if found is None:
        raise Refused("no_session", f"There is no session {session_id}.")
    return found


async def _chosen(call: Call, session: Session, n: int, *, oldest: bool = False) -> f.Checkpoint:
    """The checkpoint of this number; for 0 the one that the session stands on, or the oldest that can be read."""
    require_kept(session)
    saves = await call.parts.store.checkpoints(session.id)
    if not saves or (n and all(one.n != n for one in saves)):
        raise Refused("no_checkpoint", f"Session {session.id} has no checkpoint {n or 'yet'}.")
    if n or not oldest:
        return require(session, saves, n)
    there = await call.parts.keyring.known(session, [one.root for one in kept(session, saves)])
    return next((one for one in saves if one.root in there), None) or require(session, saves, 0)


def _n(call: Call) -> int:
    text = call.path("n")
    if not (text.isdecimal() and text.isascii() and len(text) < 10):
        raise Refused("bad_value", f"{text[:80]!r} is not the number of a checkpoint.")
    return int(text)


async def _page(archive: Archive, made: Iterator[Changed | None], limit: int) -> tuple[list[Changed], bool]:
    """A page of differences, ended early where patches are long or take long, and whether there are more. Between two
    looks the others have their turn.
    """
    found: list[Changed] = []
    size, now = 0, asyncio.get_running_loop().time
    end = now() + DIFF_PAGE_S
    while some := await archive.step(lambda: _look(made)):
        one = some[0]
        if one is None:
            continue
        if len(found) == limit or size > DIFF_PAGE_BYTES or (found and now() > end):
            return found, True
        found.append(one)
        size += len(one.patch or b"")
    return found, False


def _look(made: Iterator[Changed | None]) -> list[Changed | None]:
    """The next difference; one that is None for none yet, and nothing at the end."""
    end = time.monotonic() + DIFF_LOOK_S
    return next(([one] for one in made if one is not None or time.monotonic() > end), [])


async def _begun(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same once its first part is there: what is wrong from the start can still be said as a refusal."""
    first = await anext(parts, b"")

    async def whole() -> AsyncIterator[bytes]:
        yield first
        async for part in parts:
            yield part

    return whole()
