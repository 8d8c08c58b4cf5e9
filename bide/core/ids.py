"""One form and one parser for every id: time-ordered UUIDs (RFC 9562, version 7)."""

from __future__ import annotations

import hashlib
import re

from bide.core.limits import ID_PREFIX_MIN
from bide.core.refusals import Refused

_FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")


def mint(now: float, *parts: object) -> str:
    """A UUID of the moment `now` (epoch seconds); equal parts at one moment give the equal id.

    Inside the core the parts are what makes the thing unique (session, epoch, counter), so that replaying
    gives the same ids. At the edges one of the parts is random bytes.
    """
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass"), digest_size=10).digest()
    bits = (max(0, int(now * 1000)) & (1 << 48) - 1) << 80 | int.from_bytes(digest, "big")
    bits = bits & ~(0xF << 76) | 7 << 76
    bits = bits & ~(0x3 << 62) | 2 << 62
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def series(now: float, *parts: object) -> str:
    """What the ids of many things of one moment begin with; eight hexadecimal digits of a counter complete each."""
    return mint(now, *parts)[:28]


def question_id(session_id: str, given: str) -> str:
    """The id of a question that a runner calls `given`: bound to its session, so that no runner can name another's."""
    return mint(moment(given) if is_id(given) else 0.0, session_id, given)


def moment(id: str) -> float:
    """The moment an id was minted for, epoch seconds."""
    return int(id.replace("-", "")[:12], 16) / 1000


def parse(text: str, what: str = "id") -> str:
    """The canonical lower-case form of an id from outside, or `Refused('bad_id')`."""
    lowered = text.strip().lower()
    if not _FORM.fullmatch(lowered):
        raise Refused("bad_id", f"{text[:80]!r} is not a {what}.", f"A {what} is a UUID such as {mint(0, what)}.")
    return lowered


def is_id(text: str) -> bool:
    """Whether the text is an id in canonical form."""
    return bool(_FORM.fullmatch(text))


def beginning(text: str, what: str) -> str:
    """The beginning of an id from outside, in canonical form with dashes where they belong, or `Refused('bad_id')`."""
    plain = text.strip().lower().replace("-", "")
    if not ID_PREFIX_MIN <= len(plain) <= 32 or set(plain) - set("0123456789abcdef"):
        raise Refused(
            "bad_id",
            f"{text[:80]!r} does not name a {what}.",
            f"Give its id or the beginning of it, at least {ID_PREFIX_MIN} characters.",
        )
    parts = (plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:])
    return "-".join(part for part in parts if part)


def name(text: str, what: str) -> str:
    """A project, pool or runner name from outside, or `Refused('bad_name')`."""
    if not NAME.fullmatch(text):
        raise Refused(
            "bad_name",
            f"{text[:80]!r} cannot be the name of a {what}.",
            "Use 1 to 64 of a-z, 0-9, dot, dash and underscore, beginning and ending with a letter or digit.",
        )
    return text
