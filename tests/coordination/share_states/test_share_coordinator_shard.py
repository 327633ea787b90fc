"""The share coordinator's state machine: epochs fence writes, snapshots bound the log, and a reload tells the same."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from respool.coordination.decision import CoordinatorRecord, Decision, SetTimer, Ticket, TimerKey
from respool.coordination.share.share_state import (
    UNDECIDED_START,
    ShareKey,
    ShareState,
    ShareStateUpdate,
    StateBatch,
)
from respool.coordination.share.state_merge import apply_update
from respool.coordination.share_states.share_coordinator_shard import (
    NEVER_READ,
    ShareCoordinatorShard,
)
from respool.coordination.share_states.share_state_records import (
    ShareStateRecordKind,
    read_share_state_key,
)
from respool.coordination.share_states.share_state_requests import (
    DeleteStates,
    InitializeStates,
    InitialState,
    PruneTo,
    ReadStates,
    StateSummary,
    SummarizeStates,
    WriteStates,
)
from respool.model.coordinator_errors import GroupIdNotFound
from respool.model.errors import FencedLeaderEpoch
from respool.model.ids import LeaderEpoch, Offset, TopicId
from respool.model.share.share_broker_settings import ShareCoordinatorSettings
from respool.model.share.share_errors import FencedStateEpoch

TOPIC = TopicId(UUID(int=1))
KEY, OTHER = ShareKey("billing", TOPIC, 0), ShareKey("billing", TOPIC, 1)
START_MS = 1_700_000_000_000


class StateWorld:
    """The machine with a log that is a list, whose start can be raised."""

    def __init__(self, **settings: int) -> None:
        self.settings = ShareCoordinatorSettings(**settings)
        self.log: list[CoordinatorRecord] = []
        self.log_start = 0
        self.timers: dict[TimerKey, int] = {}
        self.now_ms = START_MS
        self.shard = ShareCoordinatorShard(self.settings)
        self.carry_out(self.shard.on_loaded(now_ms=self.now_ms))

    def ask(self, request: Any) -> Any:
        decision = self.shard.decide(request, ticket=Ticket(1), now_ms=self.now_ms)
        self.carry_out(decision)
        (answer,) = decision.answers
        return answer.reply.results

    def carry_out(self, decision: Decision) -> None:
        for record in decision.records:
            self.log.append(record)
            self.shard.replay(record)
        for change in decision.timers:
            assert isinstance(change, SetTimer)
            self.timers[change.key] = change.due_at_ms
        for effect in decision.effects:
            assert isinstance(effect, PruneTo)
            assert effect.offset >= self.log_start
            self.log_start = effect.offset

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while (due := min(self.timers.values())) <= end_ms:
            self.now_ms = max(self.now_ms, due)
            for key in [key for key, at_ms in self.timers.items() if at_ms == due]:
                self.carry_out(self.shard.on_timer(key, now_ms=self.now_ms))
        self.now_ms = end_ms

    def folded(self) -> ShareCoordinatorShard:
        shard = ShareCoordinatorShard(self.settings)
        for offset in range(self.log_start, len(self.log)):
            shard.replay_at(self.log[offset], Offset(offset))
        return shard

    def reload(self) -> None:
        self.shard = self.folded()
        self.timers.clear()
        self.carry_out(self.shard.on_loaded(now_ms=self.now_ms))

    # --- short words for stories

    def initialize(self, key: ShareKey = KEY, *, epoch: int = 0, start: int = -1) -> Any:
        states = {key: InitialState(epoch, Offset(start))}
        return self.ask(InitializeStates(states=states))[key]

    def read(self, key: ShareKey = KEY, *, leader: int = 0) -> Any:
        return self.ask(ReadStates(leader_epochs={key: LeaderEpoch(leader)}))[key]

    def write(
        self, *batches: StateBatch, key: ShareKey = KEY, leader: int = 0, **fields: int
    ) -> Any:
        update = update_of(*batches, leader=leader, **fields)
        return self.ask(WriteStates(updates={key: update}))[key]

    def state(self, key: ShareKey = KEY) -> ShareState | None:
        return self.shard.states.get(key)


def update_of(
    *batches: StateBatch, leader: int = 0, epoch: int = 0, start: int = -1, finished: int = -1
) -> ShareStateUpdate:
    return ShareStateUpdate(
        state_epoch=epoch,
        leader_epoch=LeaderEpoch(leader),
        start_offset=Offset(start),
        finished_count=finished,
        batches=batches,
    )


ACCEPTED = StateBatch(5, 7, 2, 1)


def test_a_state_is_initialized_read_written_and_deleted() -> None:
    world = StateWorld()
    assert isinstance(world.read(), GroupIdNotFound)
    assert world.initialize() is None
    assert world.read() == ShareState(
        state_epoch=0, leader_epoch=LeaderEpoch(0), start_offset=UNDECIDED_START
    )
    assert world.write(ACCEPTED, start=3, finished=3) is None
    world.reload()
    read = world.read()
    assert (read.start_offset, read.batches, read.finished_count) == (3, (ACCEPTED,), 3)
    summary = world.ask(SummarizeStates(keys=frozenset({KEY, OTHER})))
    assert summary[KEY] == StateSummary(0, LeaderEpoch(0), Offset(3), 3)
    assert isinstance(summary[OTHER], GroupIdNotFound)
    assert world.ask(DeleteStates(keys=frozenset({KEY, OTHER}))) == {KEY: None, OTHER: None}
    world.reload()
    assert isinstance(world.write(ACCEPTED), GroupIdNotFound)
    assert isinstance(world.read(), GroupIdNotFound)


def test_initializing_twice_is_the_same_as_once() -> None:
    world = StateWorld()
    world.initialize(start=4)
    world.read()
    world.write(ACCEPTED, start=5)
    before = world.state()
    assert world.initialize(start=4) is None
    assert world.state() == before
    assert world.initialize(epoch=2, start=1) is None
    assert world.initialize(epoch=2, start=0) is None
    assert isinstance(world.initialize(epoch=1, start=0), FencedStateEpoch)
    assert world.state() == ShareState(
        state_epoch=2, leader_epoch=NEVER_READ, start_offset=Offset(1), finished_count=0
    )


def test_an_older_leader_neither_reads_nor_writes() -> None:
    world = StateWorld()
    world.initialize()
    world.read(leader=3)
    assert isinstance(world.read(leader=2), FencedLeaderEpoch)
    assert isinstance(world.write(ACCEPTED, leader=2), FencedLeaderEpoch)
    assert world.write(ACCEPTED, leader=3) is None
    # Reading fences, even if the new leader writes nothing.
    world.read(leader=4)
    world.reload()
    assert isinstance(world.write(ACCEPTED, leader=3), FencedLeaderEpoch)


def test_a_leader_reads_again_after_offsets_were_altered_or_deleted() -> None:
    world = StateWorld()
    world.initialize()
    world.read(leader=3)
    world.initialize(epoch=1, start=0)
    assert isinstance(world.write(ACCEPTED, leader=3), FencedStateEpoch)
    assert world.read(leader=3).state_epoch == 1
    assert world.write(ACCEPTED, leader=3, epoch=1) is None
    # The group is deleted and made again: its epochs are the same, its state is another one.
    world.ask(DeleteStates(keys=frozenset({KEY})))
    world.initialize(epoch=1)
    assert isinstance(world.write(ACCEPTED, leader=3, epoch=1), FencedStateEpoch)
    # A leader that did not read.
    assert isinstance(world.write(ACCEPTED, leader=4, epoch=1), FencedStateEpoch)


def test_an_error_of_one_share_partition_is_none_of_another() -> None:
    world = StateWorld()
    world.initialize()
    world.read()
    found = world.ask(WriteStates(updates={KEY: update_of(ACCEPTED), OTHER: update_of(ACCEPTED)}))
    assert (found[KEY], type(found[OTHER])) == (None, GroupIdNotFound)


def kinds(world: StateWorld) -> list[ShareStateRecordKind]:
    found = [read_share_state_key(record.key) for record in world.log[world.log_start :]]
    return [one.kind for one in found if one is not None]


def test_a_snapshot_follows_so_many_updates_or_as_many_bytes() -> None:
    world = StateWorld(share_coordinator_snapshot_update_records_per_snapshot=3)
    world.initialize()
    world.read()
    for offset in range(6):
        world.write(start=offset)
    assert [int(kind) for kind in kinds(world)] == [0, 1, 1, 1, 0, 1, 1, 1]
    world = StateWorld()
    world.initialize()
    world.read()
    for offset in range(100):
        world.write(start=offset)
    assert kinds(world).count(ShareStateRecordKind.SNAPSHOT) == 3


def test_an_update_of_an_older_snapshot_changes_nothing() -> None:
    world = StateWorld()
    world.initialize()
    world.read()
    world.write(ACCEPTED)
    late = world.log[-1]
    world.initialize(epoch=1, start=0)
    before = world.state()
    world.shard.replay(late)
    assert world.state() == before


def test_the_log_is_pruned_up_to_the_oldest_snapshot_in_use() -> None:
    world = StateWorld(share_coordinator_snapshot_update_records_per_snapshot=2)
    world.initialize()
    world.initialize(OTHER)
    world.read()
    for offset in range(10):
        world.write(start=offset)
    world.advance(300_000)
    # The other share partition's only snapshot is its second record.
    assert world.log_start == 1
    world.ask(DeleteStates(keys=frozenset({OTHER})))
    world.advance(300_000)
    assert world.log_start > 8
    assert world.folded().states == world.shard.states


def test_cold_share_partitions_do_not_keep_the_log_for_ever() -> None:
    world = StateWorld()
    world.initialize(OTHER)
    world.initialize()
    world.read()
    for offset in range(2_000):
        world.write(start=offset)
    world.advance(300_000)
    world.advance(300_000)
    assert len(world.log) - world.log_start < 600
    assert world.folded().states == world.shard.states
    # Nothing changes, so nothing is written.
    before = len(world.log)
    world.advance(3_000_000)
    assert len(world.log) == before


def test_a_group_that_deletes_all_leaves_an_empty_log() -> None:
    world = StateWorld()
    world.initialize()
    world.ask(DeleteStates(keys=frozenset({KEY})))
    world.advance(300_000)
    assert world.log_start == len(world.log)


# --- any history


KEYS = [ShareKey(group, TOPIC, number) for group in ("a", "b") for number in (0, 1)]


class AnyStateHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = StateWorld(share_coordinator_snapshot_update_records_per_snapshot=3)
        self.model: dict[ShareKey, ShareState] = {}

    @rule(key=st.sampled_from(KEYS), epoch=st.integers(0, 3), start=st.integers(-1, 5))
    def initialize(self, key: ShareKey, epoch: int, start: int) -> None:
        error = self.world.initialize(key, epoch=epoch, start=start)
        known = self.model.get(key)
        if known is None or epoch > known.state_epoch:
            assert error is None
            self.model[key] = ShareState(
                state_epoch=epoch,
                leader_epoch=NEVER_READ,
                start_offset=Offset(start),
                finished_count=-1 if start < 0 else 0,
            )

    @rule(key=st.sampled_from(KEYS), leader=st.integers(0, 4))
    def read(self, key: ShareKey, leader: int) -> None:
        found = self.world.read(key, leader=leader)
        known = self.model.get(key)
        if known is None:
            assert isinstance(found, GroupIdNotFound)
        elif leader < known.leader_epoch:
            assert isinstance(found, FencedLeaderEpoch)
        else:
            self.model[key] = replace(known, leader_epoch=LeaderEpoch(leader))
            assert found == self.model[key]

    @rule(
        key=st.sampled_from(KEYS),
        leader=st.integers(0, 4),
        epoch=st.integers(0, 3),
        batch=st.tuples(st.integers(0, 9), st.integers(1, 5), st.sampled_from([0, 2, 3, 4])),
        start=st.integers(-1, 9),
    )
    def write(
        self,
        key: ShareKey,
        leader: int,
        epoch: int,
        batch: tuple[int, int, int],
        start: int,
    ) -> None:
        first, count, state = batch
        known = self.model.get(key)
        if known is not None and start < known.start_offset:
            start = -1
        written = StateBatch(first, first + count - 1, state, 1, 7 if state == 0 else -1)
        update = update_of(written, leader=leader, epoch=epoch, start=start, finished=count)
        error = self.world.ask(WriteStates(updates={key: update}))[key]
        if known is None:
            assert isinstance(error, GroupIdNotFound)
        elif (epoch, leader) == (known.state_epoch, known.leader_epoch):
            assert error is None
            self.model[key] = apply_update(known, update)
        else:
            assert isinstance(error, FencedLeaderEpoch | FencedStateEpoch)

    @rule(key=st.sampled_from(KEYS))
    def delete(self, key: ShareKey) -> None:
        self.world.ask(DeleteStates(keys=frozenset({key})))
        self.model.pop(key, None)

    @rule(ms=st.sampled_from([1_000, 300_000]))
    def time(self, ms: int) -> None:
        self.world.advance(ms)

    @rule()
    def reload(self) -> None:
        self.world.reload()

    @invariant()
    def what_was_answered_is_what_is_stored(self) -> None:
        assert self.world.shard.states == self.model
        assert self.world.folded().states == self.model


AnyStateHistory.TestCase.settings = hypothesis_settings(
    max_examples=80, stateful_step_count=30, deadline=None
)
TestAnyStateHistory = AnyStateHistory.TestCase
