"""Whether a command line of bide that stands on a page or in a manifest is one that exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from cyclopts import CycloptsError

from bide.cli.app import build

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def checked(words: Sequence[str]) -> None:
    """Binds the words as the command line would, and runs nothing. Raises AssertionError for what bide would refuse."""
    assert words[0] == "bide"
    try:
        build().parse_args(list(words[1:]), print_error=False, exit_on_error=False)
    except CycloptsError as error:
        raise AssertionError(f"{shlex.join(words)}: {' '.join(str(error).split())}") from None


def of_text(text: str) -> Iterator[list[str]]:
    """Every command line of bide in some lines of shell, without what is around it."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r"\s(?:&&|\|)\s", line):
            if not re.search(r"(^|[ /])bide ", part):
                continue  # other programs' quotes may go over several lines
            words = _inner(shlex.split(part, comments=True))
            if words[1:] and words[0].rpartition("/")[2] == "bide":
                yield ["bide", *words[1:]]


def of_page(path: Path) -> Iterator[list[str]]:
    """Every command line of bide in the page's blocks of shell and between its backticks."""
    text = path.read_text("utf-8")
    for language, block in FENCE.findall(text):
        if language in ("", "sh"):
            yield from of_text(block)
    for line in re.findall(r"`([^`\n]+)`", FENCE.sub("", text)):
        yield from of_text(line)


def _inner(words: list[str]) -> list[str]:
    """The command that `NAME=value …`, `sudo -u USER …` and `kubectl exec POD -- …` run."""
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    if words[:2] == ["sudo", "-u"]:
        return words[3:]
    if words[:1] == ["kubectl"] and "--" in words:
        return words[words.index("--") + 1 :]
    return words
