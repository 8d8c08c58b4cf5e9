"""Cuts a stream of bytes into JSON lines, whatever the bytes are and however they are split.

What is done with bytes that are not what they should be, in this order:
- a line longer than the limit is passed over while it comes in and reported once, as `Skipped`, with its length and its
  beginning;
- invalid UTF-8 becomes U+FFFD, byte by byte; so does a lone surrogate that a JSON escape spells out, because neither
  a file nor a database takes it; NUL and other control characters inside strings stay as they are;
- what is no JSON object then (noise, half a line at the end, NaN, a tower of brackets) is `Rubbish`: its text;
- empty lines and a carriage return before the line end mean nothing.

`saved_lines` reads a conversation so that a session left on disk, and how much of it is bounded.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from bide.core import limits
from bide.drivers.base import plain_file

_SURROGATE = re.compile("[\ud800-\udfff]")


class Frame(Struct, frozen=True):
    """One JSON object."""

    value: dict[str, Any]


class Rubbish(Struct, frozen=True):
    """A line that is no JSON object."""

    text: str


class Skipped(Struct, frozen=True):
    """A line that was too long; nothing of it was kept but its beginning."""

    bytes: int
    head: str


Line = Frame | Rubbish | Skipped


class Lines:
    """Takes chunks, gives lines. Holds at most one unfinished line of `limit_bytes`."""

    def __init__(self, limit_bytes: int = limits.LINE_BYTES) -> None:
        self._limit = limit_bytes
        self._held = bytearray()
        self._dropped = 0  # bytes of the running line that was given up
        self._head = b""  # and how it began

    def feed(self, chunk: bytes) -> list[Line]:
        """The lines that this chunk completes."""
        found: list[Line] = []
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._take(chunk[start:end])
            found.extend(self.rest())
            start = end + 1
        self._take(chunk[start:])
        return found

    def rest(self) -> list[Line]:
        """What stands unfinished, read as if it were a line; nothing stands afterwards."""
        line, dropped = bytes(self._held), self._dropped
        self._held.clear()
        self._dropped = 0
        if dropped:
            return [Skipped(dropped, self._head.decode("utf-8", "replace"))]
        return [decode(line)] if line.strip() else []

    def _take(self, part: bytes) -> None:
        if self._dropped or len(self._held) + len(part) > self._limit:
            if not self._dropped:
                self._head = bytes(self._held[: limits.RAW_BYTES] + part[: limits.RAW_BYTES])[: limits.RAW_BYTES]
            self._dropped += len(self._held) + len(part)
            self._held.clear()
        else:
            self._held += part


class Unusable(Exception):
    """A saved conversation that cannot be read; the text says why, as a sentence."""


def saved_lines(home: Path, path: str) -> Iterator[Line]:
    """The lines of a saved conversation, at a path below the session's home. FileNotFoundError, `Unusable`.

    The session could write there: neither what it put in the file's place nor how much of it may hold up the runner.
    """
    try:
        with plain_file(home, path) as file:
            if os.fstat(file.fileno()).st_size > limits.TRANSCRIPT_BYTES:
                raise Unusable(f"The saved conversation is larger than {limits.TRANSCRIPT_BYTES} bytes.")
            framing, ends, left = Lines(limits.TRANSCRIPT_LINE_BYTES), 0, limits.TRANSCRIPT_BYTES
            while chunk := file.read(min(left, limits.MIB)):
                left -= len(chunk)
                ends += chunk.count(b"\n")
                if ends > limits.TRANSCRIPT_LINES_MAX:
                    raise Unusable(f"The saved conversation has more than {limits.TRANSCRIPT_LINES_MAX} lines.")
                yield from framing.feed(chunk)
            yield from framing.rest()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unusable(f"The saved conversation cannot be opened: {error.strerror}.") from error


def decode(line: bytes) -> Frame | Rubbish:
    """One line without its end, by the rules above."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        value = _forgiving(line)
    if isinstance(value, dict):
        return Frame(value)
    return Rubbish(line.decode("utf-8", "replace"))


def _forgiving(line: bytes) -> Any:
    try:
        value = json.loads(line.decode("utf-8", "replace"), strict=False)
        clean = _SURROGATE.sub("\ufffd", json.dumps(value, ensure_ascii=False))
        return msgspec.json.decode(clean.encode())
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def shown(value: object) -> bytes:
    """A value of a frame as text that a person can read, whatever it is."""
    try:
        return msgspec.json.encode(value)
    except (msgspec.MsgspecError, ArithmeticError, RecursionError, TypeError, ValueError):
        return f"a frame that cannot be written as JSON: {type(value).__name__}".encode()


def clip(line: bytes, limit_bytes: int = limits.RAW_BYTES) -> str:
    """Bytes as text of at most about `limit_bytes`, with a mark where something was left out."""
    if len(line) <= limit_bytes:
        return line.decode("utf-8", "replace")
    return line[:limit_bytes].decode("utf-8", "replace") + f" … [{len(line) - limit_bytes} bytes more]"


def frame(value: dict[str, Any]) -> bytes:
    """One object as a line; a lone surrogate in a text becomes U+FFFD, since the other side must be able to read it."""
    try:
        return msgspec.json.encode(value) + b"\n"
    except (msgspec.MsgspecError, ValueError):
        text = json.dumps(value, ensure_ascii=False)
        return _SURROGATE.sub("\ufffd", text).encode() + b"\n"
