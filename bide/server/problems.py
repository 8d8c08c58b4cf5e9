"""Every "no" on its way out: refusals, outages and our own bugs as problem+json, from the one table of the core."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
from msgspec import Struct
from starlette.responses import Response

from bide.core.refusals import HTTP_STATUS, Kind, Refused, Unavailable

TITLES: dict[Kind, str] = {
    Kind.MALFORMED: "The request is not right",
    Kind.UNAUTHENTICATED: "Not signed in",
    Kind.FORBIDDEN: "Not allowed",
    Kind.NOT_FOUND: "Not found",
    Kind.CONFLICT: "Not now",
    Kind.UNPLACEABLE: "No runner can do this",
    Kind.OVER_LIMIT: "Over a limit",
    Kind.UNREACHABLE: "Out of reach for the moment",
    Kind.TIMED_OUT: "Took too long",
    Kind.FAILED: "Something went wrong",
}
MEDIA_TYPE = "application/problem+json"


class Problem(Struct, kw_only=True):
    """An error as every route answers it: `detail` is the sentence, `code` is for programs, `hint` says what to do."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str


def response(error: Refused, status: int = 0, headers: Mapping[str, str] | None = None) -> Response:
    """The refusal as an answer. What it carries besides (`next`, `text` …) stands beside the six fields."""
    status = status or HTTP_STATUS[error.kind]
    problem = Problem(
        type=f"urn:bide:problem:{error.code}",
        title=TITLES[error.kind],
        status=status,
        code=error.code,
        detail=error.sentence,
        hint=error.hint,
    )
    more = {name: value for name, value in error.more.items() if name not in problem.__struct_fields__}
    out = dict(headers or {})
    if error.kind is Kind.UNAUTHENTICATED:
        out["www-authenticate"] = 'Bearer realm="bide"'
    if error.kind is Kind.OVER_LIMIT:
        out["connection"] = "close"  # the rest of a body that was not read is not waited for
    return Response(msgspec.json.encode(msgspec.to_builtins(problem) | more), status, out, MEDIA_TYPE)


def outage(error: Unavailable) -> Response:
    """503 with the time to wait; what is away is said, its address and credentials are not."""
    refused = Refused("store_unavailable", f"{error.what[:1].upper()}{error.what[1:]} is out of reach for the moment.")
    return response(refused, headers={"retry-after": str(max(1, math.ceil(error.retry_after_s)))})


def bug() -> Response:
    """500 without anything of the inside."""
    return response(Refused("failed", "Something went wrong on the server; the request may or may not have been done."))


def malformed(error: Exception) -> Refused:
    """What was found wrong while decoding, as a sentence with the place, e.g. `$.events[0].text`."""
    words = str(error).replace(" - at ", " at ")
    return Refused("malformed", f"{words[:1].upper()}{words[1:]}.")
