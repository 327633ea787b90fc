"""Transactions over two brokers, with losses between them."""

from random import Random

import pytest

from broker.transaction_client import (
    CONCURRENT_TRANSACTIONS,
    NOT_ENOUGH_REPLICAS,
    Producer,
    has_open_transaction,
    read,
)
from broker.two_brokers import NAMES, TwoBrokers, both_protocols, producer_at, state
from respool.model.ids import TopicPartition


@pytest.mark.parametrize("seed", range(12))
@both_protocols
def test_with_losses_and_delays_every_partition_gets_in_the_end_what_was_decided(
    world: TwoBrokers, speaks: dict[str, int], seed: int
) -> None:
    random = Random(seed)
    network = world.network
    network.random = Random(seed + 1)
    producers = [producer_at(world, speaks, coordinator=one) for one in world]
    network.request_loss, network.reply_loss, network.delay_turns_max = 0.2, 0.3, 15
    expected: dict[TopicPartition, list[bytes]] = {name: [] for name in NAMES}
    for turn in range(8):
        for producer in producers:
            is_commit = random.random() < 0.5
            value = f"{producer.transactional_id} {turn}".encode()
            for name in random.sample(NAMES, 3):
                _write_at_last(world, producer, name, value)
                if is_commit:
                    expected[name].append(value)
            _end_at_last(world, producer, is_commit=is_commit)
    network.request_loss = network.reply_loss = 0
    world.settle(10)

    for producer in producers:
        assert state(world, producer).startswith("Complete")
    for name in NAMES:
        assert not has_open_transaction(world.at(*name), *name)
        assert sorted(read(world.at(*name), *name)) == sorted(expected[name])


def _write_at_last(
    world: TwoBrokers, producer: Producer, name: TopicPartition, value: bytes
) -> None:
    for _ in range(200):
        if not producer.is_new and set(producer.add(name).values()) != {0}:
            world.settle()
            continue
        code = producer.send(*name, value).error_code
        if code == 0:
            return
        assert code in {NOT_ENOUGH_REPLICAS, CONCURRENT_TRANSACTIONS}, code
        world.settle()
    raise AssertionError(f"{name} takes nothing")


def _end_at_last(world: TwoBrokers, producer: Producer, *, is_commit: bool) -> None:
    for _ in range(200):
        code = producer.end(commit=is_commit)
        if code == 0:
            return
        assert code == CONCURRENT_TRANSACTIONS, code
        world.settle()
    raise AssertionError("the transaction does not end")


@both_protocols
def test_a_transaction_ends_though_its_topic_was_made_a_mirror(
    world: TwoBrokers, speaks: dict[str, int]
) -> None:
    """Its end cannot be written there. The producer would have had to wait until the topic is promoted."""
    producer = producer_at(world, speaks, coordinator=world.one)
    for name in NAMES:
        _write_at_last(world, producer, name, b"x")
    for topic in {name.topic for name in NAMES}:
        world.run(
            world.at(topic).broker.topics.change_overrides(
                topic, lambda one: {**one.overrides, "respool.mirror": "true"}
            )
        )
    world.look()
    assert world.at(*NAMES[0]).broker.partitions.find(*NAMES[0]).config.respool_mirror
    _end_at_last(world, producer, is_commit=True)
    world.settle(10)
    assert state(world, producer) == "CompleteCommit"
