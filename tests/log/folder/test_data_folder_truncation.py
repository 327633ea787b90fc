"""Cutting a partition's log off, or starting it anew: whenever the power goes, a log is left that opens."""

from collections.abc import Callable
from random import Random
from uuid import UUID

import pytest

from log.log_world import FUZZ, SMALL, batch_of
from respool.log.folder.data_folder import DataFolder
from respool.log.folder.folder_checkpoints import (
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    OffsetCheckpoint,
)
from respool.log.leader_epochs import EpochFile
from respool.log.partition_log import PartitionLog
from respool.model.errors import DiskFull, NothingTruncated, StorageError
from respool.model.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from respool.sim.disk.disk_faults import ProcessGone
from respool.sim.disk.simulated_disk import SimDisk

NOON = 1_700_000_000_000
RIDES = TopicPartition("rides", 0)
SEEDS = range(20 if FUZZ else 1)


class World:
    """A folder with one log of a few segments, all of it synced and written down."""

    def __init__(self, seed: int, *, batches: int = 24, first: int = 0) -> None:
        self.disk = SimDisk(Random(seed))
        self.epoch = LeaderEpoch(0)
        self.open()
        if first:
            self.folder.restart_partition(RIDES, self.log, Offset(first))
        self.append(batches)
        self.write_down()

    def open(self) -> None:
        self.folder = DataFolder.open(disk=self.disk, broker_id=BrokerId(1), new_cluster_id="c")
        self.log: PartitionLog = self.folder.open_partition(
            RIDES, topic_id=TopicId(UUID(int=1)), config=SMALL, now_ms=NOON, is_replicated=True
        )

    def append(self, count: int) -> None:
        for number in range(count):
            if number % 7 == 0:
                self.epoch = LeaderEpoch(self.epoch + 1)
            self.log.append(
                batch_of(NOON, NOON, value=bytes([number]) * 80),
                leader_epoch=self.epoch,
                now_ms=NOON,
            )

    def write_down(self) -> None:
        pending = self.log.begin_sync()
        if pending is not None:
            pending.run()
            self.log.finish_sync(pending)
        self.folder.write_checkpoints({RIDES: self.log}, {RIDES: self.log.synced_end})

    def crash_and_start(self) -> None:
        self.disk.crash()
        self.disk = self.disk.reopen()
        self.open()

    def written_down(self, name: str) -> int:
        return OffsetCheckpoint(self.disk, name).read()[RIDES]

    def stored(self) -> bytes:
        segments = self.log._parts.segments.all
        return b"".join(one.read(0, one.size) for one in segments if one.size)

    def cut(self, offset: int) -> None:
        self.folder.truncate_partition(RIDES, self.log, Offset(offset))

    def anew(self, offset: int) -> None:
        self.folder.restart_partition(RIDES, self.log, Offset(offset))


def power_cuts(
    seed: int, do: Callable[[World], None], *, first: int = 0
) -> list[tuple[World, World]]:
    """The log as it was, and what each possible power cut left of it."""
    left = []
    for changes in range(1_000):
        before, world = World(seed, first=first), World(seed, first=first)
        world.disk.faults.cut_power_after(changes)
        try:
            do(world)
        except ProcessGone:
            world.crash_and_start()
            left.append((before, world))
        else:
            assert changes > 5
            return left
    raise AssertionError(f"seed {seed}: it does not end")


def test_what_was_cut_off_is_written_down_first_and_stays_cut_off() -> None:
    world = World(1)
    assert world.written_down(RECOVERY_POINT) == 48
    # Inside of a batch, which goes as a whole.
    world.cut(21)
    assert world.log.log_end == 20
    assert world.written_down(RECOVERY_POINT) == 20
    assert world.written_down(HIGH_WATERMARK) == 20
    world.append(3)
    world.crash_and_start()
    assert 20 <= world.log.log_end <= 26


@pytest.mark.parametrize("how", ["cut", "anew"])
def test_a_log_that_was_half_cut_opens_again_whatever_is_written_down_meanwhile(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A round of checkpoints that had begun wrote the old recovery point back: the log then was taken for damaged."""
    world = World(1)
    logs, high_watermarks = {RIDES: world.log}, {RIDES: Offset(10)}
    with monkeypatch.context() as patch:

        def no_room(_: EpochFile) -> None:
            raise DiskFull("as the test wants it")

        patch.setattr(EpochFile, "write", no_room)
        with pytest.raises(DiskFull):
            getattr(world, how)(21)
    world.folder.write_checkpoints(logs, high_watermarks)
    world.log.abandon()
    again = world.folder.open_partition(
        RIDES, topic_id=TopicId(UUID(int=1)), config=SMALL, now_ms=NOON, is_replicated=True
    )
    assert again.log_end == (20 if how == "cut" else 21)
    assert again.latest_epoch <= world.epoch


def test_a_cut_beyond_the_end_lowers_nothing() -> None:
    world = World(1)
    world.cut(100)
    assert world.log.log_end == 48
    assert world.written_down(RECOVERY_POINT) == 48


def test_a_cut_before_the_first_segment_starts_anew() -> None:
    world = World(1, first=500)
    world.cut(40)
    assert (world.log.log_start, world.log.log_end) == (40, 40)
    world.crash_and_start()
    assert (world.log.log_start, world.log.log_end) == (40, 40)


def test_nothing_is_cut_when_it_cannot_be_written_down() -> None:
    world = World(1)
    before = world.stored()
    world.disk.faults.capacity_bytes = world.disk.used_bytes
    with pytest.raises(NothingTruncated):
        world.cut(20)
    with pytest.raises(NothingTruncated):
        world.anew(100)
    assert world.stored() == before
    assert world.log.log_end == 48
    # The log goes on, and whatever was written down by then promises no more than it has.
    world.disk.faults.heal()
    world.append(2)
    grown = world.stored()
    world.write_down()
    world.crash_and_start()
    assert world.stored() == grown
    world.cut(20)
    assert world.log.log_end == 20


def test_an_empty_log_that_cannot_start_elsewhere_for_want_of_room_is_as_it_was() -> None:
    """Nothing has to be lowered there: the first thing written is the new start."""
    world = World(1, batches=0)
    world.disk.faults.capacity_bytes = world.disk.used_bytes
    with pytest.raises(NothingTruncated):
        world.anew(100)
    assert (world.log.log_start, world.log.log_end) == (0, 0)
    world.disk.faults.heal()
    world.anew(100)
    assert (world.log.log_start, world.log.log_end) == (100, 100)


def test_a_log_that_is_half_cut_says_so() -> None:
    world = World(1)
    world.disk.faults.fail("delete")
    with pytest.raises(StorageError) as told:
        world.cut(2)
    assert not isinstance(told.value, NothingTruncated)


@pytest.mark.parametrize("offset", [0, 1, 13, 30, 47])
def test_a_power_cut_leaves_the_old_end_or_the_new_or_one_between(offset: int) -> None:
    for seed in SEEDS:
        ends = set()
        for before, world in power_cuts(seed, lambda one: one.cut(offset)):
            ends.add(world.log.log_end)
            assert offset - offset % 2 <= world.log.log_end <= 48
            assert before.stored().startswith(world.stored())
            # The cut is made again, and the log goes on.
            world.cut(offset)
            kept = world.stored()
            assert before.stored().startswith(kept)
            world.append(5)
            grown = world.stored()
            world.write_down()
            world.crash_and_start()
            assert world.stored() == grown
            assert world.log.log_end == offset - offset % 2 + 10
        assert 48 in ends


@pytest.mark.parametrize("first", [0, 500])
@pytest.mark.parametrize("offset", [0, 21, 48, 60, 500, 516, 600])
def test_a_power_cut_leaves_the_old_log_or_a_new_one(offset: int, first: int) -> None:
    for seed in SEEDS:
        states = set()
        for before, world in power_cuts(seed, lambda one: one.anew(offset), first=first):
            start, end = world.log.log_start, world.log.log_end
            states.add((start, end))
            if start == end:
                assert end == offset
            else:
                # From the new start on, where that lies inside the old log, it may have lost segments at either end.
                assert first <= start <= end <= before.log.log_end
                assert world.stored() in before.stored()
            world.anew(offset)
            assert (world.log.log_start, world.log.log_end) == (offset, offset)
            world.append(5)
            grown = world.stored()
            world.write_down()
            world.crash_and_start()
            assert world.stored() == grown
            assert (world.log.log_start, world.log.log_end) == (offset, offset + 10)
        assert (first, first + 48) in states
        assert (offset, offset) in states


def test_a_log_started_anew_goes_on_there_after_a_power_cut() -> None:
    world = World(1)
    world.anew(1000)
    assert world.written_down(LOG_START) == 1000
    world.append(2)
    world.disk.crash()
    world.disk = world.disk.reopen()
    world.open()
    assert world.log.log_start == 1000
    assert 1000 <= world.log.log_end <= 1004
