"""Durations and moments as people write them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

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


def test_the_zone_of_the_machine_is_used_where_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        now = datetime(2031, 3, 7, 12, tzinfo=UTC)  # clocks go forward on the 9th
        assert when.moment("saturday 09:00", now) == datetime(2031, 3, 8, 14, tzinfo=UTC)
        assert when.moment("monday 09:00", now) == datetime(2031, 3, 10, 13, tzinfo=UTC)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text",
    ["", "someday", "monday 25:00", "2031-13-01", "yesterday", "today 09:00", "2020-01-01", "+0s", "monday noon"],
)
def test_what_is_no_moment_or_is_over_is_said_to_be(text: str) -> None:
    with pytest.raises(ValueError, match=r"Write|over|duration"):
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
