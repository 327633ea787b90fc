"""Requests and replies of the group coordinator, independent of protocol versions.

Handlers translate: fields that an old version lacks get the defaults here, and what a version cannot express is left
out of the reply. If an old client must be treated differently, a boolean field of the request says so. An error is a
`RequestError` in the reply, for the whole request or for one item; None is success. A reply to several items has an
entry for each of them, in the order of the request.

Items that come by the hundred, such as partitions, are named tuples, which are created in a third of the time.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from respool.model.errors import RequestError
from respool.model.ids import (
    NO_LEADER_EPOCH,
    ZERO_TOPIC_ID,
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicId,
)

# A member that joins for the first time has no id yet; a client that commits without being a member never has one.
NO_MEMBER_ID = ""
NO_GENERATION = -1
# The partition has no committed offset.
NO_COMMITTED_OFFSET = Offset(-1)
# The client did not send a retention time for the offset (OffsetCommit from version 5).
RETENTION_BY_BROKER = -1


class GroupState(StrEnum):
    """Group states; the values are the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    # Only in the next-generation protocol.
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class GroupType(StrEnum):
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


# --- joining


class Protocol(NamedTuple):
    """A protocol that a member supports: an assignor, and the member's metadata for it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    group_id: str
    member_id: str = NO_MEMBER_ID
    # The id of a static member, which stays the same over restarts (KIP-345).
    instance_id: str | None = None
    client_id: str
    client_host: str
    session_timeout_ms: int
    # Version 0 has none; then it equals the session timeout.
    rebalance_timeout_ms: int
    protocol_type: str
    # In the member's order of preference.
    protocols: tuple[Protocol, ...]
    reason: str | None = None
    # From version 4, a new member first gets an id and then joins with it, so that a retry leaves no orphaned member.
    requires_known_member_id: bool = True
    # From version 9 the reply can tell a leader to skip the assignment (KIP-814).
    supports_skipping_assignment: bool = True


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupReply:
    error: RequestError | None = None
    # With MemberIdRequired, the member id to join with.
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER_ID
    skip_assignment: bool = False
    # Only for the leader, whose client assigns the partitions.
    members: tuple[JoinedMember, ...] = ()


class MemberAssignment(NamedTuple):
    member_id: str
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    # None before version 5, and then not checked.
    protocol_type: str | None = None
    protocol_name: str | None = None
    # Only sent by the leader.
    assignments: tuple[MemberAssignment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupReply:
    error: RequestError | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    error: RequestError | None = None


class LeavingMember(NamedTuple):
    # Empty if an administrator removes a static member by its instance id.
    member_id: str
    instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """Before version 3, there is exactly one member, and its error is the error of the reply."""

    group_id: str
    members: tuple[LeavingMember, ...]


class LeftMember(NamedTuple):
    member_id: str
    instance_id: str | None
    error: RequestError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupReply:
    error: RequestError | None = None
    members: tuple[LeftMember, ...] = ()


# --- offsets


class OffsetToCommit(NamedTuple):
    partition: int
    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""


class TopicToCommit(NamedTuple):
    topic: str
    partitions: tuple[OffsetToCommit, ...]
    topic_id: TopicId = ZERO_TOPIC_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """The caller has checked that the topics and partitions exist, and replies for the others."""

    group_id: str
    # The member epoch in the next-generation protocol.
    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    instance_id: str | None = None
    topics: tuple[TopicToCommit, ...]
    retention_ms: int = RETENTION_BY_BROKER
    # From version 9, the client knows member epochs, so a next-generation group accepts its commit.
    knows_member_epochs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommit:
    """Offsets that take effect when the producer's transaction is committed. The reply is an `OffsetCommitReply`.

    The caller has checked the topics, and that the group's partition is part of the transaction. A producer without
    KIP-447 does not name a group member; then there is no fencing.
    """

    group_id: str
    producer_id: ProducerId
    producer_epoch: int
    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    instance_id: str | None = None
    topics: tuple[TopicToCommit, ...]
    # From version 6, the client knows the errors about member epochs and missing groups.
    knows_member_epochs: bool = False


class PartitionResult(NamedTuple):
    partition: int
    error: RequestError | None


class TopicResult(NamedTuple):
    topic: str
    partitions: tuple[PartitionResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitReply:
    """An error of the group is repeated for each partition, because Kafka's reply has no other field for it."""

    topics: tuple[TopicResult, ...]


class TopicToFetch(NamedTuple):
    topic: str
    partitions: tuple[int, ...]


class GroupToFetch(NamedTuple):
    group_id: str
    # None: all topics.
    topics: tuple[TopicToFetch, ...] | None
    # Next-generation protocol only; checked if given.
    member_id: str | None = None
    member_epoch: int = NO_GENERATION


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetch:
    groups: tuple[GroupToFetch, ...]
    # Return an error instead of an offset that an open transaction may replace.
    require_stable: bool = False


class FetchedOffset(NamedTuple):
    partition: int
    offset: Offset = NO_COMMITTED_OFFSET
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""
    error: RequestError | None = None
    # The id of the topic at the time of the commit, if known: the offset of a deleted topic must not be used for a new
    # topic of the same name.
    topic_id: TopicId = ZERO_TOPIC_ID


class FetchedTopic(NamedTuple):
    topic: str
    partitions: tuple[FetchedOffset, ...]


class FetchedGroup(NamedTuple):
    group_id: str
    topics: tuple[FetchedTopic, ...]
    error: RequestError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchReply:
    groups: tuple[FetchedGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDelete:
    group_id: str
    topics: tuple[TopicToFetch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteReply:
    error: RequestError | None = None
    topics: tuple[TopicResult, ...] = ()


# --- administration


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups:
    """Names are case-insensitive; an empty set means all."""

    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


class ListedGroup(NamedTuple):
    group_id: str
    # Empty if the group only has offsets.
    protocol_type: str
    state: GroupState
    type: GroupType


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupsReply:
    groups: tuple[ListedGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroups:
    group_ids: tuple[str, ...]


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    # Empty unless the group is Stable.
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    group_id: str
    # From version 6, GroupIdNotFound is sent. Before, a missing group is Dead, without an error.
    error: RequestError | None = None
    state: GroupState = GroupState.DEAD
    protocol_type: str = ""
    # The chosen protocol if the group is Stable.
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupsReply:
    groups: tuple[DescribedGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroups:
    group_ids: tuple[str, ...]


class GroupResult(NamedTuple):
    group_id: str
    error: RequestError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsReply:
    groups: tuple[GroupResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceGroup:
    """Remove all members and set these offsets in one decision: an operator's forced reset.

    Members get UnknownMemberId, rejoin under new ids and start from the new offsets. Their commits in flight are
    rejected, so they cannot undo the reset.
    """

    group_id: str
    topics: tuple[TopicToCommit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceGroupReply:
    """Without an error, everything was done; with an error, nothing was."""

    error: RequestError | None = None
    fenced_member_ids: tuple[str, ...] = ()
    topics: tuple[TopicResult, ...] = ()


GroupRequest: TypeAlias = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | TxnOffsetCommit
    | OffsetFetch
    | OffsetDelete
    | ListGroups
    | DescribeGroups
    | DeleteGroups
    | FenceGroup
)
GroupReply: TypeAlias = (
    JoinGroupReply
    | SyncGroupReply
    | HeartbeatReply
    | LeaveGroupReply
    | OffsetCommitReply
    | OffsetFetchReply
    | OffsetDeleteReply
    | ListGroupsReply
    | DescribeGroupsReply
    | DeleteGroupsReply
    | FenceGroupReply
)
