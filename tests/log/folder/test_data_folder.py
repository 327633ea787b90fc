"""The data folder: ours and nobody else's, and believed after a crash no further than it deserves."""

import os
from contextlib import suppress
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.log.folder.clean_marker import CLEAN_MARKER
from respool.log.folder.data_folder import DataFolder, cluster_id_text
from respool.log.folder.folder_checkpoints import (
    CLEANED_END,
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    OffsetCheckpoint,
)
from respool.log.folder.folder_identity import IDENTITY_NAME
from respool.log.partition_log import PartitionLog
from respool.model.errors import (
    DataFolderMismatch,
    DiskFailed,
    DiskFull,
    HandlesExhausted,
    PartitionFolderMissing,
    PartitionFolderUnclear,
    SegmentCorrupt,
    StorageError,
)
from respool.model.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from respool.model.topic_config import TopicConfig
from respool.records.batch import RecordBatch, read_header
from respool.records.build import NewRecord, build_batch
from respool.records.markers import EndTransactionMarker
from respool.sim.disk.disk_faults import DiskCall, ProcessGone
from respool.sim.disk.simulated_disk import SimDisk
from sim.planted_bugs import first_record_before_its_folder

EXAMPLES = 3_000 if os.environ.get("RESPOOL_FUZZ") == "long" else 100
NOON = 1_700_000_000_000
CLUSTER = cluster_id_text(UUID(int=0xC1))
ORDERS = TopicPartition("orders", 0)
RIDES = TopicPartition("rides", 3)
FIRST = TopicId(UUID(int=1))
SECOND = TopicId(UUID(int=2))
CONFIG = TopicConfig()
Logs = dict[TopicPartition, PartitionLog]


def a_disk(seed: int = 1) -> SimDisk:
    return SimDisk(Random(seed))


def open_folder(disk: SimDisk, *, broker: int = 1, cluster_id: str | None = None) -> DataFolder:
    return DataFolder.open(
        disk=disk, broker_id=BrokerId(broker), cluster_id=cluster_id, new_cluster_id=CLUSTER
    )


def open_log(
    folder: DataFolder, name: TopicPartition = ORDERS, *, topic_id: TopicId = FIRST
) -> PartitionLog:
    return folder.open_partition(name, topic_id=topic_id, config=CONFIG, now_ms=NOON)


def append(log: PartitionLog, text: str = "a ride", *, epoch: int = 0) -> None:
    data = build_batch([NewRecord(value=text.encode(), timestamp_ms=NOON)])
    batch = RecordBatch(read_header(data), data)
    log.append(batch, leader_epoch=LeaderEpoch(epoch), now_ms=NOON)


def open_with_record(folder: DataFolder, name: TopicPartition = ORDERS) -> PartitionLog:
    """A log that has a folder: it has a synced record."""
    log = open_log(folder, name)
    append(log)
    sync(log)
    return log


def in_transaction(log: PartitionLog) -> None:
    data = build_batch(
        [NewRecord(value=b"a ride", timestamp_ms=NOON)],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    batch = RecordBatch(read_header(data), data)
    guard = log.begin_verification(batch.header)
    log.append(batch, leader_epoch=LeaderEpoch(0), now_ms=NOON, guard=guard)


def sync(log: PartitionLog) -> None:
    pending = log.begin_sync()
    if pending is not None:
        pending.run()
        log.finish_sync(pending)


def log_bytes(disk: SimDisk, name: TopicPartition = ORDERS) -> bytes:
    return disk.read_file(f"{name}/{0:020d}.log") or b""


def checkpoint(disk: SimDisk, name: str) -> dict[TopicPartition, Offset]:
    return OffsetCheckpoint(disk, name).read()


def no_checkpoints(disk: SimDisk) -> bool:
    return not any(checkpoint(disk, name) for name in (RECOVERY_POINT, LOG_START, HIGH_WATERMARK))


def close(folder: DataFolder, logs: Logs, *, is_clean: bool = True) -> bool:
    ends = {name: log.log_end for name, log in logs.items()}
    return folder.close(logs, ends, is_clean=is_clean)


# Whose folder


def test_an_empty_folder_becomes_ours_for_good() -> None:
    disk = a_disk()
    assert open_folder(disk).cluster_id == CLUSTER
    disk.crash()
    disk = disk.reopen()
    assert (
        DataFolder.open(disk=disk, broker_id=BrokerId(1), new_cluster_id="another").cluster_id
        == CLUSTER
    )


def test_a_cluster_id_that_is_given_is_taken() -> None:
    disk = a_disk()
    assert open_folder(disk, cluster_id="given").cluster_id == "given"
    assert open_folder(disk.reopen(), cluster_id="given").cluster_id == "given"


def test_another_brokers_folder_is_refused_and_left_as_it_is() -> None:
    disk = a_disk()
    assert close(open_folder(disk), {})
    disk = disk.reopen()
    before = disk.list_folder("")
    with pytest.raises(DataFolderMismatch, match="broker 1, this is broker 2"):
        open_folder(disk, broker=2)
    with pytest.raises(DataFolderMismatch, match=f"cluster {CLUSTER}, this is cluster other"):
        open_folder(disk, cluster_id="other")
    assert disk.list_folder("") == before
    assert open_folder(disk).was_clean


def test_partitions_without_meta_properties_are_not_taken_over() -> None:
    disk = a_disk()
    open_with_record(open_folder(disk))
    disk.delete(IDENTITY_NAME)
    with pytest.raises(DataFolderMismatch, match=r"no meta\.properties"):
        open_folder(disk)
    assert disk.list_folder("") == ["orders-0"]


# Committed or not


def test_a_replicated_log_is_committed_up_to_the_high_watermark_written_down() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    in_transaction(log)
    commit = EndTransactionMarker(
        producer_id=1, producer_epoch=0, coordinator_epoch=0, is_commit=True
    )
    log.append_marker(commit, leader_epoch=LeaderEpoch(0), now_ms=NOON)
    assert folder.close({ORDERS: log}, {ORDERS: Offset(1)})
    folder = open_folder(disk.reopen())
    log = folder.open_partition(
        ORDERS, topic_id=FIRST, config=CONFIG, now_ms=NOON, is_replicated=True
    )
    assert folder.high_watermark(ORDERS) == 1
    assert log.last_stable_offset(Offset(1)) == 0
    assert open_log(open_folder(disk.reopen())).last_stable_offset(Offset(1)) == 1


# Clean and unclean


def test_a_new_folder_was_not_closed_cleanly_and_need_not_be() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    assert (folder.is_new, folder.was_clean) == (True, False)
    assert not open_folder(disk.reopen()).is_new


def test_a_clean_stop_makes_a_clean_start_of_the_same_log() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    append(log)
    append(log)
    assert close(folder, {ORDERS: log})
    disk.crash()
    disk = disk.reopen()
    folder = open_folder(disk)
    assert folder.was_clean
    log = open_log(folder)
    assert (log.log_start, log.synced_end, log.log_end) == (0, 2, 2)
    assert folder.high_watermark(ORDERS) == 2


def test_the_marker_is_gone_before_anything_can_be_appended() -> None:
    disk = a_disk()
    assert close(open_folder(disk), {})
    disk = disk.reopen()
    assert open_folder(disk).was_clean
    disk.crash()
    disk = disk.reopen()
    assert not disk.exists(CLEAN_MARKER)
    assert not open_folder(disk).was_clean


def test_a_stop_that_is_said_not_to_be_clean_is_not() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    assert not close(folder, {ORDERS: open_log(folder)}, is_clean=False)
    assert not open_folder(disk.reopen()).was_clean


def test_a_log_that_is_not_among_those_closed_makes_the_stop_unclean() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    rides = open_log(folder, RIDES)
    append(open_log(folder, ORDERS))
    assert not close(folder, {RIDES: rides})
    assert not disk.exists(CLEAN_MARKER)


def test_a_log_that_could_not_be_opened_makes_the_stop_unclean_and_disturbs_no_other() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    assert close(folder, {ORDERS: open_with_record(folder)})
    disk = disk.reopen()
    folder = open_folder(disk)
    disk.faults.fail("read", path="orders-0/*", times=None)
    with pytest.raises(StorageError):
        open_log(folder, ORDERS)
    rides = open_log(folder, RIDES)
    append(rides)
    assert not close(folder, {RIDES: rides})
    disk = disk.reopen()
    folder = open_folder(disk)
    assert not folder.was_clean
    assert open_log(folder, RIDES).log_end == 1
    assert open_log(folder, ORDERS).log_end == 1


def test_a_log_that_does_not_close_makes_the_stop_unclean() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    orders, rides = open_log(folder, ORDERS), open_log(folder, RIDES)
    append(orders)
    append(rides)
    disk.faults.fail("sync", path="orders-0/*", times=None)
    assert not close(folder, {ORDERS: orders, RIDES: rides})
    # The other one was closed and written down all the same.
    assert checkpoint(disk, RECOVERY_POINT) == {RIDES: 1}
    assert not disk.exists(CLEAN_MARKER)


def test_a_log_that_closes_without_being_synced_makes_the_stop_unclean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    append(log)
    monkeypatch.setattr(PartitionLog, "close", lambda _: None)
    assert not close(folder, {ORDERS: log})
    assert checkpoint(disk, RECOVERY_POINT) == {}


def test_without_its_checkpoints_a_stop_is_not_clean() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    append(log)
    disk.faults.fail("replace", path=RECOVERY_POINT)
    with pytest.raises(DiskFailed):
        close(folder, {ORDERS: log})
    assert not disk.exists(CLEAN_MARKER)


def test_a_log_nobody_opened_stays_clean_only_if_it_was() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    assert close(folder, {ORDERS: open_with_record(folder)})
    disk = disk.reopen()
    # Not opened this time: as clean as before.
    assert close(open_folder(disk), {})
    disk = disk.reopen()
    open_folder(disk)
    # Now nobody knows, and opening no log at all does not tell.
    disk = disk.reopen()
    assert not close(open_folder(disk), {})


def test_a_log_put_there_while_the_broker_was_down_is_not_taken_for_clean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = a_disk()
    folder = open_folder(disk)
    assert close(folder, {ORDERS: open_with_record(folder)})
    disk = disk.reopen()
    disk.rename("orders-0", "rides-3")
    assert [clean for _, clean in opened_with(monkeypatch, open_folder(disk), RIDES)] == [False]


def test_a_partition_opened_twice_is_clean_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = a_disk()
    folder = open_folder(disk)
    assert close(folder, {ORDERS: open_with_record(folder)})
    folder = open_folder(disk.reopen())
    assert [clean for _, clean in opened_with(monkeypatch, folder, ORDERS, ORDERS)] == [True, False]


def opened_with(
    monkeypatch: pytest.MonkeyPatch, folder: DataFolder, *names: TopicPartition
) -> list[tuple[Offset, bool]]:
    """Open these; return the recovery points and the cleanliness their logs were opened with."""
    seen = []
    real_open = PartitionLog.open

    def spy(**arguments: Any) -> PartitionLog:
        seen.append((arguments["recovery_point"], arguments["clean"]))
        return real_open(**arguments)

    monkeypatch.setattr(PartitionLog, "open", spy)
    for name in names:
        open_log(folder, name)
    return seen


# Checkpoints


def test_only_what_is_synced_becomes_a_recovery_point() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    append(log)
    sync(log)
    append(log)
    folder.write_checkpoints({ORDERS: log}, {ORDERS: Offset(1)})
    assert checkpoint(disk, RECOVERY_POINT) == {ORDERS: 1}
    assert checkpoint(disk, LOG_START) == {ORDERS: 0}
    assert checkpoint(disk, HIGH_WATERMARK) == {ORDERS: 1}


def test_checkpoints_leave_partitions_alone_that_are_not_named() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    logs = {name: open_log(folder, name) for name in (ORDERS, RIDES)}
    for log in logs.values():
        append(log)
        sync(log)
    folder.write_checkpoints(logs, {})
    append(logs[ORDERS])
    sync(logs[ORDERS])
    folder.write_checkpoints({ORDERS: logs[ORDERS]}, {})
    assert checkpoint(disk, RECOVERY_POINT) == {ORDERS: 2, RIDES: 1}


def test_after_a_crash_a_log_is_recovered_from_its_recovery_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    append(log)
    sync(log)
    folder.write_checkpoints({ORDERS: log}, {ORDERS: Offset(1)})
    append(log)
    disk.kill()
    folder = open_folder(disk.reopen())
    assert opened_with(monkeypatch, folder, ORDERS) == [(1, False)]
    assert folder.high_watermark(ORDERS) == 1


def test_a_log_that_lost_its_end_is_refused_and_stays_as_it_is() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    append(log)
    append(log)
    sync(log)
    folder.write_checkpoints({ORDERS: log}, {ORDERS: Offset(2)})
    disk.kill()
    disk = disk.reopen()
    file = disk.open_log(f"orders-0/{0:020d}.log")
    file.truncate(file.size // 2)
    for _ in range(2):
        with pytest.raises(SegmentCorrupt):
            open_log(open_folder(disk))
    assert checkpoint(disk, RECOVERY_POINT) == {ORDERS: 2}


def test_where_a_log_starts_is_remembered() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    append(log)
    append(log)
    log.raise_log_start(Offset(1))
    assert close(folder, {ORDERS: log})
    folder = open_folder(disk.reopen())
    assert open_log(folder).log_start == 1


def test_how_far_a_log_was_compacted_is_remembered_as_long_as_it_is_there() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    compacted = TopicConfig.parse({"cleanup.policy": "compact"})
    log = folder.open_partition(ORDERS, topic_id=FIRST, config=compacted, now_ms=0)
    append(log)
    append(log)
    log._compaction.cleaned_end = Offset(1)
    assert close(folder, {ORDERS: log})
    assert checkpoint(disk, CLEANED_END) == {ORDERS: 1}
    # No longer compacted: it may have gaps all the same.
    disk = disk.reopen()
    folder = open_folder(disk)
    log = open_log(folder)
    assert log.cleaned_end == 1
    assert close(folder, {ORDERS: log})
    assert checkpoint(disk, CLEANED_END) == {ORDERS: 1}
    folder = open_folder(disk.reopen())
    folder.remove_partition(ORDERS, open_log(folder))
    assert open_log(folder).cleaned_end == 0


def test_of_a_log_that_was_never_compacted_nothing_is_said() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    append(log)
    assert close(folder, {ORDERS: log})
    assert checkpoint(disk, CLEANED_END) == {}


@pytest.mark.parametrize("name", [RECOVERY_POINT, LOG_START, HIGH_WATERMARK])
def test_a_damaged_checkpoint_is_told_and_done_without(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    append(log)
    assert close(folder, {ORDERS: log})
    disk = disk.reopen()
    disk.replace_file(name, b"rubbish")
    folder = open_folder(disk)
    assert f"{name} is damaged" in caplog.text
    assert not folder.was_clean
    ((recovery_point, clean),) = opened_with(monkeypatch, folder, ORDERS)
    assert not clean
    assert recovery_point == (0 if name == RECOVERY_POINT else 1)


# Partitions


def test_the_folders_of_partitions_are_found() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    names = (ORDERS, RIDES, TopicPartition("a-1", 2))
    logs = {name: open_with_record(folder, name) for name in names}
    folder.remove_partition(RIDES, logs.pop(RIDES))
    assert folder.partition_folders() == [TopicPartition("a-1", 2), ORDERS]


def test_a_new_partition_has_a_folder_from_its_first_record_on() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    assert folder.partition_folders() == []
    append(log)
    assert folder.partition_folders() == [ORDERS]
    sync(log)
    assert disk.read_file("orders-0/partition.metadata") == (
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    )


def test_an_empty_log_without_a_folder_is_closed_cleanly_and_opened_again() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    log.on_leader_epoch(LeaderEpoch(3))
    assert log.begin_sync() is None
    assert close(folder, {ORDERS: log})
    folder = open_folder(disk.reopen())
    assert folder.was_clean
    assert folder.partition_folders() == []
    log = open_log(folder)
    assert (log.log_end, log.latest_epoch) == (0, -1)
    assert folder.remove_partition(ORDERS, log) is None


def end_after_power_cut(seed: int) -> Offset:
    """The end of a log whose first record was synced just before."""
    disk = SimDisk(Random(seed))
    folder = open_folder(disk)
    log = open_log(folder)
    log.on_leader_epoch(LeaderEpoch(0))
    append(log)
    sync(log)
    folder.write_checkpoints({ORDERS: log}, {ORDERS: Offset(1)})
    disk.crash()
    log = open_log(open_folder(disk.reopen()))
    assert log.latest_epoch == 0
    return log.log_end


@pytest.mark.parametrize("seed", range(20))
def test_a_first_record_that_is_synced_survives_a_power_cut_with_all_its_names(seed: int) -> None:
    assert end_after_power_cut(seed) == 1


def test_a_first_record_synced_before_its_folder_is_found_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted bug that the test above is there for."""
    first_record_before_its_folder(monkeypatch)
    with pytest.raises(StorageError):
        {end_after_power_cut(seed) for seed in range(20)}


@pytest.mark.parametrize("seed", range(40))
def test_a_first_record_that_was_not_synced_leaves_nothing_that_is_in_the_way(seed: int) -> None:
    disk = SimDisk(Random(seed))
    folder = open_folder(disk)
    log = open_log(folder)
    append(log)
    # A checkpoint of it would make a missing folder look like a loss.
    folder.write_checkpoints({ORDERS: log}, {ORDERS: Offset(1)})
    disk.crash()
    disk = disk.reopen()
    folder = open_folder(disk)
    log = open_log(folder)
    assert log.log_end in (0, 1)
    append(log)
    sync(log)
    end = log.log_end
    # Recovered or new, from here on it is durable.
    disk.crash()
    assert open_log(open_folder(disk.reopen())).log_end == end


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_at_any_change_of_the_first_sync_is_survived(seed: int) -> None:
    for changes in count():
        disk = SimDisk(Random(1000 * seed + changes))
        folder = open_folder(disk)
        log = open_log(folder)
        append(log)
        pending = log.begin_sync()
        assert pending is not None
        disk.faults.cut_power_after(changes)
        try:
            pending.run()
        except ProcessGone:
            disk = disk.reopen()
            log = open_log(open_folder(disk))
            assert log.log_end in (0, 1)
            append(log)
            sync(log)
            assert open_log(open_folder(disk.reopen())).log_end == log.log_end
        else:
            break
    assert changes > 5


@pytest.mark.parametrize("changes", range(7))
@pytest.mark.parametrize("seed", range(10))
def test_a_process_killed_during_the_first_sync_leaves_it_to_the_next(
    seed: int, changes: int
) -> None:
    """The next one finds all in the page cache, and must not count it as durable."""
    disk = SimDisk(Random(100 * seed + changes))
    log = open_log(open_folder(disk))
    append(log)
    pending = log.begin_sync()
    assert pending is not None
    for call in ("open", "sync", "rename", "sync_folder", "replace")[: changes + 1][-1:]:
        disk.faults.fail(call, nth=1 + changes // 5, path="orders-0*")  # type: ignore[arg-type]
    with suppress(StorageError):
        pending.run()
    disk = disk.reopen()
    folder = open_folder(disk)
    log = open_log(folder)
    end = log.log_end
    folder.write_checkpoints({ORDERS: log}, {ORDERS: end})
    disk.crash()
    assert open_log(open_folder(disk.reopen())).log_end == end == 1


def test_an_epoch_that_begins_during_the_first_sync_gets_another_one() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    log.on_leader_epoch(LeaderEpoch(0))
    append(log)
    pending = log.begin_sync()
    assert pending is not None
    append(log, epoch=1)
    pending.run()
    log.finish_sync(pending)
    assert log.synced_end == 1
    assert not log.is_folder_durable
    sync(log)
    assert log.is_folder_durable
    assert disk.read_file("orders-0/leader-epoch-checkpoint") == b"0\n2\n0 0\n1 1\n"


def test_a_full_disk_does_not_fail_the_first_sync() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    log.on_leader_epoch(LeaderEpoch(0))
    append(log)
    disk.faults.fail("replace", path="orders-0/*", error=DiskFull)
    sync(log)
    assert log.synced_end == 1
    disk.crash()
    log = open_log(open_folder(disk.reopen()))
    assert (log.log_end, log.latest_epoch) == (1, 0)


def test_too_many_open_files_delay_the_first_sync() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    append(log)
    disk.faults.fail("sync_folder", path="orders-0", error=HandlesExhausted)
    pending = log.begin_sync()
    assert pending is not None
    with pytest.raises(HandlesExhausted):
        pending.run()
    append(log)
    sync(log)
    disk.crash()
    assert open_log(open_folder(disk.reopen())).log_end == 2


def test_a_failed_first_sync_is_final() -> None:
    disk = a_disk()
    log = open_log(open_folder(disk))
    append(log)
    disk.faults.fail("sync", path="orders-0/partition.metadata.new")
    pending = log.begin_sync()
    assert pending is not None
    with pytest.raises(DiskFailed):
        pending.run()
    with pytest.raises(DiskFailed):
        append(log)


@pytest.mark.parametrize(
    ("call", "path"),
    [
        ("append", "orders-0/partition.metadata.new"),
        ("open", "orders-0/*.log"),
        ("map", "orders-0/*"),
    ],
)
def test_a_first_append_that_finds_no_room_changes_nothing(call: DiskCall, path: str) -> None:
    disk = a_disk()
    log = open_log(open_folder(disk))
    disk.faults.fail(call, path=path, error=DiskFull)
    with pytest.raises(DiskFull):
        append(log)
    assert log.log_end == 0
    append(log)
    sync(log)
    assert open_log(open_folder(disk.reopen())).log_end == 1


def test_a_removed_partition_is_out_of_the_way_at_once_and_deleted_later() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    append(log)
    sync(log)
    folder.write_checkpoints({ORDERS: log}, {ORDERS: Offset(1)})
    path = folder.remove_partition(ORDERS, log)
    assert folder.partition_folders() == []
    folder.on_removed([ORDERS])
    disk.crash()
    disk = disk.reopen()
    folder = open_folder(disk)
    assert folder.partition_folders() == []
    assert folder.folders_to_delete() == [path]
    assert folder.put_strays_aside([]) == []
    assert close(folder, {})
    assert no_checkpoints(disk)


@pytest.mark.parametrize("seed", range(10))
def test_a_removed_partition_that_a_power_cut_brings_back_is_one_that_nobody_knows(
    seed: int,
) -> None:
    disk = SimDisk(Random(seed))
    folder = open_folder(disk)
    log = open_log(folder)
    append(log)
    sync(log)
    folder.write_checkpoints({ORDERS: log}, {ORDERS: Offset(1)})
    folder.remove_partition(ORDERS, log)
    disk.crash()
    folder = open_folder(disk.reopen())
    came_back = folder.partition_folders()
    assert len(came_back) + len(folder.folders_to_delete()) == 1
    assert len(folder.put_strays_aside([])) == len(came_back)
    assert folder.partition_folders() == []
    # What is written down of it is not held against a new one of the name.
    assert open_log(folder, topic_id=SECOND).log_end == 0


def test_checkpoints_forget_a_removed_partition_with_the_next_writing() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    folder.write_checkpoints({ORDERS: log}, {ORDERS: Offset(0)})
    folder.remove_partition(ORDERS, log)
    folder.write_checkpoints({}, {})
    assert no_checkpoints(disk)


def test_removing_what_could_not_be_opened_or_is_not_there() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    open_with_record(folder)
    assert folder.remove_partition(ORDERS, None) is not None
    assert folder.remove_partition(ORDERS, None) is None
    assert close(folder, {})


def test_a_topic_made_anew_starts_empty_however_often() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    for number in range(3):
        log = open_log(folder, topic_id=TopicId(UUID(int=number)))
        assert log.log_end == 0
        append(log)
        folder.remove_partition(ORDERS, log)
    assert len(folder.folders_to_delete()) == 3


def test_an_earlier_topics_folder_is_put_aside_and_not_read() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder, topic_id=FIRST)
    append(log)
    assert close(folder, {ORDERS: log})
    old = log_bytes(disk)
    disk = disk.reopen()
    folder = open_folder(disk)
    log = open_log(folder, topic_id=SECOND)
    assert (log.log_start, log.log_end) == (0, 0)
    stray = "orders-0.00000000000000000000000000000001-stray"
    assert disk.read_file(f"{stray}/{0:020d}.log") == old
    assert folder.folders_to_delete() == []


def test_what_checkpoints_said_of_the_earlier_topic_is_forgotten_first() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder, topic_id=FIRST)
    append(log)
    assert close(folder, {ORDERS: log})
    disk = disk.reopen()
    open_log(open_folder(disk), topic_id=SECOND)
    disk.crash()
    disk = disk.reopen()
    assert no_checkpoints(disk)


def test_checkpoints_collected_before_a_removal_do_not_speak_of_the_new_log() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    old = open_log(folder, topic_id=FIRST)
    append(old)
    sync(old)
    collected = {ORDERS: old}
    folder.remove_partition(ORDERS, old)
    folder.write_checkpoints(collected, {ORDERS: Offset(1)})
    assert checkpoint(disk, RECOVERY_POINT) == {}
    open_log(folder, topic_id=SECOND)
    folder.write_checkpoints(collected, {ORDERS: Offset(1)})
    assert checkpoint(disk, RECOVERY_POINT) == {}
    assert checkpoint(disk, HIGH_WATERMARK) == {}


def test_a_log_without_metadata_is_neither_read_nor_lost() -> None:
    disk = a_disk()
    open_with_record(open_folder(disk))
    disk = disk.reopen()
    disk.delete("orders-0/partition.metadata")
    folder = open_folder(disk)
    with pytest.raises(PartitionFolderUnclear, match=r"no partition\.metadata"):
        open_log(folder)
    disk.replace_file("orders-0/partition.metadata", b"rubbish")
    with pytest.raises(PartitionFolderUnclear, match="damaged"):
        open_log(folder)
    assert disk.exists(f"orders-0/{0:020d}.log")
    # It can still be got out of the way.
    assert folder.remove_partition(ORDERS, None) is not None


def test_an_empty_folder_left_by_a_crash_is_taken() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    disk.make_folder("orders-0")
    assert open_log(folder).log_end == 0


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_partition_whose_folder_is_missing_is_not_made_anew_however_often_it_is_tried(
    is_clean: bool,
) -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    append(log)
    append(log)
    close(folder, {ORDERS: log}, is_clean=is_clean)
    disk.rename("orders-0", "elsewhere")
    for _ in range(2):
        disk = disk.reopen()
        folder = open_folder(disk)
        with pytest.raises(
            PartitionFolderMissing,
            match=r"orders-0 is missing.*offset 2; .*restore orders-0 from a backup",
        ):
            open_log(folder)
        rides = open_log(folder, RIDES)
        folder.put_strays_aside([ORDERS, RIDES])
        assert not close(folder, {RIDES: rides})
    disk.rename("elsewhere", "orders-0")
    assert open_log(open_folder(disk.reopen())).log_end == 2


def test_a_folder_that_lost_all_its_files_is_missed_too() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    append(log)
    assert close(folder, {ORDERS: log})
    disk.rename("orders-0", "elsewhere")
    disk.make_folder("orders-0")
    with pytest.raises(PartitionFolderMissing, match="orders-0 is empty"):
        open_log(open_folder(disk.reopen()))


def test_a_folder_is_not_missed_where_nothing_was() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    assert close(folder, {ORDERS: open_log(folder)})
    disk.delete("orders-0")
    assert open_log(open_folder(disk.reopen())).log_end == 0


@pytest.mark.parametrize("topic", ["orders", "o" * 249])
def test_a_removed_partition_is_not_taken_for_a_lost_one(topic: str) -> None:
    name = TopicPartition(topic, 0)
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder, name)
    append(log)
    sync(log)
    folder.write_checkpoints({name: log}, {})
    path = folder.remove_partition(name, log)
    # The power goes before that is written down, after the topic was made again in the metadata store.
    disk.crash()
    assert open_log(open_folder(disk.reopen()), name, topic_id=SECOND).log_end == 0
    assert path is not None


def test_once_a_removal_is_written_down_its_folder_may_be_deleted() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    logs = {name: open_log(folder, name) for name in (ORDERS, RIDES)}
    for log in logs.values():
        append(log)
        sync(log)
    folder.write_checkpoints(logs, {})
    path = folder.remove_partition(ORDERS, logs[ORDERS])
    assert path is not None
    folder.on_removed([ORDERS])
    disk.delete(path)
    disk.crash()
    disk = disk.reopen()
    assert checkpoint(disk, RECOVERY_POINT) == {RIDES: 1}
    assert open_log(open_folder(disk), topic_id=SECOND).log_end == 0


def test_a_partition_made_anew_before_a_removal_is_written_down_is_not_forgotten() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    folder.remove_partition(ORDERS, open_log(folder))
    log = open_log(folder, topic_id=SECOND)
    append(log)
    sync(log)
    folder.write_checkpoints({ORDERS: log}, {})
    folder.on_removed([ORDERS])
    assert checkpoint(disk, RECOVERY_POINT) == {ORDERS: 1}


def test_a_lost_partition_that_is_no_longer_wanted_is_forgotten() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    append(log)
    assert close(folder, {ORDERS: log})
    disk.delete("orders-0")
    disk = disk.reopen()
    folder = open_folder(disk)
    assert folder.put_strays_aside([]) == []
    assert no_checkpoints(disk)
    assert open_log(folder, topic_id=SECOND).log_end == 0


SEGMENT_CONFIG = replace(CONFIG, segment_bytes=100)


def append_rolling(log: PartitionLog, count: int) -> None:
    log.update_config(SEGMENT_CONFIG)
    for number in range(count):
        append(log, f"a ride {number}")


@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_before_the_first_sync_never_raises_the_log_start(seed: int) -> None:
    """The first segment's name was lost, a later one's was not: a replica opened at 3, and its leader followed it."""
    disk = a_disk(seed)
    append_rolling(open_log(open_folder(disk)), 4)
    assert len([name for name in disk.list_folder("orders-0") if name.endswith(".log")]) == 4
    # By another partition's first sync.
    disk.sync_folder("")
    disk.crash()
    log = open_log(open_folder(disk.reopen()))
    assert log.log_start == 0


def test_segments_without_the_first_one_are_put_aside_if_nothing_was_synced() -> None:
    disk = a_disk()
    append_rolling(open_log(open_folder(disk)), 2)
    disk.delete(f"orders-0/{0:020d}.log")
    disk = disk.reopen()
    log = open_log(open_folder(disk))
    assert (log.log_start, log.log_end) == (0, 0)
    stray = "orders-0.00000000000000000000000000000001-stray"
    assert disk.exists(f"{stray}/{1:020d}.log")


def test_a_killed_broker_keeps_all_segments_that_were_not_synced() -> None:
    disk = a_disk()
    append_rolling(open_log(open_folder(disk)), 4)
    log = open_log(open_folder(disk.reopen()))
    assert (log.log_start, log.log_end) == (0, 4)


def test_synced_segments_without_the_first_one_stay_where_they_are() -> None:
    """An operator may have deleted it, or the checkpoints: what was on disk is not taken for a torn new log."""
    disk = a_disk()
    log = open_with_record(open_folder(disk))
    append_rolling(log, 3)
    sync(log)
    disk.delete(f"orders-0/{0:020d}.log")
    disk = disk.reopen()
    log = open_log(open_folder(disk))
    assert (log.log_start, log.log_end) == (1, 4)


def test_strays_are_put_aside_not_deleted_and_forgotten() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    logs = {name: open_with_record(folder, name) for name in (ORDERS, RIDES)}
    assert close(folder, logs)
    disk = disk.reopen()
    folder = open_folder(disk)
    orders = open_log(folder, ORDERS)
    assert folder.put_strays_aside([ORDERS]) == ["rides-3.00000000000000000000000000000001-stray"]
    assert folder.put_strays_aside([ORDERS]) == []
    assert folder.partition_folders() == [ORDERS]
    assert folder.folders_to_delete() == []
    assert close(folder, {ORDERS: orders})
    assert checkpoint(disk, RECOVERY_POINT) == {ORDERS: 1}


# Several threads


class SpyGuard:
    """A lock for one thread, which knows whether it is held."""

    def __init__(self) -> None:
        self.is_held = False

    def __enter__(self) -> None:
        assert not self.is_held, "a lock taken twice waits for ever"
        self.is_held = True

    def __exit__(self, *_: object) -> None:
        self.is_held = False


def test_the_guard_is_held_for_every_change_and_not_while_a_log_is_recovered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, guard = a_disk(), SpyGuard()
    folder = DataFolder.open(disk=disk, broker_id=BrokerId(1), new_cluster_id=CLUSTER, guard=guard)
    real_open, real_replace, real_rename = PartitionLog.open, SimDisk.replace_file, SimDisk.rename

    def open_unguarded(**arguments: Any) -> PartitionLog:
        assert not guard.is_held
        return real_open(**arguments)

    def replace_guarded(disk: SimDisk, path: str, content: bytes) -> None:
        assert guard.is_held or path.startswith("orders-0/")
        real_replace(disk, path, content)

    def rename_guarded(disk: SimDisk, source: str, target: str) -> None:
        assert guard.is_held
        real_rename(disk, source, target)

    monkeypatch.setattr(PartitionLog, "open", open_unguarded)
    monkeypatch.setattr(SimDisk, "replace_file", replace_guarded)
    monkeypatch.setattr(SimDisk, "rename", rename_guarded)
    old = open_log(folder, topic_id=FIRST)
    folder.write_checkpoints({ORDERS: old}, {})
    log = open_log(folder, topic_id=SECOND)
    folder.write_checkpoints({ORDERS: log}, {})
    folder.remove_partition(ORDERS, log)
    log = open_log(folder, topic_id=FIRST)
    folder.put_strays_aside([])
    log = open_log(folder, topic_id=FIRST)
    assert close(folder, {ORDERS: log})
    assert not guard.is_held


# The power may go at any moment


class Machine:
    """A broker's disk over several lives, what each log must still hold, and what it may not."""

    def __init__(self, seed: int) -> None:
        self.disk = SimDisk(Random(seed))
        # As the metadata store has it: which topic each partition is of.
        self.topic_ids = {ORDERS: TopicId(UUID(int=1)), RIDES: TopicId(UUID(int=2))}
        self.ids_given = 2
        # What is synced, and so must be there after any crash; of the current topic only.
        self.synced: dict[TopicPartition, bytes] = dict.fromkeys(self.topic_ids, b"")
        # Where each log starts, and where the checkpoint said it does.
        self.log_starts: dict[TopicPartition, Offset] = dict.fromkeys(self.topic_ids, Offset(0))
        self.log_starts_written = dict(self.log_starts)
        # What lay in the logs when the folder was closed cleanly; None when it was not.
        self.closed: dict[TopicPartition, bytes] | None = None
        self.written = 0

    def live(self, steps: list[str], *, changes_until_power_cut: int) -> bool:
        """One life of a broker: it ends by a clean stop, or by losing its power. Say which."""
        self.disk.faults.cut_power_after(changes_until_power_cut)
        try:
            self._start()
            for step in steps:
                getattr(self, f"_{step}")()
            self._close()
        except ProcessGone:
            stopped = False
        else:
            stopped = True
        # After a clean stop it can do no harm.
        self.disk.crash()
        self.disk = self.disk.reopen()
        return stopped

    def _start(self) -> None:
        may_be_clean = self.closed
        self.folder = open_folder(self.disk)
        if self.folder.was_clean:
            assert may_be_clean is not None, "clean, although the last life did not end so"
            for name, content in may_be_clean.items():
                assert log_bytes(self.disk, name) == content
        self.logs = {name: self._open(name) for name in self.topic_ids}
        # From here on something may be appended: only another clean stop makes a clean start.
        self.closed = None

    def _open(self, name: TopicPartition) -> PartitionLog:
        log = open_log(self.folder, name, topic_id=self.topic_ids[name])
        content = log_bytes(self.disk, name)
        assert content.startswith(self.synced[name]), f"{name} lost what was synced"
        assert self.log_starts_written[name] <= log.log_start <= self.log_starts[name]
        self.log_starts[name] = log.log_start
        assert self.folder.high_watermark(name) <= log.log_end
        topic = f" of topic {self.topic_ids[name]}".encode()
        assert content.count(topic) == content.count(b" of topic ") == log.log_end
        return log

    def _append(self) -> None:
        for name, log in self.logs.items():
            self.written += 1
            append(log, f"{self.written} of topic {self.topic_ids[name]}")

    def _sync(self) -> None:
        for name, log in self.logs.items():
            content = log_bytes(self.disk, name)
            sync(log)
            self.synced[name] = content

    def _checkpoint(self) -> None:
        high_watermarks = {name: log.synced_end for name, log in self.logs.items()}
        self.folder.write_checkpoints(self.logs, high_watermarks)
        self.log_starts_written = dict(self.log_starts)

    def _delete_records(self) -> None:
        for name, log in self.logs.items():
            self.log_starts[name] = log.synced_end
            log.raise_log_start(log.synced_end)

    def _recreate(self) -> None:
        """Delete a topic and make it again: first in the metadata store, then here."""
        self.ids_given += 1
        self.topic_ids[ORDERS] = TopicId(UUID(int=self.ids_given))
        self.synced[ORDERS] = b""
        self.log_starts[ORDERS] = self.log_starts_written[ORDERS] = Offset(0)
        self.folder.remove_partition(ORDERS, self.logs.pop(ORDERS))
        self.logs[ORDERS] = self._open(ORDERS)

    def _close(self) -> None:
        self.closed = {name: log_bytes(self.disk, name) for name in self.logs}
        high_watermarks = {name: log.log_end for name, log in self.logs.items()}
        assert self.folder.close(self.logs, high_watermarks)
        self.synced = dict(self.closed)
        self.log_starts_written = dict(self.log_starts)


A_LOT = 10_000
STEPS = st.lists(
    st.sampled_from(["append", "sync", "checkpoint", "delete_records", "recreate"]), max_size=8
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.tuples(STEPS, st.integers(0, 120)), min_size=1, max_size=5),
)
def test_no_power_cut_makes_a_lie_of_the_folder(
    seed: int, lives: list[tuple[list[str], int]]
) -> None:
    machine = Machine(seed)
    for steps, changes in lives:
        machine.live(steps, changes_until_power_cut=changes)
    assert machine.live([], changes_until_power_cut=A_LOT)


@pytest.mark.parametrize(
    "steps",
    [
        ["append", "sync", "append"],
        ["append", "sync", "checkpoint", "append"],
        ["append", "sync", "delete_records", "checkpoint", "recreate", "append", "checkpoint"],
    ],
)
def test_every_single_moment_of_a_life_may_be_its_last(steps: list[str]) -> None:
    for changes in count():
        machine = Machine(seed=changes)
        assert machine.live(steps, changes_until_power_cut=A_LOT)
        stopped = machine.live(steps, changes_until_power_cut=changes)
        assert machine.live(steps, changes_until_power_cut=A_LOT)
        if stopped:
            break


def test_logs_closed_side_by_side_beforehand_make_a_clean_stop_too() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    log = open_log(folder)
    append(log)
    assert folder.close_log(ORDERS, log)
    assert folder.close({ORDERS: log}, {}, closed={ORDERS})
    assert open_folder(disk.reopen()).was_clean


def test_a_folder_keeps_the_id_it_is_given() -> None:
    disk = a_disk()
    folder = open_folder(disk)
    assert folder.id is None
    folder.note_id(UUID(int=5))
    disk.crash()
    assert open_folder(disk.reopen()).id == UUID(int=5)
