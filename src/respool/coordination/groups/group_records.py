"""Encodes and decodes Kafka's records of classic groups in `__consumer_offsets`; lists all kinds of records there.

```
 key, version 2                      the key's version is the kind of record
 0     2
 | 2   | group: string |

 value
 | version 2 | protocol type: string | generation 4 | protocol: string or null | leader: string or null |
 | time of entering this state 8, from version 2 | members: array |       tagged fields, from version 4
 a member
 | member id: string | instance id: string or null, from version 3 | client id: string | client host: string |
 | rebalance timeout 4, from version 1 | session timeout 4 | subscription: bytes | assignment: bytes |
```
Version 4 is flexible. Like Kafka 4, Respool writes version 3.

A record is written when a generation has its assignment, and when the group becomes empty. So the log contains only
stable and empty groups: a rebalance in progress is lost with the coordinator.
"""

from dataclasses import dataclass
from enum import IntEnum

from respool.coordination.record_bytes import CoordinatorRecordDamaged, RecordReader, RecordWriter
from respool.model.ids import NO_TIMESTAMP

_VALUE_VERSION = 3
_VALUE_VERSION_MAX = 4
_VERSION_WITH_REBALANCE_TIMEOUT = 1
_VERSION_WITH_STATE_TIME = 2
_VERSION_WITH_INSTANCE_ID = 3
_VERSION_FLEXIBLE = 4
_NO_REBALANCE_TIMEOUT = -1


class RecordKind(IntEnum):
    """The kind of a record, which is the version of its key. The numbers are Kafka's; other kinds are skipped."""

    OFFSET_OLD = 0
    OFFSET = 1
    CLASSIC_GROUP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    # The member's metadata for the chosen protocol.
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    # Empty if the group never had a member.
    protocol_type: str
    generation: int
    # Both are None without members.
    protocol_name: str | None
    leader: str | None
    # When the group became stable or empty; NO_TIMESTAMP in old records.
    since_ms: int
    members: tuple[StoredMember, ...]


def kind_of(key: bytes) -> int:
    """The kind of a record, by its key; may be a number that is not in `RecordKind`.

    Raises:
        CoordinatorRecordDamaged: the key is too short.
    """
    if len(key) < 2:
        raise CoordinatorRecordDamaged(f"a record's key has {len(key)} bytes, too few for its kind")
    return key[0] << 8 | key[1]


def write_group_key(group_id: str) -> bytes:
    writer = RecordWriter(version=RecordKind.CLASSIC_GROUP)
    writer.string(group_id)
    return writer.done()


def read_group_key(key: bytes) -> str:
    """Decode the group id.

    Raises:
        CoordinatorRecordDamaged: the key is of another kind.
    """
    reader = RecordReader(key, what="the key of a group")
    reader.int16()
    group_id = reader.string()
    reader.end()
    return group_id


def write_group_value(group: StoredGroup) -> bytes:
    writer = RecordWriter(version=_VALUE_VERSION)
    writer.string(group.protocol_type)
    writer.int32(group.generation)
    writer.string(group.protocol_name)
    writer.string(group.leader)
    writer.int64(group.since_ms)
    writer.count(len(group.members))
    for member in group.members:
        writer.string(member.member_id)
        writer.string(member.instance_id)
        writer.string(member.client_id)
        writer.string(member.client_host)
        writer.int32(member.rebalance_timeout_ms)
        writer.int32(member.session_timeout_ms)
        writer.bytes_(member.subscription)
        writer.bytes_(member.assignment)
    return writer.done()


def read_group_value(value: bytes) -> StoredGroup:
    """Decode any version that Kafka has written.

    Raises:
        CoordinatorRecordDamaged: the version is unknown, or the record is truncated.
    """
    reader = RecordReader(value, what="a group")
    version = reader.int16()
    if not 0 <= version <= _VALUE_VERSION_MAX:
        raise reader.damaged(f"version {version} is unknown, the newest is {_VALUE_VERSION_MAX}")
    reader.is_flexible = version >= _VERSION_FLEXIBLE
    protocol_type = reader.string()
    generation = reader.int32()
    protocol_name = reader.nullable_string()
    leader = reader.nullable_string()
    since_ms = reader.int64() if version >= _VERSION_WITH_STATE_TIME else NO_TIMESTAMP
    members = tuple(_read_member(reader, version) for _ in range(reader.count()))
    reader.tagged_fields()
    reader.end()
    if members and protocol_name is None:
        raise reader.damaged(f"{len(members)} members, but no protocol")
    _check_names(reader, members)
    return StoredGroup(
        protocol_type=protocol_type,
        generation=generation,
        protocol_name=protocol_name,
        leader=leader,
        since_ms=since_ms,
        members=members,
    )


def _check_names(reader: RecordReader, members: tuple[StoredMember, ...]) -> None:
    member_ids = {member.member_id for member in members}
    instance_ids = [one.instance_id for one in members if one.instance_id is not None]
    if len(member_ids) < len(members) or len(set(instance_ids)) < len(instance_ids):
        raise reader.damaged(f"two of {len(members)} members have the same name")


def _read_member(reader: RecordReader, version: int) -> StoredMember:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= _VERSION_WITH_INSTANCE_ID else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_timeout_ms = (
        reader.int32() if version >= _VERSION_WITH_REBALANCE_TIMEOUT else _NO_REBALANCE_TIMEOUT
    )
    session_timeout_ms = reader.int32()
    subscription = reader.bytes_()
    assignment = reader.bytes_()
    reader.tagged_fields()
    return StoredMember(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        session_timeout_ms=session_timeout_ms,
        # In version 0 the session timeout served as both.
        rebalance_timeout_ms=(
            session_timeout_ms
            if rebalance_timeout_ms == _NO_REBALANCE_TIMEOUT
            else rebalance_timeout_ms
        ),
        subscription=subscription,
        assignment=assignment,
    )
