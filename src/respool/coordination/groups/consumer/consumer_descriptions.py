"""Consumer groups as ConsumerGroupDescribe shows them."""

from respool.coordination.groups.consumer.consumer_group import ConsumerGroup
from respool.coordination.groups.consumer.consumer_member import ConsumerMember
from respool.coordination.groups.consumer.consumer_requests import (
    DescribedConsumerGroup,
    DescribedConsumerMember,
    NamedPartitions,
    TopicsView,
)
from respool.coordination.groups.consumer.partition_sets import NO_PARTITIONS, PartitionSet
from respool.model.errors import GroupIdNotFound


def describe_consumer_group(
    group_id: str, group: ConsumerGroup | None, topics: TopicsView
) -> DescribedConsumerGroup:
    if group is None:
        return DescribedConsumerGroup(
            group_id=group_id, error=GroupIdNotFound(f"there is no consumer group {group_id}")
        )
    names = {topic.topic_id: name for name, topic in topics.items()}

    def named(partitions: PartitionSet) -> tuple[NamedPartitions, ...]:
        """Of the topics there are: a deleted one has no name any more."""
        return tuple(
            NamedPartitions(topic_id, names[topic_id], tuple(sorted(numbers)))
            for topic_id, numbers in sorted(partitions.items())
            if topic_id in names
        )

    def described(member: ConsumerMember) -> DescribedConsumerMember:
        return DescribedConsumerMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=tuple(sorted(member.topic_names)),
            topic_pattern=member.topic_pattern,
            assignment=named(member.assigned),
            target_assignment=named(group.targets.get(member.member_id, NO_PARTITIONS)),
            is_classic=member.classic is not None,
        )

    return DescribedConsumerGroup(
        group_id=group_id,
        state=group.state,
        epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor=group.assignor,
        members=tuple(described(member) for member in group.members.values()),
    )
