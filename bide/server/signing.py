"""How a browser signs in: a link that is good once, then two halves that are good only together.

A cookie is sent to every port of its host, and so also to a program that a session started there. Therefore the cookie
opens nothing without the page's key, which the sign-in gives once, which the browser keeps for this one port, and which
no other page can send.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Iterable

import msgspec
from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from bide.core.limits import LINKS_MAX, PAGE_S, PAGES_MAX, SIGN_IN_S, TOKEN_CACHE_S, TOKENS_CACHED_MAX
from bide.core.refusals import Refused
from bide.server.auth import Actor, Role, Tokens, authenticate, digest
from bide.server.config import Config
from bide.store.base import Engine
from bide.store.threaded import Store

LINK, PAGE = "sign_in", "page"
KINDS = (LINK, PAGE)
LISTS = "sign_in_list"  # by kind, the names of those that there are, the oldest first
KEY_HEADER, COOKIE_PATH = "x-bide-page", "/v1"
HASH = "/#sign-in="  # opening a link sends no server what follows: no log, no proxy, no preview has it


class Lasting(Struct, frozen=True, kw_only=True):
    """What ends by itself, and with the token that it came from: `by` is that one's digest."""

    role: Role
    name: str
    by: str
    until: float


class Link(Lasting, frozen=True, kw_only=True):
    """A sign-in link that was not opened yet. Its document is called by the digest of its code."""


class Page(Lasting, frozen=True, kw_only=True):
    """A browser that is signed in. Its document is called by the digest of its cookie; `key` is that of its key."""

    key: str
    created_at: float


class Halves(Struct, frozen=True, kw_only=True):
    """Both halves, which are known to the browser alone from now on."""

    cookie: str
    key: str
    page: Page


def path_of(code: str) -> str:
    """What a link is after the address of a server."""
    return HASH + code


def invite(engine: Engine, actor: Actor, by: str) -> tuple[str, float]:
    """The code of a new link, and until when it is good. Called `alone`."""
    code, until = secrets.token_urlsafe(24), engine.now() + SIGN_IN_S
    _keep(engine, LINK, digest(code), Link(role=actor.role, name=actor.name, by=by, until=until), LINKS_MAX)
    return code, until


def redeem(engine: Engine, code: str) -> Halves:
    """Uses a link up. Called `alone`: of two that open it one is let in.

    Raises `Refused('link_used')` when there is none of that code, or none any more.
    """
    name = digest(code)
    found, now = engine.get(LINK, name), engine.now()
    link = msgspec.json.decode(found, type=Link) if found else None
    if link is not None:
        _end(engine, LINK, [name])
    if link is None or link.until <= now:
        raise spent()
    cookie, key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    page = Page(role=link.role, name=link.name, by=link.by, key=digest(key), until=now + PAGE_S, created_at=now)
    _keep(engine, PAGE, digest(cookie), page, PAGES_MAX)
    return Halves(cookie=cookie, key=key, page=page)


def spent() -> Refused:
    """What whoever opens a link that is good no more is told; no more than that about one that never was."""
    return Refused("link_used", "This link was used before, or its time is over.")


def leave(engine: Engine, cookie: str) -> None:
    """Signs a browser out. Called `alone`."""
    _end(engine, PAGE, [digest(cookie)])


def over(body: bytes, now: float) -> bool:
    """Whether a link or a page can be forgotten."""
    return msgspec.json.decode(body, type=Lasting).until <= now


def forget(engine: Engine, kind: str, names: Iterable[str]) -> None:
    """Forgets links or pages that are over. Called `alone`."""
    _end(engine, kind, names)


def _keep(engine: Engine, kind: str, name: str, document: Lasting, most: int) -> None:
    engine.put(kind, name, msgspec.json.encode(document))
    names = [*_names(engine, kind), name]
    for old in names[:-most]:
        engine.delete(kind, old)
    engine.put(LISTS, kind, msgspec.json.encode(names[-most:]))


def _end(engine: Engine, kind: str, names: Iterable[str]) -> None:
    gone = set(names)
    for name in gone:
        engine.delete(kind, name)
    engine.put(LISTS, kind, msgspec.json.encode([name for name in _names(engine, kind) if name not in gone]))


def _names(engine: Engine, kind: str) -> list[str]:
    return msgspec.json.decode(engine.get(LISTS, kind) or b"[]", type=list[str])


def cookie_name(headers: Headers) -> str:
    """It holds the port, or else two servers on one machine would sign each other's pages out."""
    return f"bide_{hashlib.sha256(headers.get('host', '').lower().encode()).hexdigest()[:8]}"


def cookie_of(headers: Headers) -> str:
    """The first half of the one who asks; empty when there is none."""
    return cookie_parser(headers.get("cookie", "")).get(cookie_name(headers), "")


def set_cookie(headers: Headers, value: str) -> str:
    """The `Set-Cookie` of an answer to a page; an empty value takes the cookie back."""
    parts = [f"{cookie_name(headers)}={value}", f"Path={COOKIE_PATH}", f"Max-Age={int(PAGE_S) if value else 0}"]
    parts += ["HttpOnly", "SameSite=Strict"]
    if headers.get("origin", "").lower().startswith("https:"):
        parts.append("Secure")
    return "; ".join(parts)


class Pages:
    """Who asks: the bearer of a token, or a page with both of its halves."""

    def __init__(self, config: Config, store: Store, tokens: Tokens) -> None:
        self._config, self._store, self._tokens = config, store, tokens
        self._known: dict[str, tuple[float, Page]] = {}  # digest of the cookie -> until when it is believed

    async def who(self, headers: Headers) -> Actor:
        """The actor, or `Refused`. A token wins: who sends one means it."""
        header, cookie, key = headers.get("authorization", ""), cookie_of(headers), headers.get(KEY_HEADER, "")
        if header or not (cookie and key):
            return await authenticate(self._tokens, self._config, header)
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise Refused("forbidden", "A page of another origin cannot do this.")
        page = await self.page(cookie)
        if page is None or not hmac.compare_digest(page.key, digest(key)):
            raise Refused("unauthenticated", "This page is signed out.", "`bide open` prints a link that signs it in.")
        return Actor(role=page.role, name=page.name, page=True)

    async def page(self, cookie: str) -> Page | None:
        """The page of the cookie, if it and the token that it came from still hold."""
        name, now = digest(cookie), time.monotonic()
        until, page = self._known.get(name, (0.0, None))
        if now >= until or page is None:
            self._known.pop(name, None)
            found = await self._store.get(PAGE, name)
            if not found:
                return None
            page = msgspec.json.decode(found, type=Page)
            self._known[name] = now + TOKEN_CACHE_S, page
            if len(self._known) > TOKENS_CACHED_MAX:
                del self._known[next(iter(self._known))]
        return page if page.until > self._store.now() and await self._holds(page) else None

    async def _holds(self, page: Page) -> bool:
        configured = self._config.owner_token
        return (bool(configured) and page.by == digest(configured)) or await self._tokens.holds(page.by)

    def forget(self, cookie: str) -> None:
        """Believes no more what it knows of a page that signs out."""
        self._known.pop(digest(cookie), None)
