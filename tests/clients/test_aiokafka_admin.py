"""aiokafka's admin client, which speaks the oldest versions of all: every call that a single node can serve."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidPartitionsError, KafkaConnectionError

from respool.testing import Broker
from support.aiokafka_client import AiokafkaClient
from support.message import Message
from support.quick_broker import quick_broker
from support.topics import Topics

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("aiokafka-admin")]

UNKNOWN_TOPIC = 3
ALREADY_EXISTS = 36


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with quick_broker() as running:
        yield running


@pytest.fixture(scope="module")
def topics(broker: Broker) -> Topics:
    return Topics(broker.bootstrap)


@asynccontextmanager
async def admin_of(broker: Broker) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


def ask(broker: Broker, call: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with admin_of(broker) as admin:
            return await call(admin)

    return asyncio.run(run())


def settings_of(broker: Broker, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    (reply,) = ask(broker, lambda admin: admin.describe_configs([resource]))
    (described,) = reply.resources
    return {entry[0]: entry[1] for entry in described[4]}


def test_topics_are_created_listed_described_and_deleted(broker: Broker) -> None:
    wish = NewTopic("made", 2, 1, topic_configs={"retention.ms": "5000"})
    created = ask(broker, lambda admin: admin.create_topics([wish]))
    assert [(name, code) for name, code, _ in created.topic_errors] == [("made", 0)]
    again = ask(broker, lambda admin: admin.create_topics([wish]))
    assert again.topic_errors[0][1] == ALREADY_EXISTS
    assert "made" in ask(broker, lambda admin: admin.list_topics())

    (described,) = ask(broker, lambda admin: admin.describe_topics(["made"]))
    assert [one["leader"] for one in described["partitions"]] == [1, 1]

    deleted = ask(broker, lambda admin: admin.delete_topics(["made"]))
    assert deleted.topic_error_codes == [("made", 0)]
    gone = ask(broker, lambda admin: admin.delete_topics(["made"]))
    assert gone.topic_error_codes == [("made", UNKNOWN_TOPIC)]


def test_the_cluster_is_this_node(broker: Broker) -> None:
    cluster = ask(broker, lambda admin: admin.describe_cluster())
    assert cluster["controller_id"] == 1
    assert [(one["host"], one["port"]) for one in cluster["brokers"]] == [
        (broker.host, broker.port)
    ]


def test_settings_are_described_and_altered(broker: Broker, topics: Topics) -> None:
    topic = topics.new("tuned", segment_bytes=9000)
    assert settings_of(broker, topic)["segment.bytes"] == "9000"
    change = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "5000"})
    ask(broker, lambda admin: admin.alter_configs([change]))
    settings = settings_of(broker, topic)
    assert (settings["retention.ms"], settings["segment.bytes"]) == ("5000", "1073741824")


def test_partitions_can_be_added_and_not_taken_away(broker: Broker, topics: Topics) -> None:
    topic = topics.new("growing")
    more = ask(broker, lambda admin: admin.create_partitions({topic: NewPartitions(3)}))
    assert more.topic_errors == [(topic, 0, None)]
    with pytest.raises(InvalidPartitionsError):
        ask(broker, lambda admin: admin.create_partitions({topic: NewPartitions(2)}))


def test_deleted_records_move_the_start(broker: Broker, topics: Topics) -> None:
    topic = topics.new("shortened")
    messages = [Message(value=b"%d" % number) for number in range(10)]
    AiokafkaClient().write(broker.bootstrap, (topic, 0), messages)
    place = TopicPartition(topic, 0)
    wish = {place: RecordsToDelete(before_offset=4)}
    assert ask(broker, lambda admin: admin.delete_records(wish)) == {place: 4}
    received = AiokafkaClient().read(broker.bootstrap, [(topic, 0)])[topic, 0]
    assert [one.offset for one in received] == list(range(4, 10))


def test_a_login_where_none_is_possible_fails_at_once(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async def log_in() -> None:
        admin = AIOKafkaAdminClient(
            bootstrap_servers=broker.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="alice",
            sasl_plain_password="secret",
        )
        try:
            await admin.start()
        finally:
            await admin.close()

    with pytest.raises(KafkaConnectionError):
        asyncio.run(log_in())
    assert "IllegalSaslStateError" in caplog.text
