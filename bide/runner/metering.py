"""What an answer of the model says of its own size, read while its bytes pass by: nothing of them is changed or held up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from bide.core.limits import COST_TOKENS_MAX, METER_BYTES, METER_FRAME_BYTES, METER_GUESS_MAX, TOKEN_BYTES_GUESS

_KINDS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_GAVE = "output_tokens"
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Meter:
    """One answer, as server-sent events or as one JSON body. `tokens` is what it took and gave so far.

    What it does not say of its size is guessed from the bytes: those of the request (`asked_bytes`; 0: it costs nothing,
    and nothing is guessed), and those of the words that came before it broke off.
    """

    def __init__(self, media_type: str, asked_bytes: int = 0) -> None:
        self._streams = media_type.partition(";")[0].strip().lower() == "text/event-stream"
        self._line = bytearray()
        self._skips = False  # the line, or the body, is too long to be one that matters
        self._found: dict[str, int] = {}
        self._whole = False  # the answer told its final size
        self._asked_bytes, self._word_bytes, self._line_bytes = asked_bytes, 0, 0

    @property
    def tokens(self) -> int:
        """Of the answer so far."""
        if self._whole or not self._asked_bytes:
            return sum(self._found.values())
        gave = self._found.get(_GAVE, 0)
        took = sum(self._found.values()) - gave
        return (took or guess(self._asked_bytes)) + max(gave, guess(self._word_bytes + self._words()))

    def feed(self, chunk: bytes) -> None:
        """The next bytes."""
        if not self._streams:
            self._keep(chunk)
            return
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._keep(end)
            self._read(bytes(self._line).removeprefix(b"data:") if self._line.startswith(b"data:") else b"")
            self._word_bytes, self._line_bytes = self._word_bytes + self._words(), 0
            self._line.clear()
            self._skips = False
        self._keep(rest)

    def end(self) -> int:
        """No more bytes come; gives `tokens`."""
        if not self._streams:
            self._read(bytes(self._line))
        self._line.clear()
        return self.tokens

    def _words(self) -> int:
        """Bytes of the line, or the body, that are words of the model."""
        return max(0, self._line_bytes - METER_FRAME_BYTES) if self._streams else self._line_bytes

    def _keep(self, part: bytes) -> None:
        self._line_bytes += len(part)
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
                self._whole = self._whole or (place is said and isinstance(usage.get(_GAVE), int))

    def _add(self, usage: Mapping[str, Any]) -> None:
        """Each report repeats what is known so far: of each kind the highest counts."""
        for kind in _KINDS:
            count = usage.get(kind)
            if isinstance(count, int) and not isinstance(count, bool) and 0 < count <= COST_TOKENS_MAX:
                self._found[kind] = max(self._found.get(kind, 0), count)


def guess(text_bytes: int) -> int:
    """Tokens of so much text of which nobody told the size."""
    return min(-(-text_bytes // TOKEN_BYTES_GUESS), METER_GUESS_MAX)
