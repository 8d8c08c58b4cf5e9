"""The web page: its files, which anybody may have, and how a browser signs in to see anything with them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct
from starlette.responses import Response

from bide.core.limits import KEY_CHARS
from bide.core.refusals import Refused
from bide.server import render, signing
from bide.server.auth import bearer, digest
from bide.server.calls import Call, Table
from bide.server.page import HEADERS, read

TABLE = Table()
PAGE = read()
FOR_GOOD = "public, max-age=31536000, immutable"


class Invitation(Struct, frozen=True, kw_only=True):
    """A link that signs one browser in, once: to be put after the server's address."""

    path: str
    expires_at: datetime


class Code(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands in a link after `#sign-in=`."""

    code: Annotated[str, Meta(max_length=KEY_CHARS)]


class Reader(Struct, frozen=True, kw_only=True):
    """As whom a page is signed in, and until when."""

    name: str
    role: str
    expires_at: datetime


class SignedIn(Reader, frozen=True, kw_only=True):
    """The same, with the page's key: sent as `X-Bide-Page` with every request, beside the cookie. It is told only once."""

    key: str


@TABLE.get("/", who="anyone", drawn=False)
async def start_page(call: Call) -> Response:
    """The page's first document. It holds nothing of anybody."""
    if call.request.headers.get("if-none-match") == PAGE.headers["etag"]:
        return Response(status_code=304, headers=PAGE.headers)
    return Response(PAGE.start, headers=PAGE.headers, media_type="text/html")


@TABLE.get("/web/{digest}/{name:path}", who="anyone", drawn=False)
async def page_file(call: Call) -> Response:
    """A file of the page. What is not in the table is not there: no name ever reaches a disk."""
    name = call.path("name")
    file = PAGE.files.get(name) if call.path("digest") == PAGE.digest else None
    if file is None:
        raise Refused("no_route", f"There is no {name[:200]} of this release here.", "Load the page anew.")
    return Response(file.body, headers=HEADERS | {"cache-control": FOR_GOOD, "content-type": file.media_type})


@TABLE.post("/v1/sign-in/links", status=201)
async def invite_page(call: Call) -> Invitation:
    """Makes a link that signs one browser in, once, with the rights of the token that asks."""
    if call.actor.page:
        raise Refused("forbidden", "A page makes no links.", "`bide open` prints one.")
    by = digest(bearer(call.request.headers.get("authorization", "")))
    code, until = await call.parts.store.write(lambda engine: signing.invite(engine, call.actor, by))
    return Invitation(path=signing.path_of(code), expires_at=render.at(until))


@TABLE.post("/v1/sign-in", who="anyone")
async def sign_in(call: Call, body: Code) -> SignedIn:
    """Signs a browser in by the code of a link: sets its cookie, and gives the key without which that opens nothing."""
    if await call.parts.store.get(signing.LINK, digest(body.code)) is None:
        raise signing.spent()  # strangers who guess cost a look, and no write
    halves = await call.parts.store.write(lambda engine: signing.redeem(engine, body.code))
    call.headers |= {"set-cookie": signing.set_cookie(call.request.headers, halves.cookie), "cache-control": "no-store"}
    page = halves.page
    return SignedIn(key=halves.key, name=page.name, role=page.role, expires_at=render.at(page.until))


@TABLE.get("/v1/sign-in")
async def signed_in(call: Call) -> Reader:
    """As whom this page is signed in."""
    page = await call.parts.pages.page(signing.cookie_of(call.request.headers))
    if not call.actor.page or page is None:
        raise Refused("forbidden", "Only a page is signed in; this is a token.")
    return Reader(name=page.name, role=page.role, expires_at=render.at(page.until))


@TABLE.delete("/v1/sign-in")
async def sign_out(call: Call) -> None:
    """Signs this browser out."""
    cookie = signing.cookie_of(call.request.headers)
    if not call.actor.page or not cookie:
        raise Refused("forbidden", "Only a page can sign out; this is a token.")
    await call.parts.store.write(lambda engine: signing.leave(engine, cookie))
    call.parts.pages.forget(cookie)
    call.headers["set-cookie"] = signing.set_cookie(call.request.headers, "")
