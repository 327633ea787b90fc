"""Where a read begins and ends, as people say it."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.cli.options import time_ms
from respool.client.arrow.reading.read_bounds import (
    PartitionOffsets,
    Point,
    When,
    format_ms,
    parse_point,
    target_of,
)
from respool.client.kafka.errors import BadArgument
from respool.model.seek_target import AtOffset, AtTime, Earliest, Latest

NOW_MS = 1_763_107_200_000


def parse(said: When) -> Point:
    return parse_point("since", said, default=Earliest(), now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (None, Earliest()),
        ("earliest", Earliest()),
        (" LATEST ", Latest()),
        (0, AtOffset(0)),
        (4711, AtOffset(4711)),
        (np.int64(7), AtOffset(7)),
        ({0: 5, 3: 0}, PartitionOffsets({0: 5, 3: 0})),
        (timedelta(seconds=2), AtTime(NOW_MS - 2_000)),
        (timedelta(days=100_000), AtTime(0)),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), AtTime(1_000)),
        ("1970-01-01T00:00:01Z", AtTime(1_000)),
        ("1970-01-01T01:00:01+01:00", AtTime(1_000)),
        ("3 days ago", AtTime(NOW_MS - 3 * 86_400_000)),
        ("90m", AtTime(NOW_MS - 5_400_000)),
        ("now", AtTime(NOW_MS)),
        ("@1763107100", AtTime(NOW_MS - 100_000)),
    ],
)
def test_each_form_is_understood(said: When, meant: Point) -> None:
    assert parse(said) == meant


@pytest.mark.parametrize(
    "said",
    [
        -1,
        True,
        2**63,
        {},
        {0: -1},
        {-1: 0},
        {0: "5"},
        "the day before",
        "4711",
        "",
        1.5,
        timedelta(seconds=-1),
        datetime(2026, 11, 12),  # noqa: DTZ001  What is tested.
        "1969-12-31T08:00:00Z",
        datetime(1969, 12, 31, tzinfo=UTC),
    ],
)
def test_what_is_none_of_the_forms_is_refused_by_name(said: object) -> None:
    with pytest.raises(BadArgument, match="since"):
        parse(said)  # type: ignore[arg-type]


def test_offsets_by_partition_are_an_offset_in_each() -> None:
    assert target_of(parse({0: 5, 3: 0}), 3) == AtOffset(0)
    assert target_of(parse("latest"), 3) == Latest()


def test_a_datetime_without_a_zone_is_refused_with_what_to_do() -> None:
    with pytest.raises(BadArgument, match=r"has no zone.*tzinfo=UTC"):
        parse(datetime(2026, 11, 12, 8))  # noqa: DTZ001  What is tested.


@pytest.mark.parametrize("text", ["2026-11-12 08:00", "yesterday 08:00", "08:00", "1h30m ago"])
def test_text_means_what_it_means_to_the_command_line(text: str) -> None:
    now = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    assert parse(text) == AtTime(time_ms(text, option="--since", now=now))


def test_a_refused_argument_is_a_value_error_to_those_who_do_not_know_us() -> None:
    with pytest.raises(ValueError, match="offset"):
        parse(-1)


@given(
    st.datetimes(
        min_value=datetime(1970, 1, 2),  # noqa: DTZ001
        max_value=datetime(9999, 12, 30),  # noqa: DTZ001
        timezones=st.sampled_from(
            [UTC, timezone(timedelta(hours=-7)), timezone(timedelta(hours=5))]
        ),
    )
)
def test_a_time_means_the_first_millisecond_that_is_not_before_it(moment: datetime) -> None:
    point = parse(moment)
    assert isinstance(point, AtTime)
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=point.ms)
    assert timedelta(0) <= at - moment < timedelta(milliseconds=1)
    assert parse(format_ms(point.ms)) == point
