"""Durations and moments as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from time import tzset
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bide.cli import when

BERLIN = ZoneInfo("Europe/Berlin")
# A Friday; on the Sunday after it clocks go from 02:00 to 03:00.
SPRING = datetime(2031, 3, 28, 12, 0, tzinfo=BERLIN)
# A Friday; on the Sunday after it clocks go from 03:00 back to 02:00.
AUTUMN = datetime(2031, 10, 24, 12, 0, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15m", 900), ("3d", 259200), ("2h30m", 9000), ("2h 30m", 9000), ("90s", 90), ("1w", 604800), ("0", 0),
        ("1.5h", 5400), ("2H", 7200),
    ],
)  # fmt: skip
def test_a_duration_means_what_it_says(text: str, seconds: float) -> None:
    assert when.duration(text) == seconds


@pytest.mark.parametrize("text", ["", "15", "m", "-3d", "3 days", "15m!", "1e3s", "∞d", "99999w", "٣d٣"])
def test_what_is_no_duration_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|longer|unit"):
        when.duration(text)


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("+3d", "2031-03-31 13:00"),  # 72 hours, one of them skipped by the clock
        ("3d", "2031-03-31 13:00"),
        ("+2h30m", "2031-03-28 14:30"),
        ("monday 09:00", "2031-03-31 09:00"),  # by the clock of that day
        ("Monday  9:00", "2031-03-31 09:00"),
        ("saturday 09:00", "2031-03-29 09:00"),
        ("monday", "2031-04-01 00:00"),  # the end of Monday
        ("friday 13:00", "2031-03-28 13:00"),
        ("friday 11:00", "2031-04-04 11:00"),
        ("today", "2031-03-29 00:00"),
        ("tomorrow 18:30", "2031-03-29 18:30"),
        ("18:30", "2031-03-28 18:30"),
        ("11:59", "2031-03-29 11:59"),
        ("2031-03-30", "2031-03-31 00:00"),
        ("2031-03-31T09:00", "2031-03-31 09:00"),
        ("2031-03-31 09:00", "2031-03-31 09:00"),
        ("2031-03-31T09:00Z", "2031-03-31 11:00"),
        ("2031-03-31T09:00+09:00", "2031-03-31 02:00"),
        ("20310331", "2031-04-01 00:00"),
        ("in 3 days", "2031-03-31 13:00"),
        ("in an hour", "2031-03-28 13:00"),
        ("in 2h30m", "2031-03-28 14:30"),
        ("2 weeks", "2031-04-11 13:00"),
        ("mon 9am", "2031-03-31 09:00"),
        ("Monday at 9:30 PM", "2031-03-31 21:30"),
        ("tomorrow noon", "2031-03-29 12:00"),
        ("12am", "2031-03-29 00:00"),
        ("friday", "2031-03-29 00:00"),  # today is not over yet
        ("friday 12:00", "2031-04-04 12:00"),  # now is over
        ("2031-03-30 02:30", "2031-03-30 03:30"),  # the clock has no 02:30 that day
        ("sunday 02:30", "2031-03-30 03:30"),
        ("1h 30m", "2031-03-28 13:30"),
        ("next monday", "2031-04-01 00:00"),
        ("next friday 13:00", "2031-04-04 13:00"),  # not today, which is one
        ("noon tomorrow", "2031-03-29 12:00"),
        ("9 am on monday", "2031-03-31 09:00"),
    ],
)  # fmt: skip
def test_a_moment_is_right_across_the_change_to_summer_time(text: str, local: str) -> None:
    found = when.moment(text, SPRING.astimezone(UTC), BERLIN)
    assert f"{found.astimezone(BERLIN):%Y-%m-%d %H:%M}" == local
    assert found.tzinfo is UTC


def test_a_day_in_autumn_is_an_hour_longer_and_the_clock_still_right() -> None:
    found = when.moment("monday 12:00", AUTUMN.astimezone(UTC), BERLIN)
    assert found - AUTUMN == timedelta(days=3, hours=1)
    assert f"{when.moment('+3d', AUTUMN, BERLIN).astimezone(BERLIN):%H:%M}" == "11:00"


def test_a_time_that_the_clock_shows_twice_is_the_later_one_so_that_nothing_is_deleted_an_hour_early() -> None:
    found = when.moment("sunday 02:30", AUTUMN, BERLIN)
    assert found == datetime(2031, 10, 26, 1, 30, tzinfo=UTC)
    between = datetime(2031, 10, 26, 0, 45, tzinfo=UTC)  # 02:45, for the first time
    assert when.moment("02:30", between, BERLIN) == datetime(2031, 10, 26, 1, 30, tzinfo=UTC)


ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Havana", "Asia/Beirut",
         "Pacific/Kiritimati", "Pacific/Niue", "America/St_Johns", "Africa/Casablanca", "Pacific/Apia", "UTC")  # fmt: skip
moments = st.integers(788_918_400, 2_143_238_400).map(lambda at: datetime.fromtimestamp(at, UTC))  # 1995 to 2037


@settings(deadline=None)
@given(moments, st.sampled_from(ZONES), st.integers(0, 6), st.times())
def test_a_named_day_is_the_next_one_in_every_zone_and_the_clock_there_shows_what_was_asked(
    now: datetime, name: str, day: int, clock: time
) -> None:
    zone, clock = ZoneInfo(name), clock.replace(second=0, microsecond=0)
    word = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")[day]
    found = when.moment(f"{word} {clock:%H:%M}", now, zone)
    assert now < found <= now + timedelta(days=8, hours=2)
    here = found.astimezone(zone)
    exists = here.replace(tzinfo=None, fold=0)
    if exists.time() == clock:
        assert here.weekday() == day
    else:  # left out by the clock, or by a whole day that an island skipped
        assert datetime.combine(exists.date(), clock) < exists or exists.time() < clock
    a_week_before = (found.astimezone(zone) - timedelta(days=7)).replace(fold=1).astimezone(UTC)
    assert a_week_before <= now, "there was an earlier one"


@settings(deadline=None)
@given(moments, st.sampled_from(ZONES), st.sampled_from(("today", "tomorrow", "monday", "sunday")))
def test_a_day_without_a_time_ends_with_that_day_in_every_zone(now: datetime, name: str, word: str) -> None:
    zone = ZoneInfo(name)
    here = when.moment(word, now, zone).astimezone(zone)
    before = (when.moment(word, now, zone) - timedelta(hours=3)).astimezone(zone)
    assert here > now
    assert here.date() > before.date()
    assert here.hour <= 1, "the first moment of the next day, or the first that its clock shows"


@settings(deadline=None)
@given(moments, moments, st.sampled_from(ZONES))
def test_what_is_shown_names_its_zone_and_is_the_moment_that_was_meant(now: datetime, at: datetime, name: str) -> None:
    zone = ZoneInfo(name)
    shown = when.until(at.isoformat(), now, zone)
    assert f"{at.astimezone(zone):%H:%M %Z}" in shown
    assert ("(in " in shown) == (at > now)


def test_the_zone_of_the_machine_is_used_where_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    tzset()
    try:
        now = datetime(2031, 3, 7, 12, tzinfo=UTC)  # clocks go forward on the 9th
        assert when.moment("saturday 09:00", now) == datetime(2031, 3, 8, 14, tzinfo=UTC)
        assert when.moment("monday 09:00", now) == datetime(2031, 3, 10, 13, tzinfo=UTC)
    finally:
        monkeypatch.undo()
        tzset()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "someday",
        "monday 25:00",
        "2031-13-01",
        "yesterday",
        "today 09:00",
        "2020-01-01",
        "+0s",
        "monday nine",
        "in a while",
        "13 pm",
        "0am",
        "9999-12-31",
        "0001-01-01T00:00",
        "in 99999 days",
    ],
)
def test_what_is_no_moment_or_is_over_is_said_to_be(text: str) -> None:
    with pytest.raises(ValueError, match=r"Write|over|duration|longer|far away"):
        when.moment(text, SPRING, BERLIN)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.4, "0.4s"),
        (1.5, "1.5s"),
        (45, "45s"),
        (900, "15m"),
        (9000, "2h 30m"),
        (3601, "1h"),
        (90061, "1d 1h"),
    ],
)
def test_a_span_is_shown_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert when.span(seconds) == text


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("5GiB", 5 * 2**30),
        ("5 gib", 5 * 2**30),
        ("500MB", 5e8),
        ("1.5k", 1536),
        ("7", 7),
        ("1 byte", 1),
        ("12 bytes", 12),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, bytes_: float) -> None:
    assert when.bytes_of(text) == bytes_


@pytest.mark.parametrize("text", ["", "GiB", "5 XiB", "-5GiB", "2h"])
def test_what_is_no_size_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        when.bytes_of(text)


def test_a_machine_whose_zone_is_none_is_on_universal_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC+99")
    tzset()
    try:
        assert when.moment("tomorrow 09:00", SPRING.astimezone(UTC)) == datetime(2031, 3, 29, 9, tzinfo=UTC)
    finally:
        monkeypatch.undo()
        tzset()
