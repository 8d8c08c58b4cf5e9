"""Problem+json from the server becomes the same `Refused` that the server raised."""

from __future__ import annotations

from typing import NoReturn

from bide.core.problems import read_problem
from bide.core.refusals import Refused

GATEWAYS = (502, 503, 504)  # what is behind the address is away: a database, or the server behind a proxy


def refuse(status: int, body: bytes, url: str) -> NoReturn:
    """Raises the refusal that an answer is. What is no answer of bide (a proxy's page) says so."""
    found = read_problem(status, body, url)
    if isinstance(found, Refused):
        raise found
    if found.said is not None:
        raise found.said
    code = "unreachable" if status in GATEWAYS else "failed"
    raise Refused(code, f"{url} answered {status}, and not as a bide server does.")
