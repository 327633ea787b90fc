"""MirrorMaker 2 from one broker to another: topics, their settings, and groups. `make interop-kafka` runs it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import ConfigResource, ResourceType

from support.broker_process import BrokerProcess
from support.committed_reader import CommittedReader
from support.java_process import JavaProcess
from support.ports import reserve_port
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(
        "KAFKA_INTEROP" not in os.environ, reason="needs Java and Maven Central: make interop-kafka"
    ),
    pytest.mark.timeout(600),
]

PARTITIONS = 3
MESSAGES = 6_000
WAIT_S = 120.0
# One that is killed is missed soon, and whoever is there has its tasks at once.
WORKER = (
    ("session.timeout.ms", 6_000),
    ("heartbeat.interval.ms", 500),
    ("scheduled.rebalance.max.delay.ms", 0),
    # What it has left open holds up the next one: it reads its own topics to their end first.
    ("producer.transaction.timeout.ms", 10_000),
    ("plugin.discovery", "service_load"),
)
QUICK_GROUPS = {"group_initial_rebalance_delay_ms": 100}
RIDES, MIRRORED = "rides", "here.rides"


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    with (
        BrokerProcess(tmp_path / "here", QUICK_GROUPS) as here,
        BrokerProcess(tmp_path / "there", QUICK_GROUPS) as there,
    ):
        yield here, there


def mirror_maker(folder: Path, here: BrokerProcess, there: BrokerProcess) -> JavaProcess:
    factors = {
        f"{name}.replication.factor": 1
        for name in (
            *("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic"),
            *("config.storage", "offset.storage", "status.storage"),
        )
    }
    intervals = {
        f"{name}.interval.seconds": 1
        for name in (
            *("refresh.topics", "refresh.groups", "sync.topic.configs"),
            *("emit.checkpoints", "sync.group.offsets"),
        )
    }
    settings = {
        "clusters": "here, there",
        "here.bootstrap.servers": here.address,
        "there.bootstrap.servers": there.address,
        "here->there.enabled": "true",
        "there->here.enabled": "false",
        "here->there.topics": f"{RIDES}.*",
        "here->there.sync.group.offsets.enabled": "true",
        "here->there.offset.lag.max": 0,
        # A killed one goes on exactly where it was.
        "there.exactly.once.source.support": "enabled",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://127.0.0.1:{reserve_port()}",
        "plugin.discovery": "service_load",
        "replication.factor": 1,
        "tasks.max": 2,
        **factors,
        **intervals,
        **{f"{name}.{setting}": value for name in ("here", "there") for setting, value in WORKER},
    }
    file = folder / "mirror-maker.properties"
    file.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
    program = "org.apache.kafka.connect.mirror.MirrorMaker"
    return JavaProcess(folder, "mirror-maker", program, str(file))


def write(broker: BrokerProcess, first: int) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
    for number in range(first, first + MESSAGES):
        producer.produce(
            RIDES, b"%d" % number, key=b"%d" % (number % 97), partition=number % PARTITIONS
        )
    assert producer.flush(60) == 0


def commit(broker: BrokerProcess, group: str, offset: int) -> None:
    partitions = [TopicPartition(RIDES, number, offset) for number in range(PARTITIONS)]
    request = ConsumerGroupTopicPartitions(group, partitions)
    admin = Topics(broker.address).admin
    admin.alter_consumer_group_offsets([request])[group].result(30)


def committed(broker: BrokerProcess, group: str) -> dict[int, int]:
    """By partition of the mirrored topic."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group})
    try:
        wanted = [TopicPartition(MIRRORED, number) for number in range(PARTITIONS)]
        found = consumer.committed(wanted, timeout=30)
        return {int(one.partition): int(one.offset) for one in found if one.offset >= 0}
    finally:
        consumer.close()


def unread(reader: CommittedReader, offsets: dict[int, int]) -> list[int]:
    """How many messages each partition's mirror has from there on."""
    return [
        sum(int(one.offset() or 0) >= offsets[number] for one in reader.messages[MIRRORED, number])
        for number in range(PARTITIONS)
    ]


def settings_of(broker: BrokerProcess, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = Topics(broker.address).admin
    try:
        found = admin.describe_configs([resource])[resource].result(30)
    except KafkaException:
        return {}
    return {name: str(entry.value) for name, entry in found.items()}


def test_topics_settings_and_groups_are_mirrored_exactly_while_it_is_killed(
    brokers: tuple[BrokerProcess, BrokerProcess], tmp_path: Path
) -> None:
    here, there = brokers
    source = Topics(here.address)
    source.create(RIDES, partitions=PARTITIONS, retention_ms=1234567, max_message_bytes=2222222)
    source.create("other", partitions=1)
    write(here, 0)
    half = MESSAGES // PARTITIONS // 2
    commit(here, "pricing", half)
    target = Topics(there.address)
    with mirror_maker(tmp_path, here, there) as mirror:
        wait_until(
            lambda: MIRRORED in target.admin.list_topics(timeout=30).topics,
            "the topic is there, too",
            seconds=WAIT_S,
        )
        with (
            CommittedReader(there.address, [MIRRORED], partitions=PARTITIONS) as reader,
            CommittedReader(here.address, [RIDES], partitions=PARTITIONS) as original,
        ):
            reader.read_until(MIRRORED, MESSAGES // 4, seconds=WAIT_S)
            mirror.restart()
            reader.read_until(MIRRORED, MESSAGES, seconds=WAIT_S)
            write(here, MESSAGES)
            mirror.restart()
            reader.read_until(MIRRORED, 2 * MESSAGES, seconds=WAIT_S)
            original.read_until(RIDES, 2 * MESSAGES, seconds=WAIT_S)
            for number in range(PARTITIONS):
                assert reader.values(MIRRORED, number) == original.values(RIDES, number)
            commit(here, "billing", 2 * MESSAGES // PARTITIONS)

            wait_until(
                lambda: len(committed(there, "billing")) == PARTITIONS,
                "who has read all here has there, too",
                seconds=WAIT_S,
            )
            assert unread(reader, committed(there, "billing")) == [0] * PARTITIONS
            # From the middle it goes on at one before: not each offset is kept with its translation. None is left out.
            wait_until(
                lambda: len(committed(there, "pricing")) == PARTITIONS,
                "who has read half goes on there",
                seconds=WAIT_S,
            )
            rest = 2 * MESSAGES // PARTITIONS - half
            assert all(count >= rest for count in unread(reader, committed(there, "pricing")))
        wait_until(
            lambda: settings_of(there, MIRRORED).get("retention.ms") == "1234567",
            "settings are copied",
            seconds=WAIT_S,
        )
        assert settings_of(there, MIRRORED)["max.message.bytes"] == "2222222"
        topics = target.admin.list_topics(timeout=30).topics
        assert len(topics[MIRRORED].partitions) == PARTITIONS
        assert "here.other" not in topics
        assert {"here.checkpoints.internal", "heartbeats"} <= set(topics)
        # A broker without access lists says that it has none, and then nobody asks again.
        assert "UnsupportedVersionException" not in mirror.said
