"""The async twins: the same promises, no thread per message, nothing lost when a task is cancelled."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

import respool
from respool.client.messages.errors import (
    BadArgument,
    ClientClosed,
    DeliveryFailed,
    NoTransaction,
    UnknownTopic,
)
from support.broker_process import BrokerProcess
from support.confluent_client import ConfluentClient
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("messages-async")]
_groups = count()


@pytest.fixture
def topic(topics: Topics) -> str:
    return topics.new("async")


def values(broker: BrokerProcess, topic: str) -> list[bytes | None]:
    return [one.value for one in ConfluentClient().read(broker.address, [(topic, 0)])[topic, 0]]


def fill(broker: BrokerProcess, topic: str, messages: int) -> None:
    with respool.Producer(broker.address) as producer:
        for number in range(messages):
            producer.send(topic, str(number))


def consumer(broker: BrokerProcess, topic: str, **arguments: Any) -> respool.AsyncConsumer:
    return respool.AsyncConsumer(
        topic,
        **{"group": f"async-{next(_groups)}", "bootstrap": broker.address, **arguments},
    )


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 60))


async def take(reader: respool.AsyncConsumer, messages: int) -> list[int]:
    found: list[int] = []
    while len(found) < messages:
        message = await reader.poll(0.2)
        if message is not None:
            found.append(int(message.value or b""))
    return found


# -- sending


def test_many_messages_wait_at_once_without_a_thread_each(
    broker: BrokerProcess, topic: str
) -> None:
    async def story() -> None:
        async with respool.AsyncProducer(broker.address) as producer:
            first = await producer.send_and_wait(topic, "first")
            before = threading.active_count()
            sending = [
                asyncio.create_task(producer.send_and_wait(topic, str(n))) for n in range(1_000)
            ]
            await asyncio.sleep(0)
            assert threading.active_count() == before
            receipts = await asyncio.gather(*sending)
        assert first.offset == 0
        assert sorted(one.offset or 0 for one in receipts) == list(range(1, 1_001))

    run(story)


def test_more_than_the_buffer_holds_arrives_once_and_in_order(
    broker: BrokerProcess, topic: str
) -> None:
    async def story() -> None:
        small = {"queue.buffering.max.messages": 100}
        async with respool.AsyncProducer(broker.address, settings=small) as producer:
            for number in range(2_000):
                await producer.send(topic, str(number))

    run(story)
    assert values(broker, topic) == [b"%d" % number for number in range(2_000)]


@pytest.mark.parametrize("way", ["wait", "flush", "close"])
def test_what_was_not_delivered_raises(broker: BrokerProcess, topics: Topics, way: str) -> None:
    topic = topics.new("small", max_message_bytes=1_000)

    async def story() -> None:
        producer = respool.AsyncProducer(broker.address, pace="latency")
        await producer.start()
        try:
            if way == "wait":
                await producer.send_and_wait(topic, b"x" * 2_000)
            await producer.send(topic, b"x" * 2_000)
            if way == "flush":
                await producer.flush()
        finally:
            await producer.close()

    with pytest.raises(DeliveryFailed, match="1 message not confirmed"):
        run(story)


def test_a_sender_that_was_cancelled_harms_nobody(broker: BrokerProcess, topic: str) -> None:
    async def story() -> None:
        async with respool.AsyncProducer(broker.address, pace="throughput") as producer:
            await producer.send_and_wait(topic, "0")
            waiting = asyncio.create_task(producer.send_and_wait(topic, "1"))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert (await producer.send_and_wait(topic, "2")).offset == 2

    run(story)


def test_a_transaction_counts_at_its_end_or_not_at_all(broker: BrokerProcess, topic: str) -> None:
    async def story() -> None:
        async with respool.AsyncProducer(
            broker.address, delivery="exactly-once", transactional_id=topic
        ) as producer:
            with pytest.raises(NoTransaction):
                await producer.send(topic, "0")
            async with producer.transaction():
                await producer.send(topic, "1")
            with pytest.raises(ZeroDivisionError):
                await fail(producer)
            async with producer.transaction():
                await producer.send(topic, "3")

    async def fail(producer: respool.AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send(topic, "2")
            raise ZeroDivisionError

    run(story)
    wait_until(lambda: values(broker, topic) == [b"1", b"3"], "seen")


def test_bad_input_to_a_producer(broker: BrokerProcess, topic: str) -> None:
    async def story() -> None:
        never = respool.AsyncProducer(broker.address)
        with pytest.raises(ClientClosed, match="was not started"):
            await never.send(topic, b"")
        await never.close()
        async with respool.AsyncProducer(broker.address) as producer:
            with pytest.raises(UnknownTopic):
                await producer.send("nowhere", b"")
            with pytest.raises(BadArgument, match="bytes or text"):
                await producer.send(topic, 3)  # type: ignore[arg-type]
        await producer.close()
        with pytest.raises(ClientClosed, match="was closed"):
            await producer.send(topic, b"")
        with pytest.raises(BadArgument, match="transactional_id"):
            await respool.AsyncProducer(broker.address, delivery="exactly-once").start()

    run(story)


# -- receiving


@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once"])
@pytest.mark.parametrize("pace", ["latency", "balanced"])
def test_a_loop_gets_all_in_order_and_the_next_one_goes_on(
    broker: BrokerProcess, topic: str, delivery: Any, pace: Any
) -> None:
    fill(broker, topic, 20)
    group = f"loop-{next(_groups)}"

    async def story() -> None:
        found = []
        async with consumer(broker, topic, group=group, delivery=delivery, pace=pace) as reader:
            async for message in reader:
                found.append(message.offset)
                if message.offset == 11:
                    break
        async with consumer(broker, topic, group=group, delivery=delivery, pace=pace) as reader:
            found += await take(reader, 8)
        assert found == list(range(20))

    run(story)


def test_an_error_in_the_block_means_that_the_last_is_not_done(
    broker: BrokerProcess, topic: str
) -> None:
    fill(broker, topic, 5)
    group = f"error-{next(_groups)}"

    async def story() -> None:
        with pytest.raises(ZeroDivisionError):
            await fail()
        async with consumer(broker, topic, group=group) as reader:
            assert await take(reader, 3) == [2, 3, 4]

    async def fail() -> None:
        async with consumer(broker, topic, group=group) as reader:
            assert await take(reader, 3) == [0, 1, 2]
            raise ZeroDivisionError

    run(story)


def test_a_task_cancelled_while_it_waits_loses_no_message(
    broker: BrokerProcess, topic: str
) -> None:
    fill(broker, topic, 1)

    async def story() -> None:
        async with consumer(broker, topic) as reader:
            assert await take(reader, 1) == [0]
            # Longer than the test may take: it must be given up.
            waiting = asyncio.create_task(reader.poll(300.0))
            while not reader._lock.locked():
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.to_thread(fill, broker, topic, 1)
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await take(reader, 1) == [0]

    run(story)


def test_rewinding_and_committing_by_hand(broker: BrokerProcess, topic: str) -> None:
    fill(broker, topic, 5)
    group = f"manual-{next(_groups)}"

    async def story() -> None:
        async with consumer(broker, topic, group=group, commit="manual") as reader:
            await take(reader, 5)
            await reader.rewind(timedelta(days=1))
            assert await take(reader, 5) == [0, 1, 2, 3, 4]
            await reader.rewind({0: 2})
            assert await take(reader, 1) == [2]
            await reader.commit()
        async with consumer(broker, topic, group=group) as reader:
            assert await take(reader, 2) == [3, 4]
            with pytest.raises(BadArgument):
                await reader.rewind(-1)

    run(story)


def test_consume_transform_produce_exactly_once(
    broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    target = topics.new("target")
    fill(broker, topic, 10)

    async def story() -> None:
        async with (
            respool.AsyncProducer(
                broker.address, delivery="exactly-once", transactional_id=target
            ) as producer,
            consumer(broker, topic, delivery="exactly-once") as reader,
        ):
            with pytest.raises(NoTransaction):
                await reader.poll()
            with pytest.raises(ZeroDivisionError):
                await work(reader, producer, fail_at=4)
            await work(reader, producer)

    async def work(
        reader: respool.AsyncConsumer, producer: respool.AsyncProducer, fail_at: int | None = None
    ) -> None:
        async for transaction in reader.transactions(producer, messages_max=3):
            async with transaction:
                for message in transaction:
                    await producer.send(target, message.value)
                    if message.offset == fail_at:
                        raise ZeroDivisionError
            assert transaction.is_committed
            if transaction.messages[-1].offset == 9:
                return

    run(story)
    wait_until(lambda: values(broker, target) == [b"%d" % n for n in range(10)], "all once")


def test_bad_input_to_a_consumer(broker: BrokerProcess, topic: str) -> None:
    async def story() -> None:
        with pytest.raises(ClientClosed, match="was not started"):
            await consumer(broker, topic).poll()
        with pytest.raises(UnknownTopic):
            await consumer(broker, "nowhere").start()
        reader = consumer(broker, topic)
        await reader.start()
        await reader.close()
        await reader.close()
        with pytest.raises(ClientClosed, match="was closed"):
            await reader.poll()

    run(story)
