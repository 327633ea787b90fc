"""When a new segment is begun: full, too far in offsets, index full, too old."""

import dataclasses
from random import Random

import pytest

from respool.log.index.offset_index import RELATIVE_OFFSET_MAX
from respool.log.index.segment_indexes import IndexSettings
from respool.log.log_parts import RollRule
from respool.log.segment import Segment
from respool.model.ids import NO_TIMESTAMP, Offset
from respool.model.topic_config import TopicConfig
from respool.sim.disk.simulated_disk import SimDisk

BASE = Offset(500)
CONFIG = TopicConfig(segment_bytes=2000, segment_ms=1000)


def segment(*, size: int = 1000, first_timestamp: int = 50_000, writable: bool = True) -> Segment:
    settings = IndexSettings(interval_bytes=100, bytes_max=960)
    made = Segment(SimDisk(Random(1)), "t-0", BASE, settings, size=size, now_ms=60_000)
    made.first_timestamp = first_timestamp
    made.is_writable = writable
    return made


def due(
    of: Segment,
    *,
    config: TopicConfig = CONFIG,
    size: int = 100,
    last_offset: int = 600,
    max_timestamp: int = 50_000,
    now_ms: int = 60_000,
) -> bool:
    rule = RollRule(config, folder="t-0", base_offset=BASE)
    return rule.is_due_for(
        of,
        size=size,
        last_offset=Offset(last_offset),
        max_timestamp=max_timestamp,
        now_ms=now_ms,
    )


def test_a_batch_that_fits_goes_into_the_segment() -> None:
    assert not due(segment(), size=1000)


def test_a_batch_that_does_not_fit_begins_a_new_one() -> None:
    assert due(segment(), size=1001)


def test_an_empty_segment_takes_any_batch() -> None:
    assert not due(segment(size=0), size=10**9, max_timestamp=10**9)


def test_offsets_must_fit_the_index() -> None:
    assert not due(segment(), last_offset=BASE + RELATIVE_OFFSET_MAX)
    assert due(segment(), last_offset=BASE + RELATIVE_OFFSET_MAX + 1)


def test_age_counts_from_the_first_records_timestamp_to_the_new_ones() -> None:
    assert not due(segment(), max_timestamp=51_000)
    assert due(segment(), max_timestamp=51_001)


def test_old_records_written_now_do_not_roll_with_every_batch() -> None:
    assert not due(segment(first_timestamp=50), max_timestamp=60, now_ms=10**12)


def test_without_a_timestamp_the_clock_counts() -> None:
    old = segment(first_timestamp=NO_TIMESTAMP)
    assert not due(old, max_timestamp=NO_TIMESTAMP, now_ms=61_000)
    assert due(old, max_timestamp=NO_TIMESTAMP, now_ms=61_001)


def test_jitter_only_shortens_and_is_always_the_same() -> None:
    config = dataclasses.replace(CONFIG, segment_jitter_ms=400)
    ages = [
        next(
            age for age in range(1100) if due(segment(), config=config, max_timestamp=50_000 + age)
        )
        for _ in range(2)
    ]
    assert ages[0] == ages[1]
    assert 601 <= ages[0] <= 1001
    spread = {RollRule(config, folder=f"t-{n}", base_offset=BASE)._age_ms_max for n in range(50)}
    assert len(spread) > 20


@pytest.mark.parametrize("jitter", [1, 1000, 10**9])
def test_jitter_never_makes_the_age_negative(jitter: int) -> None:
    config = dataclasses.replace(CONFIG, segment_jitter_ms=jitter)
    assert not due(segment(), config=config, max_timestamp=50_000)


def test_a_quiet_segment_becomes_too_old_by_the_clock() -> None:
    rule = RollRule(CONFIG, folder="t-0", base_offset=BASE)
    assert not rule.is_due_at(segment(), 61_000)
    assert rule.is_due_at(segment(), 61_001)
    # A timestamp ahead of the clock: not before that time comes.
    assert not rule.is_due_at(segment(first_timestamp=70_000), 61_001)
    assert not rule.is_due_at(segment(size=0), 10**12)
    assert not rule.is_due_at(segment(writable=False), 10**12)
