"""Problem+json from the server becomes the same `Refused` that the server raised."""

from __future__ import annotations

from typing import Any, NoReturn

import msgspec

from bide.core.refusals import CODES, HTTP_STATUS, Kind, Refused

_FIXED = ("type", "title", "status", "code", "detail", "hint")
_GATEWAYS = (502, 503, 504)


def refuse(status: int, body: bytes, url: str) -> NoReturn:
    """Raises the refusal that an answer is. What is no answer of bide (a proxy's page) says so."""
    try:
        problem = msgspec.json.decode(body)
        code, sentence, hint = str(problem["code"]), str(problem["detail"]), str(problem["hint"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        code = "unreachable" if status in _GATEWAYS else "failed"
        raise Refused(code, f"{url} answered {status}, and not as a bide server does.") from None
    more = {name: value for name, value in problem.items() if name not in _FIXED}
    if code in CODES:
        raise Refused(code, sentence, hint, **more)
    raise _newer(status, code, sentence, hint, more)


def _newer(status: int, code: str, sentence: str, hint: str, more: dict[str, Any]) -> Refused:
    """A code of a newer server keeps its name; its kind is told by the status."""
    kind = next((kind for kind, number in HTTP_STATUS.items() if number == status), Kind.FAILED)
    like = next(known for known, (of, _) in CODES.items() if of is kind)
    refused = Refused(like, sentence, hint, **more)
    refused.code = code
    return refused
