"""DescribeTopicPartitions: page after page, every partition exactly once."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from respool.broker.handlers.topics.describe_topic_partitions import PARTITIONS_MAX
from respool.wire.api_table import Api

UNKNOWN_TOPIC = 3
LEADER_NOT_AVAILABLE = 5
INVALID_TOPIC = 17
INVALID_REQUEST = 42


def ask(
    broker: RunningBroker, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Any:
    return broker.ask(
        Api.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=cursor and {"topic_name": cursor[0], "partition_index": cursor[1]},
    )


def pages(broker: RunningBroker, *names: str, limit: int) -> list[list[tuple[str, list[int]]]]:
    """Follow the cursor to the end; of each page, the topics and their partitions."""
    told = []
    cursor = None
    while True:
        reply = ask(broker, *names, limit=limit, cursor=cursor)
        told.append(
            [(one.name, [part.partition_index for part in one.partitions]) for one in reply.topics]
        )
        if reply.next_cursor is None:
            return told
        cursor = (reply.next_cursor.topic_name, reply.next_cursor.partition_index)


@pytest.fixture
def three_topics(running_broker: RunningBroker) -> RunningBroker:
    running_broker.create_topic("c", partitions=1)
    running_broker.create_topic("a", partitions=3)
    running_broker.create_topic("b", partitions=2)
    return running_broker


def test_all_topics_come_sorted_when_none_is_named(three_topics: RunningBroker) -> None:
    assert pages(three_topics, limit=100) == [[("a", [0, 1, 2]), ("b", [0, 1]), ("c", [0])]]


def test_a_topic_is_told_whole(three_topics: RunningBroker) -> None:
    (told,) = ask(three_topics, "b").topics

    assert (told.error_code, told.is_internal) == (0, False)
    assert told.topic_id == three_topics.broker.image.topics["b"].id
    assert told.topic_authorized_operations == 0b1101_1111_1000
    partition = told.partitions[1]
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 0)
    assert (partition.replica_nodes, partition.isr_nodes) == ((1,), (1,))
    assert (partition.offline_replicas, partition.eligible_leader_replicas) == ((), ())


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1, [[("a", [0])], [("a", [1])], [("a", [2])], [("b", [0])], [("b", [1])], [("c", [0])]]),
        (2, [[("a", [0, 1])], [("a", [2]), ("b", [0])], [("b", [1]), ("c", [0])]]),
        (3, [[("a", [0, 1, 2])], [("b", [0, 1]), ("c", [0])]]),
        (4, [[("a", [0, 1, 2]), ("b", [0])], [("b", [1]), ("c", [0])]]),
        (5, [[("a", [0, 1, 2]), ("b", [0, 1])], [("c", [0])]]),
        (6, [[("a", [0, 1, 2]), ("b", [0, 1]), ("c", [0])]]),
    ],
)
def test_pages_end_at_the_limit_and_go_on_where_they_ended(
    three_topics: RunningBroker, limit: int, expected: list[Any]
) -> None:
    assert pages(three_topics, limit=limit) == expected
    assert pages(three_topics, "c", "b", "a", limit=limit) == expected


@pytest.mark.parametrize("limit", [0, -5])
def test_a_page_has_room_for_one_partition_at_least(
    three_topics: RunningBroker, limit: int
) -> None:
    reply = ask(three_topics, limit=limit)

    assert [len(one.partitions) for one in reply.topics] == [1]


def test_a_page_never_has_more_partitions_than_the_broker_likes(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.create_topic("wide", partitions=PARTITIONS_MAX + 1)

    reply = ask(broker, limit=10**9)

    assert len(reply.topics[0].partitions) == PARTITIONS_MAX
    cursor = reply.next_cursor
    assert (cursor.topic_name, cursor.partition_index) == ("wide", PARTITIONS_MAX)


def test_topics_that_are_not_there_are_answered_for_and_take_no_room(
    three_topics: RunningBroker,
) -> None:
    reply = ask(three_topics, "x", "a b", "c", limit=1)

    assert [(one.name, one.error_code) for one in reply.topics] == [
        ("a b", INVALID_TOPIC),
        ("c", 0),
    ]
    assert (reply.next_cursor.topic_name, reply.next_cursor.partition_index) == ("x", 0)
    (rest,) = ask(three_topics, "x", "a b", "c", limit=1, cursor=("x", 0)).topics
    assert (rest.name, rest.error_code, rest.topic_id) == ("x", UNKNOWN_TOPIC, None)


def test_a_page_goes_on_when_the_topic_it_ended_in_is_deleted(three_topics: RunningBroker) -> None:
    topic = three_topics.broker.image.topics["a"]
    three_topics.run(three_topics.broker.topics.delete("a", topic_id=topic.id))

    reply = ask(three_topics, cursor=("a", 1))

    told = [(one.name, [part.partition_index for part in one.partitions]) for one in reply.topics]
    assert told == [("b", [0, 1]), ("c", [0])]


@pytest.mark.parametrize("cursor", [("c", 0), ("a", -1)])
def test_a_cursor_that_cannot_be_is_refused(
    three_topics: RunningBroker, cursor: tuple[str, int]
) -> None:
    reply = ask(three_topics, "a", "b", cursor=cursor)

    assert [(one.name, one.error_code) for one in reply.topics] == [
        ("a", INVALID_REQUEST),
        ("b", INVALID_REQUEST),
    ]
    assert reply.next_cursor is None


def test_a_partition_that_is_offline_has_no_leader(three_topics: RunningBroker) -> None:
    three_topics.take_offline("b", 1)

    (told,) = ask(three_topics, "b").topics

    lost = told.partitions[1]
    assert (lost.error_code, lost.leader_id) == (LEADER_NOT_AVAILABLE, -1)
    assert lost.offline_replicas == (1,)
