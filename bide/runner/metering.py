"""What an answer of the model says of its own size, read while its bytes pass by: nothing of them is changed or held up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from bide.core.limits import COST_TOKENS_MAX, METER_BYTES

_KINDS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Meter:
    """One answer, as server-sent events or as one JSON body. `tokens` is what it took and gave so far.

    What cannot be read counts for nothing: the runtime's own bill comes at the end of its turn.
    """

    def __init__(self, media_type: str) -> None:
        self._streams = media_type.partition(";")[0].strip().lower() == "text/event-stream"
        self._line = bytearray()
        self._skips = False  # the line, or the body, is too long to be one that matters
        self._found: dict[str, int] = {}

    @property
    def tokens(self) -> int:
        """Of the answer so far."""
        return sum(self._found.values())

    def feed(self, chunk: bytes) -> None:
        """The next bytes."""
        if not self._streams:
            self._keep(chunk)
            return
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._keep(end)
            self._read(bytes(self._line).removeprefix(b"data:") if self._line.startswith(b"data:") else b"")
            self._line.clear()
            self._skips = False
        self._keep(rest)

    def end(self) -> int:
        """No more bytes come; gives `tokens`."""
        if not self._streams:
            self._read(bytes(self._line))
        self._line.clear()
        return self.tokens

    def _keep(self, part: bytes) -> None:
        if self._skips or len(self._line) + len(part) > METER_BYTES:
            self._skips = True
            self._line.clear()
        else:
            self._line += part

    def _read(self, raw: bytes) -> None:
        if b'"usage"' not in raw:
            return
        try:
            said = _decode(raw)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return
        message = said.get("message")
        for place in (said, message if isinstance(message, dict) else {}):
            usage = place.get("usage")
            if isinstance(usage, dict):
                self._add(usage)

    def _add(self, usage: Mapping[str, Any]) -> None:
        """Each report repeats what is known so far: of each kind the highest counts."""
        for kind in _KINDS:
            count = usage.get(kind)
            if isinstance(count, int) and not isinstance(count, bool) and 0 < count <= COST_TOKENS_MAX:
                self._found[kind] = max(self._found.get(kind, 0), count)
