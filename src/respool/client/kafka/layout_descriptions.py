"""Layouts of topics that were shrunk: which partitions are sealed, and where, as our brokers describe them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from respool.client.kafka.codes import Code, refused
from respool.client.kafka.errors import ProtocolBroken, UnknownTopic, VersionUnsupported
from respool.wire.api_table import Api
from respool.wire.layout_change import parse_counts

# Brokers send fewer if they like.
PARTITIONS_PER_PAGE = 2_000


class AsksAnyBroker(Protocol):
    """A `Cluster`."""

    def request_any(self, api: Api, fields: Mapping[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLayout:
    # Partitions below this number take records; the others are sealed.
    active: int
    # Clients may name the partitions below: the largest number that the topic has had.
    named: int
    # The topic has the partitions below; those between the two were retired.
    listed: int
    # By sealed partition, where producers' records end; missing for a moment after a change.
    sealed_ends: Mapping[int, int] = field(default_factory=dict)
    # By partition, up to where consumers are shown records until groups have read what the same keys got before.
    shown_ends: Mapping[int, int] = field(default_factory=dict)


def describe_layout(cluster: AsksAnyBroker, topic: str) -> TopicLayout | None:
    """The topic's layout; None if it was never shrunk, or if the brokers know nothing of that. One attempt.

    Raises:
        UnknownTopic, BrokerRefused, BrokerUnreachable
    """
    return describe_layouts(cluster, [topic]).get(topic)


def describe_layouts(cluster: AsksAnyBroker, topics: Sequence[str] = ()) -> dict[str, TopicLayout]:
    """The layouts of those of these topics, or of all, that were shrunk. Otherwise as `describe_layout`."""
    found: dict[str, TopicLayout] = {}
    cursor: tuple[str, int] | None = None
    while True:
        try:
            reply = cluster.request_any(Api.DESCRIBE_TOPIC_PARTITIONS, _fields(topics, cursor))
        except VersionUnsupported:
            return {}
        for answer in reply.topics:
            _take(answer, found)
        if reply.next_cursor is None:
            return found
        following = (str(reply.next_cursor.topic_name), int(reply.next_cursor.partition_index))
        if cursor is not None and following <= cursor:
            raise ProtocolBroken(f"pages of partitions do not advance from {cursor}")
        cursor = following


def _fields(topics: Sequence[str], cursor: tuple[str, int] | None) -> dict[str, Any]:
    return {
        "topics": [{"name": one} for one in topics],
        "response_partition_limit": PARTITIONS_PER_PAGE,
        "cursor": None
        if cursor is None
        else {"topic_name": cursor[0], "partition_index": cursor[1]},
    }


def _take(answer: Any, found: dict[str, TopicLayout]) -> None:
    """Add what a page says of a topic, of which earlier pages may have had other partitions."""
    name = str(answer.name)
    if answer.error_code == Code.unknown_topic_or_partition:
        raise UnknownTopic(name)
    if answer.error_code:
        raise refused(f"describing the partitions of topic {name!r}", answer.error_code)
    try:
        counts = parse_counts(answer.layout)
    except ValueError as error:
        raise ProtocolBroken(str(error)) from error
    if counts is None:
        return
    before = found.get(name)
    sealed = {} if before is None else dict(before.sealed_ends)
    shown = {} if before is None else dict(before.shown_ends)
    listed = 0 if before is None else before.listed
    for one in answer.partitions:
        number = int(one.partition_index)
        listed = max(listed, number + 1)
        if one.sealed_end >= 0:
            sealed[number] = int(one.sealed_end)
        if one.shown_end >= 0:
            shown[number] = int(one.shown_end)
    found[name] = TopicLayout(
        active=counts.active,
        named=counts.named,
        listed=listed,
        sealed_ends=sealed,
        shown_ends=shown,
    )
