"""A log whose older segments are in an archive: what it gives away, what it removes, and what it still knows."""

from dataclasses import replace
from random import Random

import pytest

from log.log_world import SMALL, batch_of
from respool.log.partition_log import PartitionLog, ReadSpec
from respool.model.archiving.archive_errors import NotLocal
from respool.model.delays.kept_records import OFFSET_MAX, KeptRecords
from respool.model.errors import OffsetOutOfRange
from respool.model.ids import LeaderEpoch, Offset
from respool.model.topic_config import TopicConfig
from respool.sim.disk.simulated_disk import SimDisk

ARCHIVED = replace(SMALL, remote_storage_enable=True, local_retention_ms=10)
LATER_MS = 1_000_000


def open_log(disk: SimDisk, *, log_start: int = 0, config: TopicConfig = ARCHIVED) -> PartitionLog:
    return PartitionLog.open(
        disk=disk,
        folder="rides-0",
        config=config,
        now_ms=0,
        log_start=Offset(log_start),
        recovery_point=Offset(0),
        clean=False,
        producer_expiration_ms=10**9,
    )


def filled(disk: SimDisk, batches: int = 40) -> PartitionLog:
    log = open_log(disk)
    for at in range(batches):
        log.append(
            batch_of(at, at, value=b"v" * 100, producer=(7, 0, at * 2)),
            leader_epoch=LeaderEpoch(at // 10),
            now_ms=at,
        )
    pending = log.begin_sync()
    assert pending is not None
    pending.run()
    log.finish_sync(pending)
    return log


def kept(archived_end: int) -> KeptRecords:
    return KeptRecords(OFFSET_MAX, 0, Offset(archived_end))


def retain(log: PartitionLog, *, archived_end: int) -> None:
    log.apply_retention(now_ms=LATER_MS, high_watermark=log.log_end, kept=kept(archived_end))


def test_nothing_local_is_removed_before_it_is_archived() -> None:
    """Traps 4 and 5: by offset, and only below the end that an entry of the archive names."""
    log = filled(SimDisk(Random(1)))
    retain(log, archived_end=0)
    assert log.local_start == 0
    retain(log, archived_end=15)
    # The segment that contains offset 15 stays.
    assert 0 < log.local_start <= 15
    assert log.log_start == 0


def test_local_deletion_changes_no_log_start_epoch_or_producer() -> None:
    """Trap 3."""
    log = filled(SimDisk(Random(1)))
    epochs = [log.end_of_epoch(LeaderEpoch(one)) for one in range(4)]
    retain(log, archived_end=80)
    assert log.local_start > 60
    assert log.log_start == 0
    assert [log.end_of_epoch(LeaderEpoch(one)) for one in range(4)] == epochs
    assert log.epoch_at(Offset(0)) == 0
    assert 7 in log._parts.producers


def test_an_offset_that_is_archived_is_not_out_of_range() -> None:
    """Trap 1: a consumer would skip records that exist."""
    log = filled(SimDisk(Random(1)))
    retain(log, archived_end=70)
    for offset in (0, log.local_start - 1):
        spec = ReadSpec(Offset(offset), log.log_end, 10_000)
        with pytest.raises(NotLocal):
            log.read(spec)
        with pytest.raises(NotLocal):
            log.aborted_in(Offset(offset), log.log_end)
    assert log.read(ReadSpec(log.local_start, log.log_end, 10_000))
    log.raise_log_start(Offset(30))
    with pytest.raises(OffsetOutOfRange):
        log.read(ReadSpec(Offset(29), log.log_end, 10_000))


def test_a_restart_keeps_the_log_start_of_an_archived_log() -> None:
    disk = SimDisk(Random(1))
    log = filled(disk)
    retain(log, archived_end=80)
    local_start = log.local_start
    log.close()
    again = open_log(disk)
    assert (again.log_start, again.local_start) == (0, local_start)
    assert again.epoch_at(Offset(0)) == 0
    again.close()
    # Elsewhere, the log starts with its first segment.
    assert open_log(disk, config=SMALL).log_start == local_start


def test_records_before_the_log_start_are_removed_archived_or_not() -> None:
    log = filled(SimDisk(Random(1)))
    log.raise_log_start(Offset(40))
    retain(log, archived_end=0)
    assert log.first_base_offset > 20
    assert log.log_start == 40


def test_segments_are_taken_whole_and_in_order() -> None:
    log = filled(SimDisk(Random(1)))
    data, at = bytearray(), Offset(0)
    while (source := log.segment_to_archive(at, bound=log.log_end)) is not None:
        assert source.begin == at
        begin, end = source.locate()
        data += source.read(begin, end - begin)
        at = source.end
    # All but the active segment.
    assert at == log._parts.segments.active.base_offset
    whole = bytearray()
    offset = Offset(0)
    while len(whole) < len(data):
        piece = log.read(ReadSpec(offset, at, 10**6))
        whole += piece
        offset = Offset(offset + 2 * (len(piece) // len(data[: len(data) // (at // 2)])))
    assert whole == data


def test_a_new_leader_continues_within_its_own_segment() -> None:
    log = filled(SimDisk(Random(1)))
    first = log.segment_to_archive(Offset(0), bound=log.log_end)
    middle = log.segment_to_archive(Offset(2), bound=log.log_end)
    assert first is not None
    assert middle is not None
    assert middle.end == first.end
    assert 0 < middle.locate()[0] < first.locate()[1]
    assert middle.locate()[1] == first.locate()[1]


def test_what_is_not_committed_or_not_synced_is_not_taken() -> None:
    """Traps 9 and 10."""
    log = filled(SimDisk(Random(1)))
    first = log.segment_to_archive(Offset(0), bound=log.log_end)
    assert first is not None
    assert log.segment_to_archive(Offset(0), bound=Offset(first.end - 1)) is None
    assert log.segment_to_archive(Offset(log.log_end - 1), bound=log.log_end) is None
    unsynced = open_log(SimDisk(Random(2)))
    for at in range(40):
        unsynced.append(batch_of(at, value=b"v" * 100), leader_epoch=LeaderEpoch(0), now_ms=at)
    assert unsynced.segment_to_archive(Offset(0), bound=unsynced.log_end) is None


def test_an_old_active_segment_is_closed_for_the_archive() -> None:
    config = replace(ARCHIVED, respool_archive_max_age_ms=500)
    log = open_log(SimDisk(Random(1)), config=config)
    log.append(batch_of(100), leader_epoch=LeaderEpoch(0), now_ms=100)
    assert not log.roll_if_due(599, to_archive=True)
    assert log.roll_if_due(600, to_archive=True)
    assert not log.roll_if_due(10_000, to_archive=True)
    log.update_config(replace(config, respool_archive_max_age_ms=-1))
    log.append(batch_of(100), leader_epoch=LeaderEpoch(0), now_ms=100)
    assert not log.roll_if_due(10**9, to_archive=True)
