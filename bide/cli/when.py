"""Durations and moments as people write them, and as people read them."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from bide.core.limits import DAY, DURATION_S_MAX, HOUR, MINUTE
from bide.core.quantities import count as count
from bide.core.quantities import size as size
from bide.core.quantities import span as span

_UNITS = {"s": 1.0, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")
_PARTS = re.compile(rf"(?:{_PART.pattern} ?)+")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(?:bytes?|([kmgt]?)(i?b)?)")
_SPOKEN = re.compile(r"([0-9]+(?:\.[0-9]+)?|an?) ?(second|minute|hour|day|week)s?")
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])|(1[0-2]|0?[1-9])(?::([0-5][0-9]))? ?([ap])m|(noon)")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MOMENTS = "in 3 days, monday 09:00, tomorrow, or 2031-05-04T09:00"


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


def bytes_of(text: str) -> float:
    """Bytes of `5GiB`, `500 MB`, `100k`; raises ValueError with a sentence."""
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is not a size. Write 5GiB, 500MB, or a number of bytes.")
    power = " kmgt".index(found[2] or " ")
    return float(round(float(found[1]) * (1000 if found[3] == "b" else 1024) ** power))


def moment(text: str, now: datetime, zone: tzinfo | None = None) -> datetime:
    """The moment in UTC that `in 3 days`, `+3d`, `monday 09:00`, `tomorrow`, `18:30` or an ISO 8601 time means.

    What names no zone is read in `zone` (None: this machine's), by its clock on that day, summer time or not. A day
    without a time means the end of that day; the name of a day is the next one that is not over, and with `next` never
    today. Of a time that the clock shows twice that day the later is meant, and one that it leaves out is as much later
    as it leaves out.
    Raises ValueError with a sentence.
    """
    given, now = " ".join(text.strip().lower().split()), now.astimezone(UTC)
    try:
        found = _after(given, now) or _iso(text.strip(), zone) or _on_a_day(given, now, zone)
    except OverflowError:  # calendars end with the year 9999
        raise ValueError(f"{text.strip()} is too far away.") from None
    if found is None:
        raise ValueError(f"{text!r} is not a moment. Write {_MOMENTS}.")
    if found <= now:
        at = f"{local(found, zone):%Y-%m-%d %H:%M}"
        raise ValueError(
            f"{text.strip()} is over." if _names_its_day(text) else f"{text.strip()} is {at}, which is over."
        )
    return found.astimezone(UTC)


def _names_its_day(text: str) -> bool:
    return re.match(r"\d{4}-\d\d-\d\d", text.strip()) is not None


def _after(given: str, now: datetime) -> datetime | None:
    said = given.removeprefix("in ").removeprefix("+").strip()
    if spoken := _SPOKEN.fullmatch(said):
        number = "1" if spoken[1] in ("a", "an") else spoken[1]
        said = f"{number}{spoken[2][0]}"
    elif said == given and not _PARTS.fullmatch(given):
        return None
    return now + timedelta(seconds=duration(said))


def _iso(given: str, zone: tzinfo | None) -> datetime | None:
    with suppress(ValueError):
        return _end_of(datetime.combine(date.fromisoformat(given), time()), zone)
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        return None
    return found if found.tzinfo else _in_zone(found, zone)


def _on_a_day(given: str, now: datetime, zone: tzinfo | None) -> datetime | None:
    day, clock = _split(given)
    here = local(now, zone).replace(tzinfo=None)
    start = datetime.combine(here.date(), time())
    named = [name for name in _DAYS if day in (name, name[:3])]
    if named:
        start += timedelta(days=(_DAYS.index(named[0]) - here.weekday()) % 7 or 7 * ("next" in given.split()))
        repeat = 7
    elif day in ("", "today", "tomorrow") and (day or clock):
        start += timedelta(days=day == "tomorrow")
        repeat = 1 if not day else 0
    else:
        return None
    found = _at(start, clock, zone)
    return found if found > now or not repeat else _at(start + timedelta(days=repeat), clock, zone)


def _split(given: str) -> tuple[str, time | None]:
    """`next monday at 9 am` or `9 am on monday` as its day and its time; all of it is the day where it has no time."""
    words = [word for word in given.split() if word not in ("at", "on", "next")]
    for place in range(len(words) + 1):
        for clock, day in ((words[place:], words[:place]), (words[:place], words[place:])):
            if found := _CLOCK.fullmatch(" ".join(clock)):
                return " ".join(day), _read(found)
    return " ".join(words), None


def _read(clock: re.Match[str]) -> time:
    if clock[1]:
        return time(int(clock[1]), int(clock[2]))
    if clock[3]:
        return time(int(clock[3]) % 12 + 12 * (clock[5] == "p"), int(clock[4] or 0))
    return time(12)


def _at(day: datetime, clock: time | None, zone: tzinfo | None) -> datetime:
    return _end_of(day, zone) if clock is None else _in_zone(datetime.combine(day.date(), clock), zone)


def _end_of(day: datetime, zone: tzinfo | None) -> datetime:
    return _in_zone(datetime.combine(day.date() + timedelta(days=1), time()), zone)


def _in_zone(plain: datetime, zone: tzinfo | None) -> datetime:
    """The later of what the clock can mean: keeping too long harms nobody."""
    readings = (plain.replace(fold=0), plain.replace(fold=1))
    try:
        return max((one.replace(tzinfo=zone) if zone else one.astimezone()).astimezone(UTC) for one in readings)
    except ValueError as error:
        if 1 < plain.year < 9999:  # no zone at all, as in `local`
            return plain.replace(tzinfo=UTC)
        raise OverflowError from error


def local(moment: datetime, zone: tzinfo | None = None) -> datetime:
    """The moment by the clock of the zone; by that of UTC where this machine's zone is no time zone at all."""
    try:
        return moment.astimezone(zone)
    except ValueError:  # TZ can name an offset of days
        return moment.astimezone(UTC)


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


def until(text: str | None, now: datetime, zone: tzinfo | None = None) -> str:
    """A moment of the API ahead, by the clock of the zone and with its name: `Mon 7 Dec 09:00 CET (in 6d 4h)`."""
    at = parsed(text)
    if at is None:
        return ""
    here, left = local(at, zone), (at - now).total_seconds()
    year = f" {here.year}" if here.year != local(now, zone).year else ""
    return f"{here:%a} {here.day} {here:%b}{year} {here:%H:%M %Z}" + (f" (in {span(left)})" if left > 0 else "")
