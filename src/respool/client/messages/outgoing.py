"""A message to send: validated, encoded, with its partition chosen. Created once, however often it is retried."""

from datetime import datetime
from typing import NamedTuple

from respool.client.messages.errors import BadArgument, UnknownPartition
from respool.client.messages.message import Data, Headers, as_bytes, as_headers, as_timestamp_ms
from respool.client.messages.partitioner import BY_LIBRARY, Partitioner
from respool.client.messages.topic_counts import TopicCounts


class Outgoing(NamedTuple):
    topic: str
    value: bytes | None
    key: bytes | None
    # The partition number, or BY_LIBRARY.
    partition: int
    # 0 means now.
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]] | None


def prepare(
    topic: str,
    value: Data,
    key: Data,
    *,
    partition: int | None,
    timestamp: datetime | int | None,
    headers: Headers,
    counts: TopicCounts,
    partitioner: Partitioner,
) -> Outgoing:
    """Encode a message and choose its partition. The topic must be known.

    Raises:
        BadArgument, UnknownPartition.
    """
    key_bytes, value_bytes = as_bytes(key, "key"), as_bytes(value, "value")
    timestamp_ms = as_timestamp_ms(timestamp)
    pairs = as_headers(headers) if headers else None
    if partition is None:
        number = partitioner.partition(topic, key_bytes, value_bytes, counts[topic])
    elif isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
        raise BadArgument(f"a partition is a number from 0 on, not {partition!r}")
    else:
        number = partition
    # The topic may have gained partitions since.
    if number != BY_LIBRARY and number >= counts[topic] and number >= counts.learn(topic):
        raise UnknownPartition(topic, number, counts[topic])
    return Outgoing(topic, value_bytes, key_bytes, number, timestamp_ms, pairs)
