"""Sets of partitions of several topics, as values: those a member owns, must revoke, or is to be assigned.

Topics are identified by id, so a deleted and recreated topic is a different one. No topic has an empty set, so that
equal sets are equal values.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from respool.model.ids import TopicId

PartitionSet: TypeAlias = Mapping[TopicId, frozenset[int]]

NO_PARTITIONS: PartitionSet = {}


def partition_set(topics: Iterable[tuple[TopicId, Iterable[int]]]) -> PartitionSet:
    """Build a set from entries in any order; a client may name a topic twice."""
    gathered: dict[TopicId, frozenset[int]] = {}
    for topic_id, partitions in topics:
        both = gathered.get(topic_id, frozenset()).union(partitions)
        if both:
            gathered[topic_id] = both
    return gathered


def count(partitions: PartitionSet) -> int:
    return sum(len(numbers) for numbers in partitions.values())


def union(left: PartitionSet, right: PartitionSet) -> PartitionSet:
    if not right:
        return left
    if not left:
        return right
    both = dict(left)
    for topic_id, numbers in right.items():
        both[topic_id] = both.get(topic_id, frozenset()) | numbers
    return both


def intersection(left: PartitionSet, right: PartitionSet) -> PartitionSet:
    common: dict[TopicId, frozenset[int]] = {}
    for topic_id, numbers in left.items():
        shared = numbers & right.get(topic_id, frozenset())
        if shared:
            common[topic_id] = shared
    return common


def difference(left: PartitionSet, right: PartitionSet) -> PartitionSet:
    if not right:
        return left
    rest: dict[TopicId, frozenset[int]] = {}
    for topic_id, numbers in left.items():
        others = numbers - right.get(topic_id, frozenset())
        if others:
            rest[topic_id] = others
    return rest


def overlap(left: PartitionSet, right: PartitionSet) -> bool:
    return any(
        not numbers.isdisjoint(right[topic_id])
        for topic_id, numbers in left.items()
        if topic_id in right
    )


def is_within(inner: PartitionSet, outer: PartitionSet) -> bool:
    return all(numbers <= outer.get(topic_id, frozenset()) for topic_id, numbers in inner.items())
