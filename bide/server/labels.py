"""Labels: what a runner has, and a session wants of its runner, such as `gpu` or `zone=a`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from bide.core.limits import LABEL_CHARS, LABELS_MAX
from bide.core.refusals import Refused

_FORM = re.compile(r"[a-z0-9][a-z0-9._/-]*(?:=[A-Za-z0-9._/-]+)?")


def checked(given: Iterable[str]) -> tuple[str, ...]:
    """The labels in order, each once, or `Refused('bad_name')`."""
    found = sorted(set(given))
    for label in found:
        if len(label) > LABEL_CHARS or not _FORM.fullmatch(label):
            raise Refused(
                "bad_name",
                f"{label[:80]!r} cannot be a label.",
                f"Use a word such as gpu or a pair such as zone=a, at most {LABEL_CHARS} characters.",
            )
    if len(found) > LABELS_MAX:
        raise Refused("bad_name", f"There can be {LABELS_MAX} labels, not {len(found)}.")
    return tuple(found)


def split(text: str) -> tuple[str, ...]:
    """Labels written as one setting, comma separated."""
    return checked(part.strip() for part in text.split(",") if part.strip())


def joined(given: Iterable[str]) -> str:
    """The one form that a setting has."""
    return ",".join(checked(given))
