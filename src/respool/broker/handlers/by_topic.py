"""Replies that name a topic once, and its partitions below it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from respool.model.ids import TopicPartition

Item = TypeVar("Item")


def by_topic(
    items: Mapping[TopicPartition, Item],
) -> Iterable[tuple[str, Sequence[tuple[int, Item]]]]:
    """What is told of partitions, by topic; both in the order given."""
    topics: dict[str, list[tuple[int, Item]]] = {}
    for of, item in items.items():
        topics.setdefault(of.topic, []).append((of.partition, item))
    return topics.items()
