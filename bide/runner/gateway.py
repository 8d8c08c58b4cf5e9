"""The runner-local endpoint of its sessions, on loopback: our tools over MCP, and the way to the model.

Each lease has a throw-away token; it opens this gateway and nothing else, and dies with the lease. The real credential
is added here, on the way out, so the runtime never holds it.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult, TextContent
from msgspec import Struct
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from bide.core import effects as e
from bide.core.limits import LINGER_S, NAME_TOLD_CHARS, OPTIONS_MAX, QUESTION_BYTES
from bide.core.refusals import Refused
from bide.runner.model import Model, Told, model_error

NO_LEASE = "no lease has this token"
OVER = "This session is no longer here; nothing was recorded."


class Seat(Struct, kw_only=True):
    """Who a token speaks for, and how its runtime is told to end a turn."""

    session: str
    epoch: int
    ends_turn: dict[str, bool] = {}
    call_key: str = ""


Called = Callable[[str, int, e.ToolCall], str | None]


class Gateway:
    """One for all sessions of a runner. `called` passes a tool call to the machine; None: the lease is over; `Refused`:
    it makes no more of them. `told` passes on what the model does.
    """

    def __init__(self, called: Called, told: Told, model_url: str, model_key: str) -> None:
        self._called, self._model = called, Model(model_url, model_key, told)
        self._seats: dict[str, Seat] = {}
        self._server: uvicorn.Server | None = None
        self.url = ""

    def admit(self, session: str, epoch: int) -> tuple[str, Seat]:
        """A new token for a lease; earlier ones of the session are dead from now on."""
        self.dismiss(session)
        token, seat = secrets.token_urlsafe(32), Seat(session=session, epoch=epoch)
        self._seats[token] = seat
        return token, seat

    def dismiss(self, session: str) -> None:
        """Ends the session's token."""
        for token in [t for t, seat in self._seats.items() if seat.session == session]:
            del self._seats[token]

    def app(self) -> Starlette:
        """The ASGI app."""
        tools = self._tools()
        mcp = tools.streamable_http_app(stateless_http=True, json_response=True, streamable_http_path="/mcp")

        @contextlib.asynccontextmanager
        async def life(app: Starlette) -> AsyncIterator[None]:
            async with tools.session_manager.run():
                yield
            await self._model.close()

        forward = Route("/model/{path:path}", self._forward, methods=["GET", "POST", "HEAD"])
        gate = Middleware(_Gate, knows=self._seat_of)
        return Starlette(routes=[*mcp.routes, forward], lifespan=life, middleware=[gate])

    async def serve(self, listener: socket.socket) -> None:
        """Serves on a bound loopback socket until `stop`."""
        host, port = listener.getsockname()[:2]
        # asyncio does this only for sockets that it opened itself; without it each answer waits 40 ms for an ACK.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.url = f"http://{host}:{port}"
        config = uvicorn.Config(
            self.app(), log_level="warning", access_log=False, timeout_graceful_shutdown=int(LINGER_S), lifespan="on"
        )
        self._server = _Quiet(config)
        await self._server.serve(sockets=[listener])

    def stop(self) -> None:
        """Ends `serve`."""
        if self._server is not None:
            self._server.should_exit = True

    def _seat_of(self, headers: dict[bytes, bytes]) -> Seat | None:
        bearer = headers.get(b"authorization", b"").decode("latin-1").removeprefix("Bearer ").strip()
        key = headers.get(b"x-api-key", b"").decode("latin-1").strip()
        return self._seats.get(bearer) or self._seats.get(key)

    # -- the model ----------------------------------------------------------------------------------------------------

    async def _forward(self, request: Request) -> Response:
        seat = self._seat_of(dict(request.headers.raw))
        if seat is None:
            return model_error(401, "authentication_error", NO_LEASE)
        return await self._model.forward(request, seat.session, seat.epoch)

    # -- our tools ----------------------------------------------------------------------------------------------------

    def _tools(self) -> MCPServer:
        server = MCPServer("bide", log_level="ERROR")

        @server.tool()
        async def ask_human(
            ctx: Context[Any, Any],
            question: str,
            context: str = "",
            options: list[str] | None = None,
            blocking: bool = True,
            impact: Literal["low", "medium", "high"] = "medium",
            replaces: str = "",
        ) -> CallToolResult:
            """Ask the people of this session a question. Returns at once; the answer arrives as a later message.

            Use it for what is irreversible, high in impact or ambiguous. After a blocking question end your turn.
            Give short `options` where there are clear choices, and in `context` what a person needs to decide.
            With `replaces`, the id of an earlier question of yours, this one takes its place.
            """
            asked = e.Asked(
                key=self._call_id(ctx), question=question[:QUESTION_BYTES], context=context[:QUESTION_BYTES],
                options=tuple(options or ())[:OPTIONS_MAX], blocking=blocking, impact=impact,
                replaces=replaces.strip().lower()[:NAME_TOLD_CHARS],
            )  # fmt: skip
            made = self._pass_on(ctx, asked)
            if isinstance(made, CallToolResult):
                return made
            if not blocking:
                return _said(f"Recorded as {made}. Go on with your work; the answer arrives as a later message.")
            asks = f"Asked as {made}. End your turn now; the answer arrives as your next message."
            return _said(asks, self._seat(ctx).ends_turn)

        @server.tool()
        async def withdraw_question(ctx: Context[Any, Any], question_id: str, reason: str) -> CallToolResult:
            """Take back a question that you asked, because you need no answer any more; `question_id` is its id."""
            named = question_id.strip().lower()[:NAME_TOLD_CHARS]
            unasked = e.Unasked(key=self._call_id(ctx), question_id=named, reason=reason[:QUESTION_BYTES])
            made = self._pass_on(ctx, unasked)
            if isinstance(made, CallToolResult):
                return made
            return _said("Taken back, unless somebody has answered it already.")

        @server.tool()
        async def record_assumption(
            ctx: Context[Any, Any], text: str, impact: Literal["low", "medium", "high"] = "low"
        ) -> CallToolResult:
            """Record something you decided by yourself because it is reversible and low in impact; then go on."""
            made = self._pass_on(ctx, e.Assumed(key=self._call_id(ctx), text=text[:QUESTION_BYTES], impact=impact))
            return made if isinstance(made, CallToolResult) else _said("Recorded. People can reject it later.")

        @server.tool()
        async def finish(ctx: Context[Any, Any], summary: str) -> CallToolResult:
            """Say that the task is done. The session ends when this turn is over, unless people have said more."""
            made = self._pass_on(ctx, e.Finish(summary=summary[:QUESTION_BYTES]))
            if isinstance(made, CallToolResult):
                return made
            return _said("The session ends with this turn.", self._seat(ctx).ends_turn)

        return server

    def _seat(self, ctx: Context[Any, Any]) -> Seat:
        headers = {k.lower().encode(): v.encode() for k, v in (ctx.headers or {}).items()}
        return self._seat_of(headers) or Seat(session="", epoch=0)

    def _call_id(self, ctx: Context[Any, Any]) -> str:
        meta: Any = ctx.request_context.meta or {}
        return str(meta.get(self._seat(ctx).call_key, "")) if hasattr(meta, "get") else ""

    def _pass_on(self, ctx: Context[Any, Any], call: e.ToolCall) -> str | CallToolResult:
        """The id of what it made, or why it made nothing."""
        seat = self._seat(ctx)
        try:
            made = self._called(seat.session, seat.epoch, call) if seat.session else None
        except Refused as refused:
            return _failed(f"{refused.sentence} {refused.hint}".strip())
        return _failed(OVER) if made is None else made


class _Quiet(uvicorn.Server):
    """Signals are the runner's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


class _Gate:
    """Nobody without a living token gets past; the gateway listens where every local process can knock."""

    def __init__(self, app: ASGIApp, knows: Callable[[dict[bytes, bytes]], Seat | None]) -> None:
        self._app, self._knows = app, knows

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._knows({k.lower(): v for k, v in scope["headers"]}) is None:
            refusal = model_error(401, "authentication_error", NO_LEASE)
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _said(text: str, meta: dict[str, bool] | None = None) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], _meta=dict(meta) if meta else None)


def _failed(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
