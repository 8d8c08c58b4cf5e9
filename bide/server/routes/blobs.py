"""Objects of checkpoints: created once, never changed, streamed both ways, or by signed URLs past the server."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bide.core.keyring import PACK, base_family, family_of, family_to_write_in
from bide.core.limits import BLOB_BYTES, BLOB_KEY_CHARS, BLOB_SIGNED_MAX, BLOB_SIGNED_S, LIST_MAX
from bide.core.refusals import Refused
from bide.core.session import Session
from bide.server import problems, shapes
from bide.server.calls import Call, Table
from bide.snapshots.blobs.objects import Method

TABLE = Table()
BYTES = "application/octet-stream"
PACKS, ROOTS = "packs", "roots"
_RANGE = re.compile(r"bytes=(\d{1,19})?-(\d{1,19})?")


class Below(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys that begin with `prefix`, behind the key `after`."""

    prefix: str = ""
    after: str = ""


class ToSign(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be done with which objects, without the server in between."""

    method: Method
    keys: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=BLOB_KEY_CHARS)], ...],
        Meta(min_length=1, max_length=BLOB_SIGNED_MAX),
    ]


class Signed(Struct, frozen=True, kw_only=True):
    """For each key a URL that allows it, or null: it goes through the server. `expires_s` 0: so does everything."""

    urls: dict[str, str | None]
    expires_s: float


@TABLE.post("/v1/blobs/sign", who="runner")
async def sign_blobs(call: Call, body: ToSign) -> Signed:
    """URLs that lead past the server, for packs. A PUT wants `If-None-Match: *`."""
    await _require(call, *body.keys, write=body.method == "PUT")
    packs = tuple(key for key in body.keys if key.startswith(f"{PACKS}/"))
    urls = await call.parts.blobs.sign(body.method, packs)
    found = urls or {}
    return Signed(urls={key: found.get(key) for key in body.keys}, expires_s=BLOB_SIGNED_S if urls is not None else 0.0)


@TABLE.put("/v1/blobs/{key:path}", who="runner")
async def put_blob(call: Call) -> Response:
    """Creates an object: 201, or 200 with `created: false` when the key was taken, whatever it holds."""
    await _require(call, call.path("key"), write=True)
    request = call.request
    if int(request.headers.get("content-length", "0")) > BLOB_BYTES:
        raise Refused("too_large", f"An object can have {BLOB_BYTES} bytes; this one has more.")
    created = await call.parts.blobs.put(call.path("key"), _parts(request))
    return Response(msgspec.json.encode({"created": created}), 201 if created else 200, media_type="application/json")


@TABLE.get("/v1/blobs/{key:path}", who="runner")
async def get_blob(call: Call) -> Response:
    """The content of an object, or the one range of bytes that is asked for."""
    key = call.path("key")
    await _require(call, key, write=False)
    size = await call.parts.blobs.size(key)
    start, stop = _range(call.request.headers.get("range", ""), size)
    if start > stop:
        refused = Refused("bad_value", f"The object has {size} bytes; the range begins behind them.")
        return problems.response(refused, 416, {"content-range": f"bytes */{size}"})
    headers = {"content-length": str(stop - start), "accept-ranges": "bytes"}
    partial = stop - start < size
    if partial:
        headers["content-range"] = f"bytes {start}-{stop - 1}/{size}"
    parts = call.parts.blobs.parts(key, start, stop)
    return StreamingResponse(parts, 206 if partial else 200, headers, media_type=BYTES)


@TABLE.head("/v1/blobs/{key:path}", who="runner")
async def has_blob(call: Call) -> Response:
    """Whether an object exists, and its size."""
    await _require(call, call.path("key"), write=False)
    size = await call.parts.blobs.size(call.path("key"))
    return Response(headers={"content-length": str(size), "accept-ranges": "bytes"}, media_type=BYTES)


@TABLE.delete("/v1/blobs/{key:path}")
async def delete_blob(call: Call) -> None:
    """Removes an object; one that is not there is no error."""
    await call.parts.blobs.delete(call.path("key"))


@TABLE.get("/v1/blobs")
async def list_blobs(call: Call, query: Below) -> shapes.Items[str]:
    """Keys, in the store's own order."""
    found = await call.parts.blobs.keys(query.prefix, query.after, LIST_MAX + 1)
    page = found[:LIST_MAX]
    return shapes.Items(items=page, next=page[-1] if len(found) > LIST_MAX else None)


async def _require(call: Call, *keys: str, write: bool) -> None:
    """A runner reaches the objects of sessions it holds, and no others. Of roots it writes those that it has sealed."""
    if call.actor.role != "runner":
        return
    left, by = set(keys), dict[str, Session]()
    if len(left) == 1:  # mostly it is the session that the key names; a runner may hold hundreds
        s = await call.parts.store.session(keys[0].split("/", 2)[1] if "/" in keys[0] else "")
        if s is not None and s.lease is not None and s.lease.runner == call.actor.runner:
            by |= {keys[0]: s} if reaches(s, keys[0], write=write) else {}
    if left - by.keys():
        for s in await call.parts.store.leased_to(call.actor.runner):
            by |= {key: s for key in left - by.keys() if reaches(s, key, write=write)}
    if left - by.keys():
        verb = "write" if write else "read"
        raise Refused("forbidden", f"This runner holds no session whose objects it may {verb} there.")
    for key, s in by.items() if write else ():
        root = key.removeprefix(f"{ROOTS}/")
        if root != key and not await call.parts.keyring.is_sealed(s, root):
            raise Refused(
                "forbidden",
                f"Nobody has sealed the checkpoint {root}.",
                "Seal it with POST /v1/sessions/{session}/seals, then write it.",
            )


def reaches(s: Session, key: str, *, write: bool) -> bool:
    """Whether the work on a session needs the object: its roots, the packs of its family, and its project's base.

    What is written has the name that a capture gives it at this moment: another would stand in the way of those to come.
    """
    kind, _, below = key.partition("/")
    owner, _, name = below.partition("/")
    base = base_family(s.project)
    if kind == PACKS:
        return owner in (family_of(s), base) and (not write or re.fullmatch(PACK, name) is not None)
    if kind != ROOTS:
        return False
    if write:
        return bool(family_to_write_in(s, below))
    restored = {saved.root for saved in (s.checkpoint, s.earlier) if saved is not None}  # of a fork, another's
    return owner in (s.id, base) or below in restored


def _range(text: str, size: int) -> tuple[int, int]:
    """From where to before where; a start behind the stop: there is nothing. What is no single range is not looked at."""
    found = _RANGE.fullmatch(text.strip())
    if found is None or found.group() == "bytes=-":
        return 0, size
    first, last = found.groups()
    if first is None:
        return (max(0, size - int(last)), size) if int(last) and size else (1, 0)
    if int(first) >= size or (last is not None and int(last) < int(first)):
        return 1, 0
    return int(first), size if last is None else min(size, int(last) + 1)


async def _parts(request: Request) -> AsyncIterator[bytes]:
    async for part in request.stream():
        yield part
