"""Objects of checkpoints: created once, never changed, streamed both ways."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bide.core.limits import BLOB_BYTES, LIST_MAX
from bide.core.refusals import Refused
from bide.server import shapes
from bide.server.calls import Call, Table

TABLE = Table()
BYTES = "application/octet-stream"


class Below(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys that begin with `prefix`, after the key `after`."""

    prefix: str = ""
    after: str = ""


@TABLE.put("/v1/blobs/{key:path}", who="runner")
async def put_blob(call: Call) -> Response:
    """Creates an object: 201, or 200 with `created: false` when the key was taken, whatever it holds."""
    await _require(call, write=True)
    request = call.request
    if int(request.headers.get("content-length", "0")) > BLOB_BYTES:
        raise Refused("too_large", f"An object can have {BLOB_BYTES} bytes; this one has more.")
    created = await call.parts.blobs.put(call.path("key"), _parts(request))
    return Response(msgspec.json.encode({"created": created}), 201 if created else 200, media_type="application/json")


@TABLE.get("/v1/blobs/{key:path}", who="runner")
async def get_blob(call: Call) -> StreamingResponse:
    """The content of an object."""
    await _require(call, write=False)
    size, parts = await call.parts.blobs.get(call.path("key"))
    return StreamingResponse(parts, headers={"content-length": str(size)}, media_type=BYTES)


@TABLE.head("/v1/blobs/{key:path}", who="runner")
async def has_blob(call: Call) -> Response:
    """Whether an object exists, and its size."""
    await _require(call, write=False)
    size = await call.parts.blobs.size(call.path("key"))
    return Response(headers={"content-length": str(size)}, media_type=BYTES)


@TABLE.delete("/v1/blobs/{key:path}")
async def delete_blob(call: Call) -> None:
    """Removes an object; one that is not there is no error."""
    await call.parts.blobs.delete(call.path("key"))


@TABLE.get("/v1/blobs")
async def list_blobs(call: Call, query: Below) -> shapes.Items[str]:
    """Keys, in order."""
    found = await call.parts.blobs.keys(query.prefix, query.after, LIST_MAX + 1)
    page = found[:LIST_MAX]
    return shapes.Items(items=page, next=page[-1] if len(found) > LIST_MAX else None)


async def _require(call: Call, *, write: bool) -> None:
    """A runner reaches the objects of sessions it holds, and no others."""
    if call.actor.role != "runner":
        return
    parts = call.path("key").split("/")
    s = await call.parts.store.session(parts[1]) if len(parts) > 2 else None
    if s is None or s.lease is None or s.lease.runner != call.actor.runner:
        verb = "write" if write else "read"
        raise Refused("forbidden", f"This runner holds no session whose objects it may {verb} there.")


async def _parts(request: Request) -> AsyncIterator[bytes]:
    async for part in request.stream():
        yield part
