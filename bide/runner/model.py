"""The way of a session to its model: the credential is added, and nobody's answer is waited for when its reader is gone.

Errors are given in the form that clients of model APIs read. What a client would try again for minutes, though nothing but
a person can mend it, is answered as a request that is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from bide.core import runtime as r
from bide.core.limits import (
    HTTP_S,
    METER_BYTES,
    MODEL_ASKING_MAX,
    MODEL_BODIES_BYTES,
    MODEL_BODY_BYTES,
    MODEL_BODY_S,
    MODEL_S,
    MODEL_START_S,
    MODEL_WHOLE_S,
)
from bide.core.wire import LOOPBACK
from bide.runner.metering import Meter, guess

# Headers of one hop, and those that carry a credential or name the gateway itself.
_NOT_FORWARDED = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade host "
    b"authorization x-api-key content-length accept-encoding date server".split()
)
NO_KEY = "this runner has no key for the model: start it with ANTHROPIC_API_KEY in its environment"
BUSY = (429, 503, 529)  # answers that may say when to ask again
REFUSED = "the model refuses the credential of this runner"
HINT = "Start the runner with a key that works in ANTHROPIC_API_KEY, then answer."
PAID = b"/model/v1/messages"
NO_SUCH = "only v1/messages, v1/messages/count_tokens and v1/models are asked of the model here"
ABOUT_THE_KEY = ("authentication_error", "permission_error")
# What the model may be asked, as it is written: escapes and foreign letters in a path are in none of it.
_KNOWN = (
    (("POST",), re.compile(rb"/model/v1/messages(/count_tokens)?")),
    (("GET", "HEAD"), re.compile(rb"/model/v1/models(/[A-Za-z0-9][A-Za-z0-9_.:-]*)?")),
)
_QUERY = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=:@/?%\[\]-]*")

Told = Callable[[str, int, r.RuntimeEvent], None]


class _Asked(msgspec.Struct):
    stream: bool = False


class _Reason(msgspec.Struct):
    type: str = ""


class _Failed(msgspec.Struct):
    error: _Reason


class _Ask(msgspec.Struct):
    """One request. `paid`: its answer costs tokens; `lost`: so many where no answer is read."""

    lease: tuple[str, int]
    address: httpx2.URL
    paid: bool
    bytes: int = 0
    lost: int = 0


class _NotRead(Exception):
    """A request whose body is not taken."""

    def __init__(self, status: int, kind: str, why: str) -> None:
        super().__init__(why)
        self.status, self.kind = status, kind


class Model:
    """One for all sessions of a runner. `told` hears of each session how many requests wait, and of a refused login."""

    def __init__(self, url: str, key: str, told: Told) -> None:
        self._url, self._key, self._told = httpx2.URL(url), key, told
        local = self._url.host in LOOPBACK  # no proxy knows our loopback
        self._upstream = httpx2.AsyncClient(headers={"accept-encoding": "identity"}, trust_env=not local)
        self._asking: Counter[tuple[str, int]] = Counter()
        self._held: Counter[tuple[str, int]] = Counter()  # bytes of their bodies

    async def close(self) -> None:
        """Ends all connections."""
        await self._upstream.aclose()

    async def forward(self, request: Request, session: str, epoch: int) -> Response:
        """The model's answer to a request of this lease's runtime. What cannot be metered is not forwarded."""
        lease = (session, epoch)
        address = self._address(request.scope)
        if address is None:
            return model_error(404, "not_found_error", NO_SUCH)
        if self._asking[lease] >= MODEL_ASKING_MAX:
            return model_error(
                429, "rate_limit_error", f"a session has {MODEL_ASKING_MAX} requests to the model at once"
            )
        ask = _Ask(lease, address, paid=request.method == "POST" and _path(request.scope) == PAID)
        self._counted(lease, +1)
        answered = False
        try:
            answer = await self._answer(request, ask)
            if isinstance(answer, Response):
                return answer
            answered = True
            meter = Meter(answer.headers.get("content-type", ""), ask.bytes if ask.paid and answer.is_success else 0)
            return _Passed(answer, meter, lambda tokens: self._ended(ask, tokens))
        finally:
            if not answered:
                self._ended(ask, ask.lost)

    def _address(self, scope: Scope) -> httpx2.URL | None:
        """Where a request goes; None for what is no request to the model. It is made of the model's own address and of a
        path that is known, so that nothing written into a request leads the key anywhere else.
        """
        path, query = _path(scope), bytes(scope["query_string"])
        if not any(scope["method"] in methods and known.fullmatch(path) for methods, known in _KNOWN):
            return None
        if _QUERY.fullmatch(query) is None:
            return None
        below = self._url.raw_path.partition(b"?")[0].rstrip(b"/") + path.removeprefix(b"/model")
        address = self._url.copy_with(raw_path=below + b"?" + query if query else below)
        ours, theirs = ((url.scheme, url.host, url.port) for url in (self._url, address))
        return address if ours == theirs else None

    async def _answer(self, request: Request, ask: _Ask) -> httpx2.Response | Response:
        if not self._key:
            return self._no_login(ask, NO_KEY)
        try:
            outgoing, within_s = await self._outgoing(request, ask)
        except _NotRead as refused:
            return model_error(refused.status, refused.kind, str(refused))
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        ask.lost = guess(ask.bytes) if ask.paid else 0  # until the model says something else
        try:
            answer = await _unless_gone(self._upstream.send(outgoing, stream=True), request, within_s)
        except httpx2.HTTPError as error:
            ask.lost = 0
            why = f"the gateway cannot reach the model: {str(error) or type(error).__name__}"
            return model_error(502, "api_error", why)
        except TimeoutError:
            return model_error(504, "api_error", f"the model did not begin to answer within {within_s:g} s")
        if answer is None:
            return Response(status_code=499)
        ask.lost = 0
        if answer.status_code in (401, 403):
            return await self._refused(answer, ask)
        if answer.status_code in BUSY and (wait_s := _retry_after_s(answer)):
            self._told(*ask.lease, r.Delayed(for_s=wait_s))
        return answer

    async def _refused(self, answer: httpx2.Response, ask: _Ask) -> Response:
        """A 401 is about the key, and may repeat it; a 403 may as well be about what was asked."""
        kind, body = "", b""
        try:
            async for chunk in answer.aiter_raw():
                body += chunk
                if len(body) > METER_BYTES:
                    break
            kind = msgspec.json.decode(body, type=_Failed).error.type
        except (httpx2.HTTPError, msgspec.MsgspecError, UnicodeError):
            pass  # it says nothing that could be read
        finally:
            await answer.aclose()
        if answer.status_code == 401 or kind in ABOUT_THE_KEY:
            return self._no_login(ask, f"{REFUSED} ({answer.status_code})")
        return Response(body, answer.status_code, _kept(answer))

    def _no_login(self, ask: _Ask, why: str) -> Response:
        """Said at once and for good: a 401 or 403 would be tried again for minutes. Told each time, since each turn that
        fails has to know why; but no turn fails for want of a list of models.
        """
        if ask.paid:
            self._told(*ask.lease, r.Troubled("model_unauthenticated", f"{why[0].upper()}{why[1:]}.", HINT))
        return model_error(400, "invalid_request_error", why)

    async def _outgoing(self, request: Request, ask: _Ask) -> tuple[httpx2.Request, float]:
        """The request as it goes out, and how long its answer may take to begin. Raises `_NotRead`, `ClientDisconnect`."""
        has_body = "content-length" in request.headers or "transfer-encoding" in request.headers
        body = await self._whole(request, ask) if has_body else None
        headers = [(k, v) for k, v in request.headers.raw if k.lower() not in _NOT_FORWARDED]
        headers.append((b"x-api-key", self._key.encode()))
        streams = _streams(body)
        outgoing = self._upstream.build_request(
            request.method, ask.address, headers=headers, content=body,
            timeout=httpx2.Timeout(HTTP_S, read=MODEL_S if streams else MODEL_WHOLE_S),
        )  # fmt: skip
        return outgoing, MODEL_START_S if streams else MODEL_WHOLE_S

    async def _whole(self, request: Request, ask: _Ask) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(MODEL_BODY_S):
                async for chunk in request.stream():
                    body += chunk
                    ask.bytes += len(chunk)
                    self._held[ask.lease] += len(chunk)
                    if len(body) > MODEL_BODY_BYTES:
                        raise _NotRead(413, "request_too_large", f"a request has {MODEL_BODY_BYTES} bytes at most here")
                    if self._held[ask.lease] > MODEL_BODIES_BYTES:
                        why = f"the requests of a session have {MODEL_BODIES_BYTES} bytes at once"
                        raise _NotRead(429, "rate_limit_error", why)
        except TimeoutError:
            why = f"the request was not sent whole within {MODEL_BODY_S:g} s"
            raise _NotRead(408, "timeout_error", why) from None
        return bytes(body)

    def _ended(self, ask: _Ask, tokens: int) -> None:
        self._held[ask.lease] -= ask.bytes
        if not self._held[ask.lease]:
            del self._held[ask.lease]
        self._counted(ask.lease, -1)
        if tokens:
            self._told(*ask.lease, r.Metered(tokens=tokens))

    def _counted(self, lease: tuple[str, int], by: int) -> None:
        self._asking[lease] += by
        self._told(*lease, r.Asking(open=self._asking[lease]))
        if not self._asking[lease]:
            del self._asking[lease]


class _Passed(StreamingResponse):
    """An answer on its way through, closed at the model however it ends here. `ended` hears how many tokens it told of."""

    def __init__(self, answer: httpx2.Response, meter: Meter, ended: Callable[[int], None]) -> None:
        self._answer, self._ended, self._meter = answer, ended, meter
        super().__init__(_bytes(answer, self._meter), status_code=answer.status_code, headers=_kept(answer))

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


def _path(scope: Scope) -> bytes:
    """As it was written. Also what is no path at all, as a whole address."""
    return bytes(scope["raw_path"])


def _kept(answer: httpx2.Response) -> dict[str, str]:
    return {k: v for k, v in answer.headers.items() if k.lower().encode() not in _NOT_FORWARDED}


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
