"""How the demo is told: who does what, in seconds from its start, one thought a line."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bide.cli import inert
from bide.cli.timeline import told
from bide.client.shapes import Event
from bide.core.limits import DEMO_LINE_CHARS

WHO = 12
OURS = "mcp__bide__"
TEXT_LINES = 12
# Of the session's log: what a spectator wants to see. The rest is bookkeeping.
WORTH = {
    "session.leased", "session.parking", "session.parked", "session.ended", "assistant.message", "tool.call",
    "tool.result", "question.asked", "assumption.recorded", "environment.restored", "environment.moved",
    "environment.lost", "environment.rolled_back", "runtime.started", "runtime.resumed", "checkpoint.failed", "error",
}  # fmt: skip


class Narration:
    """Tells on the given way out; nothing that a session wrote can act on the terminal."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write, self._began = write, time.monotonic()
        self._quiet: set[str] = set()  # tool calls whose results are no news

    def plain(self, text: str) -> None:
        """A line as it is."""
        self._write(text)

    def tell(self, who: str, text: str) -> None:
        """What somebody does."""
        first, *rest = inert.text(text).strip("\n").split("\n")
        more = len(rest) - TEXT_LINES
        rest = rest[:TEXT_LINES] + ([f"… {more} more lines"] if more > 0 else [])
        self._write(f"{time.monotonic() - self._began:6.1f} s  {inert.line(who)[:WHO]:<{WHO}}  {_cut(first)}".rstrip())
        for line in rest:
            self._write(f"{'':{6 + 4 + WHO + 2}}{_cut(line)}".rstrip())

    def event(self, event: Event) -> None:
        """One event of the session's log, if it is worth it."""
        kind, body = event["type"], event["data"]
        if kind not in WORTH or (kind == "tool.call" and body["name"].startswith(OURS)):
            self._quiet.add(body.get("id", ""))  # our own tools are seen by what they make: a question, an assumption
            return
        label, text = told(event)
        if kind == "tool.call":
            text, seen = _called(body)
            self._quiet |= set() if seen else {body["id"]}
        elif kind == "tool.result" and body["ok"] and body["id"] in self._quiet:
            return
        elif kind == "question.asked":
            text = text.rpartition("\nbide answer ")[0]  # this time the demo answers
        elif kind == "environment.restored" and body["source"] == "fresh":
            text = text.partition("\n")[0]
        self.tell(label, text)

    def table(self, rows: Sequence[tuple[str, object]]) -> None:
        """What came of it."""
        width = max(len(name) for name, _ in rows)
        self._write("")
        for name, value in rows:
            word = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
            self._write(f"  {name:<{width}}  {inert.line(word)}")


def _called(body: Mapping[str, Any]) -> tuple[str, bool]:
    """A tool call in a line, and whether its result is worth seeing."""
    with contextlib.suppress(ValueError, AttributeError):
        given = json.loads(body["input"])
        if "command" in given:
            return f"$ {given['command']}", True
        if "file_path" in given:
            return f"{body['name']} {given['file_path']}", False
    return f"{body['name']} {body['input']}", True


def _cut(line: str) -> str:
    return line if len(line) <= DEMO_LINE_CHARS else f"{line[:DEMO_LINE_CHARS]}…"
