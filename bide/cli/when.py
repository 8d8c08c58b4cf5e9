"""Durations and moments as people write them, and as people read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, tzinfo

from bide.core.limits import DAY, DURATION_S_MAX, HOUR, MINUTE

_UNITS = {"s": 1.0, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def duration(text: str) -> float:
    """Seconds of `15m`, `3d`, `2h30m`; raises ValueError with a sentence."""
    given = text.strip().lower().replace(" ", "")
    if given == "0":
        return 0.0
    if given.isascii() and given.isdecimal():
        raise ValueError(f"{text!r} has no unit. Write {given}s or {given}m.")
    parts = _PART.findall(given)
    if not parts or "".join(number + unit for number, unit in parts) != given:
        raise ValueError(f"{text!r} is not a duration. Write 90s, 15m, 2h30m or 3d.")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds > DURATION_S_MAX:
        raise ValueError(f"{text!r} is longer than ten years.")
    return seconds


def moment(text: str, now: datetime, zone: tzinfo | None = None) -> datetime:
    """The moment in UTC that `+3d`, `monday 09:00`, `tomorrow`, `18:30` or an ISO 8601 time means.

    What names no zone is read in `zone` (None: this machine's), by its clock on that day, summer time or not. A day
    without a time means the end of that day. Raises ValueError with a sentence.
    """
    given, now = " ".join(text.strip().lower().split()), now.astimezone(UTC)
    found = _after(given, now) or _iso(text.strip(), zone) or _on_a_day(given, now, zone)
    if found is None:
        raise ValueError(f"{text!r} is not a moment. Write +3d, monday 09:00, tomorrow, or 2031-05-04T09:00.")
    if found <= now:
        at = f"{local(found, zone):%Y-%m-%d %H:%M}"
        raise ValueError(
            f"{text.strip()} is over." if _names_its_day(text) else f"{text.strip()} is {at}, which is over."
        )
    return found.astimezone(UTC)


def _names_its_day(text: str) -> bool:
    return re.match(r"\d{4}-\d\d-\d\d", text.strip()) is not None


def _after(given: str, now: datetime) -> datetime | None:
    if not given.startswith("+") and not _PART.fullmatch(given):
        return None
    return now + timedelta(seconds=duration(given.removeprefix("+")))


def _iso(given: str, zone: tzinfo | None) -> datetime | None:
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", given):
            return _end_of(datetime.fromisoformat(given), zone)
        found = datetime.fromisoformat(given)
    except ValueError:
        return None
    return found if found.tzinfo else _in_zone(found, zone)


def _on_a_day(given: str, now: datetime, zone: tzinfo | None) -> datetime | None:
    day, _, clock = given.rpartition(" ")
    at = _CLOCK.fullmatch(clock)
    if at is None:
        day = given
    here = local(now, zone).replace(tzinfo=None)
    start = datetime.combine(here.date(), time())
    if day in _DAYS:
        start += timedelta(days=(_DAYS.index(day) - here.weekday()) % 7)
        repeat = 7
    elif day in ("", "today", "tomorrow") and (day or at):
        start += timedelta(days=day == "tomorrow")
        repeat = 1 if not day else 0
    else:
        return None
    found = _at(start, at, zone)
    return found if found > now or not repeat else _at(start + timedelta(days=repeat), at, zone)


def _at(day: datetime, clock: re.Match[str] | None, zone: tzinfo | None) -> datetime:
    if clock is None:
        return _end_of(day, zone)
    return _in_zone(day.replace(hour=int(clock[1]), minute=int(clock[2])), zone)


def _end_of(day: datetime, zone: tzinfo | None) -> datetime:
    return _in_zone(datetime.combine(day.date() + timedelta(days=1), time()), zone)


def _in_zone(plain: datetime, zone: tzinfo | None) -> datetime:
    return (plain.replace(tzinfo=zone) if zone else plain.astimezone()).astimezone(UTC)


def local(moment: datetime, zone: tzinfo | None = None) -> datetime:
    """The moment by the clock of the zone."""
    return moment.astimezone(zone)


def parsed(text: str | None) -> datetime | None:
    """A moment of the API."""
    return datetime.fromisoformat(text) if text else None


def clock(text: str | None, now: datetime | None = None) -> str:
    """A moment of the API by this machine's clock: the time, and the day where it is another one than today."""
    at = parsed(text)
    if at is None:
        return ""
    here, today = local(at), local(now or datetime.now(UTC))
    if here.date() == today.date():
        return f"{here:%H:%M}"
    return f"{here:%a} {here.day} {here:%b %H:%M}" if here.year == today.year else f"{here:%Y-%m-%d %H:%M}"


def since(text: str | None, now: datetime) -> str:
    """How long ago a moment of the API is."""
    at = parsed(text)
    return "" if at is None else span(max(0, int((now - at).total_seconds())))


def span(seconds: float) -> str:
    """A duration in its two largest units: `2h 30m`, `3d`, `45s`."""
    if seconds < 1:
        return "0s" if seconds < 0.05 else f"{seconds:.1f}s"
    if seconds < 10 and not float(seconds).is_integer():
        return f"{seconds:.1f}s"
    left = round(seconds)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, int(_UNITS[unit]))
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts))


def size(count: float) -> str:
    """Bytes as people read them."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if count >= 10 or unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("the last unit takes all")


def count(number: int, noun: str) -> str:
    """`1 turn`, `2 turns`."""
    return f"{number} {noun}" + "s" * (number != 1)
