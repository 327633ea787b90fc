"""OffsetDelete."""

from typing import Any

import pytest

from broker.group_client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    begin_to_load,
    commit,
    committed,
    restart,
    settled,
    start_with_groups,
)
from broker.running_broker import RunningBroker, StartBroker
from respool.wire.api_table import Api

UNKNOWN_TOPIC = 3
VERSION = 0
# A consumer's subscription: version 0, one topic, no user data.
READS_RIDES = b"\0\0\0\0\0\1\0\5rides\xff\xff\xff\xff"


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_groups(start_broker)
    broker.create_topic("rides", partitions=2)
    broker.create_topic("fares")
    return broker


def ask(broker: RunningBroker, group_id: str, *places: tuple[str, int]) -> Any:
    topics = [
        {"name": topic, "partitions": [{"partition_index": number}]} for topic, number in places
    ]
    return broker.ask(Api.OFFSET_DELETE, VERSION, group_id=group_id, topics=topics)


def codes(reply: Any) -> list[int]:
    assert reply.error_code == 0
    return [one.error_code for topic in reply.topics for one in topic.partitions]


@pytest.mark.parametrize("crash", [False, True])
def test_offsets_deleted_stay_deleted(broker: RunningBroker, crash: bool) -> None:
    commit(broker, "drivers", ("rides", 0, 1), ("rides", 1, 2), ("fares", 0, 3))

    assert codes(ask(broker, "drivers", ("rides", 1), ("fares", 0))) == [0, 0]

    restart(broker, crash=crash)
    assert committed(broker, "drivers") == {("rides", 0): 1}


def test_topics_that_are_not_there_are_told_each(broker: RunningBroker) -> None:
    commit(broker, "drivers", ("rides", 0, 1), ("fares", 0, 3))

    reply = ask(broker, "drivers", ("nowhere", 0), ("rides", 0), ("never", 0), ("fares", 0))

    assert codes(reply) == [UNKNOWN_TOPIC, 0, UNKNOWN_TOPIC, 0]
    assert codes(ask(broker, "drivers", ("nowhere", 0))) == [UNKNOWN_TOPIC]


def test_offsets_of_a_topic_that_members_read_stay(broker: RunningBroker) -> None:
    (member,) = settled(broker, "drivers", 1, topics=READS_RIDES)
    member.commit(("rides", 0, 1), ("fares", 0, 2))

    reply = ask(broker, "drivers", ("rides", 0), ("fares", 0))

    assert codes(reply) == [GROUP_SUBSCRIBED_TO_TOPIC, 0]
    assert committed(broker, "drivers") == {("rides", 0): 1}


def test_a_group_nobody_knows_is_the_replys_own_error(broker: RunningBroker) -> None:
    reply = ask(broker, "nobody", ("rides", 0))

    assert reply.error_code == GROUP_ID_NOT_FOUND
    assert not reply.topics


def test_while_the_groups_are_loaded_clients_are_told_to_ask_again(broker: RunningBroker) -> None:
    begin_to_load(broker)

    assert ask(broker, "drivers", ("rides", 0)).error_code == COORDINATOR_LOAD_IN_PROGRESS
