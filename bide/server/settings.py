"""What may be set for a project or a session: names, forms, bounds, and which layer wins."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import get_args

from msgspec import Struct

from bide.core import ids
from bide.core.bounds import LIMITS, Limit, effective, require_kept
from bide.core.facts import Care, OnLoss
from bide.core.limits import HOOK_CHARS, MODEL_CHARS, RECOVERY_S
from bide.core.refusals import Refused
from bide.server import labels, patterns

Value = float | str
ON_LOSS: tuple[OnLoss, ...] = get_args(OnLoss)
WORDS: dict[str, str] = {
    "runtime": "claude_code", "pool": "default", "model": "", "labels": "", "on_loss": "ask",
    "on_rollback": "continue",
    "exclude": "", "include": "", "resume_hook": "",
}  # fmt: skip
NAMES = (*WORDS, *LIMITS)


class Effective(Struct, frozen=True, kw_only=True):
    """The settings that hold, and where each limit's value comes from."""

    limits: dict[str, Limit]
    runtime: str
    pool: str
    model: str
    labels: str  # comma separated
    on_loss: OnLoss
    on_rollback: OnLoss
    exclude: str  # patterns of paths, one a line
    include: str
    resume_hook: str

    def care(self) -> Care:
        """How workspaces are saved and brought back."""
        return Care(
            exclude=patterns.split(self.exclude), include=patterns.split(self.include), resume_hook=self.resume_hook
        )

    def values(self) -> dict[str, float]:
        """The limits as plain numbers."""
        return {name: limit.value for name, limit in self.limits.items()}

    def plain(self) -> dict[str, Value]:
        """Every setting by its name."""
        words: dict[str, Value] = {name: getattr(self, name) for name in WORDS}
        return words | self.values()


def nearest(name: str, known: tuple[str, ...]) -> str:
    """A hint that names the closest of the known names, or all of them."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"Did you mean {close[0]}?" if close else f"There are: {', '.join(known)}."


def checked(given: Mapping[str, object]) -> dict[str, Value]:
    """The settings in their right types, or `Refused('bad_setting')` naming the first that is wrong."""
    found: dict[str, Value] = {}
    for name, value in given.items():
        if name in LIMITS:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise Refused("bad_setting", f"{name} is {_kind(name)}, not {_shown(value)}.")
            found[name] = number = _number(name, value)
            if LIMITS[name].unit not in ("s", "usd") and not number.is_integer():
                raise Refused("bad_setting", f"{name} is {_kind(name)}, not {_shown(value)}.")
        elif name in WORDS:
            if not isinstance(value, str):
                raise Refused("bad_setting", f"{name} is a word, not {_shown(value)}.")
            found[name] = _word(name, value)
        else:
            raise Refused("bad_setting", f"There is no setting called {name[:80]!r}.", nearest(name, NAMES))
    effective(("project", _numbers(found)))
    return found


def require(limits: Mapping[str, Limit], given: Mapping[str, Value]) -> None:
    """Refuses what was asked for and cannot hold beside what is set elsewhere."""
    require_kept(limits, _numbers(given))


def layered(
    lease_s: float,
    server: Mapping[str, Value],
    project: Mapping[str, Value] | None = None,
    session: Mapping[str, Value] | None = None,
) -> Effective:
    """The settings that hold: built in, then the server's, the project's, the session's own."""
    project, session = project or {}, session or {}
    # With leases of seconds a minute of waiting for a lost runner would be out of all proportion.
    own = {"recovery_window_s": lease_s / 2} if lease_s / 2 < RECOVERY_S else {}
    limits = effective(
        ("server", own | _numbers(server)), ("project", _numbers(project)), ("session", _numbers(session))
    )
    words = WORDS | _words(server) | _words(project) | _words(session)
    on_loss, on_rollback = (next(word for word in ON_LOSS if word == words[n]) for n in ("on_loss", "on_rollback"))
    return Effective(
        limits=limits, runtime=words["runtime"], pool=words["pool"], model=words["model"], labels=words["labels"],
        on_loss=on_loss, on_rollback=on_rollback, exclude=words["exclude"], include=words["include"], resume_hook=words["resume_hook"],
    )  # fmt: skip


def _kind(name: str) -> str:
    match LIMITS[name].unit:
        case "s":
            return "a number of seconds"
        case "bytes":
            return "a whole number of bytes"
        case "usd":
            return "an amount of USD"
    return "a whole number"


def _number(name: str, value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise Refused("bad_setting", f"{name} is too large a number.") from None


def _word(name: str, value: str) -> str:
    if name in ("on_loss", "on_rollback"):
        if value not in ON_LOSS:
            raise Refused("bad_setting", f"{name} can be {', '.join(ON_LOSS)}, not {_shown(value)}.")
        return value
    if name == "model":
        if len(value) > MODEL_CHARS or not value.isprintable():
            raise Refused("bad_setting", f"The name of a model has at most {MODEL_CHARS} printable characters.")
        return value
    if name in ("exclude", "include"):
        return "\n".join(patterns.split(value))
    if name == "resume_hook":
        if len(value) > HOOK_CHARS or "\0" in value:
            raise Refused("bad_setting", f"A resume hook has at most {HOOK_CHARS} characters.", "Call a script in it.")
        return value.strip()
    if name == "labels":
        return labels.joined(labels.split(value))
    return ids.name(value, name)


def _numbers(values: Mapping[str, Value]) -> dict[str, float]:
    return {name: value for name, value in values.items() if isinstance(value, int | float)}


def _words(values: Mapping[str, Value]) -> dict[str, str]:
    return {name: value for name, value in values.items() if isinstance(value, str)}


def _shown(value: object) -> str:
    return repr(value)[:80]
