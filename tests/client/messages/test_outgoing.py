"""Where messages go: by key as the Java client does it, in turn, or as a function says."""

import random

import pytest
from kafka.partitioner.default import murmur2

import respool
from respool.client.messages.errors import BadArgument, UnknownPartition
from respool.client.messages.outgoing import Partitioner
from support.broker_process import BrokerProcess
from support.topics import Topics

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("messages-partitioner")]
PARTITIONS = 7


@pytest.fixture(scope="module")
def topic(topics: Topics) -> str:
    return topics.new("parts", partitions=PARTITIONS)


def test_a_key_goes_where_the_java_client_puts_it(broker: BrokerProcess, topic: str) -> None:
    rng = random.Random(1)
    keys = [rng.randbytes(rng.randrange(0, 40)) for _ in range(200)]
    with respool.Producer(broker.address, pace="latency") as producer:
        for key in keys:
            receipt = producer.send_and_wait(topic, b"", key)
            assert receipt.partition == (murmur2(key) & 0x7FFF_FFFF) % PARTITIONS, key


def test_round_robin_deals_in_turn_keys_or_not(broker: BrokerProcess, topic: str) -> None:
    with respool.Producer(broker.address, partitioner="round-robin", pace="latency") as producer:
        found = [
            producer.send_and_wait(topic, b"", b"same").partition for _ in range(2 * PARTITIONS)
        ]
    assert found == [*range(PARTITIONS), *range(PARTITIONS)]


def test_a_function_chooses_and_sees_key_and_value_as_bytes(
    broker: BrokerProcess, topic: str
) -> None:
    seen: list[object] = []

    def choose(key: bytes | None, value: bytes | None, partitions: int) -> int:
        seen.append((key, value, partitions))
        return partitions - 1

    with respool.Producer(broker.address, partitioner=choose) as producer:
        assert producer.send_and_wait(topic, "värde", "nyckel").partition == PARTITIONS - 1
    assert seen == [(b"nyckel", "värde".encode(), PARTITIONS)]


def test_a_partition_of_the_callers_own_comes_first(broker: BrokerProcess, topic: str) -> None:
    with respool.Producer(broker.address, partitioner="round-robin") as producer:
        assert producer.send_and_wait(topic, b"", partition=5).partition == 5


@pytest.mark.parametrize("chosen", [PARTITIONS, -1, None, 1.0, True])
def test_a_choice_that_is_no_partition_is_refused(chosen: object) -> None:
    partitioner = Partitioner(lambda key, value, partitions: chosen)
    with pytest.raises(BadArgument, match="nothing was sent"):
        partitioner.partition("rides", b"k", b"v", PARTITIONS)


def test_a_partition_that_is_not_there_is_refused_until_the_topic_has_grown(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("grows")
    with respool.Producer(broker.address) as producer:
        with pytest.raises(UnknownPartition, match="has no partition 1; it has 1"):
            producer.send(topic, b"", partition=1)
        with pytest.raises(BadArgument, match="from 0 on"):
            producer.send(topic, b"", partition=-1)
        topics.grow(topic, partitions=2)
        assert producer.send_and_wait(topic, b"", partition=1).partition == 1


def test_another_partitioner_is_refused() -> None:
    with pytest.raises(BadArgument, match="'key', 'round-robin' or a function"):
        Partitioner("random")
