"""Schedules beside a walk through every minute, over changes of the clocks in zones of all kinds."""

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.timing.cron import Every, parse_schedule
from respool.timing.cron_fields import BadSchedule, parse_cron_fields
from respool.timing.zones import UnknownTimeZone, find_zone, zones_version

MINUTE = timedelta(minutes=1)
# For each zone two days on which its clocks change, as the walks begin.
CHANGES = {
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "Europe/London": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "America/St_Johns": ("2026-03-08", "2026-11-01"),
    "America/Santiago": ("2026-04-05", "2026-09-06"),
    "Australia/Sydney": ("2026-04-05", "2026-10-04"),
    # By half an hour.
    "Australia/Lord_Howe": ("2026-04-05", "2026-10-04"),
    "Pacific/Chatham": ("2026-04-05", "2026-09-27"),
    # At midnight, so that the day begins at 01:00.
    "Africa/Cairo": ("2026-04-24", "2026-10-30"),
    "Asia/Beirut": ("2026-03-29", "2026-10-25"),
    # For Ramadan, in the other direction.
    "Africa/Casablanca": ("2026-02-15", "2026-03-22"),
    # A whole day was skipped; and a zone that never changes.
    "Pacific/Apia": ("2011-12-30", "2010-09-26"),
    "Asia/Kolkata": ("2026-03-29", "2026-10-25"),
}
LINES = (
    "* * * * *",
    "30 2 * * *",
    "0,30 0-3 * * *",
    "*/20 * * * *",
    "15 1 * * SUN",
    "0 0 * * *",
    "59 23 * * FRI,SUN-MON",
    "45 2 29,25,8,1 * *",
    "5/25 1-4/2 1-15 * MON",
    "0 12 30 12 *",
)


@cache
def walls(zone: str, day: str) -> list[tuple[int, datetime]]:
    """Every minute from a day before to two days after: the instant, and the wall time there."""
    begin = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(days=2)
    found = []
    for number in range(5 * 24 * 60):
        moment = begin + number * MINUTE
        wall = moment.astimezone(find_zone(zone)).replace(tzinfo=None)
        found.append((int(moment.timestamp()), wall))
    return found


def fires(line: str, zone: str, day: str) -> Iterator[int]:
    """The rule in its plainest form: each wall time that matches, once."""
    fields = parse_cron_fields(line)
    minutes = walls(zone, day)
    first_at: dict[datetime, int] = {}
    for at, wall in minutes:
        first_at.setdefault(wall, at)
    known = sorted(first_at)
    wall = known[0]
    while wall < known[-1]:
        in_month = wall.day in fields.days_of_month
        in_week = wall.isoweekday() % 7 in fields.days_of_week
        if (
            wall.minute in fields.minutes
            and wall.hour in fields.hours
            and wall.month in fields.months
            and ((in_month or in_week) if fields.either_day else (in_month and in_week))
        ):
            # The first instant with this wall time; else the first with a later one.
            yield first_at[known[bisect_right(known, wall - timedelta(microseconds=1))]]
        wall += MINUTE


@pytest.mark.parametrize("zone", CHANGES)
@pytest.mark.parametrize("which", [0, 1])
def test_schedule_fires_as_a_walk_through_all_minutes_says(zone: str, which: int) -> None:
    day = CHANGES[zone][which]
    begin_s, end_s = walls(zone, day)[0][0], walls(zone, day)[-1][0]
    for line in LINES:
        schedule = parse_schedule(line, zone=zone, base_ms=begin_s * 1000)
        found = []
        at_ms = begin_s * 1000
        while (next_ms := schedule.next_after(at_ms)) is not None and next_ms < end_s * 1000:
            assert next_ms > at_ms
            found.append(next_ms // 1000)
            at_ms = next_ms
        expected = sorted({one for one in fires(line, zone, day) if begin_s < one < end_s})
        assert found == expected, line


@given(
    st.sampled_from(sorted(CHANGES)),
    st.sampled_from(LINES),
    st.integers(1_770_000_000_000, 1_800_000_000_000),
    st.integers(0, 40 * 86_400_000),
)
@settings(max_examples=25, deadline=None)
def test_latest_is_the_last_of_all_times(zone: str, line: str, at_ms: int, after_ms: int) -> None:
    schedule = parse_schedule(line, zone=zone, base_ms=at_ms)
    first_ms = schedule.next_after(at_ms)
    assert first_ms is not None
    latest_ms = schedule.latest(from_ms=first_ms, to_ms=first_ms + after_ms)
    assert first_ms <= latest_ms <= first_ms + after_ms
    next_ms = schedule.next_after(latest_ms)
    assert next_ms is not None
    assert next_ms > first_ms + after_ms


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def test_skipped_wall_time_fires_when_the_clocks_change() -> None:
    schedule = parse_schedule("30 2 * * *", zone="Europe/Berlin", base_ms=0)
    assert schedule.next_after(ms("2026-03-28T12:00+01:00")) == ms("2026-03-29T03:00+02:00")
    assert schedule.next_after(ms("2026-03-29T03:00+02:00")) == ms("2026-03-30T02:30+02:00")


def test_wall_time_that_comes_twice_fires_the_first_time() -> None:
    schedule = parse_schedule("30 2 * * *", zone="Europe/Berlin", base_ms=0)
    assert schedule.next_after(ms("2026-10-24T12:00+02:00")) == ms("2026-10-25T02:30+02:00")
    assert schedule.next_after(ms("2026-10-25T02:30+02:00")) == ms("2026-10-26T02:30+01:00")


def test_seconds_stand_before_the_minutes() -> None:
    schedule = parse_schedule("10,40 5 * * * *", zone=None, base_ms=0)
    assert schedule.next_after(ms("2026-01-01T00:05:10+00:00")) == ms("2026-01-01T00:05:40+00:00")
    assert schedule.next_after(ms("2026-01-01T00:05:40+00:00")) == ms("2026-01-01T01:05:10+00:00")


def test_leap_day_is_found_eight_years_ahead() -> None:
    schedule = parse_schedule("0 0 29 2 *", zone=None, base_ms=ms("2096-03-01T00:00+00:00"))
    assert schedule.next_after(ms("2096-03-01T00:00+00:00")) == ms("2104-02-29T00:00+00:00")


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("@hourly", "2026-01-01T01:00+00:00"),
        ("@daily", "2026-01-02T00:00+00:00"),
        ("@midnight", "2026-01-02T00:00+00:00"),
        ("@weekly", "2026-01-04T00:00+00:00"),
        ("@monthly", "2026-02-01T00:00+00:00"),
        ("@yearly", "2027-01-01T00:00+00:00"),
        ("@Annually", "2027-01-01T00:00+00:00"),
        ("@every 90m", "2026-01-01T02:00+00:00"),
        ("0 0 * jan-mar 7", "2026-01-04T00:00+00:00"),
        ("  0  0  *  *  5-7 ", "2026-01-02T00:00+00:00"),
    ],
)
def test_other_forms(text: str, first: str) -> None:
    base = ms("2026-01-01T00:30+00:00")
    assert parse_schedule(text, zone=None, base_ms=base).next_after(base) == ms(first)


def test_every_counts_from_the_record() -> None:
    every = Every(10_000, 1_003)
    assert every.next_after(0) == 11_003
    assert every.next_after(11_003) == 21_003
    assert every.nth_after(1_003, 5) == 51_003
    assert every.latest(from_ms=11_003, to_ms=41_002) == 31_003


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has 0"),
        ("* * * *", "has 4"),
        ("* * * * * * *", "has 7"),
        ("60 * * * *", "minute 60: it must be 0 to 59"),
        ("* 24 * * *", "hour 24"),
        ("* * 0 * *", "day of the month 0"),
        ("* * * 13 *", "month 13"),
        ("* * * * 8", "day of the week 8"),
        ("5-3 * * * *", "ends before it begins"),
        ("*/0 * * * *", "step '0'"),
        ("*/x * * * *", "step 'x'"),
        ("1,,2 * * * *", "minute ''"),
        ("-1 * * * *", "minute ''"),
        ("* * L * *", "day of the month 'L'"),
        ("* * * FOO *", "JAN-DEC"),
        ("٣ * * * *", "minute"),
        ("0 0 31 2 *", "never fires"),
        ("0 0 30 2 *", "never fires"),
        ("@reboot", "'@reboot' is not one of"),
        ("@every 500ms", "shortest interval is 1s"),
        ("@every 5", "no unit"),
        ("@every", "not one of"),
    ],
)
def test_malformed_schedule_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(BadSchedule) as refused:
        parse_schedule(text, zone=None, base_ms=0)
    assert reason in str(refused.value)


def test_interval_has_no_time_zone() -> None:
    with pytest.raises(BadSchedule, match="no time zone"):
        parse_schedule("@every 1h", zone="Europe/Berlin", base_ms=0)


@pytest.mark.parametrize(
    "name",
    ["", "Mars/Olympus", "../UTC", "/etc/passwd", "Europe", "zone.tab", "tzdata.zi", "A" * 99],
)
def test_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(UnknownTimeZone, match="not a time zone"):
        find_zone(name)


def test_zones_have_a_version() -> None:
    assert zones_version().startswith("20")
