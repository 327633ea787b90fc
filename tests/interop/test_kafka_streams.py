"""Kafka Streams processes exactly once, while it and brokers are killed. `make interop-kafka` runs it."""

import os
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Producer

from support.broker_cluster import BrokerCluster
from support.committed_reader import CommittedReader
from support.java_process import JavaProcess
from support.kafka_tools import KafkaTools
from support.topics import Topics

pytestmark = [
    pytest.mark.skipif(
        "KAFKA_INTEROP" not in os.environ, reason="needs Java and Maven Central: make interop-kafka"
    ),
    pytest.mark.timeout(600),
]

PARTITIONS = 3
KEYS = 100
MESSAGES = 3_000
WAIT_S = 120.0


class Rides:
    """Writes them by Kafka's own choice of partitions, which Kafka Streams shares."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        self.written = 0

    def write(self) -> None:
        for number in range(self.written, self.written + MESSAGES):
            self._producer.produce("rides", f"ride {number}", key=f"key-{number % KEYS}")
        assert self._producer.flush(60) == 0
        self.written += MESSAGES


def test_streams_counts_exactly_once_while_it_and_brokers_are_killed(
    cluster: BrokerCluster, tools: KafkaTools, tmp_path: Path
) -> None:
    topics = Topics(cluster.bootstrap)
    names = ("rides", "capitals", "counts")
    for name in names:
        topics.create(name, partitions=PARTITIONS, replicas=3)
        cluster.wait_until_known(name)
    rides = Rides(cluster.bootstrap)
    app = JavaProcess(
        tmp_path, "ride-counter", "RideCounter.java", cluster.bootstrap, str(tmp_path / "state")
    )
    with app, CommittedReader(cluster.bootstrap, names, partitions=PARTITIONS) as reader:

        def read_until(count: int) -> None:
            reader.read_until("capitals", count, seconds=WAIT_S)

        # Killed in the middle of its work, three times.
        for _ in range(3):
            rides.write()
            read_until(rides.written - MESSAGES * 3 // 4)
            app.restart()
        # A broker: there is no moment at which none is in the way.
        for number in (1, 2):
            rides.write()
            read_until(rides.written - MESSAGES * 3 // 4)
            cluster.brokers[number].kill()
            rides.write()
            read_until(rides.written - MESSAGES // 2)
            cluster.brokers[number].start()
        # Both, at one moment.
        cluster.wait_until_well()
        rides.write()
        read_until(rides.written - MESSAGES * 3 // 4)
        cluster.brokers[3].kill()
        app.restart()
        cluster.brokers[3].start()
        for name in names:
            reader.read_until(name, rides.written, seconds=WAIT_S)
        cluster.wait_until_well()
        assert app.is_running

    for number in range(PARTITIONS):
        written = [one.upper() for one in reader.values("rides", number)]
        assert reader.values("capitals", number) == written
    counts: dict[bytes, list[int]] = defaultdict(list)
    for number in range(PARTITIONS):
        for one in reader.messages["counts", number]:
            counts[bytes(one.key() or b"")].append(int.from_bytes(one.value() or b""))
    want = Counter(f"key-{number % KEYS}".encode() for number in range(rides.written))
    assert counts == {key: list(range(1, count + 1)) for key, count in want.items()}

    # What it had for itself goes, too: its offsets back to the start, and the store's topic.
    reset = ("--application-id", "ride-counter", "--input-topics", "rides", "--force")
    printed = tools("kafka-streams-application-reset", *reset)
    assert "Deleting inferred internal topics [ride-counter-" in printed
    listed = tools("kafka-topics", "--list").split()
    assert not [one for one in listed if one.startswith("ride-counter-")]
