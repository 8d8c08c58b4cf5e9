"""Draws docs/map.md from the door-signs of the packages and the first sentences of their modules.

Usage: python tools/map.py [--check]

With --check nothing is written; the exit code is 1 when the page on disk is not what would be drawn.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "map.md"
DOOR_SIGN = ("What lives here:", "Who calls it:", "What it may import:", "Where to start reading:")
FLOORS = (
    ("Floor 3", ("bide.cli",)),
    ("Floor 2, strangers to each other", ("bide.server", "bide.runner", "bide.client", "bide.rehearsal")),
    ("Floor 1, strangers to each other", ("bide.store", "bide.snapshots", "bide.drivers", "bide.channels")),
    ("Floor 0", ("bide.core",)),
    ("Beside the house", ("sim", "chaos", "bench")),
)

# The straight line of the data: what happens to a person's words, from the keyboard to the runtime and back.
LINE = """\
human → cli/web → server/routes → core.handle(decide) → store.append   (one transaction: facts + row + wake_at)
      → server/exchange: placement → lease → runner/link (long poll) → core.runner → effects → runner/loop: restore, spawn, say
runtime stdout/MCP call → drivers framing → Dialogue.feed() → RuntimeEvent → core.runner → Fact(epoch, n) → spool → link
      → server → handle(): fence epoch, dedupe n, append, give seq → store.since(cursor) → SSE / projections"""

TEN_FILES = (
    ("bide/cli/main.py", "a person says what they want"),
    ("bide/server/routes/events.py", "it arrives, is parsed, and becomes a command"),
    ("bide/core/handle.py", "the one write path: read, decide, append"),
    ("bide/core/decide.py", "which facts follow from the command, or why none"),
    ("bide/core/session.py", "what the facts make of the session, and when it must be looked at again"),
    ("bide/store/sqlite.py", "facts, row and wake-up time in one transaction"),
    ("bide/core/exchange.py", "a runner asks: leases are renewed, news handed out, a queued session finds its runner"),
    ("bide/core/runner.py", "the runner's side: grants and runtime events in, effects out"),
    ("bide/runner/loop.py", "the effects are performed: restore, spawn, say, save"),
    ("bide/drivers/claude_code/dialogue.py", "a runtime's bytes become events, orders become bytes"),
)


def draw() -> str:
    """The whole page."""
    parts = [
        "# Map of the house",
        "Drawn by `make map` from the door-signs of the packages and the first sentence of each module; do not edit.",
        "## The straight line of the data",
        f"```\n{LINE}\n```",
        "To know the product, read these ten files in this order:",
        "\n".join(f"{n}. [`{path}`](../{path}): {why}" for n, (path, why) in enumerate(TEN_FILES, 1)),
    ]
    for title, rooms in FLOORS:
        there = [room for room in rooms if folder_of(room).joinpath("__init__.py").is_file()]
        if there:
            parts += [f"## {title}", *(draw_room(room) for room in there)]
    return "\n\n".join(parts) + "\n"


def draw_room(room: str) -> str:
    """One package with its door-sign, its modules, and its inner rooms."""
    folder = folder_of(room)
    sign = docstring(folder / "__init__.py").split("\n\n", 1)
    lines = [f"### `{room}`", "", one_line(sign[0]), ""]
    if len(sign) > 1:
        lines += ["- " + one_line(item) for item in items(sign[1])] + [""]
    lines += ["| module | |", "|---|---|"]
    for path in sorted(folder.rglob("*.py")):
        inner = path.relative_to(folder)
        if inner.name != "__init__.py":
            name = f"[`{inner.as_posix()}`](../{path.relative_to(ROOT).as_posix()})"
            lines.append(f"| {name} | {first_sentence(docstring(path))} |")
        elif path.parent != folder:
            lines.append(f"| `{inner.parent.as_posix()}/` | {first_sentence(docstring(path))} |")
    return "\n".join(lines)


def items(text: str) -> list[str]:
    """The entries of a door-sign, each with the lines that continue it."""
    found: list[str] = []
    for line in text.splitlines():
        if not found or line.startswith(DOOR_SIGN):
            found.append(line)
        else:
            found[-1] += " " + line
    return found


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence, safe inside a table."""
    return one_line(text.split("\n\n", 1)[0]).split(". ", 1)[0].rstrip(".").replace("|", "\\|")


def one_line(text: str) -> str:
    """The text without line breaks."""
    return " ".join(text.split())


def docstring(path: Path) -> str:
    """What the module says of itself; empty when it says nothing."""
    return ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""


def folder_of(room: str) -> Path:
    """Where a package lies."""
    return ROOT.joinpath(*room.split("."))


def main() -> int:
    """Writes the page, or with --check compares it."""
    page = draw()
    if "--check" in sys.argv[1:]:
        return int(not PAGE.is_file() or PAGE.read_text("utf-8") != page)
    PAGE.write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
