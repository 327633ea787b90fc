"""Administration of share groups (KIP-932): list and describe them, and the offsets at which they start.

Deleting one is as for other groups: `groups.delete_group`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code
from respool.client.kafka.coordinator import Coordinator
from respool.client.kafka.errors import BrokerRefused
from respool.client.kafka.groups import GroupList, MemberDescription, list_groups
from respool.client.kafka.list_offsets import by_topic
from respool.client.kafka.metadata import Address, Place
from respool.wire.api_table import Api

# The protocol type of share groups.
SHARE = "share"
# No offset, or an unknown number of records.
NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupDescription:
    name: str
    # As Kafka spells it: Empty, Stable.
    state: str
    members: tuple[MemberDescription, ...]
    # The address of its coordinator.
    coordinator: Address


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareProgress:
    """Where a share group is in a partition."""

    # The first record that is not finished; None: not decided yet.
    offset: int | None
    # Records from there on that are not finished; None: unknown.
    lag: int | None


def list_share_groups(cluster: Cluster) -> GroupList:
    """
    Raises:
        BrokerUnreachable: no broker answers.
    """
    return list_groups(cluster, protocol_types=frozenset({SHARE}))


def describe_share_group(cluster: Cluster, group: str) -> ShareGroupDescription | None:
    """None if there is no such share group.

    Raises:
        BrokerRefused, BrokerUnreachable
    """
    coordinator = Coordinator(cluster, group, is_transaction=False)
    try:
        reply = coordinator.request(
            Api.SHARE_GROUP_DESCRIBE,
            {"group_ids": [group], "include_authorized_operations": False},
            doing=f"describing share group {group}",
            code_of=lambda reply: reply.groups[0].error_code,
        )
    except BrokerRefused as error:
        if error.code != Code.group_id_not_found:
            raise
        return None
    (found,) = reply.groups
    return ShareGroupDescription(
        name=group,
        state=str(found.group_state),
        members=tuple(map(_member, found.members)),
        coordinator=cluster.address_of(coordinator.find()),
    )


def fetch_share_starts(cluster: Cluster, group: str) -> dict[Place, ShareProgress]:
    """The group's start in each partition that it has state of; empty for a group that does not exist.

    Raises:
        BrokerRefused, BrokerUnreachable
    """
    reply = Coordinator(cluster, group, is_transaction=False).request(
        Api.DESCRIBE_SHARE_GROUP_OFFSETS,
        {"groups": [{"group_id": group, "topics": None}]},
        doing=f"fetching the offsets of share group {group}",
        code_of=lambda reply: reply.groups[0].error_code or _first_code(reply.groups[0].topics),
    )
    return {
        (str(topic.topic_name), int(one.partition_index)): ShareProgress(
            offset=None if one.start_offset == NONE else int(one.start_offset),
            lag=None if one.lag == NONE else int(one.lag),
        )
        for topic in reply.groups[0].topics
        for one in topic.partitions
    }


def alter_share_starts(cluster: Cluster, group: str, starts: Mapping[Place, int]) -> None:
    """Let the group start at these offsets. It is created if it does not exist; with members it is refused.

    Raises:
        BrokerRefused, BrokerUnreachable
    """
    topics = [
        {
            "topic_name": topic,
            "partitions": [
                {"partition_index": one, "start_offset": starts[topic, one]} for one in partitions
            ],
        }
        for topic, partitions in by_topic(starts).items()
    ]
    Coordinator(cluster, group, is_transaction=False).request(
        Api.ALTER_SHARE_GROUP_OFFSETS,
        {"group_id": group, "topics": topics},
        doing=f"setting the offsets of share group {group}",
        code_of=lambda reply: reply.error_code or _first_code(reply.responses),
    )


def _member(one: Any) -> MemberDescription:
    return MemberDescription(
        member_id=str(one.member_id),
        instance_id=None,
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


def _first_code(topics: Sequence[Any]) -> Any:
    codes = [one.error_code for topic in topics for one in topic.partitions if one.error_code]
    return codes[0] if codes else 0
