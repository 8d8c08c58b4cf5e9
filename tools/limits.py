"""Draws docs/reference/limits.md from the limits of the core.

Usage: python tools/limits.py [--check]

With --check nothing is written; the exit code is 1 when the page on disk is not what would be drawn.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from bide.core.bounds import FIXED, LIMITS, Limit
from bide.core.quantities import amount

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "limits.md"
INTRO = """\
# Limits

Drawn by `tools/limits.py` from [`bide/core/bounds.py`](../../bide/core/bounds.py); do not edit.

Everything bide bounds is said before any work: `bide limits` and `GET /v1/limits?project=` list each bound with its
value and where that comes from, and so do `bide run --dry-run` and the answer to `POST /v1/sessions`. The numbers that
only bide itself meets stand, each with its reason, in [`bide/core/limits.py`](../../bide/core/limits.py)."""
SET = """\
Set one for a server (`config.toml`, or a variable such as `BIDE_RETENTION_S`), for a project (`bide project set NAME
retention_s=90d`), or for one session (`bide run --retention 90d`, or `settings` in the API). The nearest wins. A session
keeps the values that it was begun with. Only `retention_max_s` cannot be set for a single session."""
RETENTION = """\
A session that is parked or has ended is kept for `retention_s`. Each time it works and rests again the time begins anew;
`expires_at` says when it ends. While it is queued or runs nothing ends.

- **Warnings** stand in its log (`session.expiring`) at half of the time, at nine tenths, and an hour before its end. Each
  is given once. Where nobody was there to give one, only the latest is given, and nothing is deleted with less notice than
  the last warning gives: an hour, or a tenth of the time where that is less.
- **Longer**: `bide extend S --until "monday 09:00"` moves the end, never nearer (asking for less than it has changes nothing) and at most `retention_max_s` from now.
  What names no zone is read by the clock of the machine where it is typed, and shown with its zone. A message, an answer
  or `bide resume` wakes the session; that counts as well.
- **The end**: `environment.expired`. The checkpoints are deleted, the log, the questions and the answers stay. A parked
  session ends as `expired`: its open questions are withdrawn, and inputs that were never delivered are refused, their text
  kept. After that messages, `bide resume`, `bide extend`, `bide fork`, `bide rewind` and all that looks into its files are
  refused with the code `expired`. Forks have a retention of their own.
- **An outage** ends nothing: when the server comes back, or its clock jumps because the machine slept, one lease time
  passes before anything is deleted."""


def draw() -> str:
    """The whole page."""
    return (
        "\n\n".join(
            [
                INTRO, "## Those that can be set", SET, table(LIMITS.values(), bounds=True),
                "## How long a session is kept", RETENTION,
                "## Those that are fixed", table(FIXED, bounds=False),
            ]
        )
        + "\n"
    )  # fmt: skip


def table(limits: Iterable[Limit], *, bounds: bool) -> str:
    """One row for each limit, in human quantities."""
    lines = ["| limit | default | can be | what it means |", "|---|---|---|---|"] if bounds else [
        "| limit | value | what it means |", "|---|---|---|"
    ]  # fmt: skip
    for one in limits:
        default, low, high = (amount(value, one.unit) for value in (one.default, one.min, one.max))
        span = f" {low} to {high} |" if bounds else ""
        lines.append(f"| `{one.name}` | {default} |{span} {one.kept} |")
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
