"""The rehearsal model: a scripted Messages API on loopback, strict like the real one, with a log of what it was asked.

`RehearsalModel` runs in the caller's event loop; `python -m bide.rehearsal.model` runs it in a process of its own and
prints its address as one line. Every request appends one JSON line to the log:
`{n, at, path, session, messages, users: [{at, sha256, text}], results: [{id, ok, text}], tools, system, auth, answer}`;
`at` of a user text is the message's place, its hash is of the text without white space around it, `auth` is a hash,
texts are cut to 200 letters, `answer` is `{turn}` or
`{status, why}`. With `bodies` each request is kept whole as `<n>.json`.

Loopback only, and no secret is ever stored: this stands in for a service, it does not offer one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from bide.core import limits
from bide.rehearsal.strict import complaint
from bide.rehearsal.turns import ERROR_TYPES, Story, Turn, error, pieces, results, script, texts, whole


class Failure(msgspec.Struct, kw_only=True):
    """What goes wrong with the next requests: an HTTP status, or a cut or a delay of the answer."""

    status: int = 0
    times: int = 1
    retry_after_s: float | None = None
    delay_s: float = 0.0
    slow_s: float = 0.0
    cut: bool = False
    message: str = ""


class Loopback:
    """Serves one ASGI application on a loopback port, in the running event loop, without taking the caller's signals."""

    def __init__(self, app: Starlette) -> None:
        config = uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=int(limits.REHEARSAL_STOP_S),
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    def start(self, port: int = 0) -> str:
        """Listens at once; gives the base URL."""
        listener = socket.create_server(("127.0.0.1", port))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    async def ended(self) -> None:
        """Waits until it has ended."""
        if self._task:
            await self._task

    async def stop(self) -> None:
        """Ends; streams that are still open get `limits.REHEARSAL_STOP_S` seconds."""
        self._server.should_exit = True
        await self.ended()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the process belongs to the caller, and so do its signals


class RehearsalModel:
    """A scripted Messages API. `story` answers each request; the log tells what was asked."""

    def __init__(self, story: Story = script, log_path: Path | None = None, bodies: Path | None = None) -> None:
        self.story, self.log_path, self.bodies = story, log_path, bodies
        self.failure: Failure | None = None
        self.keys: frozenset[str] | None = None  # when set, any other key is refused with 401
        self.requests = 0
        if bodies:
            bodies.mkdir(parents=True, exist_ok=True)
        self._loopback: Loopback | None = None

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self, port: int = 0) -> str:
        """Begins to listen on loopback; gives the base URL for `ANTHROPIC_BASE_URL`."""
        self._loopback = Loopback(self.app())
        return self._loopback.start(port)

    async def stop(self) -> None:
        """Ends; streams that are still open get `limits.REHEARSAL_STOP_S` seconds."""
        if self._loopback:
            await self._loopback.stop()

    async def serve(self) -> None:
        """Waits until the server has ended."""
        if self._loopback:
            await self._loopback.ended()

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route("/v1/messages", self._messages, methods=["POST"]),
                Route("/v1/messages/count_tokens", self._count, methods=["POST"]),
                Route("/failures", self._fail, methods=["POST"]),
                Route("/{path:path}", self._other, methods=["GET", "HEAD", "POST"]),
            ]
        )

    # -- what tests ask and set ---------------------------------------------------------------------------------

    def fail(self, failure: Failure | None) -> None:
        """The next requests go wrong as told; None heals."""
        self.failure = failure

    def log(self) -> list[dict[str, Any]]:
        """The lines of the request log so far."""
        if not self.log_path or not self.log_path.exists():
            return []
        return [json.loads(line) for line in self.log_path.read_text().splitlines()]

    # -- routes -------------------------------------------------------------------------------------------------

    async def _messages(self, request: Request) -> Response:
        self.requests += 1
        n = self.requests
        try:
            raw = await request.body()
        except ClientDisconnect:
            return Response(status_code=499)
        try:
            asked = json.loads(raw)
        except ValueError:
            asked = None
        if self.bodies:
            (self.bodies / f"{n:04d}.json").write_bytes(raw)
        turn, why = self._answer(request, asked)
        self._write(request, n, asked, turn, why)
        if turn.status:
            headers = {"request-id": f"req_{n}"}
            if turn.retry_after_s is not None:
                headers["retry-after"] = f"{turn.retry_after_s:g}"
            return JSONResponse(error(turn.status, why, n), turn.status, headers)
        if not asked.get("stream"):
            await asyncio.sleep(turn.delay_s)
            return JSONResponse(whole(turn, n, asked["model"], len(raw)), headers={"request-id": f"req_{n}"})
        return StreamingResponse(
            self._stream(turn, n, asked["model"], len(raw)),
            media_type="text/event-stream",
            headers={"request-id": f"req_{n}"},
        )

    def _answer(self, request: Request, asked: Any) -> tuple[Turn, str]:
        """The turn and, when it is a refusal, why; refusals come in the order in which the real API checks."""
        key = _key(request)
        if not key:
            return Turn(status=401), "x-api-key header is required"
        if self.keys is not None and key not in self.keys:
            return Turn(status=401), "invalid x-api-key"
        if not request.headers.get("anthropic-version"):
            return Turn(status=400), "anthropic-version: header is required"
        failure = self._failure()
        if failure and failure.status:
            why = failure.message or f"Rehearsed {ERROR_TYPES.get(failure.status, 'api_error')}"
            return Turn(status=failure.status, retry_after_s=failure.retry_after_s), why
        why = complaint(asked)
        if why:
            return Turn(status=400), why
        try:
            turn = self.story(asked)
        except Exception as broken:  # noqa: BLE001 — a story's fault must be seen in the log, not end the server
            return Turn(status=400), f"The story failed: {broken!r}"
        if failure:
            turn = msgspec.structs.replace(turn, delay_s=failure.delay_s, slow_s=failure.slow_s, cut=failure.cut)
        return turn, "Rehearsed by the story" if turn.status else ""

    def _failure(self) -> Failure | None:
        if not self.failure or self.failure.times < 1:
            return None
        self.failure.times -= 1
        return self.failure

    async def _stream(self, turn: Turn, n: int, model: str, sent_bytes: int) -> AsyncIterator[bytes]:
        await asyncio.sleep(turn.delay_s)
        for piece, wait_s in pieces(turn, n, model, sent_bytes):
            yield piece
            if wait_s:
                await asyncio.sleep(wait_s)
        if turn.cut:
            raise ConnectionResetError("the story cuts the answer here")

    async def _count(self, request: Request) -> Response:
        return JSONResponse({"input_tokens": max(1, len(await request.body()) // 4)})

    async def _fail(self, request: Request) -> Response:
        body = await request.body()
        self.fail(msgspec.json.decode(body, type=Failure) if body else None)
        return JSONResponse({"ok": True})

    async def _other(self, request: Request) -> Response:
        if request.method == "HEAD":
            return Response()
        return JSONResponse(error(404, f"No route {request.url.path}", self.requests), 404)

    # -- the log ------------------------------------------------------------------------------------------------

    def _write(self, request: Request, n: int, asked: Any, turn: Turn, why: str) -> None:
        if not self.log_path:
            return
        messages = asked.get("messages", []) if isinstance(asked, dict) else []
        spoken = [
            {"at": place, "sha256": _sha(text.strip()), "text": text.strip()[: limits.REHEARSAL_TEXT_CHARS]}
            for place, message in enumerate(messages)
            if message.get("role") == "user"
            for text in texts(message)
        ]
        returned = [
            {**result, "text": result["text"][: limits.REHEARSAL_TEXT_CHARS]}
            for message in messages
            for result in results(message)
        ]
        line = {
            "n": n,
            "at": time.time(),
            "path": request.url.path,
            "session": request.headers.get("x-claude-code-session-id", ""),
            "model": asked.get("model") if isinstance(asked, dict) else None,
            "messages": len(messages),
            "users": spoken,
            "results": returned,
            "tools": [tool.get("name") for tool in (asked or {}).get("tools") or []],
            "system": _sha(json.dumps((asked or {}).get("system"))),
            "auth": _sha(_key(request)),
            "answer": {"status": turn.status, "why": why} if turn.status else {"turn": msgspec.to_builtins(turn)},
        }
        with self.log_path.open("a") as log:
            log.write(json.dumps(line) + "\n")


def _key(request: Request) -> str:
    return request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ").strip()


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


async def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bide.rehearsal.model", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--log", type=Path, default=None, help="append one JSON line per request to this file")
    parser.add_argument("--bodies", type=Path, default=None, help="keep each request whole in this folder")
    chosen = parser.parse_args()
    model = RehearsalModel(script, chosen.log, chosen.bodies)
    sys.stdout.write(await model.start(chosen.port) + "\n")
    sys.stdout.flush()
    await model.serve()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main())
    sys.exit(0)
