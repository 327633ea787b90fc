"""Kafka's records of share partitions in `__share_group_state`.

```
 key: its version is the kind of record
 0      2
 | kind | group: string | topic id 16 | partition 4

 kind           value, version 0, flexible
  0 SNAPSHOT    snapshot epoch 4 | state epoch 4 | leader epoch 4 | start 8 | created at 8 | written at 8 | batches
  1 UPDATE      snapshot epoch 4 | leader epoch 4 | start 8, -1: unchanged | batches that replace what they overlap
                both with tag 0: finished records at or above the start 4

 batches        array of: first 8 | last 8 | state 1 | delivery count 2        tag 1000: due at 8
```
An update belongs to the snapshot with its epoch. A snapshot's key without a value deletes the share partition. Kafka
skips Respool's tag 1000, the time before which available records are not delivered again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, TypeAlias
from uuid import UUID

from respool.coordination.groups.consumer.consumer_record_bytes import GroupRecordReader
from respool.coordination.record_bytes import RecordReader, RecordWriter
from respool.coordination.share.share_state import (
    NOT_DELAYED,
    STORED_STATES,
    ShareKey,
    ShareState,
    StateBatch,
)
from respool.model.ids import LeaderEpoch, Offset, TopicId

_VALUE_VERSION = 0
_KIND = Struct(">h")
_KEY_TAIL = Struct(">16si")
_SNAPSHOT = Struct(">hiiiqqq")
_UPDATE = Struct(">hiiq")
# Without tagged fields, which are one zero byte then.
_BATCH = Struct(">qqbhx")
_BATCH_FIELDS = Struct(">qqbh")
# One tagged field: number 1000 (as a varint), 8 bytes.
_DUE = Struct(">qqbhBBBBq")
_DUE_TAG = 1_000
_DUE_HEAD = (1, 0xE8, 0x07, 8)
_FINISHED_TAG = 0
# One tagged field: number 0, 4 bytes.
_FINISHED = Struct(">BBBi")
_NO_TAGS = b"\0"


class ShareStateRecordKind(IntEnum):
    SNAPSHOT = 0
    UPDATE = 1


class ShareStateRecordKey(NamedTuple):
    kind: ShareStateRecordKind
    key: ShareKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSnapshot:
    snapshot_epoch: int
    created_at_ms: int
    written_at_ms: int
    state: ShareState


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareUpdateRecord:
    snapshot_epoch: int
    leader_epoch: LeaderEpoch
    start_offset: Offset
    finished_count: int
    batches: tuple[StateBatch, ...]


ShareStateRecord: TypeAlias = ShareSnapshot | ShareUpdateRecord


def write_share_state_key(kind: ShareStateRecordKind, key: ShareKey) -> bytes:
    group = key.group.encode()
    return b"".join(
        (
            _KIND.pack(kind),
            _KIND.pack(len(group)),
            group,
            _KEY_TAIL.pack(key.topic_id.bytes, key.partition),
        )
    )


def read_share_state_key(data: bytes) -> ShareStateRecordKey | None:
    """Decode a key; None: it is of a kind that this version does not know.

    Raises:
        CoordinatorRecordDamaged: the key is truncated or too long.
    """
    reader = GroupRecordReader(data, what="the key of a share partition's record")
    number = reader.int16()
    if number not in _KINDS:
        return None
    group = reader.string()
    topic_id = TopicId(UUID(bytes=reader.raw(16)))
    partition = reader.int32()
    reader.end()
    return ShareStateRecordKey(ShareStateRecordKind(number), ShareKey(group, topic_id, partition))


def write_share_snapshot(record: ShareSnapshot) -> bytes:
    state = record.state
    head = _SNAPSHOT.pack(
        _VALUE_VERSION,
        record.snapshot_epoch,
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        record.created_at_ms,
        record.written_at_ms,
    )
    return head + _packed(state.batches) + _tags(state.finished_count)


def write_share_update(record: ShareUpdateRecord) -> bytes:
    head = _UPDATE.pack(
        _VALUE_VERSION, record.snapshot_epoch, record.leader_epoch, record.start_offset
    )
    return head + _packed(record.batches) + _tags(record.finished_count)


def read_share_state_value(kind: ShareStateRecordKind, data: bytes) -> ShareStateRecord:
    """Decode a value.

    Raises:
        CoordinatorRecordDamaged: the value cannot be decoded.
    """
    reader = GroupRecordReader(data, what=f"a share partition's {kind.name}", is_flexible=True)
    fields = reader.fields(_UPDATE if kind is ShareStateRecordKind.UPDATE else _SNAPSHOT)
    if fields[0] != _VALUE_VERSION:
        raise reader.damaged(f"version {fields[0]} is unknown, the newest is {_VALUE_VERSION}")
    batches = _read_batches(reader)
    packed = reader.tagged_fields().get(_FINISHED_TAG)
    finished = -1 if packed is None else RecordReader(packed, what="a tagged count").int32()
    reader.end()
    if kind is ShareStateRecordKind.UPDATE:
        _, snapshot_epoch, leader_epoch, start = fields
        return ShareUpdateRecord(
            snapshot_epoch=snapshot_epoch,
            leader_epoch=LeaderEpoch(leader_epoch),
            start_offset=Offset(start),
            finished_count=finished,
            batches=batches,
        )
    _, snapshot_epoch, state_epoch, leader_epoch, start, created_at_ms, written_at_ms = fields
    state = ShareState(
        state_epoch=state_epoch,
        leader_epoch=LeaderEpoch(leader_epoch),
        start_offset=Offset(start),
        batches=batches,
        finished_count=finished,
    )
    return ShareSnapshot(
        snapshot_epoch=snapshot_epoch,
        created_at_ms=created_at_ms,
        written_at_ms=written_at_ms,
        state=state,
    )


def _packed(batches: Sequence[StateBatch]) -> bytes:
    parts = [_count(len(batches))]
    for first, last, state, count, due_at_ms in batches:
        if due_at_ms == NOT_DELAYED:
            parts.append(_BATCH.pack(first, last, state, count))
        else:
            parts.append(_DUE.pack(first, last, state, count, *_DUE_HEAD, due_at_ms))
    return b"".join(parts)


def _read_batches(reader: GroupRecordReader) -> tuple[StateBatch, ...]:
    batches = []
    end = -1
    for _ in range(reader.count()):
        first, last, state, count = reader.fields(_BATCH_FIELDS)
        due = reader.tagged_fields().get(_DUE_TAG)
        if not end < first <= last or state not in STORED_STATES or count < 0:
            raise reader.damaged(f"state {state} of {first} to {last} after {end}, count {count}")
        end = last
        due_at_ms = NOT_DELAYED if due is None else RecordReader(due, what="a due time").int64()
        batches.append(StateBatch(first, last, state, count, due_at_ms))
    return tuple(batches)


def _tags(finished_count: int) -> bytes:
    if finished_count < 0:
        return _NO_TAGS
    return _FINISHED.pack(1, _FINISHED_TAG, 4, finished_count)


def _count(number: int) -> bytes:
    writer = RecordWriter(is_flexible=True)
    writer.count(number)
    return writer.done()


_KINDS = frozenset(ShareStateRecordKind)
