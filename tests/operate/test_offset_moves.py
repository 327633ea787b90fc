from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.cli.group_reset import parse_target
from respool.client.kafka.groups import OffsetAndMetadata
from respool.client.kafka.list_offsets import OffsetRange
from respool.client.kafka.metadata import PartitionLeader, TopicMetadata
from respool.model.operator_errors import NotFound, UsageError
from respool.model.seek_target import AtOffset, AtTime, Earliest, Latest
from respool.operate.offset_moves import (
    OffsetMove,
    ShiftBy,
    Target,
    choose_places,
    plan_moves,
)

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
PLACE = ("rides", 0)


def target(**given: Any) -> Target:
    nothing = {
        "to_time": None,
        "to_offset": None,
        "to_earliest": False,
        "to_latest": False,
        "shift_by": None,
    }
    return parse_target(**(nothing | given), now=NOW)


def move(
    to: Target,
    *,
    committed: int | None = 50,
    held: tuple[int, int] = (10, 90),
    at: int | None = None,
) -> OffsetMove:
    (planned,) = plan_moves(
        to,
        [PLACE],
        committed={} if committed is None else {PLACE: OffsetAndMetadata(offset=committed)},
        ranges={PLACE: OffsetRange(start=held[0], end=held[1])},
        at_time={PLACE: at},
    )
    return planned


def topic(name: str, partitions: int) -> TopicMetadata:
    leader = PartitionLeader(broker=1, epoch=0)
    return TopicMetadata(name=name, id=None, leaders=dict.fromkeys(range(partitions), leader))


def test_where_to_is_said_exactly_once() -> None:
    assert target(to_offset=7) == AtOffset(7)
    assert target(shift_by=-3) == ShiftBy(-3)
    assert target(to_earliest=True) == Earliest()
    assert target(to_latest=True) == Latest()
    assert target(to_time="3 hours ago") == AtTime(int(NOW.timestamp() * 1000) - 3 * 3_600_000)
    for wrong in ({}, {"to_offset": 1, "shift_by": 1}, {"to_earliest": True, "to_latest": True}):
        with pytest.raises(UsageError, match="give exactly one of"):
            target(**wrong)


def test_a_time_that_is_none_is_told_with_examples() -> None:
    with pytest.raises(UsageError, match="--to-time: 'soonish' is not a time"):
        target(to_time="soonish")


def test_without_topics_all_partitions_of_the_topics_committed_in_are_moved() -> None:
    topics = {"rides": topic("rides", 3), "fares": topic("fares", 1)}
    # One partition was committed, one is no more, and neither is one of the topics.
    committed = [("rides", 1), ("rides", 5), ("gone", 0)]
    assert choose_places({}, committed=committed, topics=topics) == [
        ("rides", 0),
        ("rides", 1),
        ("rides", 2),
    ]


def test_named_topics_must_exist() -> None:
    topics = {"rides": topic("rides", 2)}
    assert choose_places({"rides": None}, committed=(), topics=topics) == [
        ("rides", 0),
        ("rides", 1),
    ]
    with pytest.raises(NotFound, match="no topic 'rodes'"):
        choose_places({"rodes": None}, committed=(), topics=topics)
    with pytest.raises(NotFound, match="no partition 2"):
        choose_places({"rides": [2]}, committed=(), topics=topics)


@pytest.mark.parametrize(
    ("to", "offset", "replays", "skips"),
    [
        (Earliest(), 10, 40, 0),
        (Latest(), 90, 0, 40),
        (AtOffset(30), 30, 20, 0),
        (AtOffset(50), 50, 0, 0),
        (ShiftBy(-5), 45, 5, 0),
        (ShiftBy(5), 55, 0, 5),
    ],
    ids=str,
)
def test_a_move_counts_what_is_read_again_and_what_is_left_out(
    to: Target, offset: int, replays: int, skips: int
) -> None:
    planned = move(to)
    assert (planned.target, planned.replays, planned.skips) == (offset, replays, skips)
    assert not planned.is_clamped
    assert planned.changes == (offset != 50)


def test_a_time_is_where_the_lookup_found_it_or_the_end() -> None:
    assert move(AtTime(1), at=20).target == 20
    assert move(AtTime(1), at=None).target == 90


def test_a_place_outside_becomes_the_nearest_inside_and_is_told() -> None:
    below, above = move(ShiftBy(-1000)), move(AtOffset(1000))
    assert (below.target, below.asked, below.is_clamped) == (10, -950, True)
    assert (above.target, above.is_clamped) == (90, True)


def test_what_retention_took_is_not_counted_as_read_again() -> None:
    planned = move(Earliest(), committed=5, held=(10, 90))
    assert (planned.target, planned.replays, planned.skips) == (10, 0, 0)
    assert planned.changes


def test_a_partition_without_an_offset_can_be_set_but_not_shifted() -> None:
    planned = move(AtOffset(30), committed=None)
    assert (planned.committed, planned.target, planned.replays, planned.reads) == (None, 30, 0, 60)
    ranges = {PLACE: OffsetRange(start=0, end=9)}
    assert plan_moves(ShiftBy(-1), [PLACE], committed={}, ranges=ranges, at_time={}) == []
    assert plan_moves(Earliest(), [PLACE], committed={}, ranges={}, at_time={}) == []


@given(
    start=st.integers(0, 1000),
    length=st.integers(0, 1000),
    committed=st.none() | st.integers(0, 3000),
    wanted=st.integers(-3000, 3000),
)
def test_a_target_always_lies_in_what_the_partition_holds(
    start: int, length: int, committed: int | None, wanted: int
) -> None:
    to = ShiftBy(wanted) if committed is not None and wanted % 2 else AtOffset(abs(wanted))
    planned = move(to, committed=committed, held=(start, start + length))
    assert start <= planned.target <= start + length
    assert min(planned.replays, planned.skips) == 0
    if committed is not None:
        stands = min(max(committed, start), start + length)
        assert stands - planned.replays + planned.skips == planned.target
