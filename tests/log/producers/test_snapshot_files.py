"""Snapshots of producers: the newest good one is used, and none outlives the log below it."""

from random import Random

import pytest

from log.log_world import batch_of
from respool.log.producers.producer_states import ProducerStates
from respool.log.producers.snapshot_files import SnapshotFiles
from respool.model.ids import Offset
from respool.sim.disk.simulated_disk import SimDisk

FOLDER = "t-0"


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(Random(1))
    disk.make_folder(FOLDER)
    disk.sync_folder("")
    return disk


def states_of(*producers: int) -> ProducerStates:
    states = ProducerStates(expiration_ms=1000)
    for number, producer in enumerate(producers):
        states.update(batch_of(1, producer=(producer, 0, 0)).header, base_offset=Offset(number))
    return states


def files_at(disk: SimDisk, *offsets: int) -> SnapshotFiles:
    files = SnapshotFiles(disk, FOLDER, [])
    for offset in offsets:
        files.write(Offset(offset), states_of(*range(offset)).encode_snapshot())
    files.on_written([Offset(offset) for offset in offsets])
    return files


def test_the_newest_not_after_an_offset_is_loaded(disk: SimDisk) -> None:
    files = files_at(disk, 2, 5, 9)
    assert files.newest == 9
    for at_most, offset in ((9, 9), (8, 5), (5, 5), (2, 2)):
        found, states = files.load(at_most=Offset(at_most), expiration_ms=1000)
        assert found == offset
        assert states == states_of(*range(offset))


def test_without_any_it_is_the_state_of_an_empty_log(disk: SimDisk) -> None:
    files = files_at(disk, 5)
    offset, states = files.load(at_most=Offset(4), expiration_ms=1000)
    assert (offset, len(states)) == (-1, 0)
    assert SnapshotFiles(disk, FOLDER, []).newest == -1


def test_a_damaged_one_is_passed_over(disk: SimDisk) -> None:
    files = files_at(disk, 2, 5)
    disk.corrupt(files.path(Offset(5)), 12)
    offset, states = files.load(at_most=Offset(9), expiration_ms=1000)
    assert offset == 2
    assert states == states_of(0, 1)
    disk.delete(files.path(Offset(2)))
    assert files.load(at_most=Offset(9), expiration_ms=1000)[0] == -1


def test_those_beyond_an_offset_are_gone_for_good(disk: SimDisk) -> None:
    files = files_at(disk, 2, 5)
    # Written by a sync that has not reported yet.
    files.write(Offset(7), b"")
    files.delete_beyond(Offset(4))
    assert files.offsets == [2]
    disk.crash()
    assert disk.reopen().list_folder(FOLDER) == [f"{2:020d}.snapshot"]


def test_strays_are_those_at_no_segment_but_the_newest(disk: SimDisk) -> None:
    files = files_at(disk, 0, 3, 10, 14, 17)
    files.delete_strays([Offset(0), Offset(10)])
    assert files.offsets == [0, 10, 17]
    assert [name[:20] for name in disk.list_folder(FOLDER)] == [f"{n:020d}" for n in (0, 10, 17)]


def test_one_taken_away_by_others_is_forgotten(disk: SimDisk) -> None:
    files = files_at(disk, 3)
    assert files.forget(Offset(3))
    assert not files.forget(Offset(3))
    assert files.newest == -1
