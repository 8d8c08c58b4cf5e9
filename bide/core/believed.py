"""What a runner claims, brought within what can be: values of facts are bounded, impossible questions refused."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from bide.core import ids
from bide.core.facts import Lost
from bide.core.hearing import cut
from bide.core.limits import (
    CUT_MARK_BYTES,
    FACT_ITEMS_MAX,
    FACT_LIST_BYTES,
    KEEPS_TOLD_MAX,
    MOMENT_MAX,
    NAME_TOLD_CHARS,
    OPTION_BYTES,
    PROBLEM_BYTES,
    PROCESS_CHARS,
    RAW_BYTES,
    ROOT_CHARS,
    RUNTIMES_MAX,
    SEQ_MAX,
    SYNC_SESSIONS_MAX,
    TEXT_BYTES,
    TOOL_OUTPUT_BYTES,
    WARM_TOLD_MAX,
)
from bide.core.refusals import Refused
from bide.core.wire import ISOLATIONS, Register, Sync

T = TypeVar("T", bound=Struct)
_MOMENTS = frozenset(("at", "asked_at", "expires_at", "retry_at", "saved_at", "verified_at"))
_NAMES = frozenset(
    (
        "code",
        "id",
        "input_id",
        "isolation",
        "model",
        "name",
        "runtime",
        "runtime_session_id",
        "runtime_version",
        "version",
    )
)
_WHOLE = frozenset(("consumed", "input_ids", "told"))  # a list of inputs that lacks one would have it delivered again
_TEXT_BYTES = {
    "output": TOOL_OUTPUT_BYTES, "frame": RAW_BYTES, "sentence": RAW_BYTES, "hint": RAW_BYTES, "options": OPTION_BYTES,
}  # fmt: skip


def believed(told: T) -> T:
    """The fact with every value within its bounds; the same object when it is so already."""
    fits = {}
    for name in told.__struct_fields__:
        value = getattr(told, name)
        if (fit := _fit(name, value)) is not value:
            fits[name] = fit
    return replace(told, **fits) if fits else told


def moment(seconds: float) -> float:
    """Epoch seconds that a calendar has: 0 to the end of the year 9999."""
    return float(_within(seconds, MOMENT_MAX))


def short(text: str, limit: int) -> str:
    """The text cut to about `limit` bytes with a mark; what was cut so already stays as it is."""
    if len(text) * 4 <= limit or len(text.encode("utf-8", "replace")) <= limit + CUT_MARK_BYTES:
        return text
    return cut(text, limit)[0]


def named(text: str) -> str:
    """An id or a name, cut in its middle where it is no name any more. Two that are equal stay so."""
    if len(text) <= NAME_TOLD_CHARS:
        return text
    tail = NAME_TOLD_CHARS // 4
    return f"{text[: NAME_TOLD_CHARS - tail - 1]}…{text[-tail:]}"


def _fit(name: str, value: object) -> object:
    match value:
        case str() if name in _NAMES:
            return named(value)
        case str():
            return short(value, _TEXT_BYTES.get(name, TEXT_BYTES))
        case bool() | None:
            return value
        case int() | float():
            return _within(value, MOMENT_MAX if name in _MOMENTS else SEQ_MAX)
        case tuple():
            fits = _shortened(tuple(_fit(name, one) for one in value[:FACT_ITEMS_MAX]), name, len(value))
            same = len(fits) == len(value) and all(a is b for a, b in zip(fits, value, strict=True))
            return value if same else fits
        case dict():
            some = {named(key): _fit(name, one) for key, one in list(value.items())[:FACT_ITEMS_MAX]}
            return value if some == value else some
        case Struct():
            return believed(value)
    return value


def _shortened(items: tuple[Any, ...], name: str, count: int) -> tuple[Any, ...]:
    """As many of them as a fact has room for; the last one counts the others, of `count`."""
    sizes = list(map(_bytes, items))
    if name in _WHOLE or sum(sizes) <= FACT_LIST_BYTES:
        return items
    left = FACT_LIST_BYTES - CUT_MARK_BYTES
    for place, item in enumerate(items):
        left -= sizes[place]
        if left < 0:
            rest = f"… and {count - place} more"
            return (*items[:place], Lost(what=rest) if isinstance(item, Lost) else rest)
    return items


def _bytes(item: object) -> int:
    if isinstance(item, str):
        return len(item.encode("utf-8", "replace"))
    return sum(_bytes(getattr(item, name)) for name in item.__struct_fields__) if isinstance(item, Struct) else 8


def _within(value: float, most: float) -> float:
    """The value itself, or the nearest bound in its own type; what is no number at all is 0."""
    if 0 <= value <= most:
        return value
    return type(value)(most) if value > most else type(value)(0)


def bounded_hello(hello: Register) -> Register:
    """The registration with its long words cut. Raises `Refused('bad_value')` for what no runner is or has."""
    if len(hello.root) > ROOT_CHARS or "\0" in hello.root:
        raise Refused("bad_value", f"{hello.root[:80]!r} cannot be a runner's folder.")
    if hello.isolation not in ISOLATIONS:
        known = ", ".join(sorted(ISOLATIONS))
        raise Refused("bad_value", f"There is no isolation {hello.isolation[:80]!r}.", f"There are: {known}.")
    _require_name(hello.boot, "process")
    _require_name(hello.home, "folder")
    if len(hello.runtimes) > RUNTIMES_MAX:
        raise Refused("bad_value", f"A runner can have {RUNTIMES_MAX} runtimes, not {len(hello.runtimes)}.")
    for runtime in hello.runtimes:
        _require_name(runtime.name, "runtime")
        _require_name(runtime.version, "version")
        if "\0" in runtime.problem + runtime.hint:
            raise Refused("bad_value", f"What is wrong with runtime {runtime.name} is not said in a text.")
    runtimes = tuple(
        replace(one, problem=short(one.problem, PROBLEM_BYTES), hint=short(one.hint, PROBLEM_BYTES))
        for one in hello.runtimes
    )
    return replace(hello, runtimes=runtimes)


def bounded_sync(ask: Sync) -> Sync:
    """The sync without folders that are no session's. Raises `Refused`: `too_many`, `bad_id`, `bad_value`."""
    sessions = [one.session for group in (ask.leases, ask.adopt, ask.returned) for one in group]
    if len(sessions) > SYNC_SESSIONS_MAX:
        raise Refused("too_many", f"One sync can name {SYNC_SESSIONS_MAX} sessions, not {len(sessions)}.")
    if len(ask.warm) > WARM_TOLD_MAX:
        raise Refused("too_many", f"One sync can name {WARM_TOLD_MAX} kept folders, not {len(ask.warm)}.")
    if len(ask.keeps) > KEEPS_TOLD_MAX:
        raise Refused("too_many", f"One sync can name {KEEPS_TOLD_MAX} sessions kept, not {len(ask.keeps)}.")
    for session in sessions:
        if not ids.is_id(session):
            ids.parse(session, "session id")
            raise Refused("bad_id", f"{session[:80]!r} is not written as its id is.")
    _require_name(ask.boot, "process")
    warm, keeps = (tuple(filter(ids.is_id, names)) for names in (ask.warm, ask.keeps))
    return replace(ask, warm=warm, keeps=keeps, disk_free=max(0, min(ask.disk_free, SEQ_MAX)))


def _require_name(text: str, what: str) -> None:
    if len(text) > PROCESS_CHARS or not text.isprintable():
        raise Refused("bad_value", f"{text[:80]!r} cannot name a {what}.", f"Use up to {PROCESS_CHARS} characters.")
