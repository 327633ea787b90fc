from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.fake_cluster import FakeCluster
from respool.cli.errors import PartitionOffline
from respool.cli.replay_plan import Span
from respool.cli.replay_range import TimeRange, find_spans, parse_keys, parse_range
from respool.model.operator_errors import UsageError

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
HOUR_MS = 3_600_000


class TimedCluster(FakeCluster):
    """Every message is an hour younger than the one before; offset 0 is at the time 0."""

    def offsets_at(self, topic: object, partitions: list[int], at_ms: int) -> dict[int, int | None]:
        found: dict[int, int | None] = {}
        for number in partitions:
            held = self.held["rides"].ranges[number]
            assert held is not None
            offset = max(held.start, -(-at_ms // HOUR_MS))
            found[number] = offset if offset < held.end else None
        return found


def spans(cluster: TimedCluster, from_h: float | None, to_h: float) -> dict[int, Span]:
    from_ms = None if from_h is None else int(from_h * HOUR_MS)
    wanted = TimeRange(from_ms=from_ms, to_ms=int(to_h * HOUR_MS))
    return find_spans(cluster, cluster.topic("rides"), wanted)  # type: ignore[arg-type]


def test_times_are_read_as_elsewhere() -> None:
    wanted = parse_range("3 hours ago", "1 hour ago", now=NOW)
    assert (wanted.from_ms, wanted.to_ms) == (NOW_MS - 3 * HOUR_MS, NOW_MS - HOUR_MS)
    assert parse_range("earliest", "now", now=NOW) == TimeRange(from_ms=None, to_ms=NOW_MS)
    assert parse_range("earliest", "now", now=NOW).from_text == "earliest"


def test_a_range_has_a_beginning_before_its_end() -> None:
    with pytest.raises(UsageError, match="must be before --to"):
        parse_range("1 hour ago", "3 hours ago", now=NOW)
    with pytest.raises(UsageError, match="--to: 'never'"):
        parse_range("1 hour ago", "never", now=NOW)


def test_spans_are_the_offsets_between_the_times() -> None:
    cluster = TimedCluster()
    cluster.add("rides", (0, 10), (4, 6), (8, 10), (3, 3))
    assert spans(cluster, 2.5, 7) == {0: Span(3, 7), 1: Span(4, 6), 2: Span(8, 8), 3: Span(3, 3)}
    assert spans(cluster, None, 7) == {0: Span(0, 7), 1: Span(4, 6), 2: Span(8, 8), 3: Span(3, 3)}


def test_a_range_beyond_the_end_is_empty_or_ends_there() -> None:
    cluster = TimedCluster()
    cluster.add("rides", (0, 10))
    assert spans(cluster, 50, 60) == {0: Span(10, 10)}
    assert spans(cluster, 8, 60) == {0: Span(8, 10)}


def test_every_partition_must_be_there() -> None:
    cluster = TimedCluster()
    cluster.add("rides", (0, 10), None)
    with pytest.raises(PartitionOffline, match="partition 1 of rides is offline"):
        spans(cluster, 0, 5)


def test_keys_come_with_commas_or_from_a_file(tmp_path: Path) -> None:
    assert parse_keys(None, None) is None
    assert parse_keys(["a,b", "c"], None) == frozenset({b"a", b"b", b"c"})
    listed = tmp_path / "keys"
    listed.write_bytes(b"a\r\nb\xff\n\nc,d")
    assert parse_keys(None, listed) == frozenset({b"a", b"b\xff", b"c,d"})
    with pytest.raises(UsageError, match="only one of"):
        parse_keys(["a"], listed)
    listed.write_bytes(b"\n")
    with pytest.raises(UsageError, match="no key"):
        parse_keys(None, listed)
