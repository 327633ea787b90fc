"""One group of members of both protocols, going over and back, under lost replies, lost members and lost coordinators.

What must never be seen is named as in RELIABILITY.md: B1, B8, C14.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import count
from typing import Any

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
    everything,
    groups_of,
)
from coordination.group_world import FUZZ, GROUP, REBALANCE_MS, SESSION_MS
from coordination.sim_classic import COOPERATIVE, EAGER, SimClassic
from coordination.sim_consumer import LaggingConsumerWorld, SimConsumer
from respool.coordination.groups.group_requests import GroupState, GroupType, ListGroups
from support.model_runs import run_machine

MEMBERS_MAX = 5
TOPICS = ("rides", "bills")
TICK_MS = 2_000
# Everything that can time out, twice, one after the other.
SETTLE_ROUNDS = (
    2 * (CONSUMER_SESSION_MS + CONSUMER_REBALANCE_MS + SESSION_MS + REBALANCE_MS) // TICK_MS
)

numbers = st.integers(0, MEMBERS_MAX - 1)
topic_choices = st.sampled_from([("rides",), ("rides", "bills"), ("bills",)])
instances = st.sampled_from([None, None, None, "i1", "i2"])


class MixedMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = LaggingConsumerWorld()
        self.members: list[SimClassic | SimConsumer] = []
        self.names = count()
        self.protocol = EAGER

    @initialize(protocol=st.sampled_from([EAGER, COOPERATIVE]), size=st.integers(1, 3))
    def begin_with_a_classic_group(self, protocol: str, size: int) -> None:
        self.protocol = protocol
        self.world.make_topic("rides", 5)
        self.world.make_topic("bills", 2)
        for _ in range(size):
            self.start_classic(("rides", "bills"), None)
        self.live(15)

    # --- what members do

    @rule(topics=topic_choices, instance=instances)
    def start_classic(self, topics: tuple[str, ...], instance: str | None) -> None:
        if self.has_room:
            name = f"c{next(self.names)}"
            self.members.append(
                SimClassic(
                    self.world, name, topics=topics, protocol=self.protocol, instance_id=instance
                )
            )

    @rule(topics=topic_choices, instance=instances)
    def start_consumer(self, topics: tuple[str, ...], instance: str | None) -> None:
        if self.has_room:
            name = f"m{next(self.names)}"
            self.members.append(SimConsumer(self.world, name, topics=topics, instance_id=instance))

    @rule(number=numbers, steps=st.integers(1, 4))
    def step(self, number: int, steps: int) -> None:
        member = self.member(number)
        for _ in range(steps):
            if member is not None:
                member.step()

    @rule(number=numbers)
    def send_while_giving_up(self, number: int) -> None:
        member = self.member(number)
        if isinstance(member, SimConsumer) and member.take_reply():
            member.send()

    @rule(number=numbers)
    def lose_reply(self, number: int) -> None:
        member = self.member(number)
        if member is not None:
            member.lose_reply()

    @rule(number=numbers, topics=topic_choices)
    def subscribe(self, number: int, topics: tuple[str, ...]) -> None:
        member = self.member(number)
        if member is not None:
            member.topics = topics

    @rule(number=numbers)
    def crash_member(self, number: int) -> None:
        member = self.member(number)
        if member is not None:
            member.kill()

    @rule(number=numbers)
    def leave(self, number: int) -> None:
        member = self.member(number)
        if isinstance(member, SimConsumer):
            member.leave(-1)
        elif member is not None:
            member.leave()

    # --- what happens around them

    @rule(ticks=st.integers(1, 10))
    def live_a_while(self, ticks: int) -> None:
        self.live(ticks)

    @rule(ms=st.sampled_from([1, 3_000, SESSION_MS, CONSUMER_SESSION_MS, 60_000]))
    def wait(self, ms: int) -> None:
        self.world.advance(ms)

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 6))
    def change_topic(self, name: str, partitions: int) -> None:
        topic = self.world.topics.get(name)
        if topic is None:
            self.world.make_topic(name, partitions)
        elif partitions > topic.partition_count:
            self.world.grow_topic(name, partitions)

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
            if member.ticket is not None and member.ticket not in self.world.replies:
                member.lose_reply()

    # --- what must be true

    @invariant()
    def no_partition_is_used_by_two(self) -> None:
        """B1. Who was thrown out, and does not know it yet, is on its own."""
        current = self.current_members
        used = Counter(
            (topic, partition)
            for member in self.members
            if member.is_alive and member.member_id in current
            for topic, partitions in member.uses.items()
            for partition in partitions
        )
        assert all(number == 1 for number in used.values()), used

    @invariant()
    def a_group_is_of_one_protocol(self) -> None:
        consumer = GROUP in groups_of(self.world.shard)
        classic = GROUP in self.world.shard._classic.groups
        assert not (consumer and classic)

    @invariant()
    def the_log_tells_all(self) -> None:
        """C14, of what must survive."""
        folded = self.world.folded()
        live, stored = groups_of(self.world.shard), groups_of(folded)
        assert stored.keys() == live.keys()
        for group_id, group in live.items():
            assert everything(stored[group_id]) == everything(group)
        classic = folded._classic.groups.get(GROUP)
        live_classic = self.world.shard._classic.groups.get(GROUP)
        expected = None if live_classic is None else live_classic.stored
        assert (None if classic is None else classic.stored) == expected

    def teardown(self) -> None:
        """B8: left alone, the group comes to rest; every partition anyone reads has one owner."""
        self.world.is_lagging = False
        self.world.catch_up()
        self.live(SETTLE_ROUNDS)
        self.no_partition_is_used_by_two()
        self.the_log_tells_all()
        alive = [member for member in self.members if member.is_alive]
        current = self.current_members
        joined = [member for member in alive if member.member_id in current]
        places = {member.instance_id or id(member) for member in alive}
        assert len(joined) == len(places) == len(current)
        if not joined:
            return
        (listed,) = self.world.now(ListGroups()).groups
        assert listed.state is GroupState.STABLE
        has_consumers = any(isinstance(member, SimConsumer) for member in joined)
        assert (listed.type is GroupType.CONSUMER) == has_consumers
        if listed.type is GroupType.CLASSIC:
            # Nobody tells classic members of new partitions; they look for themselves, which these do not.
            self.rebalance_classic(joined)
        self.check_all_is_shared_out(joined)

    def rebalance_classic(self, joined: list[SimClassic | SimConsumer]) -> None:
        """A member comes and goes, which makes the others share out anew."""
        extra = SimClassic(self.world, "extra", topics=("rides",), protocol=self.protocol)
        self.members.append(extra)
        self.live(40)
        extra.leave()
        self.live(40)
        assert all(member.is_alive for member in joined)

    def check_all_is_shared_out(self, joined: list[SimClassic | SimConsumer]) -> None:
        wanted = {
            (topic.topic_id, partition)
            for name, topic in self.world.topics.items()
            if any(name in member.topics for member in joined)
            for partition in range(topic.partition_count)
        }
        used = [
            (topic, partition)
            for member in joined
            for topic, partitions in member.uses.items()
            for partition in partitions
        ]
        assert sorted(used) == sorted(wanted)

    # --- helpers

    @property
    def current_members(self) -> Mapping[str, Any]:
        consumer = groups_of(self.world.shard).get(GROUP)
        if consumer is not None:
            return consumer.members
        classic = self.world.shard._classic.groups.get(GROUP)
        return {} if classic is None else classic.members

    @property
    def has_room(self) -> bool:
        return sum(member.is_alive for member in self.members) < MEMBERS_MAX

    def member(self, number: int) -> SimClassic | SimConsumer | None:
        alive = [member for member in self.members if member.is_alive]
        return alive[number % len(alive)] if alive else None

    def live(self, rounds: int) -> None:
        for _ in range(rounds):
            for member in self.members:
                member.step()
            self.world.advance(TICK_MS)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_a_group_of_both_protocols_under_everything_that_can_happen() -> None:
    run_machine(MixedMachine, examples=1_500 if FUZZ else 20, steps=50 if FUZZ else 30)
