"""Draining a broker, taking it out and letting it in again."""

import pytest

from cluster.cluster_world import ONE, THREE, TWO, ClusterWorld
from respool.cluster.broker_requests import Holdings, admit, drain, holdings, remove
from respool.cluster.topics import create_topic
from respool.model.errors import (
    BrokerIdNotRegistered,
    InvalidReplicationFactor,
    InvalidRequest,
)
from respool.model.ids import BrokerId, TopicId


def world() -> ClusterWorld:
    cluster = ClusterWorld(dict.fromkeys((ONE, TWO, THREE)))
    cluster.create("t", partitions=6, factor=2, overrides={})
    return cluster


def test_a_drained_broker_is_given_nothing_new() -> None:
    cluster = world()
    cluster.apply(drain(cluster.view(), THREE))
    assert sorted(cluster.view().takers()) == [ONE, TWO]
    with pytest.raises(InvalidReplicationFactor):
        create_topic(
            cluster.view(),
            "new",
            topic_id=TopicId(cluster.view().topics["t"].id),
            overrides={},
            partition_count=1,
            replication_factor=3,
        )


def test_draining_twice_is_one_write() -> None:
    cluster = world()
    cluster.apply(drain(cluster.view(), THREE))
    assert drain(cluster.view(), THREE) == []


def test_a_broker_is_not_drained_where_the_others_are_too_few() -> None:
    cluster = world()
    cluster.apply(drain(cluster.view(), THREE))
    with pytest.raises(InvalidReplicationFactor, match="1 are left"):
        drain(cluster.view(), TWO)


def test_only_a_broker_that_holds_nothing_is_removed() -> None:
    cluster = world()
    held = holdings(cluster.view(), THREE)
    assert held == Holdings(replicas=4, leads=2)
    with pytest.raises(InvalidRequest, match="holds 4 replicas"):
        remove(cluster.view(), THREE)
    cluster.apply(drain(cluster.view(), THREE))
    while holdings(cluster.view(), THREE).replicas:
        cluster.decide()
        cluster.catch_up_everywhere()
    cluster.apply(remove(cluster.view(), THREE))
    assert cluster.view().registry[THREE].is_removed
    assert remove(cluster.view(), THREE) == []


def test_a_dead_broker_is_removed_by_force_and_its_replicas_are_made_anew() -> None:
    cluster = world()
    with pytest.raises(InvalidRequest, match="holds 4 replicas"):
        remove(cluster.view(), THREE, is_forced=True)
    cluster.die(THREE)
    cluster.decide()
    with pytest.raises(InvalidRequest, match="holds 4 replicas"):
        remove(cluster.view(), THREE)
    cluster.apply(remove(cluster.view(), THREE, is_forced=True))
    while holdings(cluster.view(), THREE).replicas:
        cluster.decide()
        cluster.catch_up_everywhere()
    assert all(len(image.isr) == 2 for image in cluster.images().values())


def test_an_admitted_broker_may_be_given_replicas_again() -> None:
    cluster = world()
    cluster.apply(drain(cluster.view(), THREE))
    cluster.apply(admit(cluster.view(), THREE))
    assert sorted(cluster.view().takers()) == [ONE, TWO, THREE]
    assert admit(cluster.view(), THREE) == []


@pytest.mark.parametrize("request_for", [drain, remove, admit])
def test_a_broker_nobody_knows_is_refused(request_for: object) -> None:
    with pytest.raises(BrokerIdNotRegistered, match="99"):
        request_for(world().view(), BrokerId(99))  # type: ignore[operator]
