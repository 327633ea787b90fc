"""What members of a next-generation consumer group ask and are answered (KIP-848), in words without protocol versions.

As in `group_requests.py`: handlers translate, an error is a `RequestError` in the reply, and every group asked for is
answered.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from respool.coordination.groups.consumer.partition_sets import PartitionSet
from respool.coordination.groups.group_requests import NO_MEMBER_ID, GroupState
from respool.model.errors import RequestError
from respool.model.ids import TopicId

UNCHANGED_TIMEOUT = -1


class ConsumerTopic(NamedTuple):
    """What the coordinator must know of a topic."""

    topic_id: TopicId
    partition_count: int
    # A pattern does not stand for topics of the broker's own; they can be subscribed to by name.
    is_internal: bool = False


# The topics there are, by name.
TopicsView: TypeAlias = Mapping[str, ConsumerTopic]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeat:
    """A member joins, says that it is there, or leaves: its epoch tells which. What is None did not change."""

    group_id: str
    # Before version 1 a joining member may leave it to the coordinator.
    member_id: str = NO_MEMBER_ID
    # 0: I join. -1: I leave. -2: I am static and will be back.
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int = UNCHANGED_TIMEOUT
    topic_names: tuple[str, ...] | None = None
    # From version 1; an empty pattern removes the subscription by pattern.
    topic_pattern: str | None = None
    assignor: str | None = None
    # The partitions the member has. Partitions to revoke that are missing here have been revoked.
    owned: PartitionSet | None = None
    # From version 1 members choose their ids themselves (KIP-1082), so a retry is known to come from the same one.
    chooses_member_id: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeatReply:
    error: RequestError | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    # What the member may use from now on, all of it; None when nothing changed.
    assignment: PartitionSet | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribe:
    group_ids: tuple[str, ...]


class NamedPartitions(NamedTuple):
    topic_id: TopicId
    topic_name: str
    partitions: tuple[int, ...]


class DescribedConsumerMember(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_pattern: str | None
    assignment: tuple[NamedPartitions, ...]
    target_assignment: tuple[NamedPartitions, ...]
    # From version 1: a member that speaks the classic protocol.
    is_classic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumerGroup:
    group_id: str
    error: RequestError | None = None
    state: GroupState = GroupState.DEAD
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumerMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribeReply:
    groups: tuple[DescribedConsumerGroup, ...]


ConsumerGroupRequest: TypeAlias = ConsumerGroupHeartbeat | ConsumerGroupDescribe
ConsumerGroupReply: TypeAlias = ConsumerGroupHeartbeatReply | ConsumerGroupDescribeReply
