"""Which groups there are: each broker tells of those that it coordinates, so all of them are asked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import refused
from respool.client.kafka.errors import (
    BrokerRefused,
    BrokerUnreachable,
    UnknownTopic,
)
from respool.client.kafka.metadata import Leader
from respool.model.internal_topics import CONSUMER_OFFSETS
from respool.wire.api_table import Api

CLASSIC = "classic"
# Groups of Connect's workers, for one, have a name of their own. One that only committed from outside has none.
_CONSUMERS = {"consumer", ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    name: str
    # As Kafka spells it: Stable, Empty, PreparingRebalance, …
    state: str
    # 'classic' or 'consumer', the next-generation protocol.
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList:
    # By name.
    groups: list[ListedGroup]
    # Brokers that did not tell theirs, and why.
    unheard: dict[int, str]
    # Groups are shared out over the partitions of a topic. For so many of them nobody spoke: nobody leads them now, or
    # another broker began to meanwhile.
    unled: int = 0


def list_groups(cluster: Cluster) -> GroupList:
    """All groups of consumers, as far as brokers answer. Those that are there now are asked, each once.

    Raises:
        BrokerUnreachable: nobody answers.
    """
    found: dict[str, ListedGroup] = {}
    unheard: dict[int, str] = {}
    before, brokers = _coordinators(cluster), cluster.refresh_brokers()
    for broker in sorted(brokers):
        try:
            listed = _groups_of(cluster, broker)
        except (BrokerUnreachable, BrokerRefused) as error:
            unheard[broker] = str(error)
            continue
        found |= {one.name: one for one in listed}
    unled = sum(
        leader is None or leader.broker not in brokers or before.get(number) != leader
        for number, leader in _coordinators(cluster).items()
    )
    return GroupList(groups=[found[name] for name in sorted(found)], unheard=unheard, unled=unled)


def _coordinators(cluster: Cluster) -> Mapping[int, Leader | None]:
    """Who leads which of the partitions that groups are in; none where there was no group yet, or nobody may know."""
    try:
        return cluster.refresh(CONSUMER_OFFSETS).leaders
    except (UnknownTopic, BrokerRefused):
        return {}


def _groups_of(cluster: Cluster, broker: int) -> list[ListedGroup]:
    fields: dict[str, Any] = {"states_filter": [], "types_filter": []}
    reply = cluster.request(broker, Api.LIST_GROUPS, fields)
    if reply.error_code:
        raise refused("listing groups", reply.error_code)
    return [
        ListedGroup(
            name=one.group_id,
            state=one.group_state,
            type=getattr(one, "group_type", CLASSIC).lower(),
        )
        for one in reply.groups
        if one.protocol_type in _CONSUMERS
    ]
