"""How a request becomes a call of a handler, and its result an answer.

A handler is `async def name(call, body, query) -> answer`. The types in its signature are the contract: the body is
decoded into the one, the query into the other, and `/openapi.json` is drawn from all three. One table holds method,
path and who may call; nothing about a route stands anywhere else.
"""

from __future__ import annotations

import asyncio
import inspect
import time
import typing
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec
import structlog
from msgspec import Struct
from opentelemetry.trace import Span
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as Path
from starlette.routing import Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bide.core import ids
from bide.core.limits import BODY_BYTES, KEY_CHARS, STRANGER_BODY_BYTES, STRANGER_BODY_S
from bide.core.refusals import Refused, Unavailable
from bide.server import problems
from bide.server.auth import Actor, Role
from bide.server.gate import Gate
from bide.server.parts import Parts
from bide.server.tracing import answered

Who = Literal["anyone", "owner", "runner", "enrolment"]
# Whom a route that is open to the key lets in besides the owner, who may do everything.
BESIDES: dict[Who, frozenset[Role]] = {
    "owner": frozenset(),
    "runner": frozenset({"runner"}),
    "enrolment": frozenset({"runner", "enrolment"}),
}
Handler = Callable[..., Awaitable[Any]]
H = TypeVar("H", bound=Handler)
NAMED: dict[Role, str] = {"owner": "an owner", "runner": "a runner", "enrolment": "an enrolment"}
NOBODY = Actor(role="owner", name="nobody")
log = structlog.get_logger("bide.server")
_encode = msgspec.json.Encoder().encode


class Route(Struct, frozen=True, kw_only=True):
    """One row of the table. `answer` None: the handler writes its answer itself. `drawn`: it is a part of the API."""

    method: str
    path: str
    who: Who
    status: int
    summary: str
    handler: Any
    body: Any = None
    query: Any = None
    answer: Any = None
    timed: bool = True
    drawn: bool = True


class Call:
    """One request on its way through a handler. `headers` go with its answer, unless the handler writes that itself."""

    __slots__ = ("actor", "headers", "parts", "request")

    def __init__(self, parts: Parts, request: Request, actor: Actor) -> None:
        self.parts, self.request, self.actor = parts, request, actor
        self.headers = {"x-content-type-options": "nosniff"}

    def path(self, name: str) -> str:
        """A part of the path as it came."""
        return str(self.request.path_params[name])

    def id(self, name: str) -> str:
        """An id in the path, or `Refused('bad_id')`."""
        return ids.parse(self.path(name), f"{name} id")

    @property
    def key(self) -> str:
        """The `Idempotency-Key`, empty when there is none."""
        key = str(self.request.headers.get("idempotency-key", "")).strip()
        if len(key) > KEY_CHARS:
            raise Refused(
                "bad_value", f"An idempotency key has at most {KEY_CHARS} characters.", "A UUID is a good one."
            )
        return key

    async def still(self) -> bool:
        """Whether whoever asked is let in to this day; for answers that go on and on."""
        try:
            return (await self.parts.pages.who(self.request.headers)).role == self.actor.role
        except Refused:
            return False


class Table:
    """The routes of one file."""

    def __init__(self) -> None:
        self.routes: list[Route] = []

    def get(self, path: str, who: Who = "owner", *, timed: bool = True, drawn: bool = True) -> Callable[[H], H]:
        """Adds a route that only reads."""
        return self._add("GET", path, who, 200, timed=timed, drawn=drawn)

    def post(self, path: str, who: Who = "owner", status: int = 200, *, timed: bool = True) -> Callable[[H], H]:
        """Adds a route that does something."""
        return self._add("POST", path, who, status, timed=timed)

    def put(self, path: str, who: Who = "owner") -> Callable[[H], H]:
        """Adds a route that makes a thing be so."""
        return self._add("PUT", path, who, 200, timed=True)

    def patch(self, path: str, who: Who = "owner") -> Callable[[H], H]:
        """Adds a route that changes a part of a thing."""
        return self._add("PATCH", path, who, 200, timed=True)

    def head(self, path: str, who: Who = "owner") -> Callable[[H], H]:
        """Adds a route that says whether a thing is there."""
        return self._add("HEAD", path, who, 200, timed=True)

    def delete(self, path: str, who: Who = "owner", status: int = 204) -> Callable[[H], H]:
        """Adds a route that removes a thing."""
        return self._add("DELETE", path, who, status, timed=True)

    def _add(
        self, method: str, path: str, who: Who, status: int, *, timed: bool, drawn: bool = True
    ) -> Callable[[H], H]:
        def add(handler: H) -> H:
            hints = typing.get_type_hints(handler)
            answer = hints["return"]
            self.routes.append(
                Route(
                    method=method,
                    path=path,
                    who=who,
                    status=status,
                    summary=(inspect.getdoc(handler) or "").split("\n")[0],
                    handler=handler,
                    body=hints.get("body"),
                    query=hints.get("query"),
                    answer=None if isinstance(answer, type) and issubclass(answer, Response | Streamed) else answer,
                    timed=timed,
                    drawn=drawn,
                )
            )
            return handler

        return add


class Streamed:
    """An answer that writes itself: an ASGI application for the rest of the request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError


class App:
    """All routes behind one gate, as an ASGI application."""

    def __init__(self, parts: Parts, routes: list[Route]) -> None:
        self.parts, self._gate = parts, Gate(parts.config)
        by_path: dict[str, dict[str, Route]] = {}
        for route in routes:
            by_path.setdefault(route.path, {})[route.method] = route
        named_last = sorted(by_path.items(), key=lambda one: one[0].rpartition("/")[2].startswith("{"))
        paths = [Path(path, _Methods(parts, table)) for path, table in named_last]
        self._router = Router(paths, redirect_slashes=False, default=_no_route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers, began = Headers(scope=scope), time.perf_counter()
        with self.parts.tracing.request(scope["method"], headers) as span:
            answer = _Watched(send, lambda status: self._trace(span, scope, status))
            await self._served(scope, receive, answer, headers)
        self._count(scope, answer.status, time.perf_counter() - began)

    async def _served(self, scope: Scope, receive: Receive, answer: _Watched, headers: Headers) -> None:
        refusal: ASGIApp | None = None
        try:
            self._gate.check(headers)
            await self._router(scope, receive, answer)
        except Refused as error:
            refusal = problems.response(error)
        except Unavailable as error:
            log.warning("unavailable", what=error.what, why=error.why, path=scope["path"])
            refusal = problems.outage(error, reads=scope["method"] in ("GET", "HEAD"))
        except ClientDisconnect:
            return
        except Exception:
            log.exception("failed", method=scope["method"], path=scope["path"])
            refusal = problems.bug()
        if refusal is not None and not answer.status:
            await refusal(scope, receive, answer)

    def _trace(self, span: Span, scope: Scope, status: int) -> None:
        if self.parts.tracing.on:
            route: Route | None = scope.get("bide.route")
            path, stream = (route.path, route.method == "GET" and not route.timed) if route else ("none", False)
            answered(span, scope["method"], path, status, scope.get("path_params", {}))
            if stream:
                span.end()  # the answer stays open for hours

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route: Route | None = scope.get("bide.route")
        path = route.path if route else "none"
        self.parts.metrics.requests.labels(scope["method"], path, str(status)).inc()
        if route is not None and route.timed and "bide.waited" not in scope:
            self.parts.metrics.seconds.labels(path).observe(seconds)


class _Watched:
    """Knows whether an answer has begun."""

    def __init__(self, send: Send, begins: Callable[[int], None]) -> None:
        self._send, self._begins = send, begins
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._begins(self.status)
        await self._send(message)


class _Methods:
    """The routes of one path, as an ASGI application."""

    def __init__(self, parts: Parts, table: dict[str, Route]) -> None:
        self._parts, self._table = parts, table
        self._bodies = {m: msgspec.json.Decoder(route.body) for m, route in table.items() if route.body is not None}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        route = self._table.get(request.method)
        if route is None and request.method == "HEAD" and (like := self._table.get("GET")) and like.timed:
            route = like  # the same headers; the body of an answer to HEAD is never sent
        if route is None:
            await _authenticated(self._parts, request)
            refused = Refused("no_route", f"{request.method} is not possible on {scope['path'][:200]}.")
            answer: ASGIApp = problems.response(refused, 405, {"allow": ", ".join(sorted(self._table))})
        else:
            scope["bide.route"] = route
            answer = await self._answer(route, request)
        await answer(scope, receive, send)

    async def _answer(self, route: Route, request: Request) -> ASGIApp:
        actor = NOBODY if route.who == "anyone" else await _authenticated(self._parts, request)
        if actor.role != "owner" and actor.role not in BESIDES[route.who]:
            raise Refused("forbidden", f"The token of {NAMED[actor.role]} cannot do this.")
        given: dict[str, Any] = {}
        try:
            if route.query is not None:
                given["query"] = msgspec.convert(dict(request.query_params), route.query, strict=False)
            if route.body is not None:
                _require_json(request)
                read = _stranger_body if route.who == "anyone" else partial(read_body, limit=BODY_BYTES)
                given["body"] = self._bodies[route.method].decode(await read(request))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise problems.malformed(error) from None
        call = Call(self._parts, request, actor)
        answer = await route.handler(call, **given)
        if route.answer is None:
            assert callable(answer)
            return typing.cast("ASGIApp", answer)
        if answer is None:
            return Response(None, route.status, call.headers)
        return Response(_encode(answer), route.status, call.headers, "application/json")


async def hung_up(receive: Receive) -> None:
    """Returns when the one who asked is gone; for requests whose body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body, or `Refused('too_large')` as soon as it is known to be larger."""
    if int(request.headers.get("content-length", "0")) > limit:
        raise _too_large(limit)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


async def _stranger_body(request: Request) -> bytes:
    try:
        async with asyncio.timeout(STRANGER_BODY_S):
            return await read_body(request, STRANGER_BODY_BYTES)
    except TimeoutError:
        sentence = f"The body of the request did not come within {STRANGER_BODY_S:g} s."
        raise Refused("timed_out", sentence, "Send it at once.") from None


def _too_large(limit: int) -> Refused:
    return Refused("too_large", f"The body of a request can have {limit} bytes; this one has more.")


def _require_json(request: Request) -> None:
    """A page of another origin can send plain text without asking first, but not JSON."""
    media_type = str(request.headers.get("content-type", "")).partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Refused("malformed", "The body must come as application/json.", "Set the Content-Type header.")


async def _authenticated(parts: Parts, request: Request) -> Actor:
    return await parts.pages.who(request.headers)


async def _no_route(scope: Scope, receive: Receive, send: Send) -> None:
    raise Refused("no_route", f"There is no {scope['path'][:200]} here.")
