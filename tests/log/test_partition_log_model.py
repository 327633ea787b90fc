"""The log against a list: random walks over appends, syncs, cuts, restarts and power cuts."""

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

from log.log_world import FUZZ, SMALL, LogWorld, batch_of
from respool.model.errors import DiskFailed, InvalidProducerEpoch, OutOfOrderSequence
from respool.model.ids import Offset
from respool.sim.disk.disk_faults import ProcessGone
from support.model_runs import run_machine

# Often the same or next to each other, and far enough apart to roll segments.
TIMES = st.one_of(st.just(-1), st.integers(0, 10), st.integers(0, 120).map(lambda s: 1000 * s))
SIZES = st.sampled_from([0, 1, 30, 90, 300, 700])
# Mostly what a producer should do next, and now and then what it should not.
JUMPS = st.sampled_from([0, 0, 0, 1, 7])
EPOCH_STEPS = st.sampled_from([0, 0, 0, 1, -1])


class LogAgainstList(RuleBasedStateMachine):
    world: LogWorld

    @initialize(
        seed=st.integers(0, 2**32),
        interval=st.sampled_from([0, 100, 400]),
        index_bytes=st.sampled_from([96, 120, 960]),
        retention_ms=st.sampled_from([-1, 0, 20_000]),
        retention_bytes=st.sampled_from([-1, 0, 2500]),
    )
    def begin(
        self, seed: int, interval: int, index_bytes: int, retention_ms: int, retention_bytes: int
    ) -> None:
        config = dataclasses.replace(
            SMALL,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
        )
        self.world = LogWorld.new(seed, config)
        self.world.now_ms = 60_000

    def offset(self, data: st.DataObject, *, beyond: int = 1) -> Offset:
        low = max(self.world.begin - 1, 0)
        return Offset(data.draw(st.integers(low, self.world.log_end + beyond)))

    # -- writing -----------------------------------------------------------------------------------------------------

    @rule(times=st.lists(TIMES, min_size=1, max_size=4), size=SIZES)
    def append(self, times: list[int], size: int) -> None:
        self.world.append(batch_of(*times, value=b"v" * size))

    @rule(count=st.integers(1, 12), size=SIZES)
    def append_many(self, count: int, size: int) -> None:
        self.world.fill(count, size=size)

    @rule(producer=st.integers(1, 3), count=st.integers(1, 3), jump=JUMPS, epoch_step=EPOCH_STEPS)
    def append_idempotent(self, producer: int, count: int, jump: int, epoch_step: int) -> None:
        world = self.world
        known = {one.producer_id: one for one in world.log.active_producers()}.get(producer)
        if known is None:
            # Anything goes.
            world.append(batch_of(*[world.now_ms] * count, producer=(producer, 0, 5 + jump)))
            return
        epoch = max(known.epoch + epoch_step, 0)
        sequence = jump + (known.next_sequence if epoch == known.epoch else 0)
        batch = batch_of(*[world.now_ms] * count, producer=(producer, epoch, sequence))
        if epoch == known.epoch and known.find(
            base_sequence=sequence, last_sequence=sequence + count - 1
        ):
            # A producer that was forgotten and came back may have used a sequence twice.
            return
        if epoch < known.epoch:
            with pytest.raises(InvalidProducerEpoch):
                world.append(batch)
        elif jump:
            with pytest.raises(OutOfOrderSequence):
                world.append(batch)
        else:
            assert not world.append(batch).is_duplicate

    @rule(data=st.data())
    def append_again(self, data: st.DataObject) -> None:
        """A producer sends one of its last batches again."""
        known = [
            (state, one)
            for state in self.world.log.active_producers()
            for one in state.batches
            # A producer that was forgotten and came back may have used a sequence twice.
            if one.base_sequence != state.next_sequence
            and [other.last_sequence for other in state.batches].count(one.last_sequence) == 1
        ]
        if not known:
            return
        state, one = data.draw(st.sampled_from(known))
        batch = batch_of(
            *[0] * (one.offset_delta + 1),
            producer=(state.producer_id, state.epoch, one.base_sequence),
        )
        assert self.world.append(batch) == (one.base_offset, one.last_offset, True, -1, False)

    @rule(room=st.sampled_from([0, 50, 150, 5000]), size=SIZES)
    def append_on_a_full_disk(self, room: int, size: int) -> None:
        self.world.try_full_disk(batch_of(self.world.now_ms, value=b"f" * size), room=room)

    @rule()
    def lead(self) -> None:
        self.world.lead()

    @rule(step=st.sampled_from([1, 5_000, 50_000]))
    def time_passes(self, step: int) -> None:
        self.world.now_ms += step
        self.world.log.roll_if_due(self.world.now_ms)

    # -- on the disk -------------------------------------------------------------------------------------------------

    @rule()
    def begin_sync(self) -> None:
        self.world.begin_sync()

    @precondition(lambda self: self.world.pending)
    @rule(data=st.data())
    def run_sync(self, data: st.DataObject) -> None:
        self.world.run_sync(data.draw(st.integers(0, len(self.world.pending) - 1)))

    @precondition(lambda self: any(one.is_done for one in self.world.pending))
    @rule()
    def finish_sync(self) -> None:
        done = next(i for i, one in enumerate(self.world.pending) if one.is_done)
        self.world.finish_sync(done)

    @rule()
    def sync(self) -> None:
        self.world.sync()

    @rule()
    def write_checkpoint(self) -> None:
        self.world.write_checkpoint()

    @rule(nth=st.integers(1, 3), crash=st.booleans())
    def sync_fails(self, nth: int, crash: bool) -> None:
        """After a failed sync nothing more is taken, and nothing that was synced is lost."""
        world = self.world
        world.begin_sync()
        if not world.pending:
            return
        world.disk.faults.fail("sync", nth=nth)
        try:
            world.run_sync(-1)
        except DiskFailed:
            with pytest.raises(DiskFailed):
                world.log.append(batch_of(1), leader_epoch=world.epoch, now_ms=world.now_ms)
            with pytest.raises(DiskFailed):
                world.log.begin_sync()
            world.check_bytes()
            if crash:
                world.crash_and_start()
            else:
                world.disk.kill()
                world.come_back()
        world.disk.faults.heal()

    # -- cutting off -------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        world = self.world
        world.raise_log_start(Offset(data.draw(st.integers(world.log_start, world.log_end))))

    @rule(data=st.data())
    def retention(self, data: st.DataObject) -> None:
        world = self.world
        before = world.log_start
        high_watermark = Offset(data.draw(st.integers(world.log_start, world.log_end)))
        world.apply_retention(high_watermark)
        assert before <= world.log_start <= max(high_watermark, before)

    @precondition(lambda self: self.world.removed)
    @rule()
    def delete_removed(self) -> None:
        self.world.removed.pop().delete()

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        self.world.truncate_to(self.offset(data))

    @rule(data=st.data())
    def start_anew(self, data: st.DataObject) -> None:
        self.world.truncate_fully(Offset(data.draw(st.integers(0, self.world.log_end + 20))))

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

    @rule(changes=st.integers(0, 12), data=st.data())
    def power_goes_in_the_middle(self, changes: int, data: st.DataObject) -> None:
        world = self.world
        world.disk.faults.cut_power_after(changes)
        try:
            for _ in range(20):
                match data.draw(st.integers(0, 6)):
                    case 0:
                        world.fill(2, size=300)
                    case 1:
                        world.sync()
                    case 2:
                        world.apply_retention(world.log.synced_end)
                    case 3:
                        world.lead()
                    case 4:
                        world.truncate_to(self.offset(data))
                    case 5:
                        world.stop_and_start()
                        world.disk.faults.cut_power_after(changes)
                    case 6:
                        world.kill_and_start()
                        world.disk.faults.cut_power_after(changes)
        except ProcessGone:
            world.disk.crash()
            world.come_back()
        else:
            world.disk.faults.heal()

    # -- looking -----------------------------------------------------------------------------------------------------

    @rule(
        data=st.data(), bytes_max=st.sampled_from([0, 1, 61, 200, 1000, 10**6]), one=st.booleans()
    )
    def read(self, data: st.DataObject, bytes_max: int, one: bool) -> None:
        offset, max_offset = self.offset(data), self.offset(data, beyond=3)
        self.world.check_read(offset, max_offset=max_offset, bytes_max=bytes_max, at_least_one=one)

    @rule(data=st.data(), bytes_max=st.sampled_from([100, 1000]))
    def read_what_is_synced(self, data: st.DataObject, bytes_max: int) -> None:
        self.world.check_read(
            self.offset(data),
            max_offset=self.world.log.synced_end,
            bytes_max=bytes_max,
            at_least_one=True,
        )

    @rule(data=st.data(), timestamp=TIMES)
    def look_up_time(self, data: st.DataObject, timestamp: int) -> None:
        self.world.check_times(timestamp, self.offset(data))

    @rule()
    def look_at_all(self) -> None:
        self.world.check()
        self.world.check_indexes()

    @invariant()
    def offsets_agree(self) -> None:
        if hasattr(self, "world"):
            assert self.world.log.log_end == self.world.log_end
            assert self.world.log.log_start == self.world.log_start

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.check()
            self.world.check_indexes()
            self.world.crash_and_start()
            self.world.stop_and_start()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_log_does_what_a_list_would() -> None:
    run_machine(LogAgainstList, examples=2000 if FUZZ else 100, steps=80 if FUZZ else 50)
