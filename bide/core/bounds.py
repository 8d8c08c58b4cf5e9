"""The limits that people see before any work: those that can be set, with their bounds, and those that are fixed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from bide.core import limits as n
from bide.core.quantities import amount
from bide.core.refusals import Refused

Layer = Literal["server", "project", "session"]


class Limit(Struct, frozen=True, kw_only=True):
    """One bound as a person sees it. Where `min` and `max` are the same it is fixed."""

    name: str
    value: float
    unit: str
    min: float
    max: float
    default: float
    origin: Literal["built_in", "server", "project", "session"] = "built_in"
    kept: str = ""  # what it keeps, or what happens at it, as a sentence


def _limit(name: str, default: float, unit: str, low: float, high: float, kept: str) -> tuple[str, Limit]:
    return name, Limit(name=name, value=default, unit=unit, min=low, max=high, default=default, kept=kept)


def _fixed(name: str, value: float, unit: str, kept: str) -> Limit:
    return Limit(name=name, value=value, unit=unit, min=value, max=value, default=value, kept=kept)


LIMITS: dict[str, Limit] = dict(
    (
        _limit("online_window_s", n.ONLINE_WINDOW_S, "s", 0, n.ONLINE_WINDOW_S_MAX,
               "A session that waits longer is parked: everything is saved, its runner is free."),
        _limit("retention_s", n.RETENTION_S, "s", n.RETENTION_S_MIN, n.RETENTION_S_MAX,
               "A parked or ended session's workspace and conversation are kept this long after the last activity, "
               "then deleted. Its log stays. Warnings come at half of it, at nine tenths, and an hour before."),
        _limit("retention_max_s", n.RETENTION_MAX_S, "s", n.RETENTION_S_MIN, n.RETENTION_S_MAX,
               "The longest retention, and the furthest ahead that `bide extend` can move the end of one."),
        _limit("checkpoint_interval_s", n.CHECKPOINT_INTERVAL_S, "s", 10, n.CHECKPOINT_INTERVAL_S_MAX,
               "Within a long turn work is saved this often; also at each turn end and before parking."),
        _limit("checkpoints_kept", n.CHECKPOINTS_KEPT, "count", n.CHECKPOINTS_KEPT_MIN, n.CHECKPOINTS_KEPT_MAX,
               "The latest checkpoints of a session that are kept, besides its first; others are dropped as new ones are made."),
        _limit("workspace_bytes", n.WORKSPACE_BYTES, "bytes", n.WORKSPACE_BYTES_MIN, n.WORKSPACE_BYTES_MAX,
               "The most that a checkpoint of workspace and home may hold: the bytes in files, a file with several names "
               "once, holes in sparse files and what is left out not at all; compression and what it shares with other "
               "checkpoints make no difference. At 80 % a note says so; above it the last good checkpoint stays and "
               "nothing newer is saved until there is less."),
        _limit("budget_usd", n.BUDGET_USD, "usd", 0, n.BUDGET_USD_MAX,
               "What the model may cost, as the runtime counts it. At nine tenths the coding agent is told to wrap up; at "
               "the end its turn is stopped, everything is saved, and the session waits for more. 0: no end."),
        _limit("working_s", n.WORKING_S, "s", n.WORKING_S_MIN, n.WORKING_S_MAX,
               "How long a session may work in all; waiting for people and being parked cost nothing. It is told before, "
               "and at the end it is stopped, saved, and waits for more."),
        _limit("recovery_window_s", n.RECOVERY_S, "s", 0, n.RECOVERY_S_MAX,
               "How long an interrupted session waits for its own runner before another takes the last checkpoint."),
        _limit("runtime_silence_s", n.RUNTIME_SILENCE_S, "s", n.RUNTIME_SILENCE_S_MIN, n.RUNTIME_SILENCE_S_MAX,
               "A runtime in a turn that says nothing, runs no tool and asks no model is ended after this and started anew; "
               "after three times the session parks and asks. Before its first word to a message it has two minutes at most."),
        _limit("tool_silence_s", n.TOOL_SILENCE_S, "s", n.TOOL_SILENCE_S_MIN, n.TOOL_SILENCE_S_MAX,
               "A tool that gives no sign of life for so long is stopped, and its turn ends as failed. After 15 minutes, and "
               "each time that has doubled, the session says that it is silent."),
        _limit("message_bytes", n.MESSAGE_BYTES, "bytes", 1, n.MESSAGE_BYTES,
               "One message or answer; a longer one is refused, nothing of it is kept."),
        _limit("queued_inputs", n.INPUTS_MAX, "count", 1, n.INPUTS_MAX,
               "Inputs accepted and not yet delivered; one more is refused."),
    )
)  # fmt: skip

FIXED: tuple[Limit, ...] = (
    _fixed("starting_s", n.STARTING_S, "s", "A start or a restore that takes longer is begun anew, on any runner."),
    _fixed("starts", n.STARTS_MAX, "count", "A session whose start fails so many times in a row ends as failed."),
    _fixed("parking_s", n.PARKING_S, "s", "A park that takes longer is given up for now; the session stays where it is."),
    _fixed("cancelling_s", n.CANCELLING_S, "s", "A cancelled turn that does not stop by then is cut off; the last "
           "checkpoint is what is kept."),
    _fixed("open_questions", n.QUESTIONS_MAX, "count", "Open questions of one session; further ones are not taken, "
           "and a note says so."),
    _fixed("question_bytes", n.QUESTION_BYTES, "bytes", "A question, or its context; a longer one is cut with a mark."),
    _fixed("question_options", n.OPTIONS_MAX, "count", "Options of one question; further ones are left out."),
    _fixed("event_text_bytes", n.TEXT_BYTES, "bytes", "One text in an event; a longer one is cut with a mark."),
    _fixed("tool_output_bytes", n.TOOL_OUTPUT_BYTES, "bytes", "The output of one tool in an event; a longer one is cut "
           "with a mark."),
    _fixed("output_bytes", n.OUTPUT_BYTES, "bytes", "Of a text that its event cuts: so long it is kept whole, beside the "
           "log; of a longer one the event has all that is kept."),
    _fixed("outputs_bytes", n.OUTPUTS_BYTES, "bytes", "What one session keeps so in all; further ones are only cut, and a "
           "note says so."),
    _fixed("title_chars", n.TITLE_CHARS, "chars", "A session's title, ticket or branch; a longer one is refused."),
    _fixed("labels", n.LABELS_MAX, "count", "Labels that a session may ask of its runner; more are refused."),
    _fixed("events_per_post", n.EVENTS_PER_POST_MAX, "count", "Inputs in one request; more are refused whole."),
    _fixed("request_bytes", n.BODY_BYTES, "bytes", "The body of one request; a larger one is refused whole."),
    _fixed("streamed_sessions", n.STREAM_SESSIONS_MAX, "count", "Sessions that one stream can follow."),
    _fixed("listed_rows", n.LIST_MAX, "count", "Rows of one answer; the rest comes page by page."),
    _fixed("key_kept_s", n.KEY_KEPT_S, "s", "How long the idempotency key of a new session is remembered."),
)  # fmt: skip

_NOT_BY_A_SESSION = ("retention_max_s",)


def effective(*layers: tuple[Layer, Mapping[str, float]]) -> dict[str, Limit]:
    """The bounds that hold, later layers winning; each says where its value comes from.

    A retention beyond `retention_max_s` is brought within it. Raises `Refused('bad_setting')` for an unknown name or a
    value outside its bounds.
    """
    found = dict(LIMITS)
    for origin, values in layers:
        for name, value in values.items():
            found[name] = _set(found.get(name), name, value, origin)
    found["retention_s"] = _within(found["retention_s"], found["retention_max_s"])
    return found


def require_kept(found: Mapping[str, Limit], given: Mapping[str, float]) -> None:
    """Refuses a value that was asked for and cannot hold, because another limit is set lower."""
    retention, most = found["retention_s"], found["retention_max_s"]
    if given.get("retention_s", 0) > retention.max:
        raise Refused(
            "bad_setting",
            f"retention_s can be at most {amount(retention.max, 's')} here, not {amount(given['retention_s'], 's')}.",
            f"retention_max_s is {amount(most.value, 's')}, set by: {most.origin.replace('_', ' ')}.",
        )


def every(found: Mapping[str, Limit]) -> tuple[Limit, ...]:
    """All that a person may meet: those in force, and those that nobody can change."""
    return (*found.values(), *FIXED)


def value_of(found: Mapping[str, float], name: str) -> float:
    """The value of a limit for a session. One that was begun before there was such a limit has the default."""
    return found.get(name, LIMITS[name].default)


def names(limits: Iterable[Limit]) -> str:
    """Their names, as a list to choose from."""
    return ", ".join(limit.name for limit in limits)


def _set(limit: Limit | None, name: str, value: float, origin: Layer) -> Limit:
    if limit is None:
        fixed = next((one for one in FIXED if one.name == name), None)
        if fixed is not None:
            raise Refused("bad_setting", f"{name} is {amount(fixed.value, fixed.unit)} and cannot be set.")
        raise Refused(
            "bad_setting", f"There is no limit called {name[:80]!r}.", f"There are: {names(LIMITS.values())}."
        )
    if origin == "session" and name in _NOT_BY_A_SESSION:
        raise Refused("bad_setting", f"{name} is set for the server or a project, not for one session.")
    if not limit.min <= value <= limit.max:
        low, high = amount(limit.min, limit.unit), amount(limit.max, limit.unit)
        raise Refused(
            "bad_setting",
            f"{name} can be {low} to {high}, not {amount(value, limit.unit) if 0 <= value <= 1000 * limit.max else f'{value:g}'}.",
            f"Its default is {amount(limit.default, limit.unit)}.",
        )
    return replace(limit, value=value, origin=origin)


def _within(limit: Limit, most: Limit) -> Limit:
    high = min(limit.max, most.value)
    if limit.value <= high:
        return replace(limit, max=high, default=min(limit.default, high))
    return replace(limit, value=high, max=high, default=min(limit.default, high), origin=most.origin)
