"""Leader epochs and their file: what is known is on the disk, or not known."""

from random import Random

import pytest

from respool.log.epoch_cache import EpochCache
from respool.log.epoch_file import EpochFile
from respool.log.file_names import EPOCHS_NAME
from respool.model.errors import DiskFull
from respool.model.ids import LeaderEpoch, Offset
from respool.sim.simulated_disk import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(Random(1))
    disk.make_folder("t-0")
    disk.sync_folder("")
    return disk


def begin(file: EpochFile, epoch: int, offset: int) -> None:
    file.begin(LeaderEpoch(epoch), Offset(offset))


def after_power_cut(disk: SimDisk) -> list[tuple[int, int]] | None:
    disk.crash()
    found = EpochFile.read(disk.reopen(), "t-0")
    return [(epoch, offset) for epoch, offset in found.entries] if found is not None else None


def test_an_epoch_is_on_the_disk_before_it_has_data(disk: SimDisk) -> None:
    file = EpochFile(disk, "t-0", EpochCache())
    begin(file, 3, 0)
    begin(file, 5, 7)
    assert file.latest == 5
    assert file.epoch_at(Offset(6)) == 3
    assert file.end_of(LeaderEpoch(3), log_end=Offset(9)) == (3, 7)
    assert after_power_cut(disk) == [(3, 0), (5, 7)]


def test_what_is_known_already_is_not_written_again(disk: SimDisk) -> None:
    file = EpochFile(disk, "t-0", EpochCache())
    begin(file, 3, 0)
    begin(file, 3, 8)
    assert disk.counters.replaced_files == 1


def test_an_epoch_that_cannot_be_written_is_not_known(disk: SimDisk) -> None:
    file = EpochFile(disk, "t-0", EpochCache())
    begin(file, 3, 0)
    disk.faults.capacity_bytes = 1
    with pytest.raises(DiskFull):
        begin(file, 5, 7)
    assert file.entries == [(3, 0)]


def test_an_epoch_never_goes_back(disk: SimDisk) -> None:
    file = EpochFile(disk, "t-0", EpochCache())
    begin(file, 3, 0)
    with pytest.raises(AssertionError):
        begin(file, 2, 7)
    assert file.entries == [(3, 0)]


def test_cutting_off_the_end_is_on_the_disk(disk: SimDisk) -> None:
    file = EpochFile(disk, "t-0", EpochCache())
    begin(file, 3, 0)
    begin(file, 5, 7)
    file.truncate_end(Offset(7))
    assert after_power_cut(disk) == [(3, 0)]


def test_a_missing_or_damaged_file_is_not_taken_for_an_empty_one(disk: SimDisk) -> None:
    assert EpochFile.read(disk, "t-0") is None
    EpochFile(disk, "t-0", EpochCache()).write()
    found = EpochFile.read(disk, "t-0")
    assert found is not None
    assert found.entries == []
    disk.replace_file(f"t-0/{EPOCHS_NAME}", b"0\n1\n2 x\n")
    assert EpochFile.read(disk, "t-0") is None
