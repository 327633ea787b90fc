"""What administrators do with groups, with each client: list, describe, delete, move and delete offsets."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import MemberToRemove
from kafka.errors import (
    GroupSubscribedToTopicError,
    NoError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import OffsetAndMetadata

from support.broker_process import BrokerProcess
from support.group_member import GROUP_SETTINGS, GroupMember, wait_until_shared
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("groups admin")]

TIMEOUT_S = 60.0
TEXT = "bis zur Brücke 🦉"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", GROUP_SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def topic(topics: Topics) -> str:
    return topics.new("rides", partitions=2)


@pytest.fixture(scope="module")
def live(broker: BrokerProcess, topic: str) -> Iterator[GroupMember]:
    """The only member of the group "live"."""
    with GroupMember("confluent", broker.address, "live", [topic]) as member:
        wait_until_shared([member], [(topic, 0), (topic, 1)], each=2)
        yield member


@pytest.fixture(scope="module")
def live_next(broker: BrokerProcess, topic: str) -> Iterator[GroupMember]:
    """The only member of the next-generation group "live next"."""
    with GroupMember(
        "confluent", broker.address, "live next", [topic], protocol="consumer"
    ) as member:
        wait_until_shared([member], [(topic, 0), (topic, 1)], each=2)
        yield member


@pytest.fixture(scope="module")
def confluent(topics: Topics) -> AdminClient:
    return topics.admin


@pytest.fixture(scope="module")
def kafka_python(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.address)
    yield client
    client.close()


def ask_aiokafka(
    broker: BrokerProcess, call: Callable[[AIOKafkaAdminClient], Awaitable[Any]]
) -> Any:
    async def run() -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
        await admin.start()
        try:
            return await call(admin)
        finally:
            await admin.close()

    return asyncio.run(run())


def move(confluent: AdminClient, group: str, *places: TopicPartition) -> Any:
    """Alter the group's offsets; librdkafka's word for each partition."""
    wish = ConsumerGroupTopicPartitions(group, list(places))
    (answer,) = confluent.alter_consumer_group_offsets([wish]).values()
    return answer.result(TIMEOUT_S).topic_partitions


def offsets(confluent: AdminClient, group: str) -> dict[tuple[str, int], tuple[int, str]]:
    (answer,) = confluent.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)]
    ).values()
    return {
        (one.topic, one.partition): (one.offset, one.metadata)
        for one in answer.result(TIMEOUT_S).topic_partitions
    }


@pytest.mark.usefixtures("live", "live_next")
def test_groups_are_listed(
    broker: BrokerProcess, confluent: AdminClient, kafka_python: KafkaAdminClient, topic: str
) -> None:
    move(confluent, "asleep", TopicPartition(topic, 0, 1))

    answer = confluent.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
    assert answer.errors == []
    found = {one.group_id: one for one in answer.valid}
    assert found["live"].state is ConsumerGroupState.STABLE
    assert found["live"].type is ConsumerGroupType.CLASSIC
    assert found["live next"].type is ConsumerGroupType.CONSUMER
    assert found["asleep"].state is ConsumerGroupState.EMPTY
    assert found["asleep"].is_simple_consumer_group

    listed = {one["group_id"]: one["group_state"] for one in kafka_python.list_groups()}
    assert listed["live"] == listed["live next"] == "Stable"
    assert listed["asleep"] == "Empty"
    asleep = kafka_python.list_groups(states_filter=["Empty"])
    assert "asleep" in {one["group_id"] for one in asleep}
    assert "live" not in {one["group_id"] for one in asleep}

    names = ask_aiokafka(broker, lambda admin: admin.list_consumer_groups())
    assert {("live", "consumer"), ("live next", "consumer"), ("asleep", "")} <= set(names)


@pytest.mark.usefixtures("live", "live_next")
def test_groups_are_described(
    broker: BrokerProcess, confluent: AdminClient, kafka_python: KafkaAdminClient, topic: str
) -> None:
    answers = confluent.describe_consumer_groups(
        ["live", "nobody", "live next"], include_authorized_operations=True
    )
    found = {group: answer.result(TIMEOUT_S) for group, answer in answers.items()}
    for group, assignor in (("live", "range"), ("live next", "uniform")):
        assert found[group].state is ConsumerGroupState.STABLE
        assert found[group].partition_assignor == assignor
        (member,) = found[group].members
        assert member.host == "/127.0.0.1"
        assert [(one.topic, one.partition) for one in member.assignment.topic_partitions] == [
            (topic, 0),
            (topic, 1),
        ]
    assert found["nobody"].state is ConsumerGroupState.DEAD

    described = kafka_python.describe_groups(["live", "nobody"])
    assert described["live"]["protocol_data"] == "range"
    (one,) = described["live"]["members"]
    assert one["member_metadata"]["topics"] == [topic]
    assert one["member_assignment"]["assigned_partitions"] == [
        {"topic": topic, "partitions": [0, 1]}
    ]
    assert "GroupIdNotFound" in described["nobody"]["error"]

    # One at a time: aiokafka reads version 3 as if it were 2, so it gets lost after the first.
    (reply,) = ask_aiokafka(broker, lambda admin: admin.describe_consumer_groups(["live"]))
    assert reply.groups[0][1:5] == ("live", "Stable", "consumer", "range")


@pytest.mark.usefixtures("live", "live_next")
def test_groups_without_members_are_deleted(
    confluent: AdminClient, kafka_python: KafkaAdminClient, topic: str
) -> None:
    for group in ("over", "over too"):
        move(confluent, group, TopicPartition(topic, 0, 1))

    answers = confluent.delete_consumer_groups(["over", "live", "live next", "nobody"])
    assert answers["over"].result(TIMEOUT_S) is None
    for group, code in (
        ("live", KafkaError.NON_EMPTY_GROUP),
        ("live next", KafkaError.NON_EMPTY_GROUP),
        ("nobody", KafkaError.GROUP_ID_NOT_FOUND),
    ):
        with pytest.raises(KafkaException) as refused:
            answers[group].result(TIMEOUT_S)
        assert refused.value.args[0].code() == code
    assert kafka_python.delete_groups(["over too", "live"]) == {
        "over too": "OK",
        "live": "NonEmptyGroupError",
    }
    assert offsets(confluent, "over") == offsets(confluent, "over too") == {}


def test_offsets_are_moved_listed_and_deleted(
    broker: BrokerProcess, confluent: AdminClient, kafka_python: KafkaAdminClient, topic: str
) -> None:
    moved = move(
        confluent,
        "moved",
        TopicPartition(topic, 0, 5, metadata=TEXT),
        TopicPartition("nowhere", 0, 5),
    )
    assert {(one.topic, one.error and one.error.code()) for one in moved} == {
        (topic, None),
        ("nowhere", KafkaError.UNKNOWN_TOPIC_OR_PART),
    }
    assert offsets(confluent, "moved") == {(topic, 0): (5, TEXT)}

    places = [KafkaPythonPartition(topic, number) for number in (0, 1)]
    nowhere = KafkaPythonPartition("nowhere", 0)
    assert kafka_python.alter_group_offsets(
        "moved", {one: OffsetAndMetadata(7, TEXT, -1) for one in (*places, nowhere)}
    ) == {places[0]: NoError, places[1]: NoError, nowhere: UnknownTopicOrPartitionError}
    found = ask_aiokafka(broker, lambda admin: admin.list_consumer_group_offsets("moved"))
    assert {(one.partition, tuple(value)) for one, value in found.items()} == {
        (0, (7, TEXT)),
        (1, (7, TEXT)),
    }

    assert kafka_python.delete_group_offsets("moved", [places[0], nowhere]) == {
        places[0]: NoError,
        nowhere: UnknownTopicOrPartitionError,
    }
    assert kafka_python.list_group_offsets(["moved", "nobody"]) == {
        "moved": {places[1]: OffsetAndMetadata(7, TEXT, -1)},
        "nobody": {},
    }


@pytest.mark.parametrize("group", ["live", "live next"])
@pytest.mark.usefixtures("live", "live_next")
def test_offsets_of_a_live_group_stay_as_its_members_have_them(
    confluent: AdminClient, kafka_python: KafkaAdminClient, topic: str, group: str
) -> None:
    (moved,) = move(confluent, group, TopicPartition(topic, 0, 5))
    assert moved.error.code() == KafkaError.UNKNOWN_MEMBER_ID
    place = KafkaPythonPartition(topic, 0)
    assert kafka_python.alter_group_offsets(group, {place: OffsetAndMetadata(5, "", -1)}) == {
        place: UnknownMemberIdError
    }
    assert kafka_python.delete_group_offsets(group, [place]) == {place: GroupSubscribedToTopicError}


def test_a_member_that_an_administrator_removes_joins_again(
    broker: BrokerProcess, kafka_python: KafkaAdminClient, topic: str, live: GroupMember
) -> None:
    def member_ids() -> list[str]:
        return [
            one["member_id"] for one in kafka_python.describe_groups(["live"])["live"]["members"]
        ]

    (before,) = member_ids()
    assert kafka_python.remove_group_members("live", [MemberToRemove(member_id=before)]) == {
        before: NoError
    }
    wait_until(lambda: len(member_ids()) == 1 and member_ids() != [before], "it is back")
    wait_until_shared([live], [(topic, 0), (topic, 1)], each=2)


def test_text_committed_with_an_offset_is_the_same_for_every_client(
    broker: BrokerProcess, topic: str
) -> None:
    group = "annotated"
    reader = Consumer({"bootstrap.servers": broker.address, "group.id": group, "log_level": 0})
    other = KafkaConsumer(bootstrap_servers=broker.address, group_id=group)
    place = KafkaPythonPartition(topic, 0)

    def read() -> tuple[tuple[int, str], tuple[int, str]]:
        (ours,) = reader.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
        theirs = other.committed(place, metadata=True)
        # confluent-kafka sends the zero that ends its string along; the broker keeps what it gets.
        return (ours.offset, ours.metadata), (theirs.offset, theirs.metadata.rstrip("\0"))

    async def commit_with_aiokafka() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=broker.address, group_id=group, enable_auto_commit=False
        )
        await consumer.start()
        try:
            consumer.assign([AiokafkaPartition(topic, 0)])
            await consumer.commit({AiokafkaPartition(topic, 0): (3, TEXT + "3")})
            assert await consumer.committed(AiokafkaPartition(topic, 0)) == 3
        finally:
            await consumer.stop()

    try:
        reader.commit(
            offsets=[TopicPartition(topic, 0, 1, metadata=TEXT + "1")], asynchronous=False
        )
        assert read() == ((1, TEXT + "1"), (1, TEXT + "1"))
        other.commit({place: OffsetAndMetadata(2, TEXT + "2", -1)})
        assert read() == ((2, TEXT + "2"), (2, TEXT + "2"))
        asyncio.run(commit_with_aiokafka())
        assert read() == ((3, TEXT + "3"), (3, TEXT + "3"))
    finally:
        reader.close()
        other.close()
