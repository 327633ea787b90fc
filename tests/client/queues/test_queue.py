"""`respool.Queue` and `AsyncQueue` on a broker: one message for one consumer, until it is accepted or rejected."""

import asyncio
import os
import socket
from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from respool.client.kafka.errors import ClientClosed
from respool.client.queues.async_queue import AsyncQueue
from respool.client.queues.queue import Queue
from respool.client.queues.queue_message import AlreadyAcknowledged, QueueMessage
from respool.testing import Broker

GROUP = "billing"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"orders-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result()
    return name


def send(broker: Broker, topic: str, *values: str, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "logger": None})
    for value in values:
        producer.produce(topic, value.encode(), partition=partition)
    producer.flush()


def queue_of(broker: Broker, topic: str, *, max_records: int = 10) -> Queue:
    """A queue that reads all that is written from now on."""
    queue = Queue(topic, group=topic, bootstrap=broker.bootstrap, max_records=max_records)
    assert queue.receive(0) is None
    while not queue._readers:
        assert queue.receive(0.05) is None
    return queue


def receive(queue: Queue, count: int) -> list[QueueMessage]:
    messages: list[QueueMessage] = []
    while len(messages) < count:
        message = queue.receive(30)
        assert message is not None
        messages.append(message)
    return messages


def test_accepted_messages_are_done_and_others_come_again(broker: Broker, topic: str) -> None:
    with queue_of(broker, topic) as queue:
        send(broker, topic, "a", "b", "c", "d")
        a, b, c, d = receive(queue, 4)
        assert (a.value, a.topic, a.partition, a.offset) == (b"a", topic, 0, 0)
        assert [one.delivery_count for one in (a, b, c, d)] == [1] * 4
        a.accept()
        b.release()
        c.reject()
        (again,) = receive(queue, 1)
        assert (again.value, again.delivery_count, again.attempt) == (b"b", 2, 2)
        again.accept()
    # d was not acknowledged: closing gave it back at once.
    with Queue(topic, group=topic, bootstrap=broker.bootstrap) as queue:
        (last,) = receive(queue, 1)
        assert (last.value, last.delivery_count) == (b"d", 2)
        last.accept()
        queue.flush()
        assert queue.receive(0.2) is None


def test_a_message_in_with_is_accepted_or_released_on_an_error(broker: Broker, topic: str) -> None:
    with queue_of(broker, topic) as queue:
        send(broker, topic, "a", "b")
        first, second = receive(queue, 2)
        with pytest.raises(ZeroDivisionError), first:
            _ = 1 / 0
        with second:
            pass
        (again,) = receive(queue, 1)
        assert (again.value, again.delivery_count) == (b"a", 2)
        with again:
            again.reject()
        queue.flush()
        assert queue.receive(0.2) is None
        assert queue.late_count == 0


def test_a_message_is_acknowledged_once(broker: Broker, topic: str) -> None:
    with queue_of(broker, topic) as queue:
        send(broker, topic, "a")
        (message,) = receive(queue, 1)
        message.renew()
        message.accept()
        with pytest.raises(AlreadyAcknowledged):
            message.accept()
        with pytest.raises(AlreadyAcknowledged):
            message.renew()


def test_two_consumers_share_one_partition_and_no_message(broker: Broker, topic: str) -> None:
    with (
        queue_of(broker, topic, max_records=1) as one,
        queue_of(broker, topic, max_records=1) as two,
    ):
        send(broker, topic, *"abcdef")
        (mine,) = receive(one, 1)
        (theirs,) = receive(two, 1)
        assert {mine.value, theirs.value} == {b"a", b"b"}
        mine.accept()
        theirs.accept()
        left = {message.value for queue in (one, two) for message in receive(queue, 1)}
        assert left == {b"c", b"d"}


def test_a_closed_queue_receives_nothing(broker: Broker, topic: str) -> None:
    queue = queue_of(broker, topic)
    queue.close()
    queue.close()
    with pytest.raises(ClientClosed):
        queue.receive(0)
    assert list(queue) == []


def test_a_connection_that_is_lost_gives_messages_to_others(broker: Broker, topic: str) -> None:
    with queue_of(broker, topic) as queue:
        send(broker, topic, "a")
        (held,) = receive(queue, 1)
        with queue._io:
            for reader in queue._readers.values():
                assert reader.connection is not None
                with socket.socket(fileno=os.dup(reader.connection.fileno())) as same:
                    same.shutdown(socket.SHUT_RDWR)
        (again,) = receive(queue, 1)
        assert (again.value, again.delivery_count) == (b"a", 2)
        again.accept()
        with pytest.raises(AlreadyAcknowledged):
            held.accept()


def test_the_asyncio_twin(broker: Broker, topic: str) -> None:
    async def work() -> list[bytes | None]:
        values = []
        async with AsyncQueue(topic, group=topic, bootstrap=broker.bootstrap) as queue:
            assert await queue.receive(timeout=0.2) is None
            send(broker, topic, "a", "b")
            async for message in queue:
                with message:
                    values.append(message.value)
                if len(values) == 2:
                    break
            await queue.flush()
            assert await queue.receive(timeout=0.2) is None
        return values

    assert asyncio.run(work()) == [b"a", b"b"]
