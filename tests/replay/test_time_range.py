from collections.abc import Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from respool.client.kafka import list_offsets
from respool.client.kafka.list_offsets import OffsetAt
from respool.client.kafka.metadata import PartitionLeader, TopicMetadata
from respool.model.seek_target import AtTime, Earliest
from respool.replay import time_range
from respool.replay.copy_plan import Span
from respool.replay.errors import InvalidReplay, LeaderMissing
from respool.replay.time_range import TimeRange, find_spans, parse_range

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
HOUR_MS = 3_600_000


def spans(held: list[tuple[int, int] | None], from_h: float | None, to_h: float) -> dict[int, Span]:
    """In these partitions every message is an hour younger than the one before; offset 0 is at the time 0."""
    leader = PartitionLeader(broker=1, epoch=0)
    topic = TopicMetadata(
        name="rides",
        id=None,
        leaders={number: leader if span else None for number, span in enumerate(held)},
        replicas=dict.fromkeys(range(len(held)), (1, 2)),
    )
    cluster = SimpleNamespace(brokers={1: ("broker.example", 9092)})
    ranges = {number: Span(*span) for number, span in enumerate(held) if span}

    def offsets_for(
        _cluster: object, _topic: str, partitions: Iterable[int], at_ms: int, **_isolation: object
    ) -> dict[int, OffsetAt | None]:
        found: dict[int, OffsetAt | None] = {}
        for number in partitions:
            offset = max(ranges[number].start, -(-at_ms // HOUR_MS))
            at = OffsetAt(offset=offset, timestamp_ms=offset * HOUR_MS)
            found[number] = at if offset < ranges[number].stop else None
        return found

    since = Earliest() if from_h is None else AtTime(int(from_h * HOUR_MS))
    wanted = TimeRange(since=since, to_ms=int(to_h * HOUR_MS))
    with ExitStack() as stack:
        for module, name, value in (
            (time_range, "describe_topic", lambda _cluster, _name: topic),
            (time_range, "held_spans", lambda _cluster, _name, _partitions: ranges),
            (list_offsets, "offsets_for", offsets_for),
        ):
            stack.enter_context(patch.object(module, name, value))
        return find_spans(cast("Any", cluster), "rides", wanted)


def test_times_are_read_as_elsewhere() -> None:
    wanted = parse_range("3 hours ago", "1 hour ago", now=NOW)
    assert wanted == TimeRange(since=AtTime(NOW_MS - 3 * HOUR_MS), to_ms=NOW_MS - HOUR_MS)
    everything = TimeRange(since=Earliest(), to_ms=NOW_MS)
    assert parse_range("earliest", "now", now=NOW) == everything
    assert parse_range("Beginning ", "now", now=NOW) == everything
    assert parse_range("earliest", "now", now=NOW).from_text == "earliest"


def test_a_range_has_a_beginning_before_its_end() -> None:
    with pytest.raises(InvalidReplay, match="must be before --to"):
        parse_range("1 hour ago", "3 hours ago", now=NOW)
    with pytest.raises(InvalidReplay, match="--to: 'never'"):
        parse_range("1 hour ago", "never", now=NOW)
    with pytest.raises(InvalidReplay, match="'latest' leaves nothing to replay"):
        parse_range("latest", "now", now=NOW)


def test_spans_are_the_offsets_between_the_times() -> None:
    held: list[tuple[int, int] | None] = [(0, 10), (4, 6), (8, 10), (3, 3)]
    assert spans(held, 2.5, 7) == {0: Span(3, 7), 1: Span(4, 6), 2: Span(8, 8), 3: Span(3, 3)}
    assert spans(held, None, 7) == {0: Span(0, 7), 1: Span(4, 6), 2: Span(8, 8), 3: Span(3, 3)}


def test_a_range_beyond_the_end_is_empty_or_ends_there() -> None:
    assert spans([(0, 10)], 50, 60) == {0: Span(10, 10)}
    assert spans([(0, 10)], 8, 60) == {0: Span(8, 10)}


def test_every_partition_must_be_there() -> None:
    with pytest.raises(LeaderMissing, match=r"partition 1 of rides is offline.* absent: 2"):
        spans([(0, 10), None], 0, 5)
