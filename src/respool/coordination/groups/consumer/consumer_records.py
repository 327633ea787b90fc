"""The content of a next-generation consumer group's records; `consumer_record_bytes.py` encodes them.

Each record holds one value that changes independently, and replaces the value before. A tombstone deletes it.
"""

from enum import IntEnum
from typing import NamedTuple, TypeAlias

from respool.coordination.groups.consumer.consumer_member import ClassicDetails, MemberState
from respool.coordination.groups.consumer.partition_sets import PartitionSet
from respool.model.ids import NO_TIMESTAMP


class ConsumerRecordKind(IntEnum):
    """The kind of a record, which is the version of its key. The numbers are Kafka's."""

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
    # A member id or a pattern; empty if the record is about the whole group.
    name: str = ""


class GroupValue(NamedTuple):
    epoch: int
    # A hash of the subscribed topics, their ids and partition counts. If it changes, the assignment is recomputed.
    metadata_hash: int = 0
    # NO_TIMESTAMP if the group has members.
    empty_since_ms: int = NO_TIMESTAMP


class TopicsValue(NamedTuple):
    """A record that Kafka before 4.1 wrote; its value is not used."""


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
    # The metadata version against which Kafka resolved the pattern; Respool does not use it.
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
