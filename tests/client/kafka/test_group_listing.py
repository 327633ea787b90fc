"""Which groups there are, by the word of brokers that come and go."""

from typing import Any

import pytest

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import BrokerRefused, BrokerUnreachable, VersionUnsupported
from respool.client.kafka.groups import GroupListing, list_groups
from respool.model.internal_topics import CONSUMER_OFFSETS
from respool.wire.api_table import Api
from respool.wire.codec import Request
from support.group_broker import LOADING, WITH_TYPES, GroupBroker

OFFSETS = {("rides", 0): (5, "")}


def listed(name: str, type_: str = "classic") -> GroupListing:
    return GroupListing(name=name, state="Empty", type=type_)


def test_groups_of_all_brokers_are_listed_by_name() -> None:
    with GroupBroker() as one, GroupBroker() as two:
        one.cluster = two.cluster = [one, two]
        one.offsets["pricing"] = two.offsets["billing"] = OFFSETS
        with Cluster(one.address) as cluster:
            found = list_groups(cluster)
    assert found.groups == [listed("billing"), listed("pricing")]
    assert found.unheard == {}


def test_a_broker_that_does_not_answer_costs_only_its_own_groups() -> None:
    with GroupBroker() as one:
        with GroupBroker() as gone:
            one.cluster = [gone, one]
        one.offsets["pricing"] = OFFSETS
        with Cluster(one.address) as cluster:
            found = list_groups(cluster)
    assert found.groups == [listed("pricing")]
    assert list(found.unheard) == [1]
    assert f"{gone.address}: connection refused" in str(found.unheard[1])


def test_a_broker_that_has_left_the_metadata_is_not_missed() -> None:
    with GroupBroker() as one, Cluster(one.address) as cluster:
        with GroupBroker() as two:
            one.cluster = [one, two]
            two.offsets["billing"] = OFFSETS
            assert list_groups(cluster).groups == [listed("billing")]
        # 1. The second broker has gone.  2. The first one has its groups, and says that it is alone.
        one.offsets["billing"] = OFFSETS
        one.cluster = [one]
        found = list_groups(cluster)
    assert found.groups == [listed("billing")]
    assert found.unheard == {}


def test_a_broker_that_still_loads_its_groups_is_unheard() -> None:
    with GroupBroker() as one, GroupBroker() as two:
        one.cluster = two.cluster = [one, two]
        two.codes.append(LOADING)
        with Cluster(one.address) as cluster:
            (error,) = list_groups(cluster).unheard.values()
            assert isinstance(error, BrokerRefused)
            assert error.code == LOADING
            assert list_groups(cluster).unheard == {}


def test_a_broker_too_old_to_list_groups_costs_only_its_own() -> None:
    with GroupBroker() as one, GroupBroker() as old:
        one.cluster = old.cluster = [one, old]
        one.offsets["pricing"] = OFFSETS
        old.versions[Api.LIST_GROUPS] = (0, 3)
        with Cluster(one.address) as cluster:
            found = list_groups(cluster)
    assert found.groups == [listed("pricing")]
    assert isinstance(found.unheard[2], VersionUnsupported)


class MovingBroker(GroupBroker):
    """Its groups go away and come back while they are listed."""

    def _listed(self, request: Request, code: int) -> dict[str, Any]:
        self.leader_epoch += 1
        return super()._listed(request, code)


@pytest.mark.parametrize(
    ("kind", "leader", "unled"),
    [(GroupBroker, 1, 0), (GroupBroker, -1, 3), (GroupBroker, 7, 3), (MovingBroker, 1, 3)],
    ids=["led", "led by nobody", "led by one that is gone", "led anew meanwhile"],
)
def test_that_some_groups_are_with_nobody_is_noticed(
    kind: type[GroupBroker], leader: int, unled: int
) -> None:
    """1. A broker dies, and is in no metadata.   2. Nobody else has its groups yet, and nobody is missing."""
    with kind() as one:
        one.topic, one.partitions, one.leader = CONSUMER_OFFSETS, 3, leader
        with Cluster(one.address) as cluster:
            found = list_groups(cluster)
    assert (found.unheard, found.unled) == ({}, unled)


def test_the_protocol_is_told_where_brokers_know_it_and_groups_of_others_are_left_out() -> None:
    with GroupBroker() as one:
        one.versions[Api.LIST_GROUPS] = (0, WITH_TYPES)
        one.protocol_type = "consumer"
        one.offsets["billing"] = OFFSETS
        with Cluster(one.address) as cluster:
            assert list_groups(cluster).groups == [listed("billing", "consumer")]
            one.protocol_type = "connect"
            assert list_groups(cluster).groups == []


def test_where_nobody_answers_or_is_there_yet_nothing_is_said_to_be_empty() -> None:
    with GroupBroker() as one:
        one.cluster = []
        with (
            Cluster(one.address) as cluster,
            pytest.raises(BrokerUnreachable, match="name no broker"),
        ):
            list_groups(cluster)
    with Cluster(one.address) as cluster, pytest.raises(BrokerUnreachable, match="no broker"):
        list_groups(cluster)
