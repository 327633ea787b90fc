"""DescribeProducers."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker
from respool.wire.api_table import Api

UNKNOWN_TOPIC = 3
INVALID_TOPIC = 17
STORAGE_ERROR = 56


def ask(broker: RunningBroker, topic: str, *partitions: int) -> Any:
    (answered,) = broker.ask(
        Api.DESCRIBE_PRODUCERS, 0, topics=[{"name": topic, "partition_indexes": partitions}]
    ).topics
    assert answered.name == topic
    assert [one.partition_index for one in answered.partitions] == list(partitions)
    return answered.partitions


def test_producers_are_told_with_what_they_wrote_last(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides")
    running_broker.produce("rides")
    for base_sequence in (0, 2):
        running_broker.produce(
            "rides",
            values=(b"a", b"b"),
            producer_id=40,
            producer_epoch=2,
            base_sequence=base_sequence,
        )

    (partition,) = ask(running_broker, "rides", 0)

    assert (partition.error_code, partition.error_message) == (0, None)
    (producer,) = partition.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (40, 2, 3)
    assert producer.last_timestamp == running_broker.clock.now_ms()
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)


def test_a_partition_nobody_wrote_to_has_no_producers(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides")

    (partition,) = ask(running_broker, "rides", 0)

    assert (partition.error_code, partition.active_producers) == (0, ())


def test_partitions_that_cannot_tell_say_why(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides", partitions=2)
    running_broker.take_offline("rides", 1)

    absent, offline = ask(running_broker, "rides", 5, 1)
    (unknown,) = ask(running_broker, "nobody", 0)
    (invalid,) = ask(running_broker, "a b", 0)

    assert (absent.error_code, offline.error_code) == (UNKNOWN_TOPIC, STORAGE_ERROR)
    assert (unknown.error_code, invalid.error_code) == (UNKNOWN_TOPIC, INVALID_TOPIC)
    assert all(one.error_message for one in (absent, offline, unknown, invalid))


def last_time(broker: RunningBroker) -> int:
    (partition,) = ask(broker, "rides", 0)
    (producer,) = partition.active_producers
    return int(producer.last_timestamp)


@pytest.mark.parametrize("crash", [False, True])
def test_the_last_time_is_the_last_batchs_however_long_the_producer_is_silent(
    running_broker: RunningBroker, crash: bool
) -> None:
    running_broker.create_topic("rides")
    running_broker.produce("rides", producer_id=40, producer_epoch=0, base_sequence=0)
    written_at = running_broker.clock.now_ms()

    for _ in range(2):
        running_broker.clock.advance(600_000)
        log = running_broker.broker.partitions.find("rides", 0).log
        # Housekeeping looks for silent producers, and notes when it saw this one.
        log.producers.expire(running_broker.clock.now_ms())
        assert last_time(running_broker) == written_at
        running_broker.restart(crash=crash)
        assert last_time(running_broker) == written_at
