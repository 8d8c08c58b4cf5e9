"""Flags that many commands share, and the forms that values have on the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Group, Parameter, Token

from bide.cli import when
from bide.cli.commands import WrongUse
from bide.client import Client

CONNECTION = Group("Connection and output", sort_key=9)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Flags:
    """Which server, as whom, and what stdout is for."""

    server: Annotated[
        str,
        Parameter(
            group=CONNECTION,
            help="Address of the server, or several with commas. Else BIDE_SERVER, else what `bide up` recorded.",
        ),
    ] = ""
    token: Annotated[str, Parameter(group=CONNECTION, help="Token. Else BIDE_TOKEN, else what `bide up` recorded.")] = (
        ""
    )
    json: Annotated[bool, Parameter(group=CONNECTION, help="Only JSON on stdout.")] = False

    def client(self) -> Client:
        """A client for the server that is meant."""
        return Client(self.server, self.token)


FLAGS = Flags()


def _duration(type_: type, tokens: Sequence[Token]) -> float:
    return when.duration(tokens[0].value)


def _moment(type_: type, tokens: Sequence[Token]) -> datetime:
    return when.moment(tokens[0].value, datetime.now(UTC))


def _count(type_: type, tokens: Sequence[Token]) -> int:
    given, name = tokens[0].value, tokens[0].keyword or "The number"
    if not (given.isascii() and given.removeprefix("-").isdecimal()):
        raise ValueError(f"{name} must be a whole number, not {given!r}.")
    if int(given) < 1:
        raise ValueError(f"{name} must be at least 1.")
    return int(given)


def _usd(type_: type, tokens: Sequence[Token]) -> float:
    given = tokens[0].value
    try:
        found = float(given.strip().removeprefix("$").removesuffix("USD"))
    except ValueError:
        raise ValueError(f"{given[:80]!r} is no amount of USD: write 5 or 2.50.") from None
    if not 0 <= found < float("inf"):
        raise ValueError(f"{given[:80]!r} is no amount of USD that somebody could spend.")
    return found


def _key(type_: type, tokens: Sequence[Token]) -> str:
    given = tokens[0].value
    if not (given.isascii() and given.isprintable()):
        raise ValueError(f"{given[:80]!a} cannot be an idempotency key: it is letters, digits and signs of ASCII.")
    return given


Duration = Annotated[float, Parameter(converter=_duration, metavar="DURATION")]
Usd = Annotated[float, Parameter(converter=_usd, metavar="USD")]
Moment = Annotated[datetime, Parameter(converter=_moment, metavar="WHEN")]
KeyText = Annotated[str, Parameter(converter=_key, metavar="KEY")]
Count = Annotated[int, Parameter(converter=_count, metavar="COUNT")]
SessionName = Annotated[str, Parameter(help="The session's id, or the beginning of it.")]


def text_of(given: str) -> str:
    """The text itself; what is piped in where it is `-`. Raises `WrongUse` for what is no text."""
    try:
        text = sys.stdin.read().rstrip("\n") if given == "-" else given
        text.encode()
    except UnicodeError:
        what = "What is piped in" if given == "-" else ascii(given[:80])
        raise WrongUse(f"{what} is not UTF-8 text.", "Convert it, e.g. with `iconv -t UTF-8`.") from None
    return text
