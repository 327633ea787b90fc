"""A group coordinator with topics, and consumers of the next-generation protocol that do as librdkafka and Java do."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from coordination.group_world import GROUP, GroupWorld
from respool.coordination.groups.consumer.consumer_group import ConsumerGroup
from respool.coordination.groups.consumer.consumer_requests import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    DescribedConsumerGroup,
)
from respool.coordination.groups.consumer.partition_sets import PartitionSet, partition_set
from respool.coordination.groups.consumer.topics_view import ConsumerTopic
from respool.coordination.groups.group_coordinator_shard import GroupCoordinatorShard
from respool.model.errors import RequestError
from respool.model.ids import TopicId

HEARTBEAT_MS = 5_000
CONSUMER_SESSION_MS = 45_000
CONSUMER_REBALANCE_MS = 60_000


def topic_id(number: int) -> TopicId:
    return TopicId(UUID(int=number))


class ConsumerWorld(GroupWorld):
    """Topics are made by name; each new one has an id of its own, also when there was one of that name before."""

    def __init__(self, **settings: Any) -> None:
        self.topics: dict[str, ConsumerTopic] = {}
        self._topics_made = 0
        super().__init__(**settings)

    def now(self, request: Any) -> Any:
        """Put a request of either protocol that is answered at once."""
        return super().now(request)

    def folded(self) -> GroupCoordinatorShard:
        shard = GroupCoordinatorShard(self.settings, rng=self.rng)
        assert not shard.on_topics_changed(dict(self.topics), now_ms=self.now_ms).records
        for record in self.log:
            shard.replay(record)
        return shard

    def make_topic(self, name: str, partitions: int, *, is_internal: bool = False) -> TopicId:
        self._topics_made += 1
        made = topic_id(self._topics_made)
        self.topics[name] = ConsumerTopic(made, partitions, matches_patterns=not is_internal)
        self.tell_topics()
        return made

    def grow_topic(self, name: str, partitions: int) -> None:
        self.topics[name] = self.topics[name]._replace(partition_count=partitions)
        self.tell_topics()

    def delete_topic(self, name: str) -> None:
        del self.topics[name]
        self.tell_topics()

    def tell_topics(self) -> None:
        decision = self.shard.on_topics_changed(dict(self.topics), now_ms=self.now_ms)
        self.carry_out(decision)

    def beat(self, member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatReply:
        """A heartbeat with no more than what is given."""
        reply = self.now(beat_of(member_id, epoch, **fields))
        assert isinstance(reply, ConsumerGroupHeartbeatReply)
        return reply

    def beat_join(self, member_id: str, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatReply:
        return self.beat(member_id, 0, **(joining(*topics) | fields))

    def describe_consumers(self, group_id: str = GROUP) -> DescribedConsumerGroup:
        described = self.now(ConsumerGroupDescribe(group_ids=(group_id,))).groups[0]
        assert isinstance(described, DescribedConsumerGroup)
        return described

    def group(self, group_id: str = GROUP) -> ConsumerGroup:
        return groups_of(self.shard)[group_id]

    def consumers(self, count: int, *topics: str, **fields: Any) -> list["Consumer"]:
        """So many members that have what they shall have."""
        members = [Consumer(self, f"m{n}", *topics, **fields) for n in range(count)]
        settle(members)
        return members


class Consumer:
    """A member as a client sees itself. What it `uses` it has been given and has not given up."""

    def __init__(self, world: ConsumerWorld, member_id: str, *topics: str, **fields: Any) -> None:
        self.world = world
        self.member_id = member_id
        self.epoch = 0
        self.topics = tuple(topics)
        self.fields = fields
        self.uses: PartitionSet = {}
        # The last assignment it was told; what it does not use yet of it, it will once it gave up the rest.
        self.told: PartitionSet = {}
        self.is_sure = False
        self.is_gone = False

    @property
    def instance_id(self) -> str | None:
        return self.fields.get("instance_id")

    def beat(self, *, is_reply_lost: bool = False) -> RequestError | None:
        """Send what a client sends: all of it when it joins or is not sure that the last reply came."""
        words: dict[str, Any] = {}
        if self.epoch == 0:
            self.uses, self.told = {}, {}
            words = joining(*self.topics) | self.fields
        elif not self.is_sure:
            words = joining(*self.topics) | self.fields | {"owned": self.uses}
        elif self.uses == self.told:
            words = {"owned": self.uses}
        if self.instance_id is not None:
            words["instance_id"] = self.instance_id
        reply = self.world.beat(self.member_id, self.epoch, **words)
        self.is_sure = not is_reply_lost
        if is_reply_lost:
            return None
        if reply.error is not None:
            self.epoch, self.uses, self.told = 0, {}, {}
            return reply.error
        assert reply.member_id == self.member_id
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self.told = reply.assignment
        return None

    def take_over(self) -> None:
        """Give up what it was not told, then use what it was."""
        self.uses = self.told

    def step(self) -> None:
        self.beat()
        self.take_over()

    def subscribe(self, *topics: str, **fields: Any) -> None:
        self.topics = tuple(topics)
        self.fields |= fields
        self.is_sure = False

    def leave(self) -> None:
        self.is_gone = True
        self.uses = {}
        self.world.beat(self.member_id, -1, instance_id=self.instance_id)

    def go_away(self) -> None:
        """A static member stops for a while."""
        self.is_gone = True
        self.uses = {}
        self.world.beat(self.member_id, -2, instance_id=self.instance_id)

    def partitions(self, name: str) -> set[int]:
        return set(self.uses.get(self.world.topics[name].topic_id, ()))


def beat_of(member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeat:
    words: dict[str, Any] = {
        "group_id": GROUP,
        "client_id": "app",
        "client_host": "/127.0.0.1",
    }
    return ConsumerGroupHeartbeat(member_id=member_id, member_epoch=epoch, **(words | fields))


def joining(*topics: str) -> dict[str, Any]:
    return {
        "topic_names": topics,
        "owned": {},
        "rebalance_timeout_ms": CONSUMER_REBALANCE_MS,
    }


def settle(members: Iterable[Consumer], rounds: int = 8) -> None:
    """Let everybody send heartbeats until all have what they shall have."""
    members = list(members)
    for _ in range(rounds):
        for member in members:
            member.step()


def owned(**topics: Iterable[int]) -> PartitionSet:
    """Of topics named t1, t2, ... in the order they were made."""
    return partition_set(
        (topic_id(int(name.removeprefix("t"))), numbers) for name, numbers in topics.items()
    )


def groups_of(shard: GroupCoordinatorShard) -> dict[str, ConsumerGroup]:
    return shard._consumers.groups


def everything(group: ConsumerGroup) -> dict[str, Any]:
    """All that a group knows, to compare."""
    return {name: getattr(group, name) for name in group.__slots__}
