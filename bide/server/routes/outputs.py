"""What an event had no room for, whole: brought by the runner that told the event, read by people."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bide.core.limits import LIST_DEFAULT, LIST_MAX, OUTPUT_BYTES, OUTPUT_NAME_CHARS
from bide.core.outputs import NAME, epoch_of
from bide.core.refusals import Refused
from bide.core.session import Lifecycle, Session
from bide.server import files, render, shapes
from bide.server.calls import Call, Table

TABLE = Table()
KIND = "output-"  # what the names of these pieces of a session begin with
BYTES = "application/octet-stream"


class Page(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of a session's outputs."""

    cursor: Annotated[str, Meta(max_length=OUTPUT_NAME_CHARS)] = ""
    limit: Annotated[int, Meta(ge=1, le=LIST_MAX)] = LIST_DEFAULT


@TABLE.put("/v1/sessions/{session}/outputs/{name}", who="runner")
async def put_output(call: Call) -> Response:
    """Stores the whole of an output: 201, or 200 with `created: false` where there is one of this name."""
    session, name, request = call.id("session"), call.path("name"), call.request
    if int(request.headers.get("content-length", "0")) > OUTPUT_BYTES:
        raise Refused("too_large", f"An output can have {OUTPUT_BYTES} bytes; this one has more.")

    def may(s: Session | None) -> Session:
        return held(s, name, call.actor.runner)

    parts = _parts(request)
    try:
        created = await call.parts.pieces.put(session, KIND + name, parts, OUTPUT_BYTES, may)
    finally:
        await _rest_of(parts)
    return Response(msgspec.json.encode({"created": created}), 201 if created else 200, media_type="application/json")


@TABLE.get("/v1/sessions/{session}/outputs/{name}")
async def get_output(call: Call) -> Response:
    """The whole of an output, as its runtime gave it, or the one range of its bytes that is asked for."""
    session, name = call.id("session"), _name(call)
    piece = await call.parts.pieces.open(session, KIND + name)
    if piece is None:
        raise await _not_there(call, session, name)
    wanted = files.range_of(call.request.headers.get("range", ""), piece.size)
    head = files.AS_FILE | {"accept-ranges": "bytes", "content-disposition": files.attachment(f"{name}.txt".encode())}
    if wanted is None and piece.size:
        return Response(status_code=416, headers=head | {"content-range": f"bytes */{piece.size}"})
    wanted = wanted or files.Range(0, 0, partial=False)
    head["content-length"] = str(wanted.stop - wanted.start)
    if wanted.partial:
        head["content-range"] = f"bytes {wanted.start}-{wanted.stop - 1}/{piece.size}"
    if call.request.method == "HEAD":
        return Response(headers=head, media_type=BYTES)
    body = await _begun(call.parts.pieces.read(piece, wanted.start, wanted.stop))
    return StreamingResponse(body, 206 if wanted.partial else 200, head, media_type=BYTES)


@TABLE.get("/v1/sessions/{session}/outputs")
async def list_outputs(call: Call, query: Page) -> shapes.Items[shapes.Output]:
    """Which outputs of a session are kept whole."""
    session = call.id("session")
    if await call.parts.store.session(session) is None:
        raise Refused("no_session", f"There is no session {session}.")
    after = KIND + query.cursor if query.cursor else ""
    found = await call.parts.pieces.page(session, KIND, after, query.limit + 1)
    page = [
        shapes.Output(name=name.removeprefix(KIND), bytes=one.size, stored_at=render.at(one.at))
        for name, one in found[: query.limit]
    ]
    return shapes.Items(items=page, next=page[-1].name if len(found) > query.limit else None)


def held(s: Session | None, name: str, runner: str) -> Session:
    """The session, where this runner may bring an output of this name: it holds the lease that the name speaks of, or one
    that went on from it. `Refused`: `forbidden`, `fenced`, `lease_over`.
    """
    if s is None or s.last_runner != runner:
        raise Refused("forbidden", "This runner does not hold the session.")
    if epoch_of(name) not in (s.epoch, s.adopted_from):
        raise Refused("fenced", f"{name[:80]!r} names nothing of epoch {s.epoch}, nor of one that it went on from.")
    if s.lease is None:
        if s.lifecycle is Lifecycle.QUEUED and s.recovery_until and not s.revoked:
            raise Refused("lease_over", "The lease ran out, and nobody else was granted one yet.")
        raise Refused("fenced", "The session is no longer this runner's.")
    return s


def _name(call: Call) -> str:
    name = call.path("name")
    if not re.fullmatch(NAME, name):
        raise Refused("no_output", f"{name[:80]!r} names no output.")
    return name


async def _not_there(call: Call, session: str, name: str) -> Refused:
    s = await call.parts.store.session(session)
    if s is None:
        return Refused("no_session", f"There is no session {session}.")
    if s.lease is not None and epoch_of(name) in (s.epoch, s.adopted_from):
        return Refused("no_output", f"{name} is not here: its runner may still bring it.", "Ask again in a moment.")
    return Refused("no_output", f"{name} was not kept whole.")


async def _begun(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same parts, the first of which is there: what cannot be read at all is refused, not broken off."""
    first = await anext(parts, b"")

    async def all_of_them() -> AsyncIterator[bytes]:
        yield first
        async for part in parts:
            yield part

    return all_of_them()


async def _parts(request: Request) -> AsyncIterator[bytes]:
    async for part in request.stream():
        yield part


async def _rest_of(parts: AsyncIterator[bytes]) -> None:
    """Reads what is still coming: whoever sends it reads the answer only then."""
    left = OUTPUT_BYTES
    async for part in parts:
        left -= len(part)
        if left < 0:
            return
