"""A loss that the operator accepts: the log opens with what is left, and nothing else changes."""

from collections.abc import Callable
from random import Random
from uuid import UUID

import pytest

from respool.log.folder.accepted_loss import AcceptedLoss, LogLoss
from respool.log.folder.clean_marker import CLEAN_MARKER
from respool.log.folder.data_folder import DataFolder
from respool.log.folder.folder_checkpoints import HIGH_WATERMARK, RECOVERY_POINT, OffsetCheckpoint
from respool.log.partition_log import PartitionLog
from respool.model.errors import CheckpointDamaged, StorageError
from respool.model.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from respool.model.topic_config import TopicConfig
from respool.records.batch import RecordBatch, read_header
from respool.records.build import NewRecord, build_batch
from respool.sim.disk.simulated_disk import SimDisk

NOON = 1_700_000_000_000
ORDERS = TopicPartition("orders", 0)
RIDES = TopicPartition("rides", 3)
# Each batch is larger than half of it: every one has a segment of its own.
CONFIG = TopicConfig(segment_bytes=1024 * 1024)
LARGE = b"x" * 700_000
MESSAGES = 5

Damage = Callable[[SimDisk], None]


def open_folder(disk: SimDisk) -> DataFolder:
    return DataFolder.open(disk=disk, broker_id=BrokerId(1), new_cluster_id="cluster")


def open_log(folder: DataFolder, name: TopicPartition = ORDERS) -> PartitionLog:
    return folder.open_partition(name, topic_id=TopicId(UUID(int=1)), config=CONFIG, now_ms=NOON)


def append(log: PartitionLog, value: bytes) -> None:
    data = build_batch([NewRecord(value=value, timestamp_ms=NOON)])
    log.append(RecordBatch(read_header(data), data), leader_epoch=LeaderEpoch(0), now_ms=NOON)


def a_full_disk(*, value: bytes, is_clean: bool = True) -> SimDisk:
    """Two partitions with five messages each, closed."""
    disk = SimDisk(Random(1))
    folder = open_folder(disk)
    logs = {name: open_log(folder, name) for name in (ORDERS, RIDES)}
    for log in logs.values():
        for _ in range(MESSAGES):
            append(log, value)
    folder.close(logs, {name: log.log_end for name, log in logs.items()}, is_clean=is_clean)
    return disk.reopen()


def flip_in_the_third_batch(disk: SimDisk) -> None:
    """Of five in one segment."""
    path = f"orders-0/{0:020d}.log"
    data = bytearray(disk.read_file(path) or b"")
    data[len(data) // MESSAGES * 2 + 65] ^= 1
    disk.replace_file(path, bytes(data))


def cut_to_two_batches(disk: SimDisk) -> None:
    path = f"orders-0/{0:020d}.log"
    data = disk.read_file(path) or b""
    disk.replace_file(path, data[: len(data) // MESSAGES * 2])


def delete_the_third_segment(disk: SimDisk) -> None:
    disk.delete(f"orders-0/{2:020d}.log")


def delete_all_after_the_second_segment(disk: SimDisk) -> None:
    for base in (2, 3, 4):
        for suffix in ("log", "index", "timeindex"):
            disk.delete(f"orders-0/{base:020d}.{suffix}")


def found_and_accepted(disk: SimDisk) -> LogLoss:
    lost = AcceptedLoss(disk, ORDERS)
    loss = lost.find()
    lost.accept(loss)
    return loss


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    ("value", "damage"),
    [
        (b"small", flip_in_the_third_batch),
        (b"small", cut_to_two_batches),
        (LARGE, delete_the_third_segment),
        (LARGE, delete_all_after_the_second_segment),
    ],
)
def test_a_log_opens_with_what_stands_before_the_damage_once_that_is_accepted(
    value: bytes, damage: Damage, is_clean: bool
) -> None:
    disk = a_full_disk(value=value, is_clean=is_clean)
    damage(disk)

    loss = found_and_accepted(disk)

    assert (loss.recorded_end, loss.intact_end, loss.opens_at, loss.offsets_lost) == (5, 2, 2, 3)
    # It holds over a power cut, and over a start that comes to nothing.
    for _ in range(2):
        disk.crash()
        disk = disk.reopen()
        folder = open_folder(disk)
        log = open_log(folder)
        assert (log.log_start, log.log_end) == (0, 2)
    append(log, b"new")
    assert folder.close({ORDERS: log, RIDES: (rides := open_log(folder, RIDES))}, {}) is True
    assert rides.log_end == MESSAGES
    assert open_log(open_folder(disk.reopen())).log_end == 3


@pytest.mark.parametrize("damage", [flip_in_the_third_batch, cut_to_two_batches])
def test_without_that_it_stays_offline(damage: Damage) -> None:
    disk = a_full_disk(value=b"small", is_clean=False)
    damage(disk)
    AcceptedLoss(disk, ORDERS).find()
    for _ in range(2):
        with pytest.raises(StorageError, match=r"respool log accept-loss DATA_FOLDER orders-0"):
            open_log(open_folder(disk.reopen()))


@pytest.mark.parametrize("what", ["orders-0", f"orders-0/{0:020d}.log"])
def test_a_log_with_nothing_left_goes_on_at_its_old_end(what: str) -> None:
    disk = a_full_disk(value=b"small")
    disk.delete(what)
    with pytest.raises(StorageError, match=r"offset 5.*accept-loss DATA_FOLDER orders-0"):
        open_log(open_folder(disk.reopen()))

    loss = found_and_accepted(disk.reopen())

    assert (loss.has_folder, loss.intact_end) == (what != "orders-0", None)
    assert (loss.recorded_end, loss.opens_at, loss.offsets_lost) == (5, 5, 5)
    disk.crash()
    disk = disk.reopen()
    folder = open_folder(disk)
    log = open_log(folder)
    assert (log.log_start, log.log_end, folder.high_watermark(ORDERS)) == (5, 5, 5)
    append(log, b"new")
    assert folder.close({ORDERS: log, RIDES: open_log(folder, RIDES)}, {ORDERS: log.log_end})
    log = open_log(open_folder(disk.reopen()))
    assert (log.log_start, log.log_end) == (5, 6)


def test_only_this_partition_is_spoken_of_anew() -> None:
    disk = a_full_disk(value=b"small")
    cut_to_two_batches(disk)
    found_and_accepted(disk)
    assert OffsetCheckpoint(disk, RECOVERY_POINT).read() == {ORDERS: 2, RIDES: 5}
    assert OffsetCheckpoint(disk, HIGH_WATERMARK).read() == {ORDERS: 2, RIDES: 5}
    assert not disk.exists(CLEAN_MARKER)


def test_looking_changes_nothing_and_a_sound_log_has_lost_nothing() -> None:
    disk = a_full_disk(value=b"small")
    loss = AcceptedLoss(disk, ORDERS).find()
    assert (loss.intact_end, loss.damage, loss.offsets_lost) == (5, "", 0)
    folder = open_folder(disk)
    assert folder.was_clean
    assert open_log(folder).log_end == MESSAGES


def test_what_was_deleted_before_is_no_loss() -> None:
    disk = SimDisk(Random(1))
    folder = open_folder(disk)
    log = open_log(folder)
    for _ in range(MESSAGES):
        append(log, b"small")
    pending = log.begin_sync()
    assert pending is not None
    pending.run()
    log.finish_sync(pending)
    log.raise_log_start(Offset(4))
    assert folder.close({ORDERS: log}, {ORDERS: log.log_end})
    disk = disk.reopen()
    cut_to_two_batches(disk)

    loss = found_and_accepted(disk)

    assert (loss.log_start, loss.opens_at, loss.offsets_lost) == (4, 4, 1)
    log = open_log(open_folder(disk.reopen()))
    assert (log.log_start, log.log_end) == (4, 4)


def test_a_damaged_checkpoint_is_not_written_over() -> None:
    disk = a_full_disk(value=b"small")
    disk.replace_file(HIGH_WATERMARK, b"rubbish")
    with pytest.raises(CheckpointDamaged):
        AcceptedLoss(disk, ORDERS)
    assert disk.read_file(HIGH_WATERMARK) == b"rubbish"


def test_a_partition_that_never_was_is_not_known() -> None:
    disk = a_full_disk(value=b"small")
    assert AcceptedLoss(disk, ORDERS).is_known
    assert not AcceptedLoss(disk, TopicPartition("orders", 1)).is_known
    disk.delete("orders-0")
    assert AcceptedLoss(disk, ORDERS).is_known
