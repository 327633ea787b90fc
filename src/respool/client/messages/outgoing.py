"""A message to send: validated, encoded, with its partition chosen. Created once, however often it is retried."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import count
from typing import Any, NamedTuple

from respool.client.kafka.bootstrap import Bootstrap
from respool.client.messages import library
from respool.client.messages.errors import BadArgument, ClientError, UnknownPartition
from respool.client.messages.message import Data, Headers, as_bytes, as_headers, as_timestamp_ms
from respool.model.errors import InvalidTopic
from respool.model.ids import check_topic_name

# key, value, number of partitions -> partition
Choose = Callable[[bytes | None, bytes | None, int], int]

# For messages without a partition librdkafka uses its own partitioner.
BY_LIBRARY = -1
LIBRARY_SETTING = {"partitioner": "murmur2_random"}
# A topic may gain partitions; this client's own partitioners refresh the count after this time.
_OLD_SECONDS = 60.0
_REFRESH_SECONDS = 2.0


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
    counts: "TopicCounts",
    partitioner: "Partitioner",
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


class TopicCounts:
    """Partition counts of topics: fetched before a topic's first message, and refreshed for our own partitioners.

    So the first `send` reports an unknown topic, not half a minute later.
    """

    def __init__(self, kafka: Any, bootstrap: Bootstrap) -> None:
        self._kafka = kafka
        self._bootstrap = bootstrap
        # Topic -> number of partitions, and when it was fetched.
        self._told: dict[str, tuple[int, float]] = {}

    def __contains__(self, topic: object) -> bool:
        return topic in self._told

    def __getitem__(self, topic: str) -> int:
        return self._told[topic][0]

    def learn(self, topic: object, *, seconds: float = library.CONNECT_SECONDS) -> int:
        """Fetch the topic's partition count, and wait for the reply.

        Raises:
            UnknownTopic, BrokerUnreachable.
        """
        if not isinstance(topic, str) or not topic:
            raise BadArgument(f"a topic is a name, not {topic!r}")
        try:
            check_topic_name(topic)
        except InvalidTopic as error:
            raise BadArgument(f"no topic can have this name: {error}") from None
        if not self._told:
            library.check_reachable(self._bootstrap)
        found = library.partitions_of(self._kafka, topic, self._bootstrap.servers, seconds=seconds)
        self._told[topic] = found, time.monotonic()
        return found

    def refresh(self) -> None:
        """Refresh outdated counts; if the broker does not answer, try again later."""
        for topic, (number, told_at) in list(self._told.items()):
            if time.monotonic() - told_at > _OLD_SECONDS:
                try:
                    self.learn(topic, seconds=_REFRESH_SECONDS)
                except ClientError:
                    self._told[topic] = number, time.monotonic()


class Partitioner:
    """Partitions by key, round-robin, or by a function of the caller.

    The key is hashed with murmur2 as in the Java client, so that programs in any language choose the same partition for
    a key. librdkafka supports it, but defaults to another hash. A message without a key may go to any partition;
    librdkafka stays with one while a batch fills (sticky).
    """

    def __init__(self, partitioner: object) -> None:
        self._choose: Choose | None = None
        self._turns: defaultdict[str, Iterator[int]] | None = None
        if callable(partitioner):
            self._choose = partitioner
        elif partitioner == "round-robin":
            self._turns = defaultdict(count)
        elif partitioner != "key":
            raise BadArgument(
                "partitioner is 'key', 'round-robin' or a function of key, value and number of partitions,"
                f" not {partitioner!r}"
            )

    @property
    def needs_count(self) -> bool:
        return self._choose is not None or self._turns is not None

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        if self._turns is not None:
            return next(self._turns[topic]) % partitions
        if self._choose is None:
            return BY_LIBRARY
        chosen = self._choose(key, value, partitions)
        if isinstance(chosen, bool) or not isinstance(chosen, int) or not 0 <= chosen < partitions:
            raise BadArgument(
                f"the partitioner chose {chosen!r} for key {key!r} of topic {topic!r}, which has partitions"
                f" 0 to {partitions - 1}; nothing was sent"
            )
        return chosen
