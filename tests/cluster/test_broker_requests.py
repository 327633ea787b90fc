"""Draining a broker, taking it out and letting it in again; and settings that are changed while it runs."""

import pytest

from cluster.cluster_world import ONE, THREE, TWO, ClusterWorld
from respool.cluster import keys
from respool.cluster.broker_requests import (
    BrokerLoad,
    admit,
    broker_load,
    check_is_there,
    configure,
    drain,
    remove,
)
from respool.cluster.topic_requests import create_topic
from respool.model.errors import (
    BrokerIdNotRegistered,
    BrokerIsLive,
    InvalidConfig,
    InvalidReplicationFactor,
    InvalidRequest,
)
from respool.model.ids import BrokerId, TopicId
from respool.model.topic_config import TopicConfig


def world() -> ClusterWorld:
    cluster = ClusterWorld(dict.fromkeys((ONE, TWO, THREE)))
    cluster.create("t", partitions=6, factor=2, overrides={})
    return cluster


def test_a_drained_broker_is_given_nothing_new() -> None:
    cluster = world()
    cluster.apply(drain(cluster.view(), THREE))
    assert sorted(cluster.view().candidates()) == [ONE, TWO]
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
    with pytest.raises(InvalidReplicationFactor, match="1 is left"):
        drain(cluster.view(), TWO)


def test_only_a_broker_that_holds_nothing_is_removed() -> None:
    cluster = world()
    held = broker_load(cluster.view(), THREE)
    assert held == BrokerLoad(replicas=4, leads=2)
    cluster.apply(drain(cluster.view(), THREE))
    while broker_load(cluster.view(), THREE).replicas:
        cluster.decide()
        cluster.catch_up_everywhere()
    with pytest.raises(BrokerIsLive, match="runs"):
        remove(cluster.view(), THREE)
    cluster.die(THREE)
    cluster.apply(remove(cluster.view(), THREE))
    assert cluster.view().registry[THREE].is_removed
    assert remove(cluster.view(), THREE) == []


def test_a_dead_broker_is_removed_by_force_and_its_replicas_are_made_anew() -> None:
    cluster = world()
    with pytest.raises(BrokerIsLive, match="runs"):
        remove(cluster.view(), THREE, is_forced=True)
    cluster.die(THREE)
    cluster.decide()
    with pytest.raises(InvalidRequest, match="has 4 replicas"):
        remove(cluster.view(), THREE)
    cluster.apply(remove(cluster.view(), THREE, is_forced=True))
    while broker_load(cluster.view(), THREE).replicas:
        cluster.decide()
        cluster.catch_up_everywhere()
    assert all(len(image.isr) == 2 for image in cluster.images().values())


def test_an_admitted_broker_may_be_given_replicas_again() -> None:
    cluster = world()
    cluster.apply(drain(cluster.view(), THREE))
    cluster.apply(admit(cluster.view(), THREE))
    assert sorted(cluster.view().candidates()) == [ONE, TWO, THREE]
    assert admit(cluster.view(), THREE) == []


@pytest.mark.parametrize("request_for", [drain, remove, admit])
def test_a_broker_nobody_knows_is_refused(request_for: object) -> None:
    with pytest.raises(BrokerIdNotRegistered, match="99"):
        request_for(world().view(), BrokerId(99))  # type: ignore[operator]


RATE, COPIES = "leader.replication.throttled.rate", "respool.copy.bytes.per.s.max"


def set_for(cluster: ClusterWorld, name: str, **texts: str) -> None:
    wanted = {key.replace("_", "."): text for key, text in texts.items()}
    cluster.apply(configure(cluster.view(), name, lambda before: {**before, **wanted}))


def settings(cluster: ClusterWorld) -> dict[str, dict[str, str]]:
    return {name: dict(one.values) for name, one in cluster.view().broker_overrides.items()}


def test_settings_are_those_of_a_broker_or_of_all_also_while_it_is_away() -> None:
    cluster = world()
    cluster.die(THREE)
    set_for(cluster, "3", leader_replication_throttled_rate="5")
    set_for(cluster, "", leader_replication_throttled_rate="6")
    assert settings(cluster) == {"3": {RATE: "5"}, "": {RATE: "6"}}
    # What is so already is not written again.
    assert configure(cluster.view(), "3", lambda before: before) == []
    cluster.apply(configure(cluster.view(), "3", lambda _: {}))
    assert settings(cluster) == {"": {RATE: "6"}}


def test_a_number_is_kept_as_programs_read_it() -> None:
    cluster = world()
    set_for(cluster, "1", leader_replication_throttled_rate=" 1_000 ")
    assert settings(cluster) == {"1": {RATE: "1000"}}


def test_what_cannot_be_changed_while_a_broker_runs_is_refused() -> None:
    view = world().view()
    with pytest.raises(InvalidRequest, match=r"Cannot update .* dynamically: \[num.partitions\]"):
        configure(view, "1", lambda _: {"num.partitions": "3"})
    with pytest.raises(InvalidConfig, match=RATE):
        configure(view, "1", lambda _: {RATE: "fast"})
    with pytest.raises(InvalidRequest, match="there is no broker '9'"):
        configure(view, "9", lambda _: {RATE: "5"})
    check_is_there(view, ONE)
    with pytest.raises(BrokerIdNotRegistered):
        check_is_there(view, BrokerId(9))


def test_what_a_newer_version_has_set_stays_and_is_in_nobodys_way() -> None:
    cluster = world()
    theirs = {"some.new.rate": "5", RATE: "faster than ever"}
    key = keys.broker_config_key("1")
    cluster.put(key, keys.encode_overrides(theirs))
    set_for(cluster, "1", respool_copy_bytes_per_s_max="7")
    assert settings(cluster) == {"1": theirs | {COPIES: "7"}}
    cluster.apply(configure(cluster.view(), "1", lambda _: {"some.new.rate": "5", COPIES: "7"}))
    assert settings(cluster) == {"1": {"some.new.rate": "5", COPIES: "7"}}


def test_a_broker_that_is_removed_leaves_no_settings_to_the_next_of_its_number() -> None:
    cluster = world()
    cluster.die(THREE)
    set_for(cluster, "3", leader_replication_throttled_rate="5")
    set_for(cluster, "", leader_replication_throttled_rate="6")
    cluster.apply(remove(cluster.view(), THREE, is_forced=True))
    assert settings(cluster) == {"": {RATE: "6"}}


def test_what_elections_rely_on_is_the_same_on_all_brokers_of_a_cluster() -> None:
    cluster = world()
    for name in ("min.insync.replicas", "unclean.leader.election.enable", "respool.flush"):
        with pytest.raises(InvalidRequest, match=f"Broker-level {name} cannot be altered"):
            configure(cluster.view(), "1", lambda _, name=name: {name: "1"})  # type: ignore[misc]
    cluster.apply(configure(cluster.view(), "", lambda _: {"min.insync.replicas": "2"}))
    assert settings(cluster) == {"": {"min.insync.replicas": "2"}}
    assert all(topic.rules.min_isr == 2 for topic in cluster.view().topics.values())
    alone = ClusterWorld({ONE: None})
    alone.apply(configure(alone.view(), "1", lambda _: {"min.insync.replicas": "2"}))
    assert settings(alone) == {"1": {"min.insync.replicas": "2"}}


def test_defaults_that_contradict_each_other_are_refused_whatever_place_they_come_from() -> None:
    cluster = world()
    high, low = "log.cleaner.max.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"
    cluster.apply(configure(cluster.view(), "", lambda _: {high: "10"}))
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms = 11 is above"):
        configure(cluster.view(), "1", lambda _: {low: "11"})
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms = 12 is above"):
        configure(
            cluster.view(),
            "2",
            lambda _: {high: "11"},
            defaults=TopicConfig(min_compaction_lag_ms=12),
        )
