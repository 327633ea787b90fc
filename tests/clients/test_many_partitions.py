"""A topic of thousands of partitions in one request, with each client's own timeouts: made, written to, and deleted."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as KafkaPythonTopic

from support.broker_process import BrokerProcess
from support.confluent_client import ConfluentClient
from support.message import Message
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [
    pytest.mark.clients,
    pytest.mark.long,
    pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz"),
    pytest.mark.timeout(900),
]
PARTITIONS = 5_000


def respool(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "respool.cli", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def create_by_confluent(address: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result()


def delete_by_confluent(address: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.delete_topics([topic])[topic].result()


def create_by_kafka_python(address: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics([KafkaPythonTopic(topic, PARTITIONS, 1)])
    admin.close()


def delete_by_kafka_python(address: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.delete_topics([topic])
    admin.close()


def create_by_command(address: str, topic: str) -> None:
    respool("topic", "create", topic, "--partitions", str(PARTITIONS), "--broker", address)


def delete_by_command(address: str, topic: str) -> None:
    respool("topic", "delete", topic, "--yes", "--broker", address)


@pytest.mark.parametrize(
    ("create", "delete"),
    [
        (create_by_confluent, delete_by_confluent),
        (create_by_kafka_python, delete_by_kafka_python),
        (create_by_command, delete_by_command),
    ],
    ids=["confluent", "kafka-python", "respool"],
)
def test_five_thousand_partitions_are_made_used_and_deleted_in_a_clients_usual_time(
    broker: BrokerProcess,
    create: Callable[[str, str], None],
    delete: Callable[[str, str], None],
) -> None:
    """They timed out, and what had been asked for came later."""
    topic = create.__name__
    create(broker.address, topic)
    last = (topic, PARTITIONS - 1)
    ConfluentClient().write(broker.address, last, [Message(value=b"at the end")])
    (messages,) = ConfluentClient().read(broker.address, [last]).values()
    assert [one.value for one in messages] == [b"at the end"]
    delete(broker.address, topic)
    admin = Topics(broker.address).admin
    wait_until(lambda: topic not in admin.list_topics(timeout=60).topics, "it is gone")
