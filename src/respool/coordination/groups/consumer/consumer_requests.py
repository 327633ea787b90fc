"""Requests and replies of next-generation consumer groups (KIP-848), independent of protocol versions.

As in `group_requests.py`, handlers translate between protocol versions and these classes. An error is a `RequestError`
in the reply, which has an entry for every requested group.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from respool.coordination.groups.consumer.partition_sets import PartitionSet
from respool.coordination.groups.group_requests import NO_MEMBER_ID, GroupState
from respool.model.errors import RequestError
from respool.model.ids import TopicId

UNCHANGED_TIMEOUT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeat:
    """A member joins, stays in the group or leaves, depending on its epoch. A field that is None has not changed."""

    group_id: str
    # In version 0 a joining member may leave the choice of its id to the coordinator.
    member_id: str = NO_MEMBER_ID
    # 0: join. -1: leave. -2: a static member leaves temporarily.
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int = UNCHANGED_TIMEOUT
    topic_names: tuple[str, ...] | None = None
    # From version 1. An empty pattern removes the subscription by pattern.
    topic_pattern: str | None = None
    assignor: str | None = None
    # The partitions that the member owns. A partition to revoke that is missing here has been revoked.
    owned: PartitionSet | None = None
    # From version 1, members choose their own ids (KIP-1082), so a retried join is recognised.
    chooses_member_id: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeatReply:
    error: RequestError | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    # The complete assignment of the member; None if it has not changed.
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
    # From version 1: the member uses the classic protocol.
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
