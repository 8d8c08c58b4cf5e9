"""Server-sent events from bytes, however the bytes are split; a frame that is not whole is no frame."""

from __future__ import annotations

import re

from msgspec import Struct

# Only these end a line of an event stream. `str.splitlines` would also break at U+2028, which stands in people's texts.
_LINE_END = re.compile(rb"\r\n|\n|\r(?!$)")


class Frame(Struct, frozen=True, kw_only=True):
    """One event: its place in the log, its type, its body."""

    id: str
    event: str
    body: bytes


class Frames:
    """Takes bytes as they come, gives the frames they complete."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._fields: dict[str, list[bytes]] = {}

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that are whole now. Comments, such as the server's pings, are none."""
        self._rest += chunk
        if b"\n" not in chunk and b"\r" not in chunk:
            return []
        *lines, rest = _LINE_END.split(bytes(self._rest))
        self._rest = bytearray(rest)
        return [frame for line in lines if (frame := self._line(line)) is not None]

    def _line(self, line: bytes) -> Frame | None:
        if line:
            name, _, value = line.partition(b":")
            if name:
                self._fields.setdefault(name.decode("ascii", "replace"), []).append(value.removeprefix(b" "))
            return None
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        return Frame(
            id=fields.get("id", [b""])[-1].decode("utf-8", "replace"),
            event=fields.get("event", [b""])[-1].decode("utf-8", "replace"),
            body=b"\n".join(fields["data"]),
        )
