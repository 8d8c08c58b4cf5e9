"""Reads the conversation that Claude Code keeps on disk: which inputs stand in it, and whether it can be resumed.

An input's id can stand in three places: as the id of a user row, among the ids merged into such a row, and as the
source of an attachment when the message was folded into a running turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bide.drivers.base import Memory
from bide.drivers.jsonl import Frame, Unusable, saved_lines

CONFIG = ".claude"  # under the home folder
PROJECT = "ws"  # a fixed name: without it the CLI derives the folder from the path, lossily


def place(runtime_session_id: str) -> str:
    """The conversation's file, relative to the home folder."""
    return f"{CONFIG}/projects/{PROJECT}/{runtime_session_id}.jsonl"


def inputs(row: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """The ids of the inputs that one row of the conversation holds, and whether it was folded into a running turn."""
    kind, attachment = row.get("type"), row.get("attachment")
    found: list[Any] = []
    if kind == "user":
        merged = row.get("mergedSendUuids")
        found = [row.get("uuid"), *(merged if isinstance(merged, list) else ())]
    elif kind == "attachment" and isinstance(attachment, dict) and attachment.get("type") == "queued_command":
        found = [attachment.get("source_uuid")]
    return ((each, kind == "attachment") for each in found if isinstance(each, str))


def read(home: Path, runtime_session_id: str) -> Memory:
    """What the conversation on disk holds. Half lines and rubbish are passed over, as the CLI itself does."""
    found: set[str] = set()
    messages = rubbish = 0
    try:
        for line in saved_lines(home, place(runtime_session_id)):
            if not isinstance(line, Frame):
                rubbish += 1
                continue
            messages += line.value.get("type") in ("user", "assistant") and isinstance(line.value.get("message"), dict)
            found.update(each for each, _ in inputs(line.value))
    except FileNotFoundError:
        return Memory(found=False)
    except Unusable as unusable:
        return Memory(found=False, problem=str(unusable))
    if messages:
        return Memory(found=True, inputs=frozenset(found))
    if rubbish:
        return Memory(found=False, problem="The saved conversation holds no message that can be read.")
    return Memory(found=False)
