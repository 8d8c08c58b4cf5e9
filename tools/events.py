"""Draws docs/reference/events.md and events.schema.json from the facts, as the server shows them.

Usage: python tools/events.py [--check]

With --check nothing is written; the exit code is 1 when what is on disk is not what would be drawn.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bide.core.limits import (
    FOLLOW_DEAD_S,
    GIB,
    LINE_BYTES,
    LIST_BYTES,
    MIB,
    NAME_TOLD_CHARS,
    OUTPUT_BYTES,
    OUTPUTS_BYTES,
    POLL_S,
    SSE_FRAMES_BYTES,
    SSE_PING_S,
    SSE_STALL_S,
    TEXT_BYTES,
    TOOL_OUTPUT_BYTES,
)
from bide.server import events
from bide.server.eventwords import MEANS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "events.md"
SCHEMA = PAGE.with_name("events.schema.json")
INTRO = f"""\
# Events

Drawn by `tools/events.py` from the facts of the core; do not edit. The same as JSON Schema is
[`events.schema.json`](events.schema.json), and every server publishes its own at `GET /v1/schemas/events`.

What happens in a session is its log: events with the numbers 1, 2, 3 … in `seq`, without a hole and for ever the same.
This is version {events.VERSION}. Within a version types and fields are added; none goes, and none changes what it means. Whoever
reads events passes over types and fields that it does not know.

## Reading them

- `GET /v1/sessions/S/events?after=SEQ&limit=N` is a page; one of more than {LIST_BYTES // MIB} MiB ends early, and `next` says so. With
  `wait_s` (up to {POLL_S:g}) the answer comes with the first event after SEQ, or when the time is up.
- `GET /v1/sessions/S/events/stream` is the same as server-sent events, then what comes. `id:` is the `seq`. Who comes back
  sends it as `Last-Event-ID` (or `?after=`) and goes on there, at whichever server: across parks, other runners, restarts.
- `GET /v1/stream?sessions=A,B` carries many sessions. Its ids name the place in each, `A:12,B:7`, and so grow with them.
- Whoever has a place beyond the end of the log hears 409 `cursor_ahead`: a backup was put back, and what comes next is
  not what the reader lacks. A session that was deleted is 404 `no_session`; its open streams end.
- A silent stream carries a comment every {SSE_PING_S:g} s. Whoever has heard nothing for {FOLLOW_DEAD_S:g} s has a dead line, though nobody
  said so. A server that ends says `: bye` first.
- A reader that does not take what it is sent within {SSE_STALL_S:g} s is cut off, and can come back: {SSE_FRAMES_BYTES // 1024} KiB are sent at once, so
  one that reads slower than about {SSE_FRAMES_BYTES / SSE_STALL_S / 1000:.0f} kB/s counts as one that does not read. Nothing is kept in memory for it.
- A stream begins at once. Where its beginning does not come, a proxy on the way holds answers back until they are long:
  set `proxy_buffering off` there, or ask by `wait_s`, as the Python client then does by itself.
- Frames without an `id` are live only: they have no place in the log, and a place is never moved by one.
- With `?glimpses=true` frames `event: glimpse` come between the events: what a runtime says while it is not done saying it,
  as `{{"session_id", "turn", "kind": "text" | "thought" | "tool" | "progress", "text"}}`, to be joined in their order. They
  are sent to who watches and kept by nobody; some may be missing. With the next `assistant.message`,
  `assistant.thought`, `tool.call` or `turn.ended` all that was glimpsed before is void. Where several servers share a database
  they come only over the one that the session's runner speaks to.
- With `?changes=true` frames `event: changes` name the sessions that have changed, of all that there are, as
  `{{"sessions": [ids]}}` or `{{"everything": true}}`, at most two a second; `sessions` may be left out then. The first says
  `everything`. They are a hint what to ask for again, never the truth. (`GET /v1/stream` only.)

## What can be relied upon

- The order is `seq`, and `time` is the clock of the server's database. No clock of a runner or a coding agent orders
  anything; moments that a runner names, such as `verified_at`, are only shown.
- Texts hold any character, NUL, escape sequences and carriage returns too, but no lone surrogates. Show them as text, never
  as markup, and make control characters visible in a terminal. One of more than {TEXT_BYTES // 1024} KiB ({TOOL_OUTPUT_BYTES // 1024} KiB of a tool's output) is cut
  in its middle, between two characters, with a mark; ids and names that a runtime made up have at most {NAME_TOLD_CHARS}.
- What is cut says `cut`, how many `bytes` it has whole, and in `blob` the name under which `GET /v1/sessions/S/outputs/BLOB`
  has all of it, or any range; `bide logs S --whole SEQ` prints it. It comes a moment after its event, while the runner lives,
  and goes with the session. `blob` is empty where the whole was not kept: it has more than {OUTPUT_BYTES // MIB} MiB. Where it could not
  be kept (a full disk, a session with more than {OUTPUTS_BYTES // GIB} GiB of them) a `note` with the code `output_not_kept` says so.
- A line of a runtime with more than {LINE_BYTES // MIB} MiB is not read: it is a `raw` event with its beginning, kept whole like the others.
- One event that cannot be told or read costs no other: in its place stands an `error` with the code `bad_event`, or `raw`
  where only a newer release knows it. One that the database cannot give back any more has the `data` `{{"damaged": true}}`.
- What was lost is said: `gap` where a runner's words never arrived, `environment.lost` and `environment.rolled_back` for
  work. After a runner's restart a `note` with the code `unheard` says that nobody listened to the runtime meanwhile; how
  much it said then cannot be counted.
- Fields that end in `_s` are seconds; moments are RFC 3339 in UTC, or null for not yet and never."""


def draw() -> str:
    """The whole page."""
    parts = events.parts("{name}")
    kinds = sorted((name for name in parts if name in events.KINDS), key=list(MEANS).index)
    others = sorted(name for name in parts if name not in events.KINDS)
    envelope = rows(events.envelope("{name}")["properties"])
    sections = [INTRO, "## All events have", envelope, "## What `data` holds, by type"]
    sections += [section(name, parts[name]) for name in kinds]
    sections += ["## What these are made of", *(section(name, parts[name]) for name in others)]
    return "\n\n".join(sections) + "\n"


def section(name: str, drawn: dict[str, Any]) -> str:
    """One type, with its fields."""
    return f"### `{name}`\n\n{drawn.get('description', '').strip()}\n\n{rows(drawn['properties'])}".replace(
        "\n\n\n\n", "\n\n"
    )


def rows(fields: dict[str, Any]) -> str:
    """One row for each field."""
    lines = ["| field | |", "|---|---|", *(f"| `{name}` | {words(field)} |" for name, field in fields.items())]
    return "\n".join(lines) if fields else "No fields."


def words(field: dict[str, Any]) -> str:
    """What a field may hold, in short."""
    if "$ref" in field:
        return f"[{field['$ref']}](#{field['$ref'].lower()})"
    if "enum" in field:
        return ", ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "anyOf" in field:
        return " or ".join(map(words, field["anyOf"]))
    if field.get("type") == "array":
        items = field.get("prefixItems") or [field.get("items") or {}]
        return f"list of {', '.join(words(item) for item in items)}"
    if field.get("type") == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"object: name → {words(field['additionalProperties'])}"
    return "moment" if field.get("format") == "date-time" else str(field.get("type", "anything"))


def main() -> int:
    """Writes page and schema, or with --check compares them."""
    drawn = {PAGE: draw(), SCHEMA: json.dumps(events.schema(), indent=1, sort_keys=True) + "\n"}
    if "--check" in sys.argv[1:]:
        return int(any(not path.is_file() or path.read_text("utf-8") != text for path, text in drawn.items()))
    for path, text in drawn.items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
