"""Cutting off a log's end, and starting it anew."""

from typing import Any

import pytest

from log.log_world import LogWorld, batch_of
from respool.log.partition_log import ReadSpec
from respool.log.recovery.log_folder import delete_segment
from respool.model.errors import DiskFailed, OffsetOutOfRange
from respool.model.ids import LeaderEpoch, Offset


def filled() -> LogWorld:
    world = LogWorld.new()
    world.fill(15)
    world.lead()
    world.fill(15)
    world.lead()
    world.fill(10)
    assert world.log.segment_count > 4
    return world


@pytest.mark.parametrize("offset", range(1, 79, 3))
def test_what_is_left_is_the_beginning_and_it_goes_on(offset: int) -> None:
    world = filled()
    world.truncate_to(Offset(offset))
    assert world.log_end <= offset
    assert world.log.synced_end == world.log_end
    world.check()
    world.check_indexes()
    world.check_times(world.now_ms - 20_000, world.log_end)
    world.fill(10)
    world.check()
    world.check_indexes()
    world.crash_and_start()
    world.stop_and_start()


def test_a_batch_that_holds_the_offset_goes_as_a_whole() -> None:
    world = LogWorld.new()
    world.append(batch_of(1, 2, 3))
    world.append(batch_of(4, 5, 6))
    world.truncate_to(Offset(5))
    assert world.log_end == 3
    world.check()


def test_a_truncation_at_the_end_still_takes_an_epoch_without_data() -> None:
    world = filled()
    end = world.log_end
    world.lead()
    assert world.log.end_of_epoch(world.epoch) == (world.epoch, end)
    world.truncate_to(end)
    assert world.log.end_of_epoch(world.epoch) == (-1, -1)
    world.check()
    world.crash_and_start()
    assert world.log.end_of_epoch(world.epoch) == (-1, -1)


def test_epochs_are_cut_with_their_data() -> None:
    world = filled()
    second = next(one for one in world.batches if one.header.leader_epoch == 1)
    world.truncate_to(second.base_offset)
    assert [entry.epoch for entry in world.log._parts.epochs.entries] == [0]
    assert world.log.end_of_epoch(LeaderEpoch(0)) == (0, second.base_offset)


def test_producers_are_what_the_rest_tells() -> None:
    world = LogWorld.new()
    for number in range(30):
        world.append(batch_of(1, producer=(9, 0, number)))
        world.fill(1)
    cut = next(one for one in world.batches if one.header.base_sequence == 17)
    world.truncate_to(cut.base_offset)
    world.check()
    assert world.append(batch_of(1, producer=(9, 0, 15))).is_duplicate
    assert not world.append(batch_of(1, producer=(9, 0, 17))).is_duplicate


def test_truncating_to_before_the_log_drops_it_all() -> None:
    world = filled()
    world.sync()
    world.raise_log_start(Offset(world.log._parts.segments.all[2].base_offset))
    for one in world.apply_retention(world.log_end):
        one.delete()
    world.truncate_to(Offset(3))
    assert (world.log.log_start, world.log.log_end) == (3, 3)
    world.check()
    world.fill(5)
    world.check()
    world.crash_and_start()


@pytest.mark.parametrize("offset", [0, 5, 40, 1000])
def test_starting_anew_leaves_nothing_of_the_old_log(offset: int) -> None:
    world = filled()
    world.truncate_fully(Offset(offset))
    assert world.log.segment_count == 1
    assert world.log.size_bytes == 0
    assert world.log._parts.snapshots.offsets == []
    world.check()
    assert not world.append(batch_of(1, producer=(9, 0, 3))).is_duplicate
    world.fill(20)
    world.check()
    world.check_indexes()
    world.sync()
    world.crash_and_start()


def test_starting_anew_at_the_base_of_a_segment_works_too() -> None:
    world = filled()
    world.truncate_fully(Offset(world.log._parts.segments.all[2].base_offset))
    world.check()
    world.fill(5)
    world.check()
    world.stop_and_start()


def test_who_reads_while_a_log_is_begun_anew_can_tell_it_from_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Readers in other threads know the old segments until the last file is gone; the partition went offline for it."""
    world = filled()
    log = world.log
    for segment in log._parts.segments.all[:-1]:
        segment.release()
    missed = 0

    def delete_and_read(disk: Any, folder: str, segment: Any) -> None:
        nonlocal missed
        truncations = log.truncations
        delete_segment(disk, folder, segment)
        try:
            log.read(ReadSpec(segment.base_offset, max_offset=log.log_end, bytes_max=1))
        except DiskFailed:
            assert log.was_truncated_since(truncations)
            missed += 1

    monkeypatch.setattr("respool.log.log_truncation.delete_segment", delete_and_read)
    before = log.truncations
    world.truncate_fully(Offset(1_000))
    assert missed > 0
    assert log.was_truncated_since(before)
    assert not log.was_truncated_since(log.truncations)
    with pytest.raises(OffsetOutOfRange):
        log.read(ReadSpec(Offset(0), max_offset=log.log_end, bytes_max=1))
