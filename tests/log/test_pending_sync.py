"""What a sync covers, in which order, and what it means when it fails."""

import pytest

from log.log_world import FOLDER, LogWorld, batch_of
from respool.log.partition_log import PendingSync
from respool.model.errors import DiskFailed
from respool.model.ids import Offset
from respool.sim.disk.disk_faults import ProcessGone
from respool.sim.disk.simulated_disk import SimDisk


def begun(world: LogWorld) -> PendingSync:
    pending = world.log.begin_sync()
    assert pending is not None
    return pending


def test_nothing_counts_as_synced_before_the_work_is_reported() -> None:
    world = LogWorld.new()
    assert world.log.begin_sync() is None
    world.fill(3)
    end = world.log_end
    pending = begun(world)
    assert world.log.synced_end == 0
    world.fill(2)
    pending.run()
    assert world.log.synced_end == 0
    world.log.finish_sync(pending)
    # Not what was appended meanwhile: it may have come after the sync.
    assert world.log.synced_end == end < world.log_end
    world.sync()
    assert world.log.synced_end == world.log_end
    assert world.log.begin_sync() is None


def test_work_that_did_not_run_cannot_be_reported() -> None:
    world = LogWorld.new()
    world.fill(1)
    with pytest.raises(AssertionError):
        world.log.finish_sync(begun(world))
    assert world.log.synced_end == 0


def test_one_sync_covers_every_segment_since_the_last() -> None:
    world = LogWorld.new()
    world.fill(40)
    segments = world.log.segment_count
    assert segments > 3
    world.disk.counters.syncs = world.disk.counters.map_syncs = 0
    world.sync()
    assert world.disk.counters.syncs == segments
    # The indexes of all but the active one.
    assert world.disk.counters.map_syncs == 2 * (segments - 1)
    world.fill(1)
    world.disk.counters.syncs = 0
    world.sync()
    assert world.disk.counters.syncs == 1


def test_snapshots_are_written_by_the_sync_and_not_by_the_roll() -> None:
    world = LogWorld.new()
    world.fill(1)
    world.sync()
    replaced = world.disk.counters.replaced_files
    world.fill(39)
    assert world.log.segment_count > 3
    assert world.disk.counters.replaced_files == replaced
    assert world.disk.counters.syncs == 1
    world.sync()
    bases = [one.base_offset for one in world.log._parts.segments.all[1:]]
    assert world.log._parts.snapshots.offsets == bases


@pytest.mark.parametrize("what", ["sync", "sync_folder", "replace"])
def test_after_a_failure_the_log_takes_nothing_more(what: str) -> None:
    world = LogWorld.new()
    world.fill(20)
    pending = begun(world)
    world.disk.faults.fail(what)  # type: ignore[arg-type]
    with pytest.raises(DiskFailed):
        pending.run()
    assert not pending.is_done
    with pytest.raises(DiskFailed, match="an earlier sync failed"):
        world.log.append(batch_of(1), leader_epoch=world.epoch, now_ms=1)
    with pytest.raises(DiskFailed, match="an earlier sync failed"):
        world.log.begin_sync()
    with pytest.raises(DiskFailed, match="an earlier sync failed"):
        pending.run()
    with pytest.raises(DiskFailed, match="an earlier sync failed"):
        world.log.close()
    assert world.log.synced_end == 0


def test_a_full_disk_does_not_fail_a_sync_for_a_snapshot() -> None:
    world = LogWorld.new()
    world.fill(20)
    world.disk.faults.capacity_bytes = 1
    world.sync()
    assert world.log.synced_end == world.log_end
    assert world.log._parts.snapshots.offsets == []
    # It is written as soon as there is room.
    world.disk.faults.capacity_bytes = None
    world.sync()
    assert world.log._parts.snapshots.newest == world.log._parts.segments.active.base_offset


def test_two_syncs_may_overlap_and_finish_in_any_order() -> None:
    for seed in range(10):
        for first_done in (0, 1):
            world = LogWorld.new(seed)
            world.fill(10)
            pendings = [begun(world)]
            world.fill(10)
            pendings.append(begun(world))
            done = pendings[first_done]
            done.run()
            world.log.finish_sync(done)
            world.safe_end = done.end.offset
            assert world.log.synced_end == done.end.offset
            if seed % 2:
                other = pendings[1 - first_done]
                other.run()
                world.log.finish_sync(other)
                world.safe_end = pendings[1].end.offset
                assert world.log.synced_end == pendings[1].end.offset
            world.crash_and_start()


def test_a_sync_begun_before_a_truncation_comes_to_nothing() -> None:
    world = LogWorld.new()
    world.fill(30)
    old = begun(world)
    world.truncate_to(Offset(10))
    cut = world.log_end
    world.fill(20)
    synced = world.log.synced_end
    old.run()
    world.log.finish_sync(old)
    assert world.log.synced_end == synced == cut
    assert max(world.log._parts.snapshots.offsets, default=0) <= cut
    names = [name for name in world.disk.list_folder(FOLDER) if name.endswith(".snapshot")]
    assert all(int(name[:20]) <= cut for name in names)


def test_a_snapshot_on_the_disk_means_that_all_before_it_is() -> None:
    """At whatever change the power goes: the log reaches at least as far as the newest snapshot."""
    for seed in range(5):
        for changes in range(60):
            world = LogWorld.new(seed)
            world.fill(25)
            world.disk.faults.cut_power_after(changes)
            try:
                world.sync()
            except ProcessGone:
                world.disk.crash()
            disk: SimDisk = world.disk.reopen()
            newest = max(
                (int(name[:20]) for name in disk.list_folder(FOLDER) if name.endswith("snapshot")),
                default=0,
            )
            world.disk = disk
            world.open(clean=False)
            assert world.log.log_end >= newest
