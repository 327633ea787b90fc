"""Transactions in a log against a list: random walks over writes, ends, compaction, restarts and power cuts."""

import dataclasses

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from log.transaction_world import COMPACTED, FUZZ, KEPT, TransactionWorld
from respool.model.errors import DiskFailed, DiskFull
from respool.model.ids import Offset
from respool.sim.disk.disk_faults import ProcessGone
from support.model_runs import run_machine

PRODUCERS = st.integers(1, 3)
KEYS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=3)
SIZES = st.sampled_from([1, 50, 200])


class TransactionsAgainstList(RuleBasedStateMachine):
    world: TransactionWorld

    @initialize(
        seed=st.integers(0, 2**32),
        compacted=st.booleans(),
        retention_bytes=st.sampled_from([-1, -1, 1500]),
    )
    def begin(self, seed: int, compacted: bool, retention_bytes: int) -> None:
        config = COMPACTED if compacted else KEPT
        config = dataclasses.replace(config, retention_bytes=retention_bytes)
        self.world = TransactionWorld.new(seed, config)

    # -- writing -----------------------------------------------------------------------------------------------------

    @rule(producer=PRODUCERS, keys=KEYS, size=SIZES)
    def write(self, producer: int, keys: list[str], size: int) -> None:
        self.world.write(producer, *keys, size=size)

    @rule(keys=KEYS, size=SIZES)
    def write_plainly(self, keys: list[str], size: int) -> None:
        self.world.write(-1, *keys, size=size)

    @rule(producer=PRODUCERS, keys=KEYS)
    def write_outside_of_transactions(self, producer: int, keys: list[str]) -> None:
        if producer not in self.world.open_producers():
            self.world.write(producer, *keys, transactional=False)

    @rule(producer=PRODUCERS, is_commit=st.booleans(), bump=st.booleans())
    def end(self, producer: int, is_commit: bool, bump: bool) -> None:
        self.world.end(producer, is_commit=is_commit, bump=bump)

    @rule(
        producer=PRODUCERS, keys=KEYS, is_commit=st.booleans(), size=SIZES, times=st.integers(1, 3)
    )
    def whole_transactions(
        self, producer: int, keys: list[str], is_commit: bool, size: int, times: int
    ) -> None:
        for _ in range(times):
            self.world.write(producer, *keys, size=size)
            self.world.end(producer, is_commit=is_commit)

    @rule(producer=PRODUCERS, room=st.sampled_from([0, 10, 50, 150]))
    def abort_on_a_full_disk(self, producer: int, room: int) -> None:
        world = self.world
        names = world.disk.list_folder("rides-0")
        used = sum(world.disk.size(f"rides-0/{name}") for name in names)
        world.disk.faults.capacity_bytes = used + room
        try:
            world.end(producer, is_commit=False)
        except DiskFull:
            pass
        finally:
            world.disk.faults.capacity_bytes = None

    @rule(producer=PRODUCERS, path=st.sampled_from(["*.txnindex", "*.log"]))
    def abort_on_a_failing_disk(self, producer: int, path: str) -> None:
        world = self.world
        world.disk.faults.fail("append", path=path)
        try:
            world.end(producer, is_commit=False)
        except DiskFailed:
            # The partition is offline until the broker is started again.
            world.check()
            world.kill_and_start()
        world.disk.faults.heal()

    @rule()
    def roll(self) -> None:
        self.world.roll()

    @rule(step=st.sampled_from([1, 2000]))
    def time_passes(self, step: int) -> None:
        self.world.now_ms += step

    # -- on the disk -------------------------------------------------------------------------------------------------

    @rule()
    def sync(self) -> None:
        self.world.sync()

    @rule()
    def write_checkpoint(self) -> None:
        self.world.write_checkpoint()

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        world = self.world
        low = world.log.log_start
        world.delete_records(Offset(data.draw(st.integers(low, world.high_watermark))))

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        world = self.world
        if world.compaction is None:
            low = world.high_watermark
            world.truncate_to(Offset(data.draw(st.integers(low, world.log_end))))

    @rule()
    def retention(self) -> None:
        self.world.apply_retention()

    @rule()
    def delete_removed(self) -> None:
        self.world.delete_removed()

    # -- compaction --------------------------------------------------------------------------------------------------

    @rule(keys_max=st.sampled_from([2, 5, 1000]))
    def compact(self, keys_max: int) -> None:
        self.world.roll()
        self.world.sync()
        if self.world.compaction is None:
            self.world.compact(keys_max=keys_max)

    @rule(keys_max=st.sampled_from([2, 1000]), slice_bytes=st.sampled_from([1, 400]))
    def begin_compaction(self, keys_max: int, slice_bytes: int) -> None:
        if self.world.compaction is None:
            self.world.begin_compaction(keys_max=keys_max, slice_bytes=slice_bytes)

    @precondition(lambda self: self.world.compaction is not None)
    @rule()
    def compact_a_slice(self) -> None:
        self.world.compact_a_slice()

    # -- ends --------------------------------------------------------------------------------------------------------

    @rule()
    def stop_and_start(self) -> None:
        self.world.stop_and_start()

    @rule()
    def kill_and_start(self) -> None:
        self.world.kill_and_start()

    @rule()
    def crash_and_start(self) -> None:
        self.world.crash_and_start()

    @rule(changes=st.integers(0, 25), data=st.data())
    def power_goes_in_the_middle(self, changes: int, data: st.DataObject) -> None:
        world = self.world
        world.disk.faults.cut_power_after(changes)
        try:
            for _ in range(20):
                match data.draw(st.integers(0, 5)):
                    case 0:
                        world.write(data.draw(PRODUCERS), "a", "b", size=100)
                    case 1:
                        world.end(data.draw(PRODUCERS), is_commit=data.draw(st.booleans()))
                    case 2:
                        world.sync()
                    case 3:
                        world.apply_retention()
                        world.delete_removed()
                    case 4:
                        world.roll()
                        world.sync()
                        if world.compaction is None:
                            world.compact()
                    case 5:
                        world.stop_and_start()
                        world.disk.faults.cut_power_after(changes)
        except ProcessGone:
            world.crash_and_start()
        else:
            world.disk.faults.heal()

    # -- looking -----------------------------------------------------------------------------------------------------

    @rule(data=st.data(), bytes_max=st.sampled_from([1, 300, 700, 10**6]))
    def read(self, data: st.DataObject, bytes_max: int) -> None:
        world = self.world
        low = world.log.log_start
        offset = Offset(data.draw(st.integers(low, max(low, world.last_stable_offset))))
        world.check_reader(offset, bytes_max=bytes_max)

    @invariant()
    def readers_see_what_was_committed(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.crash_and_start()
            self.world.stop_and_start()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_read_committed_shows_what_was_committed_whatever_happens() -> None:
    run_machine(TransactionsAgainstList, examples=2000 if FUZZ else 100, steps=60 if FUZZ else 40)
