"""Patterns of paths in settings: one a line, in the form of a .gitignore, below the workspace."""

from __future__ import annotations

from bide.core.limits import PATTERN_CHARS, PATTERNS_MAX
from bide.core.refusals import Refused


def split(text: str) -> tuple[str, ...]:
    """The patterns without empty lines and comments, or `Refused('bad_setting')` for one that leads out."""
    lines = [line.strip() for line in text.replace("\r", "\n").split("\n")]
    found = tuple(dict.fromkeys(line for line in lines if line and not line.startswith("#")))
    if len(found) > PATTERNS_MAX:
        raise Refused("bad_setting", f"At most {PATTERNS_MAX} patterns can be set, not {len(found)}.")
    for pattern in found:
        parts = pattern.strip("/").split("/")
        if len(pattern) > PATTERN_CHARS or ".." in parts or not pattern.strip("/") or "\0" in pattern:
            raise Refused(
                "bad_setting",
                f"{pattern[:80]!r} is no pattern of paths below the workspace.",
                "Write one a line, such as *.log, **/.cache or build/tmp.",
            )
        if pattern.startswith("!"):
            raise Refused(
                "bad_setting", f"{pattern[:80]!r} begins with an exclamation mark.", "Set what is kept in `include`."
            )
    return found
