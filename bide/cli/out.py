"""The only way to the terminal: answers on stdout, stories on stderr, nothing raw."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from bide.cli import inert

LEFT = "Left. The session goes on."


def emit(value: Any) -> None:
    """One JSON value as one line on stdout."""
    sys.stdout.write(inert.json(msgspec.json.encode(value).decode()) + "\n")
    sys.stdout.flush()


def say(text: object = "") -> None:
    """Text on stdout."""
    sys.stdout.write(inert.text(text) + "\n")
    sys.stdout.flush()


def tell(text: object) -> None:
    """A story, progress or a warning, on stderr."""
    sys.stderr.write(inert.text(text) + "\n")
    sys.stderr.flush()


def listed(items: list[Any], cursor: str | None = None) -> None:
    """A list as JSON, in the form every list has."""
    emit({"items": items, "next": cursor})
