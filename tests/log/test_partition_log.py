"""The door of the log: appending, reading, duplicates, rolling, retention, what a full disk does."""

import dataclasses

import pytest

from log.log_world import FOLDER, SMALL, LogWorld, batch_of
from respool.log.partition_log import ReadSpec
from respool.model.errors import (
    DiskFailed,
    DiskFull,
    HandlesExhausted,
    InvalidProducerEpoch,
    OffsetOutOfRange,
    OutOfOrderSequence,
)
from respool.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset
from respool.model.topic_config import TimestampType
from respool.ports.disk import NotCached
from respool.records.batch import RecordBatch, read_header
from respool.records.build import NewRecord, build_batch


def read(world: LogWorld, offset: int, *, bytes_max: int = 10**6, one: bool = True) -> bytes:
    log = world.log
    return bytes(
        log.read(
            ReadSpec(Offset(offset), max_offset=log.log_end, bytes_max=bytes_max, at_least_one=one)
        )
    )


# -- appending -------------------------------------------------------------------------------------------------------


def test_a_batch_is_one_write_and_keeps_its_bytes() -> None:
    world = LogWorld.new()
    world.fill(1)
    world.disk.counters.appends = 0
    batch = batch_of(5, 6, 7)
    appended = world.append(batch)
    assert world.disk.counters.appends == 1
    assert appended == (1, 3, False, NO_TIMESTAMP, False)
    stored = read(world, 1)
    assert read_header(stored)[:3] == (1, batch.header.length, 0)
    assert stored[16:] == batch.data[16:]


def test_the_leaders_epoch_is_written_into_the_batch() -> None:
    world = LogWorld.new()
    world.log.append(batch_of(1), leader_epoch=LeaderEpoch(7), now_ms=1)
    stored = world.log.read(ReadSpec(Offset(0), max_offset=Offset(1), bytes_max=999))
    assert read_header(stored).leader_epoch == 7
    assert world.log.end_of_epoch(LeaderEpoch(7)) == (7, 1)
    assert world.log.epoch_at(Offset(0)) == 7


def test_data_may_be_a_view_into_a_larger_buffer() -> None:
    world = LogWorld.new()
    batch = batch_of(5, value=b"hello")
    buffer = memoryview(bytearray(b"xx" + bytes(batch.data) + b"yy"))[2:-2]
    world.append(RecordBatch(batch.header, buffer))
    buffer[:] = bytes(len(buffer))
    assert b"hello" in read(world, 0)
    world.check()


def test_a_retry_gets_the_first_answer_and_is_not_written() -> None:
    world = LogWorld.new()
    first = world.append(batch_of(1, 2, producer=(9, 0, 0)))
    world.fill(2)
    again = world.append(batch_of(1, 2, producer=(9, 0, 0)))
    assert again == (first.base_offset, first.last_offset, True, NO_TIMESTAMP, False)
    world.check()


def test_a_retry_where_the_broker_gives_the_time_gets_the_first_time() -> None:
    config = dataclasses.replace(SMALL, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    world = LogWorld.new(config=config)
    data = build_batch(
        [NewRecord(timestamp_ms=1)],
        producer_id=9,
        producer_epoch=0,
        base_sequence=0,
        log_append_time=True,
        max_timestamp=777,
    )
    batch = RecordBatch(read_header(data), data)
    first = world.log.append(batch, leader_epoch=LeaderEpoch(0), now_ms=777)
    again = world.log.append(batch, leader_epoch=LeaderEpoch(0), now_ms=999)
    assert (first.log_append_time_ms, again.log_append_time_ms) == (777, 777)
    assert again.is_duplicate


@pytest.mark.parametrize(
    ("producer", "refusal"),
    [((9, 5, 7), OutOfOrderSequence), ((9, 4, 0), InvalidProducerEpoch)],
)
def test_a_batch_out_of_sequence_is_refused_and_changes_nothing(
    producer: tuple[int, int, int], refusal: type[Exception]
) -> None:
    world = LogWorld.new()
    world.append(batch_of(1, producer=(9, 5, 0)))
    with pytest.raises(refusal):
        world.append(batch_of(1, producer=producer))
    world.check()
    assert not world.append(batch_of(1, producer=(9, 5, 1))).is_duplicate


@pytest.mark.parametrize("room", [0, 1, 61, 100, 4096, 5000, 9000])
@pytest.mark.parametrize("filled", [0, 3, 11, 12, 13])
def test_a_full_disk_refuses_the_batch_and_changes_nothing(filled: int, room: int) -> None:
    world = LogWorld.new()
    world.fill(filled)
    world.try_full_disk(batch_of(9, producer=(9, 0, 0), value=b"f" * 300), room=room)
    world.check()
    world.check_indexes()
    world.fill(10)
    world.check()
    world.kill_and_start()
    world.stop_and_start()


def test_a_failed_write_changes_nothing() -> None:
    world = LogWorld.new()
    world.fill(5)
    world.disk.faults.fail("append")
    with pytest.raises(DiskFailed):
        world.append(batch_of(1, producer=(9, 0, 0)))
    world.check()
    assert not world.append(batch_of(1, producer=(9, 0, 0))).is_duplicate
    world.check()


@pytest.mark.parametrize("call", ["open", "map"])
def test_a_roll_that_fails_changes_nothing(call: str) -> None:
    for error in (DiskFailed, DiskFull):
        world = LogWorld.new()
        world.fill(5)
        if error is DiskFull:
            world.disk.faults.capacity_bytes = 1
        else:
            world.disk.faults.fail(call, times=None)  # type: ignore[arg-type]
        with pytest.raises(error):
            world.append(batch_of(1, value=b"v" * 1400))
        world.disk.faults.heal()
        world.check()
        # One that needs no new segment, then one that does.
        world.append(batch_of(world.now_ms))
        world.append(batch_of(1, value=b"v" * 1400))
        world.check()
        world.kill_and_start()


# -- rolling ---------------------------------------------------------------------------------------------------------


def test_a_segment_never_grows_beyond_its_size() -> None:
    world = LogWorld.new()
    world.fill(100)
    assert all(segment.size <= SMALL.segment_bytes for segment in world.log._parts.segments.all)
    assert world.log.size_bytes == sum(segment.size for segment in world.log._parts.segments.all)


def test_a_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    world = LogWorld.new()
    world.fill(1)
    world.append(batch_of(1, value=b"v" * 5000))
    world.fill(1)
    assert world.log.segment_count == 3
    world.check()


def test_offsets_too_far_for_the_index_begin_a_new_segment() -> None:
    """Batches whose headers span many offsets, as a client may send them."""
    world = LogWorld.new()
    for _ in range(3):
        data = build_batch([NewRecord(timestamp_ms=1)])
        header = read_header(data)._replace(last_offset_delta=2**30 - 1, record_count=2**30)
        world.log.append(RecordBatch(header, data), leader_epoch=LeaderEpoch(0), now_ms=1)
    assert [one.base_offset for one in world.log._parts.segments.all] == [0, 2**31]


def test_a_segment_of_old_records_is_rolled_by_the_clock_only_when_it_is_old_itself() -> None:
    world = LogWorld.new()
    world.append(batch_of(1))
    assert not world.log.roll_if_due(world.now_ms + SMALL.segment_ms)
    assert world.log.roll_if_due(world.now_ms + SMALL.segment_ms + 1)
    assert world.log.segment_count == 2
    assert not world.log.roll_if_due(world.now_ms + 10**9)
    world.check()
    world.fill(1)
    world.check()


def test_changed_settings_hold_from_the_next_batch_on() -> None:
    world = LogWorld.new()
    world.fill(5)
    assert world.log.segment_count == 1
    world.log.update_config(dataclasses.replace(SMALL, segment_bytes=1024, segment_ms=1))
    world.fill(5)
    assert world.log.segment_count > 4
    assert world.log.config.segment_ms == 1
    world.check()
    world.check_indexes()


def test_the_last_timestamp_of_a_rolled_segment_is_on_the_disk() -> None:
    world = LogWorld.new()
    world.fill(40)
    world.sync()
    world.crash_and_start()
    for segment in world.log._parts.segments.all[:-1]:
        end = world.log._parts.segments.end_of(
            world.log._parts.segments.index_of(segment.base_offset), log_end=world.log_end
        )
        largest = max(
            one.header.max_timestamp
            for one in world.batches
            if segment.base_offset <= one.base_offset < end
        )
        assert segment.largest.timestamp == largest


# -- reading ---------------------------------------------------------------------------------------------------------


def test_a_fetch_inside_a_batch_returns_the_whole_batch() -> None:
    world = LogWorld.new()
    world.append(batch_of(1, 2, 3, 4))
    for offset in range(4):
        assert read(world, offset) == world.batches[0].data


def test_the_end_is_a_valid_place_to_read_and_nothing_is_there() -> None:
    world = LogWorld.new()
    assert read(world, 0) == b""
    world.fill(3)
    assert read(world, world.log_end) == b""


def test_outside_the_log_there_is_nothing_to_read() -> None:
    world = LogWorld.new()
    world.fill(10)
    world.raise_log_start(Offset(5))
    for offset in (4, world.log_end + 1, -1):
        with pytest.raises(OffsetOutOfRange, match=f"the log has 5 to {world.log_end}"):
            read(world, offset)
    assert read(world, 5)


def test_the_first_batch_comes_whole_however_large() -> None:
    world = LogWorld.new()
    world.append(batch_of(1, value=b"v" * 5000))
    assert read(world, 0, bytes_max=0) == world.batches[0].data
    assert read(world, 0, bytes_max=1, one=False) == b""


def test_the_last_batch_may_be_cut_by_the_limit() -> None:
    world = LogWorld.new()
    world.fill(4)
    data = read(world, 0, bytes_max=200)
    assert len(data) == 200
    assert data == b"".join(one.data for one in world.batches)[:200]


def test_nothing_beyond_the_given_offset_is_read() -> None:
    world = LogWorld.new()
    world.fill(60)
    for max_offset in range(world.log_end + 2):
        for offset in (0, 13, 14, max_offset - 1, max_offset):
            if not 0 <= offset <= world.log_end:
                continue
            for bytes_max in (1, 150, 400, 10**6):
                world.check_read(
                    Offset(offset),
                    max_offset=Offset(max_offset),
                    bytes_max=bytes_max,
                    at_least_one=True,
                )


def test_reading_to_a_known_point_needs_no_search_for_it() -> None:
    one_segment = dataclasses.replace(
        SMALL, segment_bytes=10**6, segment_index_bytes=10**6, segment_ms=10**9
    )
    world = LogWorld.new(config=one_segment)
    world.fill(200)
    world.sync()
    synced = world.log_end
    world.fill(50)
    world.log.read(ReadSpec(Offset(0), max_offset=synced, bytes_max=10**6))
    for max_offset in (synced, world.log_end):
        before = world.disk.counters.reads
        data = world.log.read(ReadSpec(Offset(3), max_offset=max_offset, bytes_max=10**6))
        assert read_header(world.whole_batches(data)[-1]).next_offset == max_offset
        # One for the header, one for the data.
        assert world.disk.counters.reads - before == 2


def test_a_read_does_not_wait_for_the_disk_when_told_not_to() -> None:
    world = LogWorld.new()
    world.fill(3)
    path = world.log._parts.segments.active.path
    world.disk.make_cold(path)

    def read_cached() -> bytes | memoryview:
        return world.log.read(
            ReadSpec(Offset(0), max_offset=world.log_end, bytes_max=999, cached_only=True)
        )

    with pytest.raises(NotCached):
        read_cached()
    assert read(world, 0, bytes_max=999) == read_cached()


# -- the log's start -------------------------------------------------------------------------------------------------


def test_the_logs_start_only_rises() -> None:
    world = LogWorld.new()
    world.fill(10)
    world.raise_log_start(Offset(7))
    world.raise_log_start(Offset(3))
    assert world.log.log_start == 7
    with pytest.raises(AssertionError):
        world.log.raise_log_start(Offset(world.log_end + 1))
    assert world.log.log_start == 7
    world.check()


def test_the_logs_start_survives_a_restart_once_it_is_written_down() -> None:
    world = LogWorld.new()
    world.fill(30)
    world.sync()
    world.raise_log_start(Offset(17))
    world.write_checkpoint()
    for restart in (world.kill_and_start, world.stop_and_start, world.crash_and_start):
        restart()
        assert world.log.log_start == 17


def test_raising_the_logs_start_forgets_epochs_and_producers_below() -> None:
    world = LogWorld.new()
    world.append(batch_of(1, producer=(9, 0, 0)))
    world.lead()
    world.fill(5)
    world.lead()
    world.append(batch_of(1, producer=(8, 0, 0)))
    world.raise_log_start(Offset(4))
    assert [state.producer_id for state in world.log.active_producers()] == [8]
    assert [entry.epoch for entry in world.log._parts.epochs.entries] == [1, 2]
    world.check()
    world.sync()
    world.write_checkpoint()
    for restart in (world.kill_and_start, world.stop_and_start, world.crash_and_start):
        restart()
        assert [state.producer_id for state in world.log.active_producers()] == [8]
        assert [entry.epoch for entry in world.log._parts.epochs.entries] == [1, 2]


def test_retention_removes_what_is_old_and_moves_the_start() -> None:
    world = LogWorld.new(config=dataclasses.replace(SMALL, retention_ms=10_000))
    world.fill(40)
    world.sync()
    assert world.apply_retention(Offset(0)) == []
    removed = world.apply_retention(world.log_end)
    assert removed
    assert world.log_start == world.log._parts.segments.first.base_offset > 0
    oldest = world.log._parts.segments.first.largest.timestamp
    assert world.now_ms - oldest <= 10_000
    world.check()
    world.crash_and_start()


def test_a_quiet_log_that_is_too_old_is_emptied_and_goes_on() -> None:
    world = LogWorld.new(config=dataclasses.replace(SMALL, retention_ms=10_000))
    world.fill(20)
    end = world.log_end
    world.now_ms += 10**6
    removed = world.apply_retention(end)
    assert world.log.segment_count == 1
    assert (world.log.log_start, world.log.log_end, world.log.synced_end) == (end, end, end)
    for one in removed:
        one.delete()
    world.check()
    world.crash_and_start()
    assert world.log.log_end == end, "offsets are never given out twice"
    world.fill(3)
    world.check()
    # And nothing more is removed or rolled for nothing.
    world.now_ms += 10**6
    world.apply_retention(world.log_end)
    assert world.apply_retention(world.log_end) == []
    assert world.log.segment_count == 1


def test_retention_syncs_what_it_removes_first() -> None:
    """Under respool.flush=os nobody waits for syncs; a power cut must not leave the log before its start."""
    for seed in range(20):
        world = LogWorld.new(seed, dataclasses.replace(SMALL, retention_bytes=0))
        world.fill(20)
        world.apply_retention(world.log_end)
        world.write_checkpoint()
        world.fill(5)
        world.crash_and_start()


def test_retention_without_file_handles_removes_what_it_can_and_the_rest_later() -> None:
    world = LogWorld.new(0, dataclasses.replace(SMALL, retention_bytes=0))
    world.fill(60)
    world.sync()
    bases = [one.base_offset for one in world.log._parts.segments.all]
    world.disk.faults.fail("sync_folder", nth=3, times=None, error=HandlesExhausted)
    removed = world.apply_retention(world.log_end)
    assert 0 < len(removed) < len(bases) - 1
    assert world.log_start == bases[len(removed)]
    with pytest.raises(HandlesExhausted):
        world.apply_retention(world.log_end)
    world.check()
    world.disk.faults.heal()
    world.apply_retention(world.log_end)
    assert world.log_start == world.log_end
    world.write_checkpoint()
    world.crash_and_start()


def test_rolling_without_a_file_handle_leaves_the_log_as_it_was() -> None:
    world = LogWorld.new()
    world.fill(5)
    for call in ("open", "map"):
        world.disk.faults.fail(call, error=HandlesExhausted, times=None)
        with pytest.raises(HandlesExhausted):
            world.fill(30)
        world.check()
        world.disk.faults.heal()
        world.fill(30)
        world.check()
        world.check_indexes()
    world.sync()
    world.crash_and_start()


def test_segments_that_nobody_reads_are_let_go_of() -> None:
    world = LogWorld.new()
    world.fill(60)
    world.sync()
    world.check()
    for _ in range(3):
        world.log.apply_retention(now_ms=world.now_ms, high_watermark=Offset(0))
    old = world.log._parts.segments.all[:-1]
    assert not any(segment.is_open for segment in old)
    world.check()
    world.check_indexes()
    world.crash_and_start()


def test_segments_that_are_not_synced_are_not_let_go_of() -> None:
    world = LogWorld.new()
    world.fill(60)
    for _ in range(3):
        world.log.apply_retention(now_ms=world.now_ms, high_watermark=Offset(0))
    world.sync()
    world.crash_and_start()
    world.check_indexes()


def test_silent_producers_are_forgotten_when_asked() -> None:
    world = LogWorld.new()
    world.append(batch_of(1, producer=(9, 0, 0)))
    world.log.producers.expire(world.now_ms)
    assert len(list(world.log.active_producers())) == 1
    world.log.producers.expire(world.now_ms + 10**12 + 1)
    assert list(world.log.active_producers()) == []


# -- the files -------------------------------------------------------------------------------------------------------


def test_the_files_are_kafkas() -> None:
    world = LogWorld.new()
    world.fill(10)
    world.log.close()
    base = world.log._parts.segments.all[1].base_offset
    assert world.log.segment_count == 2
    assert world.disk.list_folder(FOLDER) == sorted(
        [
            *(f"{0:020d}.{kind}" for kind in ("index", "log", "timeindex")),
            *(f"{base:020d}.{kind}" for kind in ("index", "log", "snapshot", "timeindex")),
            f"{world.log_end:020d}.snapshot",
            "leader-epoch-checkpoint",
        ]
    )


def test_no_file_is_left_open_after_closing() -> None:
    world = LogWorld.new()
    world.fill(30)
    world.check()
    world.log.close()
    for segment in world.log._parts.segments.all:
        assert not segment.is_open
