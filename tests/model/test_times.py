import os
import time
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.model.times import (
    EPOCH_MS_MAX,
    EPOCH_MS_MIN,
    UNIT_MS,
    TimeNotUnderstood,
    format_duration_ms,
    format_ms,
    parse_duration_ms,
    parse_time,
)

NOW = datetime(2026, 11, 15, 10, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
# Summer and winter time, and changes of it on days far from the Sundays in Europe.
NEW_YORK = ZoneInfo("America/New_York")


def ms_of(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def parse_utc(text: str) -> int:
    return parse_time(text, now=NOW, zone=UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("now", NOW),
        ("3 hours ago", NOW - 3 * HOUR),
        ("3 HOURS  ago ", NOW - 3 * HOUR),
        ("an hour ago", NOW - HOUR),
        ("a day ago", NOW - 24 * HOUR),
        ("1 day 6 hours ago", NOW - 30 * HOUR),
        ("1 day, 6 hours ago", NOW - 30 * HOUR),
        ("1 day and 6 hours ago", NOW - 30 * HOUR),
        ("1h30m ago", NOW - 1.5 * HOUR),
        ("1.5h", NOW - 1.5 * HOUR),
        ("90m", NOW - 1.5 * HOUR),
        ("-90m", NOW - 1.5 * HOUR),
        ("2w", NOW - 14 * 24 * HOUR),
        ("250ms ago", NOW - timedelta(milliseconds=250)),
        ("today", datetime(2026, 11, 15, tzinfo=UTC)),
        ("yesterday", datetime(2026, 11, 14, tzinfo=UTC)),
        ("yesterday 08:00", datetime(2026, 11, 14, 8, tzinfo=UTC)),
        ("today 8:05:30", datetime(2026, 11, 15, 8, 5, 30, tzinfo=UTC)),
        ("08:00", datetime(2026, 11, 15, 8, tzinfo=UTC)),
        ("2026-11-12", datetime(2026, 11, 12, tzinfo=UTC)),
        ("2026-11-12 08:00", datetime(2026, 11, 12, 8, tzinfo=UTC)),
        ("2026-11-12t08:00:00.125", datetime(2026, 11, 12, 8, 0, 0, 125_000, tzinfo=UTC)),
        ("2026-11-12T08:00Z", datetime(2026, 11, 12, 8, tzinfo=UTC)),
        ("2026-11-12 08:00 UTC", datetime(2026, 11, 12, 8, tzinfo=UTC)),
        ("2026-11-12T08:00+01:00", datetime(2026, 11, 12, 7, tzinfo=UTC)),
        ("2026-11-12 08:00 -0530", datetime(2026, 11, 12, 13, 30, tzinfo=UTC)),
        ("@0", datetime(1970, 1, 1, tzinfo=UTC)),
        ("@1763107200", datetime(2025, 11, 14, 8, tzinfo=UTC)),
        ("@1763107200000", datetime(2025, 11, 14, 8, tzinfo=UTC)),
        ("1763107200123", datetime(2025, 11, 14, 8, 0, 0, 123_000, tzinfo=UTC)),
    ],
)
def test_a_time_as_people_write_it_is_understood(text: str, meant: datetime) -> None:
    assert parse_utc(text) == ms_of(meant)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "ago",
        "hours ago",
        "3 fortnights ago",
        "3 hours hence",
        "yesterday noon",
        "25:00",
        "08:61",
        "2026-13-01",
        "2026-02-30 10:00",
        "2026-11-12 08:00 Mars",
        "12",
        "1763107200",
        "@",
        "@-5",
        "99999999999999999999",
        "1969-12-31T23:59Z",
        "9999999 weeks ago",
        "10:00 yesterday",
    ],
)
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(TimeNotUnderstood, match="3 hours ago"):
        parse_utc(text)


def test_a_bare_number_of_seconds_is_refused_because_it_could_be_an_offset() -> None:
    with pytest.raises(TimeNotUnderstood, match="write seconds with an @"):
        parse_utc("1763107200")


def test_a_time_without_a_zone_is_meant_in_the_zone_given() -> None:
    winter = parse_time("2026-01-10 08:00", now=NOW, zone=NEW_YORK)
    summer = parse_time("2026-07-10 08:00", now=NOW, zone=NEW_YORK)
    assert winter == ms_of(datetime(2026, 1, 10, 13, tzinfo=UTC))
    assert summer == ms_of(datetime(2026, 7, 10, 12, tzinfo=UTC))


def test_today_is_the_day_it_is_in_the_zone_and_not_in_utc() -> None:
    # At 02:00 UTC it is still the day before in New York.
    now = datetime(2026, 11, 15, 2, tzinfo=UTC)
    assert parse_time("today", now=now, zone=NEW_YORK) == ms_of(
        datetime(2026, 11, 14, 5, tzinfo=UTC)
    )


def test_of_an_hour_that_exists_twice_the_first_is_meant() -> None:
    assert parse_time("2026-11-01 01:30", now=NOW, zone=NEW_YORK) == ms_of(
        datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
    )


def test_without_a_zone_the_machine_s_own_is_asked_about_that_very_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = os.environ.get("TZ")
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        for text in ("2026-01-10 08:00", "2026-07-10 08:00", "yesterday", "08:00"):
            assert parse_time(text, now=NOW) == parse_time(text, now=NOW, zone=NEW_YORK)
    finally:
        monkeypatch.undo()
        assert os.environ.get("TZ") == before
        time.tzset()


@given(
    ms=st.integers(0, EPOCH_MS_MAX),
    zone=st.sampled_from([UTC, NEW_YORK, ZoneInfo("Asia/Kathmandu"), timezone(-3 * HOUR)]),
)
def test_what_format_ms_writes_parse_time_reads_back(ms: int, zone: ZoneInfo) -> None:
    # The last day of the calendar does not exist in zones east of Greenwich, the first not west of it.
    ms = min(max(ms, 86_400_000), EPOCH_MS_MAX - 86_400_000)
    assert parse_time(format_ms(ms, zone=zone), now=NOW, zone=UTC) == ms


@given(st.integers(EPOCH_MS_MIN, EPOCH_MS_MAX))
def test_milliseconds_since_1970_are_themselves(ms: int) -> None:
    assert parse_utc(str(ms)) == parse_utc(f"@{ms}") == ms


@given(st.integers(0, 2_000), st.sampled_from(sorted(UNIT_MS)))
def test_any_amount_of_any_unit_ago_lies_that_much_before_now(amount: int, unit: str) -> None:
    assert parse_utc(f"{amount}{unit} ago") == ms_of(NOW) - amount * UNIT_MS[unit]


@given(st.text(max_size=40))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        ms = parse_utc(text)
    except TimeNotUnderstood:
        return
    assert 0 <= ms <= EPOCH_MS_MAX


@given(st.integers(0, 10**15))
def test_a_duration_is_shown_in_a_form_that_reads_back(ms: int) -> None:
    assert parse_duration_ms(format_duration_ms(ms)) == ms


@pytest.mark.parametrize(
    ("ms", "shown"),
    [(0, "0s"), (1, "1ms"), (5_400_000, "90m"), (604_800_000, "7d"), (7_200_000, "2h")],
)
def test_a_duration_is_shown_in_its_largest_whole_unit(ms: int, shown: str) -> None:
    assert format_duration_ms(ms) == shown


@pytest.mark.parametrize("text", ["2", "0", "1.5", " 90 "])
def test_a_length_of_time_without_a_unit_is_refused(text: str) -> None:
    """It meant milliseconds, which nobody had in mind."""
    with pytest.raises(
        TimeNotUnderstood, match=f"has no unit: write {text.strip()}ms, {text.strip()}s"
    ):
        parse_duration_ms(text)


def test_a_length_of_time_is_no_point_in_time() -> None:
    with pytest.raises(TimeNotUnderstood):
        parse_duration_ms("yesterday")


def test_no_timestamp_is_shown_as_a_dash() -> None:
    assert format_ms(-1) == "-"
