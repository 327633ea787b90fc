"""What the records of a next-generation consumer group say; see `consumer_record_bytes.py` for how they are written.

Each is about one thing that changes by itself, and says what it is from now on. Without a value, the thing is no more.
"""

from enum import IntEnum
from typing import NamedTuple, TypeAlias

from respool.coordination.groups.consumer.consumer_member import ClassicDetails, MemberState
from respool.coordination.groups.consumer.partition_sets import PartitionSet
from respool.model.ids import NO_TIMESTAMP


class ConsumerRecordKind(IntEnum):
    """The version of a record's key. The numbers are Kafka's."""

    GROUP = 3
    TOPICS = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    PATTERN = 16


CONSUMER_RECORD_KINDS = frozenset(ConsumerRecordKind)


class ConsumerRecordKey(NamedTuple):
    kind: ConsumerRecordKind
    group_id: str
    # A member's id, or a pattern; empty where the record is about the whole group.
    name: str = ""


class GroupValue(NamedTuple):
    epoch: int
    # Over the topics the group reads, their ids and partition counts. When it is another one, so is the assignment.
    metadata_hash: int = 0
    # NO_TIMESTAMP while it has members.
    empty_since_ms: int = NO_TIMESTAMP


class TopicsValue(NamedTuple):
    """There is such a record."""


class MemberValue(NamedTuple):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[str]
    topic_pattern: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicDetails | None


class TargetEpochValue(NamedTuple):
    epoch: int


class TargetValue(NamedTuple):
    partitions: PartitionSet


class CurrentValue(NamedTuple):
    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: PartitionSet
    revoking: PartitionSet


class PatternValue(NamedTuple):
    topic_names: frozenset[str]
    resolved_at_ms: int
    # Which state of the metadata was looked at, by Kafka's own count; we do not use it.
    metadata_version: int = 0


ConsumerRecordValue: TypeAlias = (
    GroupValue
    | TopicsValue
    | MemberValue
    | TargetEpochValue
    | TargetValue
    | CurrentValue
    | PatternValue
)
