"""The one parser of "where in a log", and what each target means in a partition."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.model.seek_target import (
    OFFSET_MAX,
    AtOffset,
    AtTime,
    Earliest,
    InvalidSeekTarget,
    Last,
    Latest,
    SeekTarget,
    clamp,
    parse_log_end,
    parse_offset,
    parse_seek_target,
    resolve,
    valid_offset,
)

NOW_MS = 1_763_107_200_000
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)
TARGETS = st.one_of(
    st.just(Earliest()),
    st.just(Latest()),
    st.builds(AtOffset, st.integers(0, 300)),
    st.builds(AtTime, st.integers(0, 300)),
    st.builds(Last, st.integers(0, 300)),
)


def parse(given: object, **how: bool) -> SeekTarget:
    return parse_seek_target(given, now=NOW, **how)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("earliest", Earliest()),
        (" Beginning", Earliest()),
        (" LATEST ", Latest()),
        ("end", Latest()),
        (0, AtOffset(0)),
        (4711, AtOffset(4711)),
        (OFFSET_MAX, AtOffset(OFFSET_MAX)),
        (np.int64(7), AtOffset(7)),
        (timedelta(seconds=2), AtTime(NOW_MS - 2_000)),
        (timedelta(0), AtTime(NOW_MS)),
        (timedelta(days=100_000), AtTime(0)),
        (datetime(1970, 1, 1, tzinfo=UTC), AtTime(0)),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), AtTime(1_000)),
        (datetime(1970, 1, 1, 1, 0, 1, tzinfo=timezone(timedelta(hours=1))), AtTime(1_000)),
        ("1970-01-01T00:00:01Z", AtTime(1_000)),
        ("3 days ago", AtTime(NOW_MS - 3 * 86_400_000)),
        ("90m", AtTime(NOW_MS - 5_400_000)),
        (" now ", AtTime(NOW_MS)),
        ("@1763107100", AtTime(NOW_MS - 100_000)),
        ("1763107100000", AtTime(NOW_MS - 100_000)),
    ],
)
def test_each_form_is_read(given: object, meant: SeekTarget) -> None:
    assert parse(given) == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0", AtOffset(0)),
        (" 4711 ", AtOffset(4711)),
        ("-100", Last(100)),
        ("-0", Last(0)),
        ("1763107100000", AtOffset(1_763_107_100_000)),
        ("@1763107100", AtTime(NOW_MS - 100_000)),
        ("-3h", AtTime(NOW_MS - 3 * 3_600_000)),
        ("latest", Latest()),
    ],
)
def test_numbers_in_text_are_offsets_where_the_caller_says_so(text: str, meant: SeekTarget) -> None:
    assert parse(text, numbers_in_text=True) == meant


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (-1, "-1 is not an offset"),
        (OFFSET_MAX + 1, "is not an offset"),
        (True, "True is not a place in a log"),
        (None, "None is not a place in a log"),
        (1.5, "1.5 is not a place in a log: give a datetime"),
        ({0: 5}, "is not a place in a log"),
        ("", "is not a time.*or 'earliest', or 'latest'"),
        ("the day before", "'the day before' is not a time"),
        ("4711", "write seconds with an @"),
        ("-100", "is not a time"),
        (timedelta(seconds=-1), "in the future"),
        (datetime(2026, 11, 12), "has no zone.*tzinfo=UTC"),  # noqa: DTZ001  What is tested.
        (datetime(1969, 12, 31, tzinfo=UTC), "lies before 1970"),
        ("1969-12-31T08:00:00Z", "before 1970"),
    ],
)
def test_other_values_are_refused_with_the_reason(given: object, why: str) -> None:
    with pytest.raises(InvalidSeekTarget, match=why):
        parse(given)


@pytest.mark.parametrize("text", ["", "first", "1.5", "--5", "-", "0x10", "+5", "3h"])
def test_an_offset_in_text_is_a_number_a_name_or_a_count_from_the_end(text: str) -> None:
    assert parse_offset(text) is None
    assert parse_log_end(text) is None


@pytest.mark.parametrize("value", ["5", 1.0, True, None, -1, OFFSET_MAX + 1])
def test_an_offset_is_a_whole_number_from_0(value: object) -> None:
    with pytest.raises(InvalidSeekTarget, match="whole numbers from 0"):
        valid_offset(value)


@given(
    st.datetimes(
        min_value=datetime(1970, 1, 2),  # noqa: DTZ001
        max_value=datetime(9999, 12, 30),  # noqa: DTZ001
        timezones=st.sampled_from(
            [UTC, timezone(timedelta(hours=-7)), timezone(timedelta(hours=5))]
        ),
    )
)
def test_a_time_is_the_first_millisecond_that_is_not_before_it(moment: datetime) -> None:
    target = parse(moment)
    assert isinstance(target, AtTime)
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=target.ms)
    assert timedelta(0) <= at - moment < timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("target", "at_time", "offset"),
    [
        (Earliest(), None, 100),
        (Latest(), None, 200),
        (AtOffset(150), None, 150),
        # Deleted already, or not written yet.
        (AtOffset(5), None, 5),
        (AtOffset(900), None, 900),
        (Last(10), None, 190),
        (Last(0), None, 200),
        (Last(1000), None, 100),
        (AtTime(1), 120, 120),
        # No message is that late.
        (AtTime(1), None, 200),
    ],
)
def test_a_target_is_an_offset_of_the_partition(
    target: SeekTarget, at_time: int | None, offset: int
) -> None:
    assert resolve(target, low=100, high=200, at_time=at_time) == offset


@given(TARGETS, st.integers(0, 300), st.integers(0, 300), st.none() | st.integers(0, 300))
def test_clamped_it_is_always_held_or_the_end(
    target: SeekTarget, one: int, other: int, at_time: int | None
) -> None:
    low, high = sorted((one, other))
    offset = clamp(resolve(target, low=low, high=high, at_time=at_time), low=low, high=high)
    assert low <= offset <= high
