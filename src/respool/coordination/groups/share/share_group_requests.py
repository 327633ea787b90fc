"""Requests, replies and effects of share groups (KIP-932) at the group coordinator, independent of protocol versions.

As in `group_requests.py`, handlers translate between protocol versions and these classes.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from respool.coordination.groups.consumer.consumer_requests import NamedPartitions
from respool.coordination.groups.consumer.partition_sets import PartitionSet
from respool.coordination.groups.group_requests import GroupState
from respool.model.errors import RequestError
from respool.model.ids import Offset, TopicId

MEMBER_ID_LENGTH_MAX = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupHeartbeat:
    """A member joins, stays in the group or leaves, depending on its epoch. A field that is None has not changed."""

    group_id: str
    # Chosen by the client.
    member_id: str
    # 0: join. -1: leave.
    member_epoch: int
    rack_id: str | None = None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupHeartbeatReply:
    error: RequestError | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    # The complete assignment of the member; None if it has not changed.
    assignment: PartitionSet | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupDescribe:
    group_ids: tuple[str, ...]


class DescribedShareMember(NamedTuple):
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    assignment: tuple[NamedPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedShareGroup:
    group_id: str
    error: RequestError | None = None
    state: GroupState = GroupState.DEAD
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedShareMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupDescribeReply:
    groups: tuple[DescribedShareGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindShareStates:
    """Which partitions of the group have state at the share coordinator?"""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FindShareStatesReply:
    error: RequestError | None = None
    initialized: PartitionSet = field(default_factory=dict)


class ShareStart(NamedTuple):
    """Where a group shall begin in a partition: an offset, or -1 for `share.auto.offset.reset`."""

    topic_id: TopicId
    partition: int
    offset: Offset
    # 0: only if the partition has no state yet. Otherwise the group's epoch: replaces what there is.
    state_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterShareStarts:
    """Let an empty group begin elsewhere; creates the group if there is none. The partitions exist."""

    group_id: str
    starts: tuple[ShareStart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteShareStates:
    """Forget the state of whole topics of an empty group."""

    group_id: str
    topic_ids: frozenset[TopicId]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteShareGroup:
    """Delete a group without members, and its state."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStatesChanged:
    """The reply to `AlterShareStarts`, `DeleteShareStates` and `DeleteShareGroup`."""

    # For the whole request.
    error: RequestError | None = None
    # The partitions whose state was changed. Others could not be, or had none.
    changed: PartitionSet = field(default_factory=dict)


# -- effects, and their results, which the runtime reports back ------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class InitializeShareStates:
    """Effect: give these partitions state at the share coordinator. Doing it twice is the same as once."""

    group_id: str
    starts: tuple[ShareStart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveShareStates:
    """Effect: delete the state of these partitions at the share coordinator, whether there is any or not."""

    group_id: str
    partitions: PartitionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStatesInitialized:
    group_id: str
    done: PartitionSet
    # Why others are not done, if any.
    error: RequestError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStatesRemoved:
    group_id: str
    done: PartitionSet
    error: RequestError | None = None


ShareStateChange: TypeAlias = AlterShareStarts | DeleteShareStates | DeleteShareGroup
ShareGroupRequest: TypeAlias = (
    ShareGroupHeartbeat
    | ShareGroupDescribe
    | FindShareStates
    | AlterShareStarts
    | DeleteShareStates
    | DeleteShareGroup
    | ShareStatesInitialized
    | ShareStatesRemoved
)
