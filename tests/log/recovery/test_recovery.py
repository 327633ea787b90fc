"""After a crash: nothing that was synced is cut, nothing damaged is kept, and damage is told from a torn write."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from log.log_world import FOLDER, LogWorld, batch_of, power_cuts
from respool.model.errors import DiskFailed, SegmentCorrupt
from respool.model.ids import Offset
from respool.sim.disk.disk_faults import ProcessGone


def killed(*, synced: int = 12, unsynced: int = 10) -> LogWorld:
    """A log of which a part is synced and written down; its process is gone."""
    world = LogWorld.new()
    world.fill(synced)
    world.sync()
    world.write_checkpoint()
    world.fill(unsynced)
    world.disk.kill()
    world.disk = world.disk.reopen()
    return world


def place_of(world: LogWorld, number: int) -> tuple[str, int]:
    """The file and the position of a batch."""
    segments = world.log._parts.segments
    offset = world.batches[number].base_offset
    segment = segments.all[segments.index_of(offset)]
    first = [one.base_offset for one in world.batches].index(segment.base_offset)
    position = sum(len(one.data) for one in world.batches[first:number])
    return segment.path, position


def test_after_kill_everything_written_is_there_and_on_the_disk() -> None:
    world = killed()
    world.open(clean=False)
    assert world.log.log_end == world.log.synced_end == world.log_end
    assert world.log.recovery is not None
    assert world.log.recovery.bytes_truncated == 0
    assert world.log.recovery.damage == ""
    world.check()
    world.check_indexes()
    world.safe_end = world.log_end
    world.crash_and_start()


def test_only_what_follows_the_recovery_point_is_read() -> None:
    world = killed(synced=200, unsynced=3)
    world.open(clean=False)
    active = world.log._parts.segments.all[-2:]
    assert world.disk.counters.bytes_read <= sum(one.size for one in active) + 2 * 4096
    assert world.log.recovery is not None
    assert world.log.recovery.scanned_from >= active[0].base_offset


def test_the_newest_snapshot_is_as_good_as_a_recovery_point() -> None:
    world = LogWorld.new()
    world.fill(100)
    world.sync()
    world.disk.kill()
    world.disk = world.disk.reopen()
    assert world.recovery_point == 0
    world.open(clean=False)
    assert world.log.recovery is not None
    # One segment more than needed, for its indexes.
    assert world.log.recovery.scanned_from == world.log._parts.segments.all[-2].base_offset
    world.check()


@pytest.mark.parametrize("lost", [1, 30, 61, 100])
def test_a_torn_tail_is_cut_off(lost: int) -> None:
    world = killed()
    path, _ = place_of(world, len(world.batches) - 1)
    world.disk.open_log(path).truncate(world.disk.size(path) - lost)
    world.open(clean=False)
    world.batches.pop()
    assert world.log.recovery is not None
    assert world.log.recovery.bytes_truncated > 0
    world.check()
    world.check_indexes()
    world.fill(5)
    world.check()


@pytest.mark.parametrize("number", range(12, 22))
def test_beyond_the_recovery_point_a_bad_batch_is_cut_off_with_all_behind_it(number: int) -> None:
    world = killed()
    path, position = place_of(world, number)
    world.disk.corrupt(path, position + 70)
    world.open(clean=False)
    world.batches = world.batches[:number]
    recovery = world.log.recovery
    assert recovery is not None
    assert (
        recovery.damage
        == f"{path} at byte {position}, offset {world.log_end}: the checksum does not match"
    )
    world.check()
    world.fill(10)
    world.check()
    world.crash_and_start()


@pytest.mark.parametrize("number", range(7, 12))
def test_below_the_recovery_point_a_bad_batch_is_not_cut_but_told(number: int) -> None:
    world = killed()
    path, position = place_of(world, number)
    world.disk.corrupt(path, position + 70)
    before = {
        name: world.disk.read_file(f"{FOLDER}/{name}") for name in world.disk.list_folder(FOLDER)
    }
    with pytest.raises(SegmentCorrupt, match=f"everything before offset {world.recovery_point} "):
        world.open(clean=False)
    for name, content in before.items():
        if name.endswith(".log"):
            assert world.disk.read_file(f"{FOLDER}/{name}") == content, "nothing is lost by trying"


def test_a_bad_batch_before_a_snapshot_is_not_cut_although_the_recovery_point_is_old() -> None:
    """Batches in later segments were synced and acknowledged: cutting would lose them."""
    world = LogWorld.new()
    world.fill(5)
    world.sync()
    world.write_checkpoint()
    world.fill(30)
    world.sync()
    newest = world.log._parts.snapshots.newest
    number = next(n for n, one in enumerate(world.batches) if one.header.next_offset == newest)
    path, position = place_of(world, number)
    world.disk.kill()
    world.disk = world.disk.reopen()
    world.disk.corrupt(path, position + 70)
    with pytest.raises(SegmentCorrupt, match=f"everything before offset {newest} "):
        world.open(clean=False)


def test_a_missing_segment_is_not_skipped() -> None:
    world = LogWorld.new()
    world.fill(12)
    world.sync()
    world.write_checkpoint()
    world.fill(30)
    middle = world.log._parts.segments.all[-2]
    world.disk.kill()
    world.disk = world.disk.reopen()
    world.disk.delete(middle.path)
    world.open(clean=False)
    assert world.log.log_end == middle.base_offset
    world.batches = [one for one in world.batches if one.last_offset < middle.base_offset]
    assert world.log.recovery is not None
    assert world.log.recovery.damage.startswith(f"offset {middle.base_offset} is missing")
    world.check()


def test_a_missing_segment_below_the_recovery_point_is_told() -> None:
    world = LogWorld.new()
    world.fill(40)
    world.sync()
    world.write_checkpoint()
    world.fill(1)
    last = world.log._parts.segments.active
    world.disk.kill()
    world.disk = world.disk.reopen()
    world.disk.delete(last.path)
    with pytest.raises(SegmentCorrupt, match="was synced up to"):
        world.open(clean=False)


def test_an_emptied_old_segment_is_told() -> None:
    world = killed(synced=40)
    path = world.log._parts.segments.first.path
    world.disk.open_log(path).truncate(0)
    with pytest.raises(SegmentCorrupt, match="is empty"):
        world.open(clean=False)


def damage_indexes(world: LogWorld) -> None:
    for name in world.disk.list_folder(FOLDER):
        if name.endswith("index"):
            world.disk.replace_file(f"{FOLDER}/{name}", b"\x7f" * 24)


def lose_indexes(world: LogWorld) -> None:
    for name in world.disk.list_folder(FOLDER):
        if name.endswith("index"):
            world.disk.delete(f"{FOLDER}/{name}")


def lose_snapshots(world: LogWorld) -> None:
    for name in world.disk.list_folder(FOLDER):
        if name.endswith("snapshot"):
            world.disk.delete(f"{FOLDER}/{name}")


def damage_snapshots(world: LogWorld) -> None:
    for name in world.disk.list_folder(FOLDER):
        if name.endswith("snapshot"):
            world.disk.corrupt(f"{FOLDER}/{name}", 3)


def lose_epochs(world: LogWorld) -> None:
    world.disk.delete(f"{FOLDER}/leader-epoch-checkpoint")


@pytest.mark.parametrize(
    "damage", [damage_indexes, lose_indexes, lose_snapshots, damage_snapshots, lose_epochs]
)
def test_everything_beside_the_log_files_can_be_made_from_them(
    damage: Callable[[LogWorld], None],
) -> None:
    world = LogWorld.new()
    for number in range(60):
        world.append(batch_of(number, producer=(number % 3, 0, number // 3)))
        if number % 20 == 10:
            world.sync()
            world.write_checkpoint()
            world.lead()
    world.disk.kill()
    world.disk = world.disk.reopen()
    damage(world)
    world.open(clean=False)
    world.check()
    world.check_indexes()
    assert world.append(batch_of(59, producer=(2, 0, 19))).is_duplicate


def test_what_a_recovery_has_rebuilt_is_complete_and_on_the_disk() -> None:
    for seed in range(10):
        world = LogWorld.new(seed)
        world.fill(50)
        world.disk.kill()
        world.disk = world.disk.reopen()
        world.open(clean=False)
        finished = world.log._parts.segments.all[:-1]
        assert len(finished) > 3
        assert not any(segment.is_writable for segment in finished)
        paths = [
            f"{FOLDER}/{segment.base_offset:020d}.{kind}"
            for segment in finished
            for kind in ("index", "timeindex", "log")
        ]
        rebuilt = {path: world.disk.read_file(path) for path in paths}
        world.disk.crash()
        disk = world.disk.reopen()
        assert {path: disk.read_file(path) for path in paths} == rebuilt
        world.disk = disk
        world.open(clean=False)
        world.check_indexes()


def test_what_an_earlier_process_failed_to_sync_is_not_believed() -> None:
    """The pages are in memory, marked as written: a sync of them succeeds and does nothing."""
    for seed in range(20):
        world = LogWorld.new(seed)
        world.fill(5)
        world.sync()
        world.fill(5)
        world.begin_sync()
        world.disk.faults.fail("sync")
        with pytest.raises(DiskFailed):
            world.run_sync()
        world.disk.kill()
        world.come_back()
        world.crash_and_start()


def test_the_power_may_go_during_a_recovery() -> None:
    for seed in range(3):
        for changes in range(60):
            world = killed()
            world.disk._rng.seed(seed)
            world.disk.crash()
            world.disk = world.disk.reopen()
            world.disk.faults.cut_power_after(changes)
            with suppress(ProcessGone):
                world.open(clean=False)
            world.disk.crash()
            world.come_back()


def test_the_power_may_go_at_any_change() -> None:
    """Appends, rolls, syncs, leaders, deletions, retention and a stop: whenever it goes, what is safe is there."""

    def story(world: LogWorld) -> None:
        world.lead()
        world.fill(12, size=200)
        world.sync()
        world.write_checkpoint()
        world.fill(8, size=300)
        world.begin_sync()
        world.fill(2)
        world.run_sync()
        world.finish_sync()
        world.raise_log_start(Offset(world.log._parts.segments.all[2].base_offset + 1))
        for one in world.apply_retention(world.log.synced_end):
            one.delete()
        world.lead()
        world.fill(3)
        world.stop_and_start()

    assert power_cuts(story, seeds=2) > 60


def test_the_power_may_go_during_truncations() -> None:
    def story(world: LogWorld) -> None:
        changes = world.disk.faults._changes_left
        world.disk.faults._changes_left = None
        world.fill(40, size=150)
        world.sync()
        world.disk.faults._changes_left = changes
        world.truncate_to(Offset(world.log._parts.segments.all[3].base_offset + 1))
        world.fill(5, size=150)
        world.truncate_to(Offset(world.log._parts.segments.all[1].base_offset))
        world.fill(5, size=150)
        world.truncate_fully(Offset(500))
        world.fill(2)
        world.truncate_fully(Offset(20))

    assert power_cuts(story, seeds=1) > 40
