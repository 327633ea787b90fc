"""confluent-kafka's ShareConsumer: workers of a queue, more than there are partitions."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer

from respool.testing import Broker

pytestmark = pytest.mark.clients

COUNT = 500
# Far more than it takes.
TRIES = 200


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def worker(broker: Broker, group: str, **settings: Any) -> ShareConsumer:
    return ShareConsumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group}
        | {name.replace("_", "."): value for name, value in settings.items()}
    )


def produce(broker: Broker, topic: str, count: int = COUNT) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, value=b"%d" % number)
    assert producer.flush(30) == 0


def joined(consumer: ShareConsumer, topic: str) -> ShareConsumer:
    """Its group has a start, which is the end of the log as it is now."""
    consumer.subscribe([topic])
    consumer.poll(1.0)
    return consumer


def polled(consumer: ShareConsumer, timeout: float = 0.5) -> list[Any]:
    messages = list(consumer.poll(timeout))
    assert all(message.error() is None for message in messages)
    return messages


def test_three_workers_share_one_partition_and_each_message_comes_once(broker: Broker) -> None:
    topic = broker.new_topic()
    workers = [joined(worker(broker, "sharing"), topic) for _ in range(3)]
    seen: Counter[bytes] = Counter()
    by_worker: Counter[int] = Counter()
    for part in range(10):
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(50):
            producer.produce(topic, value=b"%d" % (part * 50 + number))
        assert producer.flush(30) == 0
        for index, one in enumerate(workers):
            for message in polled(one, 0.1):
                seen[message.value()] += 1
                by_worker[index] += 1
    for _ in range(TRIES):
        if len(seen) == COUNT:
            break
        for index, one in enumerate(workers):
            for message in polled(one, 0.1):
                seen[message.value()] += 1
                by_worker[index] += 1
    for one in workers:
        one.close()
    assert seen == Counter({b"%d" % number: 1 for number in range(COUNT)})


def test_what_a_worker_releases_and_rejects(broker: Broker) -> None:
    topic = broker.new_topic()
    one = joined(worker(broker, "explicit", share_acknowledgement_mode="explicit"), topic)
    produce(broker, topic, 30)
    outcomes: dict[int, list[int]] = {}
    for _ in range(TRIES):
        for message in polled(one):
            counts = outcomes.setdefault(message.offset(), [])
            counts.append(message.delivery_count())
            if message.offset() % 3 == 0:
                one.acknowledge(message, AcknowledgeType.ACCEPT)
            elif message.offset() % 3 == 1:
                one.acknowledge(message, AcknowledgeType.REJECT)
            else:
                last = len(counts) > 1
                one.acknowledge(
                    message, AcknowledgeType.ACCEPT if last else AcknowledgeType.RELEASE
                )
        errors = one.commit_sync(10.0)
        assert all(error is None for error in (errors or {}).values())
        if len(outcomes) == 30 and all(len(outcomes[each]) == 2 for each in range(2, 30, 3)):
            break
    one.close()
    assert outcomes == {each: [1, 2] if each % 3 == 2 else [1] for each in range(30)}


def test_a_killed_workers_messages_go_to_another_and_nothing_is_lost_at_a_crash() -> None:
    with Broker() as broker:
        topic = broker.new_topic()
        first = joined(worker(broker, "crash", share_acknowledgement_mode="explicit"), topic)
        produce(broker, topic, 20)
        accepted: set[int] = set()
        for _ in range(TRIES):
            messages = polled(first)
            for message in messages:
                first.acknowledge(message, AcknowledgeType.ACCEPT)
                accepted.add(message.offset())
            if messages:
                first.commit_sync(10.0)
                break
        assert accepted
        produce(broker, topic, 20)
        broker.crash()
        broker.start()
        second = worker(broker, "crash")
        second.subscribe([topic])
        seen: set[int] = set()
        for _ in range(TRIES):
            seen |= {message.offset() for message in polled(second)}
            if len(seen) + len(accepted) >= 40:
                break
        second.close()
        assert seen == set(range(40)) - accepted
