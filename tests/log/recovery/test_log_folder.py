"""A partition's folder when it is opened: what is found, and what an interrupted process left."""

from random import Random

from respool.log.index.segment_indexes import IndexSettings
from respool.log.recovery.log_folder import LogFolder, delete_segment
from respool.sim.disk.simulated_disk import SimDisk

SETTINGS = IndexSettings(interval_bytes=100, bytes_max=960)


def folder_of(*names: str) -> SimDisk:
    disk = SimDisk(Random(1))
    disk.make_folder("t-0")
    for name in names:
        disk.replace_file(f"t-0/{name}", b"12345")
    return disk


def opened(disk: SimDisk) -> LogFolder:
    return LogFolder.open(disk, "t-0", SETTINGS, now_ms=7)


def test_segments_and_snapshots_are_found_in_order_without_reading() -> None:
    disk = folder_of(
        f"{30:020d}.log", f"{9:020d}.log", f"{9:020d}.snapshot", f"{31:020d}.snapshot",
        "leader-epoch-checkpoint", "partition.metadata",
    )  # fmt: skip
    found = opened(disk)
    assert [(one.base_offset, one.size) for one in found.segments] == [(9, 5), (30, 5)]
    assert found.snapshots.offsets == [9, 31]
    assert (disk.counters.reads, disk.counters.small_files_read) == (0, 0)


def test_no_folder_is_an_empty_one() -> None:
    found = opened(SimDisk(Random(1)))
    assert found.segments == []


def test_half_done_work_is_removed() -> None:
    disk = folder_of(
        f"{9:020d}.log", f"{0:020d}.log.deleted", f"{0:020d}.snapshot.deleted",
        f"{9:020d}.log.cleaned", f"{9:020d}.index.swap", "leader-epoch-checkpoint.tmp",
    )  # fmt: skip
    opened(disk)
    assert disk.list_folder("t-0") == [f"{9:020d}.log"]


def test_an_index_without_its_log_is_removed() -> None:
    kept = [f"{9:020d}.index", f"{9:020d}.log", f"{9:020d}.timeindex"]
    disk = folder_of(*kept, f"{3:020d}.index", f"{3:020d}.timeindex")
    opened(disk)
    assert disk.list_folder("t-0") == kept


def test_a_deleted_segment_does_not_come_back() -> None:
    disk = folder_of(f"{9:020d}.index", f"{9:020d}.log", f"{9:020d}.timeindex")
    delete_segment(disk, "t-0", opened(disk).segments[0])
    disk.crash()
    assert disk.reopen().list_folder("t-0") == []
