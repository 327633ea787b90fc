"""Files on their way out: renamed at once, readable to who has them, deleted later."""

import pytest

from log.log_world import FOLDER, LogWorld
from respool.log.partition_log import ReadSpec
from respool.log.removal import remove_log
from respool.model.errors import DiskFailed, OffsetOutOfRange
from respool.model.ids import Offset


def expired_world() -> LogWorld:
    world = LogWorld.new()
    world.fill(40)
    world.sync()
    assert world.log.segment_count > 3
    world.raise_log_start(Offset(world.log._parts.segments.all[2].base_offset))
    return world


def test_removed_files_are_renamed_and_later_deleted() -> None:
    world = expired_world()
    removed = world.apply_retention(world.log_end)
    assert len(removed) == 2
    left = [name for name in world.disk.list_folder(FOLDER) if name.endswith(".deleted")]
    # The log, two indexes, and of the second the snapshot at its base.
    assert len(left) == 7
    assert all(one.base_offset < world.log_start for one in removed)
    for one in removed:
        one.delete()
    assert not [name for name in world.disk.list_folder(FOLDER) if name.endswith(".deleted")]
    world.check()


def test_segments_of_a_log_that_is_gone_are_gone_without_an_error() -> None:
    """DeleteRecords, then the topic was deleted: its folder is gone before the segments' turn comes."""
    world = expired_world()
    (first, second) = world.apply_retention(world.log_end)
    whole = world.log.delete()
    assert whole is not None
    first.delete()
    whole.delete()
    second.delete()
    assert world.disk.list_folder("") == []


def test_a_folder_that_cannot_be_synced_is_an_error_while_it_is_there() -> None:
    world = expired_world()
    first, *_ = world.apply_retention(world.log_end)
    world.disk.faults.fail("sync_folder", path=FOLDER)
    with pytest.raises(DiskFailed):
        first.delete()


def test_a_reader_that_has_a_removed_segment_goes_on_reading() -> None:
    world = expired_world()
    segments = world.log._parts.segments
    expected = segments.first.read(0, 200)
    for one in world.apply_retention(world.log_end):
        one.delete()
    assert segments.first.read(0, 200) == expected
    assert segments.first.find(Offset(0)) is not None
    with pytest.raises(OffsetOutOfRange):
        world.log.read(ReadSpec(Offset(0), max_offset=world.log_end, bytes_max=9))


def test_the_names_are_gone_for_good_before_the_files_are() -> None:
    """A power cut after the deletion brings no part of a segment back."""
    for seed in range(20):
        world = LogWorld.new(seed)
        world.fill(20)
        world.sync()
        world.raise_log_start(Offset(world.log._parts.segments.all[1].base_offset))
        world.write_checkpoint()
        for one in world.apply_retention(world.log_end):
            one.delete()
        world.crash_and_start()
        assert world.first_base() == world.log_start


def test_a_deleted_logs_folder_is_renamed_and_its_name_free() -> None:
    world = LogWorld.new()
    world.fill(3)
    removed = world.log.delete()
    assert removed is not None
    assert removed.path.startswith(f"{FOLDER}.")
    assert removed.path.endswith("-delete")
    assert not world.disk.exists(FOLDER)
    # Who has the log reads on.
    assert world.log.read(ReadSpec(Offset(0), max_offset=world.log_end, bytes_max=99))
    removed.delete()
    assert world.disk.list_folder("") == []


def test_a_second_log_of_that_name_gets_another_name_out_of_use() -> None:
    world = LogWorld.new()
    first = world.log.delete()
    world.disk.make_folder(FOLDER)
    second = remove_log(world.disk, FOLDER)
    assert first is not None
    assert second is not None
    assert first.path != second.path
    assert world.disk.list_folder("") == sorted([first.path, second.path])
