"""Every "no" on its way out: refusals, outages and our own bugs as problem+json, from the one table of the core."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from bide.core.problems import MEDIA_TYPE, problem
from bide.core.refusals import HTTP_STATUS, Kind, Refused, Unavailable


def response(error: Refused, status: int = 0, headers: Mapping[str, str] | None = None) -> Response:
    """The refusal as an answer; `status` where HTTP has a number of its own for it."""
    out = dict(headers or {})
    if error.kind is Kind.UNAUTHENTICATED:
        out["www-authenticate"] = 'Bearer realm="bide"'
    if error.kind is Kind.OVER_LIMIT:
        out["connection"] = "close"  # the rest of a body that was not read is not waited for
    body = msgspec.json.encode(problem(error, status))
    return Response(body, status or HTTP_STATUS[error.kind], out, MEDIA_TYPE)


def away(error: Unavailable, *, reads: bool = False) -> Refused:
    """What is away is said, its address and credentials are not. `reads`: the request changes nothing."""
    return Refused(
        "store_unavailable",
        f"{error.what[:1].upper()}{error.what[1:]} is out of reach for the moment{f': {error.plain}' if error.plain else ''}.",
        # Usually nothing was done. Where only the answer was lost, everything was; then a repeat does nothing more.
        "Try again in a moment."
        if reads
        else "Try again in a moment, with the same id or Idempotency-Key: then it is done once.",
    )


def outage(error: Unavailable, *, reads: bool = False) -> Response:
    """503 with the time to wait."""
    headers = {"retry-after": str(max(1, math.ceil(error.retry_after_s)))}
    return response(away(error, reads=reads), headers=headers)


def line(error: Refused) -> bytes:
    """The last line of an answer that breaks off: problem+json, so that its reader hears why."""
    return msgspec.json.encode(problem(error)) + b"\n"


def bug() -> Response:
    """500 without anything of the inside."""
    return response(Refused("failed", "Something went wrong on the server; the request may or may not have been done."))


def malformed(error: Exception) -> Refused:
    """What was found wrong while decoding, as a sentence with the place, e.g. `$.events[0].text`."""
    words = str(error).replace(" - at ", " at ")
    return Refused("malformed", f"{words[:1].upper()}{words[1:]}.")
