"""Draws docs/reference/states.md from the state table of the core.

Usage: python tools/states.py [--check]

With --check nothing is written; the exit code is 1 when the page on disk is not what would be drawn.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args

from bide.core import facts as f
from bide.core.session import NEXT, Lifecycle

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "states.md"
INTRO = """\
# The states of a session

Drawn by `tools/states.py` from `NEXT` in [`bide/core/session.py`](../../bide/core/session.py); do not edit.

A session is `queued`, `active`, `parked` or `ended`. A fact that meets a state with no entry for it is a bug of
bide's, never a state: the write is given up whole. The other two axes, turn and environment, and the deadlines of
what is under way, are fields of the session; when it next has to be looked at is `wake_at` in the same file."""


def draw() -> str:
    """The whole page."""
    kinds = get_args(f.Fact)
    reported = set(get_args(f.RunnerFact))
    return (
        "\n\n".join(
            [
                INTRO,
                "## What moves it",
                f"```mermaid\n{diagram(kinds)}\n```",
                "`session.created` is the first fact of every log; the session is `queued` from then on.",
                "## Which fact may meet which state, and where it leads",
                table(kinds, reported),
            ]
        )
        + "\n"
    )


def diagram(kinds: tuple[type[f.Fact], ...]) -> str:
    """The facts that change the lifecycle, as arrows."""
    lines = ["stateDiagram-v2", "    [*] --> queued: session.created"]
    for before in Lifecycle:
        for after in Lifecycle:
            tags = [f.tag_of(kind) for kind in kinds if NEXT[before].get(kind) is after]
            if before is not after and tags:
                lines.append(f"    {before} --> {after}: {', '.join(tags)}")
    return "\n".join(lines)


def table(kinds: tuple[type[f.Fact], ...], reported: set[type[f.Fact]]) -> str:
    """One row for each fact, one column for each lifecycle; a dash where it is illegal."""
    lines = [f"| fact | from | {' | '.join(Lifecycle)} |", "|---|---|" + "---|" * len(Lifecycle)]
    for kind in kinds:
        source = "runner" if kind in reported else "decided"
        cells = [NEXT[lifecycle].get(kind, "–") for lifecycle in Lifecycle]
        lines.append(f"| `{f.tag_of(kind)}` | {source} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Writes the page, or with --check compares it."""
    page = draw()
    if "--check" in sys.argv[1:]:
        return int(not PAGE.is_file() or PAGE.read_text("utf-8") != page)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
