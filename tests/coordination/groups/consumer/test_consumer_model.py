"""One next-generation group under random members, topics, clocks, lost replies and lost coordinators.

What must never be seen is named as in RELIABILITY.md: B1, B2, B8, C14.
"""

from collections import Counter
from itertools import count

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from coordination.consumer_world import (
    CONSUMER_REBALANCE_MS,
    CONSUMER_SESSION_MS,
    HEARTBEAT_MS,
    everything,
    groups_of,
)
from coordination.group_world import FUZZ, GROUP
from coordination.sim_consumer import LaggingConsumerWorld, SimConsumer
from respool.coordination.groups.consumer.consumer_group import ConsumerGroup
from respool.coordination.groups.consumer.consumer_member import LEAVE_STATIC_EPOCH
from respool.coordination.groups.consumer.consumer_record_bytes import (
    read_consumer_key,
    read_consumer_value,
)
from respool.coordination.groups.consumer.consumer_records import (
    CONSUMER_RECORD_KINDS,
    ConsumerRecordKind,
    GroupValue,
)
from respool.coordination.groups.group_records import kind_of
from respool.coordination.groups.group_requests import (
    GroupState,
    OffsetCommit,
    OffsetToCommit,
    TopicToCommit,
)
from respool.model.ids import Offset
from support.model_runs import run_machine

MEMBERS_MAX = 5
TOPICS = ("rides", "bills", "riders")
# Sessions of those who crashed, revocations of those who did not answer, and all that a second time.
SETTLE_ROUNDS = 2 * (CONSUMER_SESSION_MS + CONSUMER_REBALANCE_MS) // HEARTBEAT_MS

numbers = st.integers(0, MEMBERS_MAX - 1)
topic_choices = st.sampled_from([("rides",), ("bills",), ("rides", "bills"), TOPICS, ()])
patterns = st.sampled_from([None, None, None, "ri.*", ".*s", ""])
instances = st.sampled_from([None, None, None, "i1", "i2"])


class ConsumerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = LaggingConsumerWorld()
        self.members: list[SimConsumer] = []
        self.names = count()

    @initialize(size=st.integers(0, 3), partitions=st.integers(1, 6))
    def begin_with_a_group(self, size: int, partitions: int) -> None:
        self.world.make_topic("rides", partitions)
        self.world.make_topic("bills", 2)
        for _ in range(size):
            self.start(("rides", "bills"), None, None)
        self.live(6)

    # --- what members do

    @rule(topics=topic_choices, pattern=patterns, instance=instances)
    def start(self, topics: tuple[str, ...], pattern: str | None, instance: str | None) -> None:
        if sum(member.is_alive for member in self.members) < MEMBERS_MAX:
            name = f"m{next(self.names)}"
            member = SimConsumer(
                self.world, name, topics=topics, pattern=pattern, instance_id=instance
            )
            self.members.append(member)

    @rule(number=numbers, steps=st.integers(1, 3))
    def step(self, number: int, steps: int) -> None:
        member = self.member(number)
        for _ in range(steps):
            if member is not None:
                member.step()

    @rule(number=numbers)
    def send_while_giving_up(self, number: int) -> None:
        """A heartbeat between being told and having done so."""
        member = self.member(number)
        if member is not None and member.take_reply():
            member.send()

    @rule(number=numbers)
    def lose_reply(self, number: int) -> None:
        member = self.member(number)
        if member is not None:
            member.lose_reply()

    @rule(number=numbers, topics=topic_choices, pattern=patterns)
    def subscribe(self, number: int, topics: tuple[str, ...], pattern: str | None) -> None:
        member = self.member(number)
        if member is not None:
            member.topics = topics
            member.pattern = pattern or ("" if member.pattern is not None else None)

    @rule(number=numbers)
    def crash_member(self, number: int) -> None:
        member = self.member(number)
        if member is not None:
            member.kill()

    @rule(number=numbers, for_a_while=st.booleans())
    def leave(self, number: int, for_a_while: bool) -> None:
        member = self.member(number)
        if member is not None and member.epoch > 0:
            is_static = member.instance_id is not None
            member.leave(LEAVE_STATIC_EPOCH if for_a_while and is_static else -1)

    @rule(number=numbers, stale_by=st.integers(0, 2))
    def commit(self, number: int, stale_by: int) -> None:
        member = self.member(number)
        if member is None or member.epoch == 0:
            return
        known = self.group.members.get(member.member_id) if self.group else None
        epoch = member.epoch - stale_by
        before = len(self.world.log)
        one = OffsetToCommit(0, Offset(7))
        self.world.ask(
            OffsetCommit(
                group_id=GROUP,
                member_id=member.member_id,
                generation=epoch,
                topics=(TopicToCommit("rides", (one,)),),
            )
        )
        # B2: from members at their epoch, and from nobody else.
        is_current = known is not None and known.epoch == epoch
        is_for_all = epoch < 0 and (self.group is None or not self.group.members)
        assert (len(self.world.log) > before) == (is_current or is_for_all)

    # --- what happens around them

    @rule(ticks=st.integers(1, 5))
    def live_a_while(self, ticks: int) -> None:
        self.live(ticks)

    @rule(ms=st.sampled_from([1, 5_000, CONSUMER_SESSION_MS - 1, CONSUMER_SESSION_MS, 60_000]))
    def wait(self, ms: int) -> None:
        self.world.advance(ms)

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 6))
    def change_topic(self, name: str, partitions: int) -> None:
        topic = self.world.topics.get(name)
        if topic is None:
            self.world.make_topic(name, partitions)
        elif partitions > topic.partition_count:
            self.world.grow_topic(name, partitions)
        else:
            self.world.delete_topic(name)

    @rule()
    def fall_behind(self) -> None:
        self.world.is_lagging = True

    @rule()
    def catch_up(self) -> None:
        self.world.is_lagging = False
        self.world.catch_up()

    @rule(batches_kept=st.integers(0, 3))
    def crash_coordinator(self, batches_kept: int) -> None:
        self.world.is_lagging = False
        self.world.crash(batches_kept=batches_kept)
        for member in self.members:
            # Their connections are gone with it; a reply that had left may still come.
            if member.ticket is not None and member.ticket not in self.world.replies:
                member.lose_reply()

    # --- what must be true

    @invariant()
    def no_partition_is_used_by_two(self) -> None:
        """B1. Who was thrown out, and does not know it yet, is on its own."""
        if self.group is None:
            return
        used = Counter(
            (topic, partition)
            for member in self.members
            if member.is_alive and member.member_id in self.group.members
            for topic, partitions in member.uses.items()
            for partition in partitions
        )
        assert all(number == 1 for number in used.values()), used

    @invariant()
    def epochs_are_in_order(self) -> None:
        if self.group is None:
            return
        assert self.group.target_epoch <= self.group.epoch
        for member in self.group.members.values():
            assert member.epoch <= self.group.target_epoch
            assert member.previous_epoch <= max(0, member.epoch) or member.epoch < 0

    @invariant()
    def the_log_tells_all(self) -> None:
        """C14."""
        folded = groups_of(self.world.folded())
        live = groups_of(self.world.shard)
        assert folded.keys() == live.keys()
        for group_id, group in live.items():
            assert everything(folded[group_id]) == everything(group)

    @invariant()
    def group_epochs_in_the_log_rise(self) -> None:
        last = 0
        for record in self.world.log:
            if kind_of(record.key) not in CONSUMER_RECORD_KINDS:
                continue
            key = read_consumer_key(record.key)
            if key.kind is not ConsumerRecordKind.GROUP:
                continue
            if record.value is None:
                # A group without members and offsets goes after a while; one of that name is another.
                last = 0
                continue
            value = read_consumer_value(key.kind, record.value)
            assert isinstance(value, GroupValue)
            assert value.epoch > last
            last = value.epoch

    def teardown(self) -> None:
        """B8: left alone, the group comes to rest, and every partition anyone reads has one owner."""
        self.world.is_lagging = False
        self.world.catch_up()
        self.live(SETTLE_ROUNDS)
        self.no_partition_is_used_by_two()
        self.the_log_tells_all()
        alive = [member for member in self.members if member.is_alive]
        if self.group is None or not alive:
            assert self.group is None or not self.group.members
            return
        joined = [member for member in alive if member.epoch > 0]
        # Of several with one instance id only the first is in.
        instances_alive = {member.instance_id or member.member_id for member in alive}
        assert len(joined) == len(instances_alive) == len(self.group.members)
        assert self.group.state is GroupState.STABLE
        wanted = {
            (topic.topic_id, partition)
            for name, topic in self.world.topics.items()
            if any(reads(member, name) for member in joined)
            for partition in range(topic.partition_count)
        }
        used = [
            (topic, partition)
            for member in joined
            for topic, partitions in member.uses.items()
            for partition in partitions
        ]
        assert sorted(used) == sorted(wanted)
        for member in joined:
            for name, topic in self.world.topics.items():
                assert topic.topic_id not in member.uses or reads(member, name)

    # --- helpers

    @property
    def group(self) -> ConsumerGroup | None:
        return groups_of(self.world.shard).get(GROUP)

    def member(self, number: int) -> SimConsumer | None:
        alive = [member for member in self.members if member.is_alive]
        return alive[number % len(alive)] if alive else None

    def live(self, rounds: int) -> None:
        for _ in range(rounds):
            for member in self.members:
                member.step()
            self.world.advance(HEARTBEAT_MS)


def reads(member: SimConsumer, name: str) -> bool:
    return (
        name in member.topics
        or (member.pattern == "ri.*" and name.startswith("ri"))
        or (member.pattern == ".*s" and name.endswith("s"))
    )


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_a_group_under_everything_that_can_happen() -> None:
    run_machine(ConsumerMachine, examples=1_500 if FUZZ else 30, steps=60 if FUZZ else 40)
