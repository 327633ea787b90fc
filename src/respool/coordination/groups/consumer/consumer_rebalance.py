"""The steps that take a consumer group to its next epoch: subscription, target assignment, reconciliation.

The steps are those of Kafka's coordinator. Each one works on the result of the previous ones (`ConsumerDraft`), and
writes nothing if nothing changes.
"""

from collections.abc import Iterable
from functools import partial

from respool.coordination.groups.consumer.assignors import ASSIGNORS, Subscriber
from respool.coordination.groups.consumer.consumer_draft import (
    ConsumerDraft,
    end_of_member,
    member_value,
)
from respool.coordination.groups.consumer.consumer_group import ConsumerGroup
from respool.coordination.groups.consumer.consumer_member import ConsumerMember, Target, reconcile
from respool.coordination.groups.consumer.consumer_records import (
    ConsumerRecordKey,
    ConsumerRecordKind,
    GroupValue,
    PatternValue,
    TargetEpochValue,
    TargetValue,
)
from respool.coordination.groups.consumer.partition_sets import NO_PARTITIONS, PartitionSet
from respool.coordination.groups.consumer.topics_view import TopicsView
from respool.coordination.topic_patterns.topic_pattern import topic_pattern
from respool.model.coordinator_errors import InvalidRegularExpression
from respool.model.ids import NO_TIMESTAMP


class ConsumerRebalance:
    def __init__(self) -> None:
        # The existing topics. Setting it does not notify the groups; the caller does.
        self.topics: TopicsView = {}

    def subscribe(
        self,
        change: ConsumerDraft,
        before: ConsumerMember | None,
        member: ConsumerMember,
        wall_ms: int,
    ) -> bool:
        """Write a member that joined or changed; return True if its subscription changed, which bumps the epoch.

        Raises:
            InvalidRegularExpression: the member's pattern is invalid.
        """
        if before is None or member_value(before) != member_value(member):
            change.put_member(member)
        if (
            before is not None
            and before.topic_names == member.topic_names
            and before.topic_pattern == member.topic_pattern
        ):
            return False
        pattern = member.topic_pattern
        if pattern is not None and pattern not in change.group.resolved:
            names = topic_pattern(pattern).matching(self.names_for_patterns())
            change.put(ConsumerRecordKind.PATTERN, PatternValue(names, wall_ms), pattern)
        self.drop_unused_patterns(change)
        self.begin_epoch(change, wall_ms)
        return True

    def replace_static(
        self, change: ConsumerDraft, old: ConsumerMember, new: ConsumerMember
    ) -> None:
        """Give the old member's instance id and partitions to the new one."""
        group = change.group
        target = group.targets.get(old.member_id, NO_PARTITIONS)
        change.end(end_of_member(group.group_id, old.member_id))
        change.put_member(new)
        change.put(ConsumerRecordKind.TARGET, TargetValue(target), new.member_id)
        change.put_current(new)

    def remove(self, change: ConsumerDraft, member_ids: Iterable[str], wall_ms: int) -> None:
        """Remove members; their partitions become free at once."""
        for member_id in member_ids:
            change.end(end_of_member(change.group.group_id, member_id))
        self.drop_unused_patterns(change)
        self.begin_epoch(change, wall_ms)

    def begin_epoch(self, change: ConsumerDraft, wall_ms: int) -> None:
        group = change.group
        hashed = group.hash_of_topics(self.topics)
        empty_since_ms = NO_TIMESTAMP if group.members else wall_ms
        change.put(ConsumerRecordKind.GROUP, GroupValue(group.epoch + 1, hashed, empty_since_ms))

    def on_topics_changed(
        self, change: ConsumerDraft, wall_ms: int, *, new_names: Iterable[str]
    ) -> None:
        """Bump the epoch if the group's subscribed topics, or their partitions, have changed.

        The group's patterns are matched against new topics only.
        """
        for pattern in sorted(change.group.patterns()):
            names = self._resolved_again(change.group, pattern, new_names)
            if names != change.group.resolved.get(pattern):
                change.put(ConsumerRecordKind.PATTERN, PatternValue(names, wall_ms), pattern)
        if change.group.hash_of_topics(self.topics) != change.group.metadata_hash:
            self.begin_epoch(change, wall_ms)

    def assign(self, change: ConsumerDraft) -> None:
        """Compute the target assignment for the group's epoch, unless it is up to date."""
        group = change.group
        if group.epoch <= group.target_epoch:
            return
        topics = self.topics
        subscribers = {
            member_id: Subscriber(
                group.topic_ids_of(member, topics),
                group.targets.get(member_id, NO_PARTITIONS),
                member.instance_id,
            )
            for member_id, member in group.members.items()
        }
        counts = {
            topics[name].topic_id: topics[name].partition_count
            for name in group.topic_names()
            if name in topics
        }
        shares = ASSIGNORS[group.assignor](subscribers, counts)
        for member_id, partitions in shares.items():
            if group.targets.get(member_id) != partitions:
                change.put(ConsumerRecordKind.TARGET, TargetValue(partitions), member_id)
        change.put(ConsumerRecordKind.TARGET_EPOCH, TargetEpochValue(group.epoch))

    def reconcile(
        self, change: ConsumerDraft, member_id: str, *, owned: PartitionSet | None
    ) -> ConsumerMember:
        """Reconcile the member by one step with its target.

        Raises:
            FencedMemberEpoch: the member is in an unknown state.
        """
        group = change.group
        member = group.members[member_id]
        target = Target(
            epoch=group.target_epoch,
            partitions=group.targets.get(member_id, NO_PARTITIONS),
            held_by_others=partial(group.held_by_others, member_id),
        )
        after = reconcile(member, target, owned=owned)
        if after != member:
            change.put_current(after)
        return after

    def drop_unused_patterns(self, change: ConsumerDraft) -> None:
        group = change.group
        unused = sorted(group.resolved.keys() - group.patterns())
        change.end(
            ConsumerRecordKey(ConsumerRecordKind.PATTERN, group.group_id, pattern)
            for pattern in unused
        )

    def names_for_patterns(self) -> Iterable[str]:
        return (name for name, topic in self.topics.items() if topic.matches_patterns)

    def _resolved_again(
        self, group: ConsumerGroup, pattern: str, new_names: Iterable[str]
    ) -> frozenset[str]:
        still = frozenset(self.names_for_patterns()).intersection(group.resolved.get(pattern, ()))
        try:
            return still | topic_pattern(pattern).matching(new_names)
        except InvalidRegularExpression:
            # The pattern matched in time at first, but takes too much work with the current topics: leave its result as
            # it is.
            return still
