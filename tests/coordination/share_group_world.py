"""A group coordinator with share groups: a share coordinator that is a dict, and effects that a test carries out."""

from typing import Any
from uuid import UUID

from coordination.group_world import GroupWorld
from respool.coordination.decision import Decision, Ticket
from respool.coordination.groups.consumer.partition_sets import PartitionSet, partition_set
from respool.coordination.groups.consumer.topics_view import ConsumerTopic
from respool.coordination.groups.group_coordinator_shard import GroupCoordinatorShard
from respool.coordination.groups.share.share_group import ShareGroup
from respool.coordination.groups.share.share_group_requests import (
    DescribedShareGroup,
    InitializeShareStates,
    RemoveShareStates,
    ShareGroupDescribe,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatReply,
    ShareStatesInitialized,
    ShareStatesRemoved,
)
from respool.model.coordinator_errors import CoordinatorNotAvailable
from respool.model.group_config import GroupConfig
from respool.model.ids import TopicId
from respool.model.share.share_broker_settings import ShareBrokerSettings

GROUP = "billing"
SESSION_MS = 45_000


class ShareWorld(GroupWorld):
    def __init__(self, **settings: int) -> None:
        self.shares = ShareBrokerSettings(**settings)  # type: ignore[arg-type]
        self.topics: dict[str, ConsumerTopic] = {}
        # What the share coordinator stores: (state epoch, start) of each share partition.
        self.stored: dict[tuple[str, TopicId, int], tuple[int, int]] = {}
        # Effects that are committed and not carried out yet.
        self.effects: list[InitializeShareStates | RemoveShareStates] = []
        self.carries_out_at_once = True
        super().__init__()
        self.shard = self._new_shard()
        self.timers.clear()
        self.carry_out(self.shard.on_loaded(now_ms=self.now_ms, wall_ms=self.wall_ms))

    def _new_shard(self) -> GroupCoordinatorShard:
        shard = GroupCoordinatorShard(
            self.settings, rng=self.rng, config_of=self.configs.get, shares=self.shares
        )
        shard.on_topics_changed(self.topics, now_ms=self.now_ms, wall_ms=self.wall_ms)
        return shard

    def folded(self) -> GroupCoordinatorShard:
        shard = self._new_shard()
        for record in self.log:
            shard.replay(record)
        return shard

    def reload(self) -> None:
        # Effects of the lost coordinator may be carried out late, or never; nobody hears of it.
        self.effects.clear()
        super().reload()

    def carry_out(self, decision: Decision) -> None:
        super().carry_out(decision)
        self.effects += decision.effects
        if self.carries_out_at_once:
            self.carry_out_effects()

    def carry_out_effects(self, *, fails: bool = False, reports: bool = True) -> None:
        while self.effects:
            effect = self.effects.pop(0)
            result = self._result(effect, fails=fails)
            if reports:
                decision = self.shard.decide(
                    result, ticket=Ticket(-1), now_ms=self.now_ms, wall_ms=self.wall_ms
                )
                answers = tuple(one for one in decision.answers if one.ticket != -1)
                GroupWorld.carry_out(self, _with_answers(decision, answers))
                self.effects += decision.effects
            if fails:
                return

    def _result(
        self, effect: InitializeShareStates | RemoveShareStates, *, fails: bool
    ) -> ShareStatesInitialized | ShareStatesRemoved:
        is_new = isinstance(effect, InitializeShareStates)
        if fails:
            kind = ShareStatesInitialized if is_new else ShareStatesRemoved
            error = CoordinatorNotAvailable("no share coordinator")
            # It may have been done all the same.
            return kind(group_id=effect.group_id, done={}, error=error)
        if isinstance(effect, InitializeShareStates):
            return self._initialize(effect)
        return self._remove(effect)

    def ask(self, request: Any) -> Ticket:
        return super().ask(request)

    def now(self, request: Any) -> Any:
        return super().now(request)

    def _initialize(self, effect: InitializeShareStates) -> ShareStatesInitialized:
        for one in effect.starts:
            key = (effect.group_id, one.topic_id, one.partition)
            if key not in self.stored or self.stored[key][0] < one.state_epoch:
                self.stored[key] = (one.state_epoch, one.offset)
        done = partition_set((one.topic_id, [one.partition]) for one in effect.starts)
        return ShareStatesInitialized(group_id=effect.group_id, done=done)

    def _remove(self, effect: RemoveShareStates) -> ShareStatesRemoved:
        for topic_id, numbers in effect.partitions.items():
            for number in numbers:
                self.stored.pop((effect.group_id, topic_id, number), None)
        return ShareStatesRemoved(group_id=effect.group_id, done=effect.partitions)

    # --- short words for stories

    def create(self, name: str, partitions: int) -> TopicId:
        topic_id = TopicId(UUID(int=1_000 + len(self.topics) + 100 * len(self.log)))
        self.set_topics({**self.topics, name: ConsumerTopic(topic_id, partitions)})
        return topic_id

    def enlarge(self, name: str, partitions: int) -> None:
        topic = self.topics[name]._replace(partition_count=partitions)
        self.set_topics({**self.topics, name: topic})

    def delete(self, name: str) -> None:
        self.set_topics({key: one for key, one in self.topics.items() if key != name})

    def set_topics(self, topics: dict[str, ConsumerTopic]) -> None:
        self.topics = topics
        self.carry_out(
            self.shard.on_topics_changed(topics, now_ms=self.now_ms, wall_ms=self.wall_ms)
        )

    def configure(self, group: str = GROUP, **settings: str) -> None:
        names = {name.replace("_", "."): value for name, value in settings.items()}
        self.configs[group] = GroupConfig.parse(names)

    def beat(self, member: str, epoch: int, *topics: str, **fields: Any) -> Ticket:
        return self.ask(heartbeat_of(member, epoch, *topics, **fields))

    def beaten(
        self, member: str, epoch: int, *topics: str, **fields: Any
    ) -> ShareGroupHeartbeatReply:
        reply = self.replies[self.beat(member, epoch, *topics, **fields)]
        assert isinstance(reply, ShareGroupHeartbeatReply)
        return reply

    def described(self, group: str = GROUP) -> DescribedShareGroup:
        (told,) = self.now(ShareGroupDescribe(group_ids=(group,))).groups
        assert isinstance(told, DescribedShareGroup)
        return told

    def group(self, name: str = GROUP) -> ShareGroup:
        return self.shard._shares.groups[name]

    def stored_partitions(self, group: str = GROUP) -> PartitionSet:
        return partition_set(
            (topic_id, [number]) for name, topic_id, number in self.stored if name == group
        )


def heartbeat_of(member: str, epoch: int, *topics: str, **fields: Any) -> ShareGroupHeartbeat:
    return ShareGroupHeartbeat(
        **{
            "group_id": GROUP,
            "member_id": member,
            "member_epoch": epoch,
            "client_id": "worker",
            "client_host": "/10.0.0.1",
            "topic_names": topics or None,
            **fields,
        }
    )


def _with_answers(decision: Decision, answers: tuple[Any, ...]) -> Decision:
    return Decision(records=decision.records, answers=answers, timers=decision.timers)
