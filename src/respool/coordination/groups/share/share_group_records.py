"""Kafka's records of share groups in `__consumer_offsets`: their content, and how it is encoded.

```
 key: its version is the kind of record
 0      2
 | kind | group: string | member: string, in kinds 10, 13 and 14 |

 kind                 value, version 0, flexible
 10 MEMBER            rack? | client id | client host: strings | topics: array of strings
 11 GROUP             epoch 4 | hash of the topics read 8
 12 TARGET_EPOCH      epoch 4                                             tag 0: when it was computed 8
 13 TARGET            partitions                                          what the member shall have
 14 CURRENT           epoch 4 | previous epoch 4 | state 1 | partitions
 15 STATES            initializing | initialized: topics with partitions | deleting: topics

 partitions               array of: topic id 16 | array of numbers 4
 topics with partitions   array of: topic id 16 | name: string | array of numbers 4
 topics                   array of: topic id 16 | name: string
```
A record without a value deletes the entry. Unknown tags are skipped. Topics to delete have one tag more than Kafka's:
the partitions whose state is to be deleted (tag 1000), since the topic itself may not exist any more.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple, TypeAlias
from uuid import UUID

from respool.coordination.groups.consumer.consumer_record_bytes import (
    GroupRecordReader,
    GroupRecordWriter,
)
from respool.coordination.groups.consumer.partition_sets import NO_PARTITIONS, PartitionSet
from respool.coordination.record_bytes import RecordReader, RecordWriter
from respool.model.ids import NO_TIMESTAMP, TopicId

_VALUE_VERSION = 0
_TAG_ASSIGNED_AT = 0
_TAG_DELETING_PARTITIONS = 1_000
_INT64 = Struct(">q")


class ShareRecordKind(IntEnum):
    """The kind of a record, which is the version of its key. The numbers are Kafka's."""

    MEMBER = 10
    GROUP = 11
    TARGET_EPOCH = 12
    TARGET = 13
    CURRENT = 14
    STATES = 15


SHARE_RECORD_KINDS = frozenset(ShareRecordKind)
_KINDS_OF_MEMBERS = frozenset(
    {ShareRecordKind.MEMBER, ShareRecordKind.TARGET, ShareRecordKind.CURRENT}
)


class ShareRecordKey(NamedTuple):
    kind: ShareRecordKind
    group_id: str
    # Empty if the record is about the whole group.
    member_id: str = ""


class ShareMemberValue(NamedTuple):
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[str]


class ShareGroupValue(NamedTuple):
    epoch: int
    # Changes with the subscribed topics, their ids and partition counts.
    metadata_hash: int


class ShareTargetEpochValue(NamedTuple):
    epoch: int
    assigned_at_ms: int = NO_TIMESTAMP


class ShareTargetValue(NamedTuple):
    partitions: PartitionSet


class ShareCurrentValue(NamedTuple):
    epoch: int
    previous_epoch: int
    assigned: PartitionSet


class ShareStatesValue(NamedTuple):
    """Which partitions have state at the share coordinator; names are those of the topics when they were added."""

    initializing: PartitionSet = NO_PARTITIONS
    initialized: PartitionSet = NO_PARTITIONS
    deleting: PartitionSet = NO_PARTITIONS
    names: tuple[tuple[TopicId, str], ...] = ()


ShareRecordValue: TypeAlias = (
    ShareMemberValue
    | ShareGroupValue
    | ShareTargetEpochValue
    | ShareTargetValue
    | ShareCurrentValue
    | ShareStatesValue
)


def write_share_key(key: ShareRecordKey) -> bytes:
    writer = RecordWriter(version=key.kind)
    writer.string(key.group_id)
    if key.kind in _KINDS_OF_MEMBERS:
        writer.string(key.member_id)
    return writer.done()


def read_share_key(key: bytes) -> ShareRecordKey:
    """Decode a key of one of `SHARE_RECORD_KINDS`.

    Raises:
        CoordinatorRecordDamaged: the key is truncated or too long.
    """
    reader = RecordReader(key, what="the key of a share group's record")
    kind = ShareRecordKind(reader.int16())
    group_id = reader.string()
    member_id = reader.string() if kind in _KINDS_OF_MEMBERS else ""
    reader.end()
    return ShareRecordKey(kind, group_id, member_id)


def write_share_value(value: ShareRecordValue) -> bytes:
    writer = GroupRecordWriter(version=_VALUE_VERSION, is_flexible=True)
    tagged: dict[int, bytes] = {}
    match value:
        case ShareMemberValue():
            writer.string(value.rack_id)
            writer.string(value.client_id)
            writer.string(value.client_host)
            writer.strings(value.topic_names)
        case ShareGroupValue():
            writer.int32(value.epoch)
            writer.int64(value.metadata_hash)
        case ShareTargetEpochValue():
            writer.int32(value.epoch)
            if value.assigned_at_ms != NO_TIMESTAMP:
                tagged[_TAG_ASSIGNED_AT] = _INT64.pack(value.assigned_at_ms)
        case ShareTargetValue():
            writer.partitions(value.partitions)
        case ShareCurrentValue():
            writer.int32(value.epoch)
            writer.int32(value.previous_epoch)
            # The only state: a share group's member has nothing to revoke.
            writer.int8(0)
            writer.partitions(value.assigned)
        case ShareStatesValue():
            _write_states(writer, value)
    writer.tagged_fields(tagged)
    return writer.done()


def read_share_value(kind: ShareRecordKind, value: bytes) -> ShareRecordValue:
    """Decode the value of a record of this kind.

    Raises:
        CoordinatorRecordDamaged: the value cannot be decoded.
    """
    reader = GroupRecordReader(value, what=f"a share group's {kind.name} record", is_flexible=True)
    version = reader.int16()
    if version != _VALUE_VERSION:
        raise reader.damaged(f"version {version} is unknown, the newest is {_VALUE_VERSION}")
    read: ShareRecordValue
    match kind:
        case ShareRecordKind.MEMBER:
            read = ShareMemberValue(
                rack_id=reader.nullable_string(),
                client_id=reader.string(),
                client_host=reader.string(),
                topic_names=reader.strings(),
            )
        case ShareRecordKind.GROUP:
            read = ShareGroupValue(reader.int32(), reader.int64())
        case ShareRecordKind.TARGET_EPOCH:
            return _read_target_epoch(reader)
        case ShareRecordKind.TARGET:
            read = ShareTargetValue(reader.partitions())
        case ShareRecordKind.CURRENT:
            epoch, previous_epoch = reader.int32(), reader.int32()
            reader.int8()
            read = ShareCurrentValue(epoch, previous_epoch, reader.partitions())
        case ShareRecordKind.STATES:
            read = _read_states(reader)
    reader.tagged_fields()
    reader.end()
    return read


def _read_target_epoch(reader: GroupRecordReader) -> ShareTargetEpochValue:
    epoch = reader.int32()
    assigned_at = reader.tagged_fields().get(_TAG_ASSIGNED_AT)
    reader.end()
    if assigned_at is None:
        return ShareTargetEpochValue(epoch)
    return ShareTargetEpochValue(epoch, RecordReader(assigned_at, what="a tagged time").int64())


def _write_states(writer: GroupRecordWriter, value: ShareStatesValue) -> None:
    names = dict(value.names)
    for topics in (value.initializing, value.initialized):
        writer.count(len(topics))
        for topic_id, numbers in sorted(topics.items()):
            writer.uuid(topic_id)
            writer.string(names.get(topic_id, ""))
            writer.int32s(numbers)
            writer.tagged_fields({})
    writer.count(len(value.deleting))
    for topic_id, numbers in sorted(value.deleting.items()):
        writer.uuid(topic_id)
        writer.string(names.get(topic_id, ""))
        packed = b"".join(number.to_bytes(4) for number in sorted(numbers))
        writer.tagged_fields({_TAG_DELETING_PARTITIONS: packed})


def _read_states(reader: GroupRecordReader) -> ShareStatesValue:
    names: dict[TopicId, str] = {}
    found: list[dict[TopicId, frozenset[int]]] = []
    for _ in range(2):
        topics: dict[TopicId, frozenset[int]] = {}
        for _ in range(reader.count()):
            topic_id = TopicId(UUID(bytes=reader.raw(16)))
            names[topic_id] = reader.string()
            topics[topic_id] = frozenset(reader.int32() for _ in range(reader.count()))
            reader.tagged_fields()
        found.append(topics)
    deleting: dict[TopicId, frozenset[int]] = {}
    for _ in range(reader.count()):
        topic_id = TopicId(UUID(bytes=reader.raw(16)))
        names[topic_id] = reader.string()
        packed = reader.tagged_fields().get(_TAG_DELETING_PARTITIONS, b"")
        deleting[topic_id] = frozenset(
            int.from_bytes(packed[at : at + 4]) for at in range(0, len(packed), 4)
        )
    return ShareStatesValue(
        initializing=found[0],
        initialized=found[1],
        deleting=deleting,
        names=tuple(sorted(names.items())),
    )
