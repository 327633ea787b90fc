"""AlterPartitionReassignments and ListPartitionReassignments, in every version."""

from dataclasses import replace
from typing import Any

import pytest

from broker.running_broker import RunningBroker
from broker.wire_client import versions
from respool.cluster import keys
from respool.model.ids import BrokerId
from respool.wire.api_table import Api

VERSIONS = versions(Api.ALTER_PARTITION_REASSIGNMENTS)
UNKNOWN_TOPIC = 3
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_REQUEST = 42
NO_REASSIGNMENT_IN_PROGRESS = 85

every_version = pytest.mark.parametrize("version", VERSIONS)


def alter(
    broker: RunningBroker,
    version: int,
    *wishes: tuple[str, int, Any],
    allow_replication_factor_change: bool = True,
) -> Any:
    return broker.ask(
        Api.ALTER_PARTITION_REASSIGNMENTS,
        version,
        timeout=1000,
        allow_replication_factor_change=allow_replication_factor_change,
        topics=[
            {"name": topic, "partitions": [{"partition_index": number, "replicas": replicas}]}
            for topic, number, replicas in wishes
        ],
    )


def listed(broker: RunningBroker, topics: Any = None) -> dict[tuple[str, int], Any]:
    reply = broker.ask(Api.LIST_PARTITION_REASSIGNMENTS, 0, timeout=1000, topics=topics)
    assert (reply.error_code, reply.error_message) == (0, None)
    return {
        (topic.name, one.partition_index): (
            one.replicas,
            one.adding_replicas,
            one.removing_replicas,
        )
        for topic in reply.topics
        for one in topic.partitions
    }


@every_version
def test_each_partition_is_answered_on_its_own(running_broker: RunningBroker, version: int) -> None:
    running_broker.create_topic("rides", partitions=4)
    before = running_broker.broker.image.topics["rides"]

    reply = alter(
        running_broker,
        version,
        # There it is already.
        ("rides", 0, (1,)),
        ("rides", 1, (2,)),
        ("rides", 2, None),
        ("rides", 3, (1, 1)),
        ("rides", 9, (1,)),
        ("nobody", 0, (1,)),
    )

    assert (reply.error_code, reply.error_message) == (0, None)
    assert {
        (topic.name, one.partition_index): one.error_code
        for topic in reply.responses
        for one in topic.partitions
    } == {
        ("rides", 0): 0,
        ("rides", 1): INVALID_REPLICA_ASSIGNMENT,
        ("rides", 2): NO_REASSIGNMENT_IN_PROGRESS,
        ("rides", 3): INVALID_REPLICA_ASSIGNMENT,
        ("rides", 9): UNKNOWN_TOPIC,
        ("nobody", 0): UNKNOWN_TOPIC,
    }
    assert running_broker.broker.image.topics["rides"] == before
    assert getattr(reply, "allow_replication_factor_change", True)


@every_version
def test_a_partition_named_twice_is_not_moved(running_broker: RunningBroker, version: int) -> None:
    running_broker.create_topic("rides")
    reply = alter(running_broker, version, ("rides", 0, (1,)), ("rides", 0, None))
    ((answer,),) = [topic.partitions for topic in reply.responses]
    assert answer.error_code == INVALID_REQUEST


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_the_number_of_replicas_may_be_kept(running_broker: RunningBroker, version: int) -> None:
    running_broker.create_topic("rides")
    put_on(running_broker, 1, 2)
    reply = alter(
        running_broker, version, ("rides", 0, (1,)), allow_replication_factor_change=False
    )
    assert not reply.allow_replication_factor_change
    assert reply.responses[0].partitions[0].error_code == INVALID_REPLICATION_FACTOR


def put_on(
    broker: RunningBroker, *replicas: int, adding: tuple[int, ...] = (), number: int = 0
) -> None:
    """As another broker would write it."""
    topic = broker.broker.image.topics["rides"]
    image = replace(
        topic.partitions[number],
        replicas=tuple(map(BrokerId, replicas)),
        adding=tuple(map(BrokerId, adding)),
    )

    async def write() -> None:
        key = keys.partition_key(topic.id, number)
        await broker.store.transact(puts={key: keys.encode_partition(image)})
        await broker.broker.catalog.read_view()

    broker.run(write())


def test_only_partitions_on_their_way_are_listed(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides", partitions=3)
    assert listed(running_broker) == {}

    put_on(running_broker, 1, 2, adding=(2,), number=2)

    moving = {("rides", 2): ((1, 2), (2,), ())}
    assert listed(running_broker) == moving
    assert listed(running_broker, [{"name": "rides", "partition_indexes": (0, 2, 8)}]) == moving
    assert listed(running_broker, [{"name": "rides", "partition_indexes": (0, 1)}]) == {}
    assert listed(running_broker, [{"name": "nobody", "partition_indexes": (0,)}]) == {}
    assert listed(running_broker, []) == {}


@every_version
def test_a_move_can_be_cancelled(running_broker: RunningBroker, version: int) -> None:
    running_broker.create_topic("rides")
    put_on(running_broker, 1, 2, adding=(2,))
    reply = alter(running_broker, version, ("rides", 0, None))
    assert reply.responses[0].partitions[0].error_code == 0
    assert listed(running_broker) == {}
