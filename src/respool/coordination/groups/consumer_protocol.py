"""Kafka's ConsumerProtocol: subscriptions and assignments embedded in the classic protocol.

In a classic group these are opaque bytes. In a group with members of both protocols the coordinator assigns partitions
to all of them, so it decodes a classic member's subscription and owned partitions, and encodes its assignment.

```
 subscription                                          assignment
 | version 2 | topics: array of strings |              | version 2 | partitions: array |
 | user data: bytes or null |                          | user data: bytes or null |
 | owned partitions: array, from version 1 |
 | generation 4, from version 2 |                      partitions of a topic
 | rack: string or null, from version 3 |              | topic: string | array of numbers 4 |
```
Later versions only append fields, so a newer version is read as the newest known one.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from respool.coordination.record_bytes import CoordinatorRecordDamaged, RecordReader, RecordWriter
from respool.model.coordinator_errors import InconsistentGroupProtocol

_VERSION_WITH_OWNED = 1
_VERSION_WITH_GENERATION = 2
_VERSION_WITH_RACK = 3
_VERSION_MAX = 3
_NULL = -1

# By topic name: the classic protocol has no topic ids.
NamedPartitionSet: TypeAlias = Mapping[str, frozenset[int]]


class Subscription(NamedTuple):
    version: int
    topic_names: frozenset[str]
    # Owned partitions. Empty for old versions, and for eager members, which revoke everything before they rejoin.
    owned: NamedPartitionSet
    rack_id: str | None


class Assignment(NamedTuple):
    partitions: NamedPartitionSet
    # User data of a custom client-side assignor, which the coordinator cannot produce.
    user_data: bytes | None


def read_subscription(data: bytes) -> Subscription:
    """Decode a subscription of any version.

    Raises:
        InconsistentGroupProtocol: it cannot be decoded.
    """
    reader = _ProtocolReader(data, what="a subscription")
    try:
        version = reader.int16()
        topic_names = frozenset(reader.string() for _ in range(reader.count()))
        reader.nullable_bytes()
        owned = reader.partitions() if version >= _VERSION_WITH_OWNED else {}
        if version >= _VERSION_WITH_GENERATION:
            reader.int32()
        rack_id = reader.nullable_string() if version >= _VERSION_WITH_RACK else None
    except CoordinatorRecordDamaged as error:
        raise InconsistentGroupProtocol(str(error)) from None
    return Subscription(version, topic_names, owned, rack_id)


def read_assignment(data: bytes) -> Assignment:
    """Decode an assignment of any version; empty bytes mean no assignment.

    Raises:
        InconsistentGroupProtocol: it cannot be decoded.
    """
    if not data:
        return Assignment({}, None)
    reader = _ProtocolReader(data, what="an assignment")
    try:
        reader.int16()
        return Assignment(reader.partitions(), reader.nullable_bytes())
    except CoordinatorRecordDamaged as error:
        raise InconsistentGroupProtocol(str(error)) from None


def write_assignment(partitions: NamedPartitionSet, *, version: int) -> bytes:
    """Encode an assignment for a member whose subscription has this version."""
    writer = RecordWriter(version=max(0, min(version, _VERSION_MAX)))
    writer.count(len(partitions))
    for name, numbers in sorted(partitions.items()):
        writer.string(name)
        writer.count(len(numbers))
        for number in sorted(numbers):
            writer.int32(number)
    writer.count(_NULL)
    return writer.done()


class _ProtocolReader(RecordReader):
    __slots__ = ()

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length < 0 else self._take(length)

    def partitions(self) -> NamedPartitionSet:
        gathered: dict[str, frozenset[int]] = {}
        for _ in range(self.count()):
            name = self.string()
            numbers = frozenset(self.int32() for _ in range(self.count()))
            if numbers:
                gathered[name] = gathered.get(name, frozenset()) | numbers
        return gathered


# -- subscribed topics -------------------------------------------------------------------------------------------------
# The coordinator decodes subscriptions of protocol type "consumer" to know whether a classic group still subscribes to
# a topic:
#
# ```
#  0         2       6
#  | version | count | topics: strings with a length of 2 | ...        later versions only append fields
# ```


CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics that at least one member subscribes to; None if a subscription cannot be decoded."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            reader = RecordReader(subscription, what="a subscription")
            reader.int16()
            topics.update(reader.string() for _ in range(reader.count()))
    except CoordinatorRecordDamaged:
        return None
    return frozenset(topics)
