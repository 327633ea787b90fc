"""From a time to an offset: the same answer as looking at every record."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log.log_world import FUZZ, LogWorld, batch_of
from respool.log.time_lookup import (
    QUICK_BYTES_MAX,
    QUICK_HEADERS_MAX,
    QUICK_RECORDS_MAX,
    TimestampedOffset,
)
from respool.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset
from respool.model.topic_config import TopicConfig
from respool.ports.disk import NotCached
from respool.records.batch import Codec, RecordBatch, read_header
from respool.records.build import NewRecord, build_batch

TIMES = st.one_of(st.just(NO_TIMESTAMP), st.integers(0, 40))


def world_of(*batches: tuple[int, ...]) -> LogWorld:
    world = LogWorld.new()
    for times in batches:
        world.append(batch_of(*times, value=b"v" * 40))
    return world


def first(world: LogWorld, timestamp_ms: int) -> tuple[int, int] | None:
    found = world.log.first_at_or_after(timestamp_ms, max_offset=world.log_end)
    return (found.offset, found.timestamp) if found is not None else None


@settings(max_examples=300 if FUZZ else 60, deadline=None)
@given(
    batches=st.lists(st.lists(TIMES, min_size=1, max_size=4), min_size=1, max_size=60),
    asked=st.lists(TIMES, min_size=1, max_size=4),
    data=st.data(),
)
def test_both_lookups_equal_a_look_at_every_record(
    batches: list[list[int]], asked: list[int], data: st.DataObject
) -> None:
    world = world_of(*(tuple(times) for times in batches))
    start = data.draw(st.integers(0, world.log_end))
    world.raise_log_start(Offset(start))
    if data.draw(st.booleans()):
        world.write_checkpoint()
        world.stop_and_start()
    for timestamp in asked:
        world.check_times(timestamp, Offset(data.draw(st.integers(0, world.log_end + 1))))


def test_a_time_between_records_finds_the_next() -> None:
    world = world_of((10, 20), (30, 40))
    assert first(world, 0) == (0, 10)
    assert first(world, 11) == (1, 20)
    assert first(world, 30) == (2, 30)
    assert first(world, 41) is None


def test_records_out_of_order_are_found_by_offset_first() -> None:
    world = world_of((50, 10), (5, 60), (55,))
    assert first(world, 20) == (0, 50)
    assert first(world, 51) == (3, 60)
    assert first(world, 5) == (0, 50)


def test_a_batch_that_is_not_committed_is_not_seen() -> None:
    world = world_of((10, 20), (30, 40))
    assert world.log.first_at_or_after(25, max_offset=Offset(2)) is None
    assert world.log.first_at_or_after(25, max_offset=Offset(3)) is None
    found = world.log.latest_timestamp(max_offset=Offset(3))
    assert found == (1, 20, 0)


def test_deleted_records_are_not_found() -> None:
    world = world_of((90, 10, 40), (30, 20))
    world.raise_log_start(Offset(1))
    assert first(world, 50) is None
    assert first(world, 15) == (2, 40)
    assert world.log.latest_timestamp(max_offset=world.log_end) == (2, 40, 0)


def test_an_empty_log_and_one_without_timestamps_know_no_time() -> None:
    world = LogWorld.new()
    assert first(world, 0) is None
    assert world.log.latest_timestamp(max_offset=Offset(0)) is None
    world = world_of((NO_TIMESTAMP,), (NO_TIMESTAMP,))
    assert first(world, 0) is None
    assert world.log.latest_timestamp(max_offset=world.log_end) is None


def test_with_the_brokers_time_the_first_record_of_the_batch_is_found() -> None:
    world = LogWorld.new()
    data = build_batch(
        [NewRecord(timestamp_ms=5), NewRecord(timestamp_ms=7)],
        log_append_time=True,
        max_timestamp=1000,
    )
    appended = world.log.append(
        RecordBatch(read_header(data), data), leader_epoch=LeaderEpoch(0), now_ms=1000
    )
    assert appended.log_append_time_ms == 1000
    assert world.log.first_at_or_after(6, max_offset=Offset(2)) == (0, 1000, 0)


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_are_opened(codec: Codec) -> None:
    world = LogWorld.new()
    data = build_batch([NewRecord(timestamp_ms=time) for time in (10, 20, 30)], codec=codec)
    world.append(RecordBatch(read_header(data), data))
    assert first(world, 15) == (1, 20)


def test_a_batch_that_lies_about_its_time_or_is_nonsense_inside_does_not_fail_the_lookup() -> None:
    """What producers send is stored unopened: where it cannot be opened, its header counts."""
    world = LogWorld.new()
    lying = build_batch([NewRecord(timestamp_ms=10)], max_timestamp=500)
    nonsense = build_batch([NewRecord(timestamp_ms=600, value=b"v" * 30)], codec=Codec.GZIP)
    broken = nonsense[:70] + b"\xff" * (len(nonsense) - 70)
    for data in (lying, broken):
        batch = RecordBatch(read_header(data), data)
        world.log.append(batch, leader_epoch=LeaderEpoch(0), now_ms=1)
    end = world.log.log_end
    assert world.log.first_at_or_after(100, max_offset=end) == (0, 500, 0)
    assert world.log.first_at_or_after(550, max_offset=end) == (1, 600, 0)
    assert world.log.latest_timestamp(max_offset=end) == (1, 600, 0)


def test_a_lookup_reads_few_batches_of_many_segments() -> None:
    world = LogWorld.new()
    world.fill(400)
    assert world.log.segment_count > 20
    world.stop_and_start()
    end = world.log_end
    wanted = world.batches[200]
    world.log.first_at_or_after(wanted.header.max_timestamp, max_offset=end)
    before = world.disk.counters.reads
    found = world.log.first_at_or_after(wanted.header.max_timestamp, max_offset=end)
    assert found is not None
    assert wanted.base_offset <= found.offset <= wanted.last_offset
    assert world.disk.counters.reads - before <= 4


def quickly(world: LogWorld, timestamp_ms: int) -> TimestampedOffset | None:
    return world.log.first_at_or_after(timestamp_ms, max_offset=world.log_end, quickly=True)


def test_a_quick_lookup_finds_what_is_small_and_in_memory() -> None:
    world = world_of((10, 20), (30, 40))
    assert quickly(world, 35) == (3, 40, 0)
    assert quickly(world, 50) is None


def test_a_quick_lookup_opens_no_large_batch_and_none_that_is_compressed() -> None:
    world = world_of((10,) * QUICK_RECORDS_MAX)
    assert quickly(world, 5) == (0, 10, 0)
    world = world_of((10,) * (QUICK_RECORDS_MAX + 1))
    with pytest.raises(NotCached):
        quickly(world, 5)
    world = LogWorld.new()
    data = build_batch([NewRecord(timestamp_ms=10)], codec=Codec.LZ4)
    world.append(RecordBatch(read_header(data), data))
    with pytest.raises(NotCached):
        quickly(world, 5)


def test_a_quick_lookup_passes_by_few_batches() -> None:
    world = LogWorld.new(config=TopicConfig())
    for time in (*([10] * QUICK_HEADERS_MAX), 100):
        world.append(batch_of(time))
    assert quickly(world, 100) == (QUICK_HEADERS_MAX, 100, 0)
    world = LogWorld.new(config=TopicConfig())
    for time in (*([10] * (QUICK_HEADERS_MAX + 1)), 100):
        world.append(batch_of(time))
    with pytest.raises(NotCached):
        quickly(world, 100)
    assert first(world, 100) == (QUICK_HEADERS_MAX + 1, 100)


def test_a_quick_lookup_opens_no_batch_of_many_bytes() -> None:
    world = LogWorld.new(config=TopicConfig())
    for size in (QUICK_BYTES_MAX // 2, QUICK_BYTES_MAX):
        data = build_batch([NewRecord(timestamp_ms=size, value=b"v" * size)])
        world.append(RecordBatch(read_header(data), data))
    assert quickly(world, 5) == (0, QUICK_BYTES_MAX // 2, 0)
    with pytest.raises(NotCached):
        quickly(world, QUICK_BYTES_MAX)


def test_a_quick_lookup_opens_no_index() -> None:
    world = LogWorld.new()
    world.fill(400)
    assert world.log.segment_count > 20
    wanted = world.batches[200].header.max_timestamp
    world.stop_and_start()
    before = world.disk.counters.reads
    with pytest.raises(NotCached):
        quickly(world, wanted)
    assert world.disk.counters.reads == before
    # Where it was looked up once, the index is open.
    found = world.log.first_at_or_after(wanted, max_offset=world.log_end)
    assert quickly(world, wanted) == found


def test_a_quick_lookup_does_not_wait_for_the_disk() -> None:
    world = world_of((10, 20))
    world.disk.make_cold(world.log._parts.segments.active.path)
    with pytest.raises(NotCached):
        quickly(world, 15)


def test_the_time_at_an_offset_is_its_records_where_batches_are_of_one() -> None:
    world = world_of((10,), (5,), (30,))
    assert [world.log.time_at(Offset(one)) for one in range(4)] == [10, 5, 30, None]
    world.raise_log_start(Offset(1))
    assert world.log.time_at(Offset(0)) == 5


@settings(max_examples=300 if FUZZ else 60, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), min_size=1, max_size=60)
)
def test_the_time_at_an_offset_is_off_by_no_more_than_its_batch_spans(
    batches: list[list[int]],
) -> None:
    world = world_of(*(tuple(times) for times in batches))
    offset = 0
    for times in batches:
        for number, time in enumerate(times):
            found = world.log.time_at(Offset(offset + number))
            assert found is not None
            assert abs(found - time) <= max(times) - min(times)
            if number == 0 and times[0] == min(times) and len(times) > 1:
                assert found == times[0]
        offset += len(times)
    assert world.log.time_at(Offset(offset)) is None


def test_a_record_without_a_time_has_none_and_one_of_the_brokers_time_has_that() -> None:
    world = world_of((NO_TIMESTAMP,))
    assert world.log.time_at(Offset(0)) == NO_TIMESTAMP
