"""Problem+json: how a refusal is written into an answer, and what an answer that is a no means to its reader."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from bide.core.refusals import CODES, HTTP_STATUS, TITLE, Kind, Refused, Unavailable

MEDIA_TYPE = "application/problem+json"
LATER = (408, 425, 429)  # no verdict on the request: it may be asked again


class Problem(Struct, kw_only=True):
    """An error as every route answers it: `detail` is the sentence, `code` is for programs, `hint` says what to do."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str


def problem(refused: Refused, status: int = 0) -> dict[str, object]:
    """The refusal as problem+json. What it carries besides (`next`, `text` …) stands beside the six fields.

    `status` is for the few answers that HTTP gives a number of their own.
    """
    fixed = Problem(
        type=f"urn:bide:problem:{refused.code}",
        title=TITLE[refused.kind],
        status=status or HTTP_STATUS[refused.kind],
        code=refused.code,
        detail=refused.sentence,
        hint=refused.hint,
    )
    six: dict[str, object] = msgspec.to_builtins(fixed)
    return six | _beside(refused.more)


def read_problem(status: int, body: bytes, whose: str = "the server") -> Refused | Unavailable:
    """What an answer that is not a success means.

    A 4xx of a bide server is its `Refused`, also when a newer server gives it a code that is not known here. A 5xx is
    `Unavailable` with its words, and `said` is the refusal it was. So is whatever is no answer of bide, such as the
    page of a proxy in front of a server that restarts: nobody may conclude from it that something is lost or forbidden.
    """
    try:
        found = msgspec.json.decode(body, type=dict[str, Any])
        refused = _refused(status, found)
    except (msgspec.MsgspecError, KeyError, RecursionError):
        return Unavailable(whose, f"it answered {status}, and not as a bide server does")
    if status >= 500 or status in LATER:
        return Unavailable(whose, refused.sentence or f"it answered {status}", said=refused)
    return refused


def _refused(status: int, found: dict[str, Any]) -> Refused:
    code = str(found["code"])
    sentence, hint = str(found.get("detail", "")), str(found.get("hint", ""))
    if code in CODES:
        refused = Refused(code, sentence, hint)
    else:  # it keeps its name; its kind is told by the status
        usual = Kind.FAILED if status >= 500 else Kind.MALFORMED
        kind = next((kind for kind, number in HTTP_STATUS.items() if number == status), usual)
        refused = Refused(next(like for like, (of, _) in CODES.items() if of is kind), sentence, hint)
        refused.code, refused.args = code, (f"{code}: {sentence}",)
    refused.more = _beside(found)
    return refused


def _beside(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in Problem.__struct_fields__}
