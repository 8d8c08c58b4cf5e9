"""The way of a session to its model: the credential is added, and nobody's answer is waited for when its reader is gone.

Errors are given in the form that clients of model APIs read. What a client would try again for minutes, though nothing but
a person can mend it, is answered as a request that is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from bide.core import runtime as r
from bide.core.limits import HTTP_S, MODEL_BODY_BYTES, MODEL_S, MODEL_START_S, MODEL_WHOLE_S
from bide.core.wire import LOOPBACK
from bide.runner.metering import Meter

# Headers of one hop, and those that carry a credential or name the gateway itself.
_NOT_FORWARDED = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade host "
    b"authorization x-api-key content-length accept-encoding date server".split()
)
NO_KEY = "this runner has no key for the model: start it with ANTHROPIC_API_KEY in its environment"
BUSY = (429, 503, 529)  # answers that may say when to ask again
REFUSED = "the model refuses the credential of this runner"
HINT = "Start the runner with a key that works in ANTHROPIC_API_KEY, then answer."

Told = Callable[[str, int, r.RuntimeEvent], None]


class _Asked(msgspec.Struct):
    stream: bool = False


class Model:
    """One for all sessions of a runner. `told` hears of each session how many requests wait, and of a refused login."""

    def __init__(self, url: str, key: str, told: Told) -> None:
        self._url, self._key, self._told = url.rstrip("/"), key, told
        local = urlsplit(url).hostname in LOOPBACK  # no proxy knows our loopback
        self._upstream = httpx2.AsyncClient(headers={"accept-encoding": "identity"}, trust_env=not local)
        self._asking: Counter[tuple[str, int]] = Counter()

    async def close(self) -> None:
        """Ends all connections."""
        await self._upstream.aclose()

    async def forward(self, request: Request, session: str, epoch: int) -> Response:
        """The model's answer to a request of this lease's runtime."""
        lease = (session, epoch)
        self._counted(lease, +1)
        answered = False
        try:
            answer = await self._answer(request, lease)
            if isinstance(answer, Response):
                return answer
            answered = True
            return _Passed(answer, lambda tokens: self._ended(lease, tokens))
        finally:
            if not answered:
                self._counted(lease, -1)

    async def _answer(self, request: Request, lease: tuple[str, int]) -> httpx2.Response | Response:
        if not self._key:
            return self._no_login(lease, NO_KEY)
        try:
            outgoing, within_s = await self._outgoing(request)
        except ValueError:
            return model_error(413, "request_too_large", f"a request has {MODEL_BODY_BYTES} bytes at most here")
        try:
            answer = await _unless_gone(self._upstream.send(outgoing, stream=True), request, within_s)
        except httpx2.HTTPError as error:
            why = f"the gateway cannot reach the model: {str(error) or type(error).__name__}"
            return model_error(502, "api_error", why)
        except TimeoutError:
            return model_error(504, "api_error", f"the model did not begin to answer within {within_s:g} s")
        if answer is None:
            return Response(status_code=499)  # nobody reads it
        if answer.status_code in (401, 403):
            await answer.aclose()
            return self._no_login(lease, f"{REFUSED} ({answer.status_code})")
        if answer.status_code in BUSY and (wait_s := _retry_after_s(answer)):
            self._told(*lease, r.Delayed(for_s=wait_s))
        return answer

    def _no_login(self, lease: tuple[str, int], why: str) -> Response:
        """Said at once and for good: a 401 or 403 would be tried again for minutes. Told each time, since each turn that
        fails has to know why.
        """
        self._told(*lease, r.Troubled("model_unauthenticated", f"{why[0].upper()}{why[1:]}.", HINT))
        return model_error(400, "invalid_request_error", why)

    async def _outgoing(self, request: Request) -> tuple[httpx2.Request, float]:
        """The request as it goes out, and how long its answer may take to begin. ValueError: it is too long."""
        has_body = "content-length" in request.headers or "transfer-encoding" in request.headers
        body = await _whole(request) if has_body else None
        headers = [(k, v) for k, v in request.headers.raw if k.lower() not in _NOT_FORWARDED]
        headers.append((b"x-api-key", self._key.encode()))
        address = self._url + request.scope["raw_path"].decode("latin-1").removeprefix("/model")  # as written
        query = request.url.query
        streams = _streams(body)
        outgoing = self._upstream.build_request(
            request.method, f"{address}?{query}" if query else address, headers=headers, content=body,
            timeout=httpx2.Timeout(HTTP_S, read=MODEL_S if streams else MODEL_WHOLE_S),
        )  # fmt: skip
        return outgoing, MODEL_START_S if streams else MODEL_WHOLE_S

    def _ended(self, lease: tuple[str, int], tokens: int) -> None:
        self._counted(lease, -1)
        if tokens:
            self._told(*lease, r.Metered(tokens=tokens))

    def _counted(self, lease: tuple[str, int], by: int) -> None:
        self._asking[lease] += by
        self._told(*lease, r.Asking(open=self._asking[lease]))
        if not self._asking[lease]:
            del self._asking[lease]


class _Passed(StreamingResponse):
    """An answer on its way through, closed at the model however it ends here. `ended` hears how many tokens it told of."""

    def __init__(self, answer: httpx2.Response, ended: Callable[[int], None]) -> None:
        kept = {k: v for k, v in answer.headers.items() if k.lower().encode() not in _NOT_FORWARDED}
        self._answer, self._ended, self._meter = answer, ended, Meter(answer.headers.get("content-type", ""))
        super().__init__(_bytes(answer, self._meter), status_code=answer.status_code, headers=kept)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended(self._meter.end())
            await self._answer.aclose()


def model_error(status: int, kind: str, message: str) -> JSONResponse:
    """In the form that clients of model APIs read."""
    return JSONResponse({"type": "error", "error": {"type": kind, "message": f"bide: {message}"}}, status_code=status)


async def _bytes(answer: httpx2.Response, meter: Meter) -> AsyncIterator[bytes]:
    async for chunk in answer.aiter_raw():
        meter.feed(chunk)
        yield chunk


def _retry_after_s(answer: httpx2.Response) -> float:
    """What the header asks for; 0 where it is none, or names a moment: no model does."""
    text = answer.headers.get("retry-after", "").strip()
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0.0


async def _whole(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MODEL_BODY_BYTES:
            raise ValueError
    return bytes(body)


def _streams(body: bytes | None) -> bool:
    with contextlib.suppress(msgspec.MsgspecError):
        return msgspec.json.decode(body or b"", type=_Asked).stream
    return False


async def _unless_gone(sent: Any, request: Request, within_s: float) -> httpx2.Response | None:
    """The answer once it begins; None when whoever asked hangs up before. Raises TimeoutError, and what `sent` raises."""
    sending = asyncio.ensure_future(sent)
    leaving = asyncio.ensure_future(_hangs_up(request))
    try:
        await asyncio.wait({sending, leaving}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            answer: httpx2.Response = sending.result()
            return answer
        if leaving.done():
            return None
        raise TimeoutError
    finally:
        for each in (sending, leaving):
            each.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)


async def _hangs_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
