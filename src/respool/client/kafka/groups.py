"""Offsets of a consumer group, read and committed from outside, by those who are no members of it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import worst_of
from respool.client.kafka.coordinator import Coordinator
from respool.client.kafka.metadata import Place
from respool.wire.api_table import Api

NO_GENERATION = -1


class Committed(NamedTuple):
    """What the group reads next, and what was noted beside it."""

    offset: int
    metadata: str = ""


def fetch_offsets(
    cluster: Cluster, group: str, *, limit_ms: int | None = None
) -> dict[Place, Committed]:
    """Every place where the group has committed. One that nobody has heard of has committed nothing.

    Raises:
        BrokerRefused, BrokerUnreachable: it could not be done within `limit_ms`, or the cluster's `retry_ms`.
    """
    reply = Coordinator(cluster, group, is_transaction=False).ask(
        Api.OFFSET_FETCH,
        {"group_id": group, "topics": None, "require_stable": False},
        doing=f"fetching offsets of group {group}",
        code_of=lambda reply: reply.error_code or worst_code(reply),
        limit_ms=limit_ms,
    )
    return {
        (str(topic.name), int(one.partition_index)): Committed(
            int(one.committed_offset), one.metadata or ""
        )
        for topic in reply.topics
        for one in topic.partitions
        # Kafka has a negative one for what was never committed.
        if one.committed_offset >= 0
    }


def commit_offsets(
    cluster: Cluster,
    group: str,
    places: Mapping[Place, Committed],
    *,
    limit_ms: int | None = None,
) -> None:
    """Say for a group which offset comes next in each partition. A group with members of its own refuses it.

    Raises:
        BrokerRefused, BrokerUnreachable: it could not be done within `limit_ms`, or the cluster's `retry_ms`.
    """
    if not places:
        return
    Coordinator(cluster, group, is_transaction=False).ask(
        Api.OFFSET_COMMIT,
        {
            "group_id": group,
            "generation_id_or_member_epoch": NO_GENERATION,
            "member_id": "",
            "group_instance_id": None,
            "topics": offset_fields(places),
        },
        doing=f"committing offsets of group {group}",
        code_of=worst_code,
        limit_ms=limit_ms,
    )


def offset_fields(places: Mapping[Place, Committed]) -> list[dict[str, Any]]:
    """As OffsetCommit and TxnOffsetCommit have them."""
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
    """Of a reply that has one for each partition."""
    return worst_of(one.error_code for topic in reply.topics for one in topic.partitions)
