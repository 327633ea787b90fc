"""Administration of consumer groups: list, describe and delete them, remove members, fetch and set offsets.

Requests about a group go to its coordinator; a list of groups needs all brokers. Offsets are committed here without
being a member, which brokers allow while a group has no members.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code, refused, worst_of
from respool.client.kafka.coordinator import Coordinator
from respool.client.kafka.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ClientError,
    UnknownTopic,
    Untrusted,
    VersionUnsupported,
)
from respool.client.kafka.list_offsets import by_topic
from respool.client.kafka.metadata import Address, PartitionLeader, Place
from respool.model.internal_topics import CONSUMER_OFFSETS
from respool.wire.api_table import Api

# The protocol of a group: classic, or the next-generation one of KIP-848.
CLASSIC, CONSUMER = "classic", "consumer"
# Protocol types of consumer groups; Kafka Connect's workers, for example, have another. Groups with offsets committed
# only by non-members have none.
CONSUMERS = frozenset({"consumer", ""})
# The state of a group that does not exist.
DEAD = "Dead"
# As Kafka spells them; classic groups prepare and complete rebalances, KIP-848 groups assign and reconcile.
STATES = (
    "Empty",
    "Stable",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    DEAD,
)

NO_GENERATION = -1
# A member of a KIP-848 group leaves by a heartbeat with this epoch.
LEAVE_EPOCH = -1
_INT16, _INT32 = Struct(">h"), Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    name: str
    # As Kafka spells it: Stable, Empty, PreparingRebalance, …
    state: str
    # 'classic' or 'consumer', the next-generation protocol.
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList:
    # By name.
    groups: list[GroupListing]
    # Brokers that did not list their groups, and why.
    unheard: dict[int, ClientError]
    # Groups are spread over the partitions of __consumer_offsets. The groups of this many partitions are missing: the
    # partition has no leader, or its leader changed during the listing.
    unled: int = 0


def list_groups(cluster: Cluster, *, protocol_types: frozenset[str] = CONSUMERS) -> GroupList:
    """List all groups of these types, of the brokers that answer. Each broker in the current metadata is asked once.

    Raises:
        BrokerUnreachable: no broker answers.
    """
    found: dict[str, GroupListing] = {}
    unheard: dict[int, ClientError] = {}
    before, brokers = _coordinators(cluster), cluster.refresh_brokers()
    for broker in sorted(brokers):
        try:
            listed = _groups_of(cluster, broker, protocol_types)
        except (BrokerUnreachable, BrokerRefused, Untrusted, VersionUnsupported) as error:
            unheard[broker] = error
            continue
        found |= {one.name: one for one in listed}
    unled = sum(
        leader is None or leader.broker not in brokers or before.get(number) != leader
        for number, leader in _coordinators(cluster).items()
    )
    return GroupList(groups=[found[name] for name in sorted(found)], unheard=unheard, unled=unled)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    member_id: str
    # A static member's configured id (group.instance.id).
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription(GroupListing):
    # The assignor: range, cooperative-sticky, uniform, ... Empty while the group has no members.
    assignor: str
    members: tuple[MemberDescription, ...]
    # The address of its coordinator.
    coordinator: Address


def describe_group(
    cluster: Cluster, group: str, *, limit_ms: int | None = None
) -> GroupDescription:
    """Describe a group of either protocol. One that does not exist has the state `DEAD` and no members.

    Raises:
        BrokerRefused, BrokerUnreachable: it did not succeed within `limit_ms`, by default the cluster's `retry_ms`.
    """
    coordinator = Coordinator(cluster, group, is_transaction=False)
    described = _describe_consumer(coordinator, group, limit_ms) or _describe_classic(
        coordinator, group, limit_ms
    )
    return GroupDescription(**described, coordinator=cluster.address_of(coordinator.find()))


def delete_group(cluster: Cluster, group: str) -> None:
    """
    Raises:
        BrokerRefused: the group has members, or does not exist.
        BrokerUnreachable
    """
    Coordinator(cluster, group, is_transaction=False).request(
        Api.DELETE_GROUPS,
        {"groups_names": [group]},
        doing=f"deleting group {group}",
        code_of=lambda reply: reply.results[0].error_code,
    )


def leave_requests(
    group: str, members: Sequence[MemberDescription], *, protocol: str, reason: str
) -> list[tuple[Api, Mapping[str, Any]]]:
    """The requests that remove members; send them to the coordinator, with `Connection.request_all` or one by one."""
    if not members:
        return []
    if protocol == CLASSIC:
        leaving = [
            {"member_id": one.member_id, "group_instance_id": one.instance_id, "reason": reason}
            for one in members
        ]
        return [(Api.LEAVE_GROUP, {"group_id": group, "members": leaving})]
    return [
        (
            Api.CONSUMER_GROUP_HEARTBEAT,
            {
                "group_id": group,
                "member_id": one.member_id,
                "member_epoch": LEAVE_EPOCH,
                "instance_id": one.instance_id,
                "rebalance_timeout": -1,
                "subscribed_topic_names": None,
                "server_assignor": None,
                "topic_partitions": None,
            },
        )
        for one in members
    ]


# -- offsets -----------------------------------------------------------------------------------------------------------


class OffsetAndMetadata(NamedTuple):
    """The next offset that the group reads, and the metadata committed with it."""

    offset: int
    metadata: str = ""


def fetch_offsets(
    cluster: Cluster, group: str, *, limit_ms: int | None = None
) -> dict[Place, OffsetAndMetadata]:
    """Return the group's committed offsets of all partitions; empty for a group that does not exist.

    Raises:
        BrokerRefused, BrokerUnreachable: it did not succeed within `limit_ms`, by default the cluster's `retry_ms`.
    """
    reply = Coordinator(cluster, group, is_transaction=False).request(
        Api.OFFSET_FETCH,
        fetch_fields(group, None),
        doing=f"fetching offsets of group {group}",
        code_of=lambda reply: reply.error_code or worst_code(reply),
        limit_ms=limit_ms,
    )
    return committed_in(reply)


def commit_offsets(
    cluster: Cluster,
    group: str,
    places: Mapping[Place, OffsetAndMetadata],
    *,
    limit_ms: int | None = None,
) -> None:
    """Set the offsets from which the group reads next. Refused while the group has members.

    Raises:
        BrokerRefused, BrokerUnreachable: it did not succeed within `limit_ms`, by default the cluster's `retry_ms`.
    """
    if not places:
        return
    Coordinator(cluster, group, is_transaction=False).request(
        Api.OFFSET_COMMIT,
        commit_fields(group, places),
        doing=f"committing offsets of group {group}",
        code_of=worst_code,
        limit_ms=limit_ms,
    )


def commit_fields(group: str, places: Mapping[Place, OffsetAndMetadata]) -> dict[str, Any]:
    """The fields of an OffsetCommit without a member."""
    return {
        "group_id": group,
        "generation_id_or_member_epoch": NO_GENERATION,
        "member_id": "",
        "group_instance_id": None,
        "topics": offset_fields(places),
    }


def fetch_fields(group: str, places: Iterable[Place] | None) -> dict[str, Any]:
    """The fields of an OffsetFetch for these partitions, or for all."""
    topics = (
        None
        if places is None
        else [
            {"name": topic, "partition_indexes": ones} for topic, ones in by_topic(places).items()
        ]
    )
    return {"group_id": group, "topics": topics, "require_stable": False}


def committed_in(reply: Any) -> dict[Place, OffsetAndMetadata]:
    """The committed offsets in an OffsetFetch reply."""
    return {
        (str(topic.name), int(one.partition_index)): OffsetAndMetadata(
            int(one.committed_offset), one.metadata or ""
        )
        for topic in reply.topics
        for one in topic.partitions
        # Kafka answers with a negative offset where none was committed.
        if one.committed_offset >= 0
    }


def offset_fields(places: Mapping[Place, OffsetAndMetadata]) -> list[dict[str, Any]]:
    """The topics field of OffsetCommit and TxnOffsetCommit."""
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), committed in sorted(places.items()):
        by_topic.setdefault(topic, []).append(
            {
                "partition_index": partition,
                "committed_offset": committed.offset,
                "committed_leader_epoch": -1,
                "committed_metadata": committed.metadata,
            }
        )
    return [{"name": topic, "partitions": ones} for topic, ones in by_topic.items()]


def worst_code(reply: Any) -> Any:
    """The worst error code of a reply that has one per partition."""
    return worst_of(one.error_code for topic in reply.topics for one in topic.partitions)


# -- inside ------------------------------------------------------------------------------------------------------------


def _describe_consumer(
    coordinator: Coordinator, group: str, limit_ms: int | None
) -> dict[str, Any] | None:
    """None if the group is not a KIP-848 group, or the broker does not support KIP-848."""
    try:
        reply = coordinator.request(
            Api.CONSUMER_GROUP_DESCRIBE,
            {"group_ids": [group], "include_authorized_operations": False},
            doing=f"describing group {group}",
            code_of=lambda reply: reply.groups[0].error_code,
            limit_ms=limit_ms,
        )
    except VersionUnsupported:
        return None
    except BrokerRefused as error:
        if error.code != Code.group_id_not_found:
            raise
        return None
    (found,) = reply.groups
    members = tuple(
        MemberDescription(
            member_id=str(one.member_id),
            instance_id=one.instance_id or None,
            client_id=str(one.client_id),
            host=str(one.client_host).removeprefix("/"),
            partitions=tuple(
                sorted(
                    (str(topic.topic_name), int(partition))
                    for topic in one.assignment.topic_partitions
                    for partition in topic.partitions
                )
            ),
        )
        for one in found.members
    )
    return {
        "name": group,
        "state": str(found.group_state),
        "type": CONSUMER,
        "assignor": str(found.assignor_name),
        "members": members,
    }


def _describe_classic(coordinator: Coordinator, group: str, limit_ms: int | None) -> dict[str, Any]:
    reply = coordinator.request(
        Api.DESCRIBE_GROUPS,
        {"groups": [group], "include_authorized_operations": False},
        doing=f"describing group {group}",
        code_of=lambda reply: reply.groups[0].error_code,
        limit_ms=limit_ms,
    )
    (found,) = reply.groups
    members = tuple(
        MemberDescription(
            member_id=str(one.member_id),
            instance_id=one.group_instance_id or None,
            client_id=str(one.client_id),
            host=str(one.client_host).removeprefix("/"),
            partitions=assigned_partitions(bytes(one.member_assignment)),
        )
        for one in found.members
    )
    return {
        "name": group,
        "state": str(found.group_state),
        "type": CLASSIC,
        "assignor": str(found.protocol_data),
        "members": members,
    }


def assigned_partitions(assignment: bytes) -> tuple[Place, ...]:
    """Decode a member's assignment in the classic protocol; empty if it is not a consumer's.

    version 2 | topics 4 | name length 2 | name | partitions 4 | partition 4 | ... | user data
    """
    found: list[Place] = []
    at = _INT16.size
    try:
        (topics,) = _INT32.unpack_from(assignment, at)
        at += _INT32.size
        for _ in range(topics):
            (length,) = _INT16.unpack_from(assignment, at)
            at += _INT16.size
            name = assignment[at : at + length].decode()
            at += length
            (count,) = _INT32.unpack_from(assignment, at)
            at += _INT32.size
            found += (
                (name, int(one)) for (one,) in _INT32.iter_unpack(assignment[at : at + 4 * count])
            )
            at += 4 * count
    except (struct.error, UnicodeDecodeError):
        return ()
    return tuple(sorted(found))


def _coordinators(cluster: Cluster) -> Mapping[int, PartitionLeader | None]:
    """Leaders of the partitions of __consumer_offsets; empty if it does not exist or access is denied."""
    try:
        return cluster.refresh(CONSUMER_OFFSETS).leaders
    except (UnknownTopic, BrokerRefused):
        return {}


def _groups_of(cluster: Cluster, broker: int, protocol_types: frozenset[str]) -> list[GroupListing]:
    fields: dict[str, Any] = {"states_filter": [], "types_filter": []}
    reply = cluster.request(broker, Api.LIST_GROUPS, fields)
    if reply.error_code:
        raise refused("listing groups", reply.error_code)
    return [
        GroupListing(
            name=one.group_id,
            state=one.group_state,
            type=getattr(one, "group_type", CLASSIC).lower(),
        )
        for one in reply.groups
        if one.protocol_type in protocol_types
    ]
