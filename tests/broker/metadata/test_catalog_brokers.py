"""Which brokers there are, and who controls them, as the metadata store says."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from broker.running_broker import RunningBroker, StartBroker
from respool.cluster import keys
from respool.model.cluster import BrokerEndpoint, RegistryEntry
from respool.model.errors import InvalidConfig
from respool.model.ids import BrokerId
from respool.wire.api_table import Api

ME, OTHER, GONE = BrokerId(1), BrokerId(2), BrokerId(3)
LEADER_NOT_AVAILABLE = 5


def hear(
    broker: RunningBroker, puts: dict[str, bytes] | None = None, deletes: tuple[str, ...] = ()
) -> None:
    async def write() -> None:
        await broker.store.transact(puts=puts or {}, deletes=deletes)
        await broker.broker.catalog._feed.load()

    broker.run(write())


def registered(broker: BrokerId, *, is_draining: bool = False) -> dict[str, bytes]:
    endpoint = BrokerEndpoint(
        id=broker, host=f"host-{broker}", port=9092, rack="a", is_draining=is_draining
    )
    registration = keys.BrokerRegistration(endpoint=endpoint, incarnation=UUID(int=broker))
    return {keys.broker_key(broker): keys.encode_broker(registration)}


def test_a_broker_alone_knows_itself(running_broker: RunningBroker) -> None:
    image = running_broker.broker.image
    assert list(image.brokers) == [ME]
    assert image.controller == ME


def test_others_come_and_go_with_their_registrations(running_broker: RunningBroker) -> None:
    hear(running_broker, registered(OTHER))
    image = running_broker.broker.image
    assert {one: image.brokers[one].host for one in image.brokers} == {
        ME: image.brokers[ME].host,
        OTHER: "host-2",
    }
    # The broker epoch is the revision of its registration.
    assert image.brokers[OTHER].epoch == image.revision

    hear(running_broker, deletes=(keys.broker_key(OTHER),))

    assert list(running_broker.broker.image.brokers) == [ME]


def test_clients_are_told_of_all_brokers_and_of_the_controller(
    running_broker: RunningBroker,
) -> None:
    hear(running_broker, {**registered(OTHER), keys.CONTROLLER: keys.encode_controller(OTHER)})

    told = running_broker.ask(
        Api.METADATA,
        12,
        topics=[],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )

    assert {one.node_id for one in told.brokers} == {ME, OTHER}
    assert told.controller_id == OTHER


def test_a_registration_that_changes_keeps_its_epoch(running_broker: RunningBroker) -> None:
    hear(running_broker, registered(OTHER))
    epoch = running_broker.broker.image.brokers[OTHER].epoch
    endpoint = BrokerEndpoint(id=OTHER, host="host-2", port=9092, epoch=epoch, is_draining=True)
    registration = keys.BrokerRegistration(endpoint=endpoint, incarnation=UUID(int=2))
    hear(running_broker, {keys.broker_key(OTHER): keys.encode_broker(registration)})

    other = running_broker.broker.image.brokers[OTHER]
    assert (other.epoch, other.is_draining) == (epoch, True)


def change_partition(broker: RunningBroker, number: int, **fields: Any) -> None:
    topic = broker.broker.image.topics["rides"]
    changed = replace(topic.partitions[number], **fields)
    hear(broker, {keys.partition_key(topic.id, number): keys.encode_partition(changed)})


def told_partitions(broker: RunningBroker) -> list[Any]:
    told = broker.ask(
        Api.METADATA,
        12,
        topics=[{"name": "rides", "topic_id": None}],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return list(told.topics[0].partitions)


def test_partitions_are_told_with_who_leads_them_and_which_replicas_are_away(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("rides", partitions=3)
    hear(running_broker, registered(OTHER))
    change_partition(running_broker, 0, replicas=(ME, OTHER), isr=(ME, OTHER), leader=OTHER)
    change_partition(running_broker, 1, replicas=(ME, GONE), isr=(ME,))
    change_partition(
        running_broker,
        2,
        replicas=(OTHER, GONE),
        isr=(),
        leader=None,
        elr=(GONE,),
        last_leader=GONE,
    )

    led, degraded, lost = told_partitions(running_broker)

    assert (led.error_code, led.leader_id, led.offline_replicas) == (0, OTHER, ())
    assert (degraded.error_code, degraded.leader_id, degraded.offline_replicas) == (0, ME, (GONE,))
    assert (lost.error_code, lost.leader_id) == (LEADER_NOT_AVAILABLE, -1)
    assert (lost.replica_nodes, lost.isr_nodes, lost.offline_replicas) == (
        (OTHER, GONE),
        (),
        (GONE,),
    )

    hear(running_broker, deletes=(keys.broker_key(OTHER),))
    led, _, _ = told_partitions(running_broker)
    assert (led.error_code, led.leader_id) == (LEADER_NOT_AVAILABLE, -1)
    assert led.offline_replicas == (OTHER,)


def test_who_could_lead_next_is_described(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides", partitions=2)
    change_partition(running_broker, 0, replicas=(ME, OTHER), elr=(OTHER,))
    change_partition(running_broker, 1, isr=(), leader=None, last_leader=ME)
    reply = running_broker.ask(
        Api.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": "rides"}],
        response_partition_limit=10,
        cursor=None,
    )
    first, second = reply.topics[0].partitions
    assert (first.eligible_leader_replicas, first.last_known_elr) == ((OTHER,), ())
    assert (second.eligible_leader_replicas, second.last_known_elr) == ((), (ME,))


def described(broker: RunningBroker, *, fenced: bool) -> Any:
    return broker.ask(
        Api.DESCRIBE_CLUSTER,
        2,
        include_cluster_authorized_operations=False,
        endpoint_type=1,
        include_fenced_brokers=fenced,
    )


def test_brokers_that_are_away_are_described_to_who_asks_for_them(
    running_broker: RunningBroker,
) -> None:
    entries = {
        OTHER: RegistryEntry(rack="a"),
        GONE: RegistryEntry(rack="b"),
        BrokerId(4): RegistryEntry(is_removed=True),
    }
    hear(
        running_broker,
        {
            **registered(OTHER),
            keys.CONTROLLER: keys.encode_controller(OTHER),
            **{keys.registry_key(one): keys.encode_registry(it) for one, it in entries.items()},
        },
    )

    reply = described(running_broker, fenced=True)

    assert reply.controller_id == OTHER
    assert [(one.broker_id, one.rack, one.is_fenced) for one in reply.brokers] == [
        (ME, None, False),
        (OTHER, "a", False),
        (GONE, "b", True),
    ]
    assert [one.broker_id for one in described(running_broker, fenced=False).brokers] == [ME, OTHER]


def test_settings_that_only_a_newer_version_understands_are_passed_over(
    running_broker: RunningBroker,
) -> None:
    rate = "leader.replication.throttled.rate"
    theirs = {rate: "fast", "some.new.rate": "5", "respool.copy.bytes.per.s.max": "7"}
    hear(running_broker, {keys.broker_config_key("1"): keys.encode_overrides(theirs)})
    catalog = running_broker.broker.catalog
    assert catalog.image.broker_overrides == {"1": {"respool.copy.bytes.per.s.max": "7"}}
    assert catalog.broker_config().respool_copy_bytes_per_s_max == 7


def test_a_topics_settings_that_only_a_newer_version_understands_are_passed_over(
    running_broker: RunningBroker,
) -> None:
    """Else one broker that is upgraded could stop all the others."""
    running_broker.create_topic("rides", retention_ms="1000")
    topic = running_broker.broker.image.topics["rides"]
    theirs = {"retention.ms": "2000", "some.new": "x", "segment.bytes": "endless"}
    record = keys.TopicRecord(id=topic.id, overrides=theirs, partition_count=1)
    hear(running_broker, {keys.topic_key("rides"): keys.encode_topic(record)})
    seen = running_broker.broker.image.topics["rides"]
    assert seen.overrides == theirs
    assert seen.config.retention_ms == 2000
    assert seen.config.segment_bytes == topic.config.segment_bytes


def test_a_topic_with_settings_of_a_newer_version_can_be_changed(
    running_broker: RunningBroker,
) -> None:
    """Tools that take a throttle away must not fail at brokers that are not upgraded yet."""
    running_broker.create_topic("rides")
    topic = running_broker.broker.image.topics["rides"]
    theirs = {"retention.ms": "2000", "some.new": "x", "segment.bytes": "endless"}
    record = keys.TopicRecord(id=topic.id, overrides=theirs, partition_count=1)
    hear(running_broker, {keys.topic_key("rides"): keys.encode_topic(record)})

    def change(**new: str) -> None:
        texts = {name.replace("_", "."): text for name, text in new.items()}
        topics = running_broker.broker.topics
        running_broker.run(topics.change_overrides("rides", lambda one: {**one.overrides, **texts}))

    change(retention_ms="3000")
    wanted = {"some.new": "x", "segment.bytes": "endless", "retention.ms": "3000"}
    assert running_broker.broker.image.topics["rides"].overrides == wanted
    for foreign in ({"some_new": "y"}, {"other_new": "x"}, {"segment_bytes": "none"}):
        with pytest.raises(InvalidConfig):
            change(**foreign)
    assert running_broker.broker.image.topics["rides"].overrides == wanted


def test_a_compacted_topic_whose_settings_do_not_go_with_the_brokers_loses_nothing(
    start_broker: StartBroker,
) -> None:
    """1. A topic is compacted, after a day.   2. Brokers are started that compact after an hour at the latest.

    Once the topic had all of the brokers' settings then, and its records were deleted by age.
    """
    broker = start_broker(topic={"max.compaction.lag.ms": "3600000", "retention.ms": "1000"})
    broker.create_topic("rides", cleanup_policy="compact", segment_ms="1")
    topic = broker.broker.image.topics["rides"]
    theirs = {**topic.overrides, "min.compaction.lag.ms": "86400000", "min.insync.replicas": "2"}
    record = keys.TopicRecord(id=topic.id, overrides=theirs, partition_count=1)
    hear(broker, {keys.topic_key("rides"): keys.encode_topic(record)})
    broker.restart(crash=True)
    config = broker.broker.partitions.find("rides", 0).config
    assert (config.is_compacted, config.has_retention) == (True, False)
    assert config.min_insync_replicas == 2


def test_a_limit_in_the_settings_file_holds_until_another_is_set(start_broker: StartBroker) -> None:
    broker = start_broker(etcd="http://127.0.0.1:2379", copy_bytes_per_s_max=9)
    config = broker.broker.catalog.broker_config
    assert config().respool_copy_bytes_per_s_max == 9
    broker.set_for_broker("", {"respool.copy.bytes.per.s.max": "0"})
    assert config().respool_copy_bytes_per_s_max == 0
