"""Encodes and decodes Kafka's records of committed offsets in `__consumer_offsets`.

```
 key, version 0 or 1
 0         2
 | version | group: string | topic: string | partition 4 |

 value
 0         2        10
 | version | offset | leader epoch 4, from version 3 | metadata: string | committed at 8 |
                    | expires at 8, version 1 only |   tagged fields, from version 4
```
Version 4 is flexible; its tag 0 holds the topic id. Kafka writes version 3 without an id, or version 1 if the client
set an expiry, and so does Respool; with an id Respool writes version 4.
"""

from functools import lru_cache
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from respool.coordination.record_bytes import CoordinatorRecordDamaged, RecordReader, RecordWriter
from respool.model.ids import (
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    ZERO_TOPIC_ID,
    LeaderEpoch,
    Offset,
    TopicId,
)

OFFSET_KEY_VERSION = 1
PARTITION_BYTES = 4

_VALUE_VERSION_MAX = 4
_VERSION_WITH_EXPIRY = 1
_VERSION_WITH_EPOCH = 3
_VERSION_FLEXIBLE = 4
_TAG_TOPIC_ID = 0

# Nearly all values have no metadata and thus a fixed size. Without and with a topic id:
#   0             2        10             14             16             24
#   | version = 3 | offset | leader epoch | metadata = 0 | committed at |
#   0             2        10             14             15             23         24      25        26         42
#   | version = 4 | offset | leader epoch | metadata = 1 | committed at | tags = 1 | tag 0 | size 16 | topic id |
_PLAIN = Struct(">hqihq")
_PLAIN_WITH_ID = Struct(">hqiBqBBB16s")
_ID_BYTES = 16


class CommittedOffset(NamedTuple):
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    committed_at_ms: int
    # NO_TIMESTAMP: by the broker's settings.
    expires_at_ms: int = NO_TIMESTAMP
    # ZERO_TOPIC_ID if the id was unknown.
    topic_id: TopicId = ZERO_TOPIC_ID


def offset_key_prefix(group_id: str, topic: str) -> bytes:
    """The common prefix of the keys of a group's offsets in one topic: all fields but the partition."""
    writer = RecordWriter(version=OFFSET_KEY_VERSION)
    writer.string(group_id)
    writer.string(topic)
    return writer.done()


def read_offset_key(key: bytes) -> tuple[str, str, int]:
    """Decode the group, topic and partition.

    Raises:
        CoordinatorRecordDamaged: the key is of another kind.
    """
    reader = RecordReader(key, what="the key of a committed offset")
    reader.int16()
    group_id, topic, partition = reader.string(), reader.string(), reader.int32()
    reader.end()
    return group_id, topic, partition


def write_offset_value(committed: CommittedOffset) -> bytes:
    offset, leader_epoch, metadata, committed_at_ms, expires_at_ms, topic_id = committed
    if expires_at_ms != NO_TIMESTAMP:
        return _write_with_expiry(committed)
    if topic_id == ZERO_TOPIC_ID:
        if not metadata:
            return _PLAIN.pack(_VERSION_WITH_EPOCH, offset, leader_epoch, 0, committed_at_ms)
        return _write(committed, version=_VERSION_WITH_EPOCH)
    if not metadata:
        return _PLAIN_WITH_ID.pack(
            _VERSION_FLEXIBLE,
            offset,
            leader_epoch,
            1,
            committed_at_ms,
            1,
            _TAG_TOPIC_ID,
            _ID_BYTES,
            topic_id.bytes,
        )
    return _write(committed, version=_VERSION_FLEXIBLE)


def check_offset_value(value: bytes) -> None:
    """Check that `read_offset_value` will succeed.

    Raises:
        CoordinatorRecordDamaged: it would fail.
    """
    if not _is_plain(value) and not _is_plain_with_id(value):
        read_offset_value(value)


def read_committed_offset(value: bytes) -> Offset:
    """Decode only the offset, which follows the version number in all versions; fast enough for very many values."""
    return Offset(int.from_bytes(value[2:10], "big", signed=True))


def read_offset_times(value: bytes) -> tuple[int, int]:
    """Decode only the commit time and expiry; fast enough for very many values."""
    if _is_plain(value):
        return int.from_bytes(value[16:24], "big", signed=True), NO_TIMESTAMP
    if _is_plain_with_id(value):
        return int.from_bytes(value[15:23], "big", signed=True), NO_TIMESTAMP
    committed = read_offset_value(value)
    return committed.committed_at_ms, committed.expires_at_ms


# A group's offsets share few topics, and creating a UUID takes longer than decoding all the rest.
@lru_cache(maxsize=1_024)
def _topic_id(data: bytes) -> TopicId:
    return TopicId(UUID(bytes=data))


def _is_plain(value: bytes) -> bool:
    return len(value) == _PLAIN.size and value[:2] == b"\0\3" and value[14:16] == b"\0\0"


def _is_plain_with_id(value: bytes) -> bool:
    return (
        len(value) == _PLAIN_WITH_ID.size
        and value[:2] == b"\0\4"
        and value[14] == 1
        and value[23:26] == b"\1\0\x10"
    )


def read_offset_value(value: bytes) -> CommittedOffset:
    """Decode any version that Kafka has written.

    Raises:
        CoordinatorRecordDamaged: the version is unknown, or the value is truncated.
    """
    if _is_plain(value):
        _, offset, leader_epoch, _, committed_at_ms = _PLAIN.unpack(value)
        return CommittedOffset(offset, leader_epoch, "", committed_at_ms)
    if _is_plain_with_id(value):
        _, offset, leader_epoch, _, committed_at_ms, *_, topic_id = _PLAIN_WITH_ID.unpack(value)
        return CommittedOffset(
            offset, leader_epoch, "", committed_at_ms, NO_TIMESTAMP, _topic_id(topic_id)
        )
    reader = RecordReader(value, what="a committed offset")
    version = reader.int16()
    if not 0 <= version <= _VALUE_VERSION_MAX:
        raise reader.damaged(f"version {version} is unknown, the newest is {_VALUE_VERSION_MAX}")
    reader.is_flexible = version >= _VERSION_FLEXIBLE
    offset = Offset(reader.int64())
    leader_epoch = (
        LeaderEpoch(reader.int32()) if version >= _VERSION_WITH_EPOCH else NO_LEADER_EPOCH
    )
    metadata = reader.string()
    committed_at_ms = reader.int64()
    expires_at_ms = reader.int64() if version == _VERSION_WITH_EXPIRY else NO_TIMESTAMP
    topic_id = reader.tagged_fields().get(_TAG_TOPIC_ID, ZERO_TOPIC_ID.bytes)
    reader.end()
    if len(topic_id) != _ID_BYTES:
        raise CoordinatorRecordDamaged(
            f"a committed offset has a topic id of {len(topic_id)} bytes"
        )
    return CommittedOffset(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        committed_at_ms=committed_at_ms,
        expires_at_ms=expires_at_ms,
        topic_id=_topic_id(topic_id),
    )


def _write_with_expiry(committed: CommittedOffset) -> bytes:
    # This version has no field for the leader epoch; Kafka drops it too.
    writer = RecordWriter(version=_VERSION_WITH_EXPIRY)
    writer.int64(committed.offset)
    writer.string(committed.metadata)
    writer.int64(committed.committed_at_ms)
    writer.int64(committed.expires_at_ms)
    return writer.done()


def _write(committed: CommittedOffset, *, version: int) -> bytes:
    writer = RecordWriter(version=version, is_flexible=version >= _VERSION_FLEXIBLE)
    writer.int64(committed.offset)
    writer.int32(committed.leader_epoch)
    writer.string(committed.metadata)
    writer.int64(committed.committed_at_ms)
    writer.tagged_fields({_TAG_TOPIC_ID: committed.topic_id.bytes})
    return writer.done()
