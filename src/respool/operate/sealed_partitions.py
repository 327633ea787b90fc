"""Describes a topic that was shrunk: its sealed partitions, what is left in them, and the groups still to read it."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from respool.client.kafka.errors import ClientError
from respool.client.kafka.layout_descriptions import TopicLayout
from respool.client.kafka.list_offsets import OffsetRange
from respool.client.kafka.metadata import Place, TopicMetadata
from respool.client.kafka.replicas import describe_log_dirs
from respool.model.operator_errors import OperatorError
from respool.operate.cluster_admin import ClusterAdmin
from respool.operate.group_operations import GroupOperations


class GroupPosition(NamedTuple):
    """How far a group has read a topic, or a view of it."""

    group: str
    # By partition; missing where nothing is committed.
    committed: Mapping[int, int]


def describe_layout(
    admin: ClusterAdmin, topic: TopicMetadata, ranges: Mapping[Place, OffsetRange]
) -> dict[str, Any] | None:
    """The document about the topic's layout; None if it was never shrunk."""
    layout = admin.layout(topic.name)
    if layout is None:
        return None
    sealed = [number for number in topic.leaders if number >= layout.active]
    sizes = _sizes(admin, topic, sealed)
    # Sealed partitions that never had records need not be read.
    ends = {number: end for number, end in layout.sealed_ends.items() if end > 0}
    positions, why = _positions(admin, topic.name) if ends else ([], None)
    # With some brokers silent, those that are known are still worth showing.
    documents = []
    for number in sealed:
        held = ranges.get((topic.name, number))
        one_end = {number: ends[number]} if number in ends else {}
        documents.append(
            {
                "partition": number,
                "heir": number % layout.active,
                # None until its leader has noted it, a moment after the change.
                "sealed_end": layout.sealed_ends.get(number),
                "messages": held.messages if held else None,
                "bytes": sizes.get(number),
                "groups_behind": None if positions is None else groups_behind(positions, one_end),
            }
        )
    return {
        "active_partitions": layout.active,
        "sealed": documents,
        "groups_unknown": why,
        "held": _held(layout),
    }


def groups_behind(positions: Iterable[GroupPosition], ends: Mapping[int, int]) -> list[str]:
    """The groups that have not committed one of these offsets, or a later one: they keep it from being retired."""
    behind = {
        one.group
        for one in positions
        if any(one.committed.get(number, -1) < end for number, end in ends.items())
    }
    return sorted(behind)


def _held(layout: TopicLayout) -> list[dict[str, int]]:
    return [
        {"partition": number, "shown_end": end} for number, end in sorted(layout.shown_ends.items())
    ]


def _sizes(admin: ClusterAdmin, topic: TopicMetadata, numbers: Iterable[int]) -> dict[int, int]:
    """The bytes of each log at its leader; missing where no broker tells."""
    by_leader: dict[int, list[Place]] = {}
    for number in numbers:
        leader = topic.leaders[number]
        if leader is not None:
            by_leader.setdefault(leader.broker, []).append((topic.name, number))
    sizes: dict[int, int] = {}
    for broker, places in by_leader.items():
        try:
            folders = describe_log_dirs(admin.cluster, broker, places)
        except ClientError:
            # Not allowed, or the broker is gone: everything else can be described.
            continue
        for folder in folders:
            if folder.error is None:
                # A partition without a log in the folder has never had a record.
                sizes |= dict.fromkeys((number for _, number in places), 0)
        for folder in folders:
            sizes |= {number: size.bytes for (_, number), size in folder.replicas.items()}
    return sizes


def _positions(admin: ClusterAdmin, topic: str) -> tuple[list[GroupPosition] | None, str | None]:
    """The groups that read the topic or its views, None if nobody tells; and why some may be missing."""
    groups = GroupOperations(admin.cluster)
    try:
        names = {topic} | {one.name for one in admin.views().values() if one.parent == topic}
        listing = groups.list()
        positions = []
        for group in listing.names:
            committed = groups.committed(group)
            read = {name for name, _ in committed}
            read |= {name for one in groups.describe(group).members for name, _ in one.partitions}
            positions += [
                GroupPosition(
                    group,
                    {number: at.offset for (one, number), at in committed.items() if one == name},
                )
                for name in sorted(names & read)
            ]
    except OperatorError as error:
        return None, error.message
    return positions, "; ".join(listing.gaps) or None
