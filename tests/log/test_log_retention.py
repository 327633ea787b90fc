"""Which old segments may go: whole ones, oldest first, committed, and not one too many."""

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from respool.log.index.segment_indexes import IndexSettings
from respool.log.index.time_index import TimeEntry
from respool.log.log_retention import count_expired
from respool.log.segment import Segment
from respool.log.segments import Segments
from respool.model.ids import NO_TIMESTAMP, Offset
from respool.model.topic_config import TopicConfig
from respool.sim.disk.simulated_disk import SimDisk

SETTINGS = IndexSettings(interval_bytes=100, bytes_max=960)
KEEP = TopicConfig(retention_ms=-1, retention_bytes=-1)
DISK = SimDisk(Random(1))


def log_of(*segments: tuple[int, int]) -> Segments:
    """Segments of ten offsets each, by their size and largest timestamp; appended to at 1000."""
    made = []
    for number, (size, largest) in enumerate(segments):
        one = Segment(DISK, "t-0", Offset(10 * number), SETTINGS, size=size, now_ms=1000)
        one._largest = TimeEntry(largest, one.base_offset)
        made.append(one)
    return Segments(made)


def expired(
    segments: Segments,
    config: TopicConfig,
    *,
    log_start: int = 0,
    high_watermark: int | None = None,
    now_ms: int = 1000,
) -> int:
    log_end = 10 * (len(segments) - 1) + (10 if segments.active.size else 0)
    return count_expired(
        segments,
        config=config,
        log_start=Offset(log_start),
        log_end=Offset(log_end),
        bound=Offset(log_end if high_watermark is None else high_watermark),
        now_ms=now_ms,
    )


THREE = log_of((100, 300), (100, 400), (100, 500))


def test_without_limits_everything_stays() -> None:
    assert expired(THREE, KEEP, now_ms=10**15) == 0


def test_a_segment_goes_when_its_latest_record_is_too_old() -> None:
    config = replace(KEEP, retention_ms=600)
    assert expired(THREE, config, now_ms=900) == 0
    assert expired(THREE, config, now_ms=901) == 1
    assert expired(THREE, config, now_ms=1001) == 2


def test_a_younger_segment_protects_the_older_ones_behind_it() -> None:
    config = replace(KEEP, retention_ms=600)
    assert expired(log_of((100, 900), (100, 100), (100, 100)), config, now_ms=1000) == 0


def test_a_timestamp_in_the_future_keeps_its_segment() -> None:
    config = replace(KEEP, retention_ms=600)
    assert expired(log_of((100, 10**12), (100, 100)), config, now_ms=10**9) == 0


def test_a_log_that_is_too_old_as_a_whole_goes_as_a_whole() -> None:
    assert expired(THREE, replace(KEEP, retention_ms=600), now_ms=10**6) == 3


def test_an_empty_active_segment_stays() -> None:
    segments = log_of((100, 300), (0, NO_TIMESTAMP))
    assert expired(segments, replace(KEEP, retention_ms=0, retention_bytes=0), now_ms=10**9) == 1


def test_records_without_timestamps_age_from_the_last_append() -> None:
    config = replace(KEEP, retention_ms=600)
    segments = log_of((100, NO_TIMESTAMP), (100, 10**9))
    assert expired(segments, config, now_ms=1600) == 0
    assert expired(segments, config, now_ms=1601) == 1


def test_a_segment_goes_when_enough_is_left_without_it() -> None:
    assert expired(THREE, replace(KEEP, retention_bytes=201)) == 0
    assert expired(THREE, replace(KEEP, retention_bytes=200)) == 1
    assert expired(THREE, replace(KEEP, retention_bytes=99)) == 2
    assert expired(THREE, replace(KEEP, retention_bytes=0)) == 3


def test_what_is_not_committed_stays() -> None:
    config = replace(KEEP, retention_ms=0, retention_bytes=0)
    assert expired(THREE, config, now_ms=10**9, high_watermark=9) == 0
    assert expired(THREE, config, now_ms=10**9, high_watermark=10) == 1
    assert expired(THREE, config, now_ms=10**9, high_watermark=29) == 2


def test_what_lies_below_the_logs_start_goes() -> None:
    assert expired(THREE, KEEP, log_start=9) == 0
    assert expired(THREE, KEEP, log_start=10) == 1
    assert expired(THREE, KEEP, log_start=29) == 2
    assert expired(THREE, KEEP, log_start=30) == 3


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=8), retention_bytes=st.integers(0, 400)
)
def test_by_size_what_is_left_is_enough_and_one_less_would_not_be(
    sizes: list[int], retention_bytes: int
) -> None:
    count = expired(
        log_of(*((size, 1) for size in sizes)), replace(KEEP, retention_bytes=retention_bytes)
    )
    left = sum(sizes[count:])
    assert count == 0 or left >= retention_bytes
    assert count == len(sizes) or left - sizes[count] < retention_bytes
