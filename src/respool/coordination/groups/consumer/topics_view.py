"""The existing topics as consumer groups see them, and partitions by topic name or by topic id."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from respool.coordination.groups.consumer.consumer_requests import NamedPartitions
from respool.coordination.groups.consumer.partition_sets import PartitionSet, partition_set
from respool.coordination.groups.consumer_protocol import NamedPartitionSet
from respool.model.ids import TopicId


class ConsumerTopic(NamedTuple):
    """What the coordinator needs to know about a topic or view."""

    topic_id: TopicId
    partition_count: int
    # Internal topics, and views that are not listed, can be subscribed to by name only.
    matches_patterns: bool = True


# The existing topics and views by name.
TopicsView: TypeAlias = Mapping[str, ConsumerTopic]


def with_ids(partitions: NamedPartitionSet, topics: TopicsView) -> PartitionSet:
    """Convert names to ids; unknown topics are left out."""
    return partition_set(
        (topics[name].topic_id, numbers) for name, numbers in partitions.items() if name in topics
    )


def with_names(partitions: PartitionSet, topics: TopicsView) -> NamedPartitionSet:
    """Convert ids to names; unknown topics are left out."""
    return {
        name: partitions[topic.topic_id]
        for name, topic in topics.items()
        if topic.topic_id in partitions
    }


def named_partitions(partitions: PartitionSet, topics: TopicsView) -> tuple[NamedPartitions, ...]:
    """In the form of descriptions; existing topics only: a deleted topic has no name."""
    names = {topic.topic_id: name for name, topic in topics.items()}
    return tuple(
        NamedPartitions(topic_id, names[topic_id], tuple(sorted(numbers)))
        for topic_id, numbers in sorted(partitions.items())
        if topic_id in names
    )
