"""Encodes and decodes Kafka's records of next-generation consumer groups in `__consumer_offsets`.

```
 key: its version is the kind of record
 0      2
 | kind | group: string | member or pattern: string, in kinds 5, 7, 8 and 16 |

 kind                 value, version 0, flexible
  3 GROUP             epoch 4            tag 0: hash of the topics read 8    tag 1000: since when without members 8
  4 TOPICS            not written any more: Kafka 4.1 replaced it by that hash; its value is not looked at
  5 MEMBER            instance?, rack?, client id, client host: strings | topics: array of strings | pattern: string? |
                      rebalance timeout 4 | assignor: string?            tag 0: the classic member's details
  6 TARGET_EPOCH      epoch 4
  7 TARGET            partitions                                         what the member shall have
  8 CURRENT           epoch 4 | previous epoch 4 | state 1 | partitions assigned | partitions to revoke
 16 PATTERN           topics: array of strings | metadata version 8 | resolved at 8

 partitions           array of: topic id 16 | array of numbers 4
 classic details      1 | session timeout 4 | array of: protocol: string | subscription: bytes
```
A record without a value deletes the entry. Unknown tags are skipped: newer releases add some, and Kafka skips Respool's
tag 1000: Kafka does not record since when a group is empty, and may expire its offsets at once.
"""

from struct import Struct
from uuid import UUID

from respool.coordination.groups.consumer.consumer_member import ClassicDetails, MemberState
from respool.coordination.groups.consumer.consumer_records import (
    ConsumerRecordKey,
    ConsumerRecordKind,
    ConsumerRecordValue,
    CurrentValue,
    GroupValue,
    MemberValue,
    PatternValue,
    TargetEpochValue,
    TargetValue,
    TopicsValue,
)
from respool.coordination.groups.consumer.partition_sets import PartitionSet, partition_set
from respool.coordination.groups.group_requests import Protocol
from respool.coordination.record_bytes import RecordReader, RecordWriter
from respool.model.ids import NO_TIMESTAMP, TopicId

_VALUE_VERSION = 0
_TAG_METADATA_HASH = 0
_TAG_EMPTY_SINCE = 1_000
_TAG_CLASSIC = 0
_INT64 = Struct(">q")
# The byte before a nullable struct that is present.
_PRESENT = 1

_KINDS_WITH_NAME = frozenset(
    {
        ConsumerRecordKind.MEMBER,
        ConsumerRecordKind.TARGET,
        ConsumerRecordKind.CURRENT,
        ConsumerRecordKind.PATTERN,
    }
)


def write_consumer_key(key: ConsumerRecordKey) -> bytes:
    writer = RecordWriter(version=key.kind)
    writer.string(key.group_id)
    if key.kind in _KINDS_WITH_NAME:
        writer.string(key.name)
    return writer.done()


def read_consumer_key(key: bytes) -> ConsumerRecordKey:
    """Decode a key of one of `CONSUMER_RECORD_KINDS`.

    Raises:
        CoordinatorRecordDamaged: the key is of another kind.
    """
    reader = RecordReader(key, what="the key of a consumer group's record")
    kind = ConsumerRecordKind(reader.int16())
    group_id = reader.string()
    name = reader.string() if kind in _KINDS_WITH_NAME else ""
    reader.end()
    return ConsumerRecordKey(kind, group_id, name)


def write_consumer_value(value: ConsumerRecordValue) -> bytes:
    writer = GroupRecordWriter(version=_VALUE_VERSION, is_flexible=True)
    tagged: dict[int, bytes] = {}
    match value:
        case GroupValue():
            writer.int32(value.epoch)
            if value.metadata_hash:
                tagged[_TAG_METADATA_HASH] = _INT64.pack(value.metadata_hash)
            if value.empty_since_ms != NO_TIMESTAMP:
                tagged[_TAG_EMPTY_SINCE] = _INT64.pack(value.empty_since_ms)
        case MemberValue():
            _write_member(writer, value)
            if value.classic is not None:
                tagged[_TAG_CLASSIC] = _classic_bytes(value.classic)
        case TargetEpochValue():
            writer.int32(value.epoch)
        case TargetValue():
            writer.partitions(value.partitions)
        case CurrentValue():
            writer.int32(value.epoch)
            writer.int32(value.previous_epoch)
            writer.int8(value.state)
            writer.partitions(value.assigned)
            writer.partitions(value.revoking)
        case PatternValue():
            writer.strings(value.topic_names)
            writer.int64(value.metadata_version)
            writer.int64(value.resolved_at_ms)
    writer.tagged_fields(tagged)
    return writer.done()


def read_consumer_value(kind: ConsumerRecordKind, value: bytes) -> ConsumerRecordValue:
    """Decode the value of a record of this kind.

    Raises:
        CoordinatorRecordDamaged: the value cannot be decoded.
    """
    reader = GroupRecordReader(
        value, what=f"a consumer group's {kind.name} record", is_flexible=True
    )
    version = reader.int16()
    if version != _VALUE_VERSION:
        raise reader.damaged(f"version {version} is unknown, the newest is {_VALUE_VERSION}")
    read: ConsumerRecordValue
    match kind:
        case ConsumerRecordKind.TOPICS:
            return TopicsValue()
        case ConsumerRecordKind.GROUP:
            return _read_group(reader)
        case ConsumerRecordKind.MEMBER:
            return _read_member(reader)
        case ConsumerRecordKind.TARGET_EPOCH:
            read = TargetEpochValue(reader.int32())
        case ConsumerRecordKind.TARGET:
            read = TargetValue(reader.partitions())
        case ConsumerRecordKind.CURRENT:
            read = CurrentValue(
                epoch=reader.int32(),
                previous_epoch=reader.int32(),
                state=_state(reader.int8()),
                assigned=reader.partitions(),
                revoking=reader.partitions(),
            )
        case ConsumerRecordKind.PATTERN:
            topic_names = reader.strings()
            metadata_version = reader.int64()
            read = PatternValue(topic_names, reader.int64(), metadata_version)
    reader.tagged_fields()
    reader.end()
    return read


def _read_group(reader: "GroupRecordReader") -> GroupValue:
    epoch = reader.int32()
    tagged = reader.tagged_fields()
    reader.end()
    return GroupValue(
        epoch,
        _int64(tagged.get(_TAG_METADATA_HASH), otherwise=0),
        _int64(tagged.get(_TAG_EMPTY_SINCE), otherwise=NO_TIMESTAMP),
    )


def _int64(data: bytes | None, *, otherwise: int) -> int:
    return otherwise if data is None else RecordReader(data, what="a tagged number").int64()


def _write_member(writer: "GroupRecordWriter", value: MemberValue) -> None:
    writer.string(value.instance_id)
    writer.string(value.rack_id)
    writer.string(value.client_id)
    writer.string(value.client_host)
    writer.strings(value.topic_names)
    writer.string(value.topic_pattern)
    writer.int32(value.rebalance_timeout_ms)
    writer.string(value.assignor)


def _read_member(reader: "GroupRecordReader") -> MemberValue:
    instance_id = reader.nullable_string()
    rack_id = reader.nullable_string()
    client_id = reader.string()
    client_host = reader.string()
    topic_names = reader.strings()
    # Kafka writes an empty string for no pattern.
    topic_pattern = reader.nullable_string() or None
    rebalance_timeout_ms = reader.int32()
    assignor = reader.nullable_string()
    classic = reader.tagged_fields().get(_TAG_CLASSIC)
    reader.end()
    return MemberValue(
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        topic_names=topic_names,
        topic_pattern=topic_pattern,
        rebalance_timeout_ms=rebalance_timeout_ms,
        assignor=assignor,
        classic=None if classic is None else _read_classic(classic),
    )


def _classic_bytes(classic: ClassicDetails) -> bytes:
    writer = GroupRecordWriter(version=0, is_flexible=True)
    writer.int8(_PRESENT)
    writer.int32(classic.session_timeout_ms)
    writer.count(len(classic.protocols))
    for protocol in classic.protocols:
        writer.string(protocol.name)
        writer.bytes_(protocol.metadata)
        writer.tagged_fields({})
    writer.tagged_fields({})
    return writer.done_without_version()


def _read_classic(data: bytes) -> ClassicDetails | None:
    reader = GroupRecordReader(data, what="a classic member's details", is_flexible=True)
    if reader.int8() != _PRESENT:
        return None
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.count()):
        protocols.append(Protocol(reader.string(), reader.bytes_()))
        reader.tagged_fields()
    reader.tagged_fields()
    reader.end()
    return ClassicDetails(session_timeout_ms, tuple(protocols))


def _state(number: int) -> MemberState:
    try:
        return MemberState(number)
    except ValueError:
        return MemberState.UNKNOWN


class GroupRecordReader(RecordReader):
    """Reads what records of both kinds of groups have in common."""

    __slots__ = ()

    def raw(self, length: int) -> bytes:
        return self._take(length)

    def int8(self) -> int:
        return int.from_bytes(self._take(1), signed=True)

    def strings(self) -> frozenset[str]:
        return frozenset(self.string() for _ in range(self.count()))

    def partitions(self) -> PartitionSet:
        return partition_set(self._topic() for _ in range(self.count()))

    def _topic(self) -> tuple[TopicId, list[int]]:
        topic_id = TopicId(UUID(bytes=self._take(16)))
        numbers = [self.int32() for _ in range(self.count())]
        self.tagged_fields()
        return topic_id, numbers


class GroupRecordWriter(RecordWriter):
    """Writes what records of both kinds of groups have in common."""

    __slots__ = ()

    def uuid(self, value: UUID) -> None:
        self._out += value.bytes

    def int32s(self, numbers: frozenset[int]) -> None:
        self.count(len(numbers))
        for number in sorted(numbers):
            self.int32(number)

    def int8(self, value: int) -> None:
        self._out += value.to_bytes(1, signed=True)

    def strings(self, texts: frozenset[str]) -> None:
        self.count(len(texts))
        for text in sorted(texts):
            self.string(text)

    def partitions(self, partitions: PartitionSet) -> None:
        self.count(len(partitions))
        for topic_id, numbers in sorted(partitions.items()):
            self.uuid(topic_id)
            self.int32s(numbers)
            self.tagged_fields({})

    def done_without_version(self) -> bytes:
        return bytes(self._out[2:])
