"""What the scripted runtime remembers."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

Step = dict[str, Any]


class Conversation:
    """The durable memory: one JSON object a line, read with half lines and rubbish passed over."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.inputs: dict[str, str] = {}
        self.rest: list[Step] = []
        torn = False
        with contextlib.suppress(FileNotFoundError):
            content = self.path.read_bytes()
            torn = bool(content) and not content.endswith(b"\n")
            for line in content.splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    self._take(json.loads(line.decode("utf-8", "replace")))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = self.path.open("ab", buffering=0)
        if torn:
            self.file.write(b"\n")

    def _take(self, row: dict[str, Any]) -> None:
        if row["type"] == "input":
            self.inputs[row["id"]] = row["text"]
        elif row["type"] == "rest":
            self.rest = row["steps"]

    def add(self, **row: object) -> None:
        self.file.write(json.dumps(row).encode() + b"\n")
        os.fsync(self.file.fileno())
        self._take(row)
