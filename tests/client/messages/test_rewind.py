"""What may be said for `rewind(to=...)`, and what it means for the partitions at hand."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from respool.client.messages.errors import BadArgument
from respool.client.messages.rewind import parse
from respool.model.seek_target import AtOffset, AtTime, Earliest, Latest

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
NOW_MS = 1_772_625_600_000
HOUR_MS = 3_600_000
MINE = {("rides", 0), ("rides", 2)}


@pytest.mark.parametrize(
    ("to", "meant"),
    [
        (17, AtOffset(17)),
        ("earliest", Earliest()),
        ("latest", Latest()),
        (timedelta(hours=1), AtTime(NOW_MS - HOUR_MS)),
        (NOW, AtTime(NOW_MS)),
        (NOW.astimezone(timezone(timedelta(hours=5))), AtTime(NOW_MS)),
        ("2026-03-04T11:00:00+00:00", AtTime(NOW_MS - HOUR_MS)),
        ("2026-03-04T11:00:00Z", AtTime(NOW_MS - HOUR_MS)),
        ("an hour ago", AtTime(NOW_MS - HOUR_MS)),
        ("60m", AtTime(NOW_MS - HOUR_MS)),
    ],
)
def test_one_target_is_meant_for_every_partition_at_hand(to: object, meant: object) -> None:
    assert parse(to, now=NOW).targets(MINE) == dict.fromkeys(MINE, meant)


def test_a_mapping_moves_only_what_it_names() -> None:
    assert parse({2: 5}, now=NOW).targets(MINE) == {("rides", 2): AtOffset(5)}
    assert parse({("rides", 0): timedelta(0)}, now=NOW).targets(MINE) == {
        ("rides", 0): AtTime(NOW_MS)
    }


@pytest.mark.parametrize(
    ("to", "why"),
    [
        (-1, "whole numbers from 0"),
        (True, "to True is not a place"),
        (1.5, r"to 1\.5 is not a place"),
        (None, "to None is not a place"),
        ("the day before", "is not a time.*or 'earliest'"),
        (NOW.replace(tzinfo=None), "has no zone"),
        ("2026-03-04T13:00:00Z", "in the future"),
        (NOW + timedelta(seconds=1), "in the future"),
        (-timedelta(hours=1), "in the future"),
        ({}, "moves nothing"),
        ({"rides": 1}, "not 'rides'"),
        ({-1: 1}, "not -1"),
        ({True: 1}, "not True"),
        ({0: -1}, "whole numbers from 0"),
    ],
)
def test_what_says_no_place_is_refused_with_what_would_be_right(to: Any, why: str) -> None:
    with pytest.raises(BadArgument, match=why):
        parse(to, now=NOW)


def test_a_partition_of_another_member_is_not_ours_to_move() -> None:
    with pytest.raises(BadArgument, match=r"rides/1 is not this consumer's.*rides/0, rides/2"):
        parse({0: 1, 1: 1}, now=NOW).targets(MINE)


def test_of_several_topics_a_number_alone_names_none() -> None:
    with pytest.raises(BadArgument, match="of which topic"):
        parse({0: 1}, now=NOW).targets({("rides", 0), ("fares", 0)})


def test_missing_is_an_error_or_available() -> None:
    with pytest.raises(BadArgument, match="'error' or 'available'"):
        parse(1, now=NOW, missing="whatever")
