from dataclasses import replace

import pytest

from cluster.cluster_world import ONE, SYNCED, THREE, TWO, ClusterWorld, image_of
from respool.cluster import keys
from respool.cluster.image_reader import ImageReader, stray_keys
from respool.model.cluster import NO_CONTROLLER, BrokerEndpoint, ClusterImage
from respool.model.topic_config import TopicConfig
from respool.ports.metadata_store import StoredValue

SESSION = "consumer.session.timeout.ms"
RATE = "leader.replication.throttled.rate"


def world() -> ClusterWorld:
    cluster = ClusterWorld({ONE: None, TWO: None, THREE: None})
    cluster.create("rides", partitions=2, factor=2, overrides=SYNCED)
    cluster.create("fares", partitions=1, factor=1, overrides={})
    cluster.put(keys.broker_config_key("2"), keys.encode_overrides({RATE: "7", "newer": "1"}))
    cluster.put(keys.group_config_key("riders"), keys.encode_overrides({SESSION: "50000"}))
    cluster.put(keys.group_config_key("drivers"), keys.encode_overrides({SESSION: "60000"}))
    return cluster


def test_reading_change_by_change_gives_the_image_that_reading_everything_gives() -> None:
    cluster = world()
    whole = ImageReader(me=None, defaults=TopicConfig()).read_all(cluster.values, revision=9)
    reader = ImageReader(me=None, defaults=TopicConfig())
    image = ClusterImage(cluster_id="", brokers={}, controller=NO_CONTROLLER)
    values: dict[str, StoredValue] = {}
    for key, stored in cluster.values.items():
        values[key] = stored
        image = reader.read(values, frozenset([key]), image, revision=9)
    assert image == whole
    assert not reader.incomplete
    for key in list(values):
        del values[key]
        image = reader.read(values, frozenset([key]), image, revision=9)
    assert image == ClusterImage(cluster_id="", brokers={}, controller=NO_CONTROLLER, revision=9)


def test_an_image_has_the_revisions_that_guard_changes() -> None:
    cluster = world()
    image = ImageReader(me=None, defaults=TopicConfig()).read_all(cluster.values)
    revision_of = {key: stored.revision for key, stored in cluster.values.items()}
    topic = image.topics["rides"]
    assert topic.revision == revision_of[keys.topic_key("rides")]
    assert [one.revision for one in topic.partitions] == [
        revision_of[keys.partition_key(topic.id, number)] for number in range(2)
    ]
    assert (image.controller, image.controller_revision) == (ONE, revision_of[keys.CONTROLLER])
    assert image.registry[TWO].revision == revision_of[keys.registry_key(TWO)]
    assert image.stored_broker_overrides["2"].revision == revision_of[keys.broker_config_key("2")]


def test_what_only_a_newer_version_knows_of_a_brokers_configuration_is_kept_as_stored() -> None:
    image = ImageReader(me=None, defaults=TopicConfig()).read_all(world().values)
    assert image.broker_overrides == {"2": {RATE: "7"}}
    assert image.stored_broker_overrides["2"].values == {RATE: "7", "newer": "1"}


@pytest.mark.parametrize(("overrides", "is_synced"), [(SYNCED, True), ({}, False)])
def test_what_elections_go_by_follows_from_the_topics_configuration(
    overrides: dict[str, str], is_synced: bool
) -> None:
    cluster = ClusterWorld({ONE: None})
    cluster.create(
        "rides", partitions=1, factor=1, overrides={**overrides, "min.insync.replicas": "2"}
    )
    rules = cluster.view().topics["rides"].rules
    assert (rules.min_isr, rules.is_synced, rules.is_unclean_allowed) == (2, is_synced, False)


def test_a_broker_is_in_its_own_image_while_it_is_not_registered() -> None:
    cluster = ClusterWorld({TWO: None})
    me = BrokerEndpoint(id=ONE, host="h", port=1)
    before = ClusterImage(cluster_id="c", brokers={ONE: me}, controller=ONE)
    reader = ImageReader(me=ONE, defaults=TopicConfig())
    image = reader.read(cluster.values, frozenset(cluster.values), before, revision=1)
    assert sorted(image.brokers) == [ONE, TWO]
    assert image.brokers[ONE] is me


def test_partitions_that_no_topic_counts_are_strays_once_the_topic_cannot_be_on_its_way() -> None:
    cluster = world()
    reader = ImageReader(me=None, defaults=TopicConfig())
    image = reader.read_all(cluster.values)
    assert stray_keys(cluster.values, image) == {}
    beyond = keys.partition_key(image.topics["rides"].id, 2)
    cluster.put(beyond, keys.encode_partition(replace(image_of(1), revision=0)))
    assert stray_keys(cluster.values, image) == {beyond: cluster.values[beyond].revision}
    # Of a topic whose partitions come one by one nothing is a stray.
    fares = image.topics["fares"].id
    second = keys.TopicRecord(id=fares, overrides={}, partition_count=2)
    cluster.put(keys.topic_key("fares"), keys.encode_topic(second))
    image = reader.read(cluster.values, frozenset([keys.topic_key("fares")]), image, revision=2)
    assert set(reader.incomplete) == {fares}
    assert set(stray_keys(cluster.values, image, reader.incomplete)) == {beyond}


def test_an_empty_store_has_no_controller() -> None:
    image = ImageReader(me=None, defaults=TopicConfig()).read_all({})
    assert (image.controller, image.controller_revision) == (NO_CONTROLLER, 0)
    assert not image.registry


def test_changed_defaults_are_those_of_the_topics_that_do_not_set_them() -> None:
    cluster = world()
    cluster.create("trips", partitions=1, factor=1, overrides={"retention.ms": "9"})
    reader = ImageReader(me=TWO, defaults=TopicConfig(retention_ms=1))
    me = BrokerEndpoint(id=TWO, host="h", port=1)
    empty = ClusterImage(cluster_id="", brokers={TWO: me}, controller=TWO)
    image = reader.read(cluster.values, frozenset(cluster.values), empty, revision=1)

    def after(name: str, overrides: dict[str, str]) -> ClusterImage:
        cluster.put(keys.broker_config_key(name), keys.encode_overrides(overrides))
        changed = frozenset([keys.broker_config_key(name)])
        return reader.read(cluster.values, changed, image, revision=2)

    changed = after("", {"log.retention.ms": "2"})
    assert {name: one.config.retention_ms for name, one in changed.topics.items()} == {
        "rides": 2,
        "fares": 2,
        "trips": 9,
    }
    assert reader.defaults.retention_ms == 2
    # A topic that is not concerned is the same object: its partitions are left alone.
    assert changed.topics["trips"] is image.topics["trips"]
    assert changed.topics_by_id[changed.topics["rides"].id] is changed.topics["rides"]
    image = changed
    # Another broker's own do not matter.
    assert after("1", {"log.retention.ms": "3"}).topics["rides"] is image.topics["rides"]
    assert after("2", {"log.retention.ms": "3"}).topics["rides"].config.retention_ms == 3


def test_a_topic_and_a_default_that_change_at_once_are_both_read() -> None:
    cluster = world()
    reader = ImageReader(me=None, defaults=TopicConfig())
    image = reader.read_all(cluster.values)
    before = frozenset(cluster.values)
    cluster.create("later", partitions=1, factor=1, overrides={})
    cluster.put(keys.broker_config_key(""), keys.encode_overrides({"log.roll.hours": "1"}))
    changed = frozenset(cluster.values) - before
    image = reader.read(cluster.values, changed, image, revision=3)
    assert {one.config.segment_ms for one in image.topics.values()} == {3_600_000}


def test_a_change_of_one_group_leaves_the_others_alone() -> None:
    cluster = world()
    reader = ImageReader(me=None, defaults=TopicConfig())
    before = reader.read_all(cluster.values)
    changed = keys.group_config_key("riders")
    cluster.put(changed, keys.encode_overrides({SESSION: "45000"}))
    after = reader.read(cluster.values, frozenset([changed]), before, revision=1)
    assert after.group_configs["riders"].consumer_session_timeout_ms == 45_000
    # Not read again: with many groups, that would take long at every change.
    assert after.group_configs["drivers"] is before.group_configs["drivers"]
