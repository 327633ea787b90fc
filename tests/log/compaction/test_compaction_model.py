"""Compaction against a list of all records: random histories, with crashes at any step."""

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

from log.compaction_world import (
    COMPACT,
    EPOCH,
    FOLDER,
    FUZZ,
    SCANNERS,
    CompactionWorld,
    batch_of,
    keyed,
)
from respool.model.errors import StorageError
from respool.model.ids import Offset
from respool.model.topic_config import CleanupPolicies, CleanupPolicy
from respool.records.batch import Codec
from respool.records.build import NewRecord
from respool.sim.disk.disk_faults import ProcessGone
from support.model_runs import run_machine

KEYS = st.one_of(
    st.sampled_from([b"a", b"b", b"c", b"d", b"", b"key" * 60]),
    st.integers(0, 40).map(lambda number: b"%d" % number),
)
VALUES = st.one_of(st.none(), st.binary(max_size=5), st.just(b"v" * 200))
TIMES = st.one_of(st.just(-1), st.integers(0, 5_000))
RECORDS = st.lists(
    st.builds(
        NewRecord,
        key=st.one_of(KEYS, KEYS, KEYS, st.none()),
        value=VALUES,
        timestamp_ms=TIMES,
        headers=st.sampled_from([(), (), (("h", b"1"), ("h", None))]),
    ),
    min_size=1,
    max_size=6,
)
CODECS = st.sampled_from([Codec.NONE, Codec.NONE, *Codec])
BOTH = CleanupPolicies((CleanupPolicy.COMPACT, CleanupPolicy.DELETE))


class LogAgainstDictionary(RuleBasedStateMachine):
    world: CompactionWorld

    @initialize(
        seed=st.integers(0, 2**32),
        interval=st.sampled_from([0, 100, 400]),
        index_bytes=st.sampled_from([96, 120, 960]),
        segment_bytes=st.sampled_from([1024, 2000]),
        delete_retention_ms=st.sampled_from([0, 1000, 10_000]),
        min_lag_ms=st.sampled_from([0, 0, 2000]),
        retention_bytes=st.sampled_from([-1, -1, 3000]),
        scanner=st.sampled_from(SCANNERS),
    )
    def begin(
        self,
        *,
        seed: int,
        interval: int,
        index_bytes: int,
        segment_bytes: int,
        delete_retention_ms: int,
        min_lag_ms: int,
        retention_bytes: int,
        scanner: object,
    ) -> None:
        config = dataclasses.replace(
            COMPACT,
            cleanup_policy=COMPACT.cleanup_policy if retention_bytes < 0 else BOTH,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            segment_bytes=segment_bytes,
            delete_retention_ms=delete_retention_ms,
            min_compaction_lag_ms=min_lag_ms,
            retention_bytes=retention_bytes,
        )
        self.world = CompactionWorld.new(seed, config)
        self.world.scanner = scanner  # type: ignore[assignment]
        self.world.now_ms = 6_000

    # -- writing -----------------------------------------------------------------------------------------------------

    @rule(records=RECORDS, codec=CODECS, ours=st.booleans())
    def append(self, records: list[NewRecord], codec: Codec, ours: bool) -> None:
        self.world.append(*records, codec=codec, log_append_time=ours)

    @rule(records=st.lists(RECORDS, min_size=5, max_size=12))
    def append_many(self, records: list[list[NewRecord]]) -> None:
        for one in records:
            self.world.append(*one)

    @rule(producer=st.integers(1, 3), records=RECORDS, codec=CODECS)
    def append_idempotent(self, producer: int, records: list[NewRecord], codec: Codec) -> None:
        states = {one.producer_id: one for one in self.world.log.active_producers()}
        known = states.get(producer)
        epoch, sequence = (known.epoch, known.next_sequence) if known else (0, 0)
        self.world.append(*records, codec=codec, producer=(producer, epoch, sequence))

    @rule(data=st.data())
    def append_again(self, data: st.DataObject) -> None:
        """A producer sends one of its last batches again."""
        world = self.world
        known = [(state, one) for state in world.log.active_producers() for one in state.batches]
        if not known:
            return
        state, one = data.draw(st.sampled_from(known))
        batch = batch_of(
            *[keyed("again")] * (one.offset_delta + 1),
            producer=(state.producer_id, state.epoch, one.base_sequence),
        )
        appended = world.log.append(batch, leader_epoch=EPOCH, now_ms=world.now_ms)
        assert appended[:3] == (one.base_offset, one.last_offset, True)

    @rule()
    def roll(self) -> None:
        if self.world.log._parts.segments.active.size:
            self.world.roll()

    @rule()
    def sync(self) -> None:
        self.world.sync()

    @rule()
    def write_checkpoint(self) -> None:
        self.world.write_checkpoint()

    @rule(step=st.sampled_from([1, 500, 5_000]))
    def time_passes(self, step: int) -> None:
        self.world.now_ms += step

    # -- compaction --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.compaction is None)
    @rule(keys_max=st.sampled_from([1, 5, 1000]))
    def compact(self, keys_max: int) -> None:
        self.world.sync()
        self.world.compact(keys_max=keys_max)

    @precondition(lambda self: self.world.compaction is None)
    @rule(keys_max=st.sampled_from([5, 1000]), slice_bytes=st.sampled_from([1, 1000]))
    def begin_compaction(self, keys_max: int, slice_bytes: int) -> None:
        self.world.sync()
        if self.world.begin(keys_max=keys_max, slice_bytes=slice_bytes):
            # One at a time.
            assert self.world.log.compaction_span(now_ms=0, bound=self.world.log_end) is None

    @precondition(lambda self: self.world.compaction is not None)
    @rule(times=st.integers(1, 10))
    def go_on(self, times: int) -> None:
        for _ in range(times):
            if self.world.compaction is not None:
                self.world.run()
                self.world.finish()

    @precondition(lambda self: self.world.compaction is not None)
    @rule()
    def run_only(self) -> None:
        """What a slice has made waits for its place while other things happen."""
        assert self.world.compaction is not None
        if self.world.compaction.cleaned is None:
            self.world.run()

    @precondition(lambda self: self.world.compaction is not None)
    @rule()
    def finish_only(self) -> None:
        self.world.finish()

    @precondition(lambda self: self.world.compaction is not None)
    @rule(
        call=st.sampled_from(["append", "sync", "open", "read", "replace"]),
        nth=st.integers(1, 4),
        room=st.sampled_from([None, 0, 200]),
    )
    def fail(self, call: str, nth: int, room: int | None) -> None:
        """The disk fails, or is full, in the middle of a slice."""
        world = self.world
        assert world.compaction is not None
        if world.compaction.cleaned is not None:
            world.finish()
            return
        if room is None:
            path = "*.cleaned" if call != "read" else "*.log"
            world.disk.faults.fail(call, nth=nth, path=path)  # type: ignore[arg-type]
        else:
            names = world.disk.list_folder(FOLDER)
            used = sum(world.disk.size(f"{FOLDER}/{name}") for name in names)
            world.disk.faults.capacity_bytes = used + room
        try:
            world.run()
        except StorageError:
            world.disk.faults.heal()
            world.fail_compaction()
        else:
            world.disk.faults.heal()
            world.finish()
        world.check()

    @precondition(lambda self: self.world.removed)
    @rule()
    def delete_removed(self) -> None:
        self.world.delete_removed()

    # -- meanwhile ---------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        world = self.world
        world.sync()
        world.log.raise_log_start(
            Offset(data.draw(st.integers(world.log.log_start, world.log.synced_end)))
        )
        world.forgotten_below = max(world.forgotten_below, world.log.log_start)

    @rule()
    def retention(self) -> None:
        world = self.world
        world.removed += world.log.apply_retention(
            now_ms=world.now_ms, high_watermark=world.log.synced_end
        )
        world.forgotten_below = max(world.forgotten_below, world.log.log_start)
        world.safe_end = world.log.synced_end

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        """As a follower would, beyond what is committed, and so beyond what was compacted."""
        world = self.world
        low = max(
            world.touched_end, world.log.log_start, world.log._parts.segments.first.base_offset
        )
        offset = Offset(data.draw(st.integers(low, world.log_end)))
        if offset >= world.log_end:
            return
        cut = next(one.base_offset for one in world.headers if one.last_offset >= offset)
        if cut < low:
            return
        world.recovery_point = min(world.recovery_point, cut)
        world.log_start_written = min(world.log_start_written, cut)
        world.log.truncate_to(offset)
        world.headers = [one for one in world.headers if one.last_offset < offset]
        world.history = [one for one in world.history if one.offset < cut]
        world.horizons = {at: ms for at, ms in world.horizons.items() if at < cut}
        world.safe_end = world.log.synced_end

    @rule(compact=st.booleans())
    def change_policy(self, compact: bool) -> None:
        world = self.world
        policy = COMPACT.cleanup_policy if compact else CleanupPolicies((CleanupPolicy.DELETE,))
        world.config = dataclasses.replace(world.config, cleanup_policy=policy, retention_bytes=-1)
        world.log.update_config(world.config)
        # As the broker does before long: from then on it is known that the log may have gaps.
        world.write_checkpoint()

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

    @rule(changes=st.integers(0, 40), keys_max=st.sampled_from([5, 1000]))
    def power_goes_during_a_compaction(self, changes: int, keys_max: int) -> None:
        world = self.world
        world.sync()
        world.disk.faults.cut_power_after(changes)
        try:
            if world.compaction is None:
                world.begin(keys_max=keys_max)
            while world.compaction is not None:
                if world.compaction.cleaned is None:
                    world.run()
                world.finish()
            world.delete_removed()
        except ProcessGone:
            world.crash_and_start()
        else:
            world.disk.faults.heal()

    # -- looking -----------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        self.world.check_read(Offset(data.draw(st.integers(0, self.world.log_end + 1))))

    @rule(data=st.data(), timestamp=st.integers(0, 12_000))
    def look_up_time(self, data: st.DataObject, timestamp: int) -> None:
        self.world.check_times(timestamp, Offset(data.draw(st.integers(0, self.world.log_end))))

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.crash_and_start()
            self.world.stop_and_start()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_compacted_log_holds_what_a_dictionary_would() -> None:
    run_machine(LogAgainstDictionary, examples=2000 if FUZZ else 60, steps=60 if FUZZ else 40)
