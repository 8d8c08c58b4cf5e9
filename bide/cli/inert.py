"""Text of strangers made safe for a terminal: what would move, colour, hide or reorder is shown, not obeyed."""

from __future__ import annotations

import re

# C0 without tab and line feed, DEL, C1; then what reorders or hides: bidi marks, zero width, line separators, tags;
# and halves of surrogates, which no terminal can be sent.
_ACTS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_ACTING = re.compile(f"[{_ACTS}]")
_ACTING_OR_BREAK = re.compile(f"[{_ACTS}\t\n]+")
_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")


def text(value: object) -> str:
    """The text with its line breaks; every character that acts is written as its code."""
    return _ACTING.sub(_code, str(value).replace("\r\n", "\n"))


def line(value: object) -> str:
    """The text as one line."""
    return _ACTING_OR_BREAK.sub(lambda found: " " if found[0].isspace() else _codes(found), str(value)).strip()


def json(written: str) -> str:
    """JSON in which such characters are escaped; it means the same."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


def _code(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def _codes(found: re.Match[str]) -> str:
    return "".join(" " if one in "\t\n" else _ACTING.sub(_code, one) for one in found[0])
