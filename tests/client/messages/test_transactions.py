"""Exactly once: all or nothing, going back after a failure, and being fenced."""

from itertools import count
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

import respool
from respool.client.messages.errors import (
    ClientClosed,
    Fenced,
    NoTransaction,
    TransactionAborted,
)
from support.broker_process import BrokerProcess
from support.confluent_client import consumer as raw_consumer
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("messages-transactions")]
_numbers = count()


class Story:
    """Messages b"0", b"1", ... in, what is made of them out."""

    def __init__(self, broker: BrokerProcess, topics: Topics) -> None:
        self.broker = broker
        self.source = topics.new("source")
        self.target = topics.new("target", max_message_bytes=10_000)
        self.name = f"story-{next(_numbers)}"
        with respool.Producer(broker.address) as producer:
            for number in range(10):
                producer.send(self.source, str(number))

    def producer(self, **arguments: Any) -> respool.Producer:
        return respool.Producer(
            self.broker.address,
            **{"delivery": "exactly-once", "transactional_id": self.name, **arguments},
        )

    def consumer(self, **arguments: Any) -> respool.Consumer:
        return respool.Consumer(
            self.source,
            **{
                "group": self.name,
                "bootstrap": self.broker.address,
                "delivery": "exactly-once",
                **arguments,
            },
        )

    def out(self, isolation: str = "read_committed") -> list[int]:
        return self._read(self.target, isolation)

    def _read(self, topic: str, isolation: str) -> list[int]:
        reader = raw_consumer(self.broker.address, isolation_level=isolation)
        # Not "from the beginning": librdkafka waits half a second before it asks where that is.
        reader.assign([TopicPartition(topic, 0, 0)])
        found = []
        try:
            while (message := reader.poll(10)).error() is None:
                found.append(int(message.value()))
        finally:
            reader.close()
        return found


@pytest.fixture
def story(broker: BrokerProcess, topics: Topics) -> Story:
    return Story(broker, topics)


# -- a producer alone


def test_all_of_a_transaction_counts_at_its_end_or_nothing_does(story: Story) -> None:
    with story.producer() as producer:
        with producer.transaction():
            producer.send(story.target, "1")
            producer.flush()
            assert story.out() == []
            assert story.out("read_uncommitted") == [1]
        wait_until(lambda: story.out() == [1], "seen")

        def fail() -> None:
            with producer.transaction():
                producer.send(story.target, "2")
                producer.flush()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        with producer.transaction():
            producer.send(story.target, "3")
    wait_until(lambda: story.out() == [1, 3], "seen")
    assert story.out("read_uncommitted") == [1, 2, 3]


def test_nothing_is_sent_outside_of_a_transaction_nor_in_two_at_once(story: Story) -> None:
    with story.producer() as producer:
        with pytest.raises(NoTransaction, match="an exactly-once producer sends inside"):
            producer.send(story.target, "1")
        with (
            producer.transaction(),
            pytest.raises(NoTransaction, match="one at a time"),
            producer.transaction(),
        ):
            pass


def test_a_message_that_the_broker_refuses_aborts_all_of_it(story: Story) -> None:
    with story.producer(pace="latency") as producer:

        def send() -> None:
            with producer.transaction():
                producer.send(story.target, "1")
                producer.send(story.target, "9" * 20_000)

        with pytest.raises(TransactionAborted, match="Nothing of it counts") as told:
            send()
        assert isinstance(told.value.__cause__, KafkaException)

        def try_again() -> bool:
            try:
                with producer.transaction():
                    producer.send(story.target, "2")
            except TransactionAborted:
                return False
            return True

        wait_until(try_again, "it came to itself")
    wait_until(lambda: story.out() == [2], "seen")


def test_the_next_producer_of_the_same_id_fences_the_one_before(story: Story) -> None:
    with story.producer() as before:
        begun = before.transaction()
        begun.__enter__()
        before.send(story.target, "1")
        before.kafka.flush()
        with story.producer() as after, after.transaction():
            after.send(story.target, "2")
        with pytest.raises(Fenced, match="Another instance with the same id"):
            begun.__exit__(None, None, None)
        for _ in range(2):
            with pytest.raises(Fenced, match="Another instance"), before.transaction():
                pass
    wait_until(lambda: story.out() == [2], "seen")


def test_closing_aborts_what_is_open(story: Story) -> None:
    producer = story.producer()
    producer.transaction().__enter__()
    producer.send(story.target, "1")
    producer.close()
    with pytest.raises(ClientClosed):
        producer.send(story.target, "2")
    # Readers wait for nobody.
    with story.producer(transactional_id="another") as other, other.transaction():
        other.send(story.target, "3")
    wait_until(lambda: story.out() == [3], "seen")


# -- consume, transform, produce


def transform(story: Story, *, consumer: respool.Consumer, producer: respool.Producer) -> None:
    done = 0
    for transaction in consumer.transactions(producer, messages_max=3):
        with transaction:
            for message in transaction:
                producer.send(story.target, message.value, message.key)
        done = transaction.messages[-1].offset + 1
        if done == 10:
            return


def test_each_message_is_made_into_another_once(story: Story) -> None:
    with story.producer() as producer, story.consumer() as consumer:
        transform(story, consumer=consumer, producer=producer)
    wait_until(lambda: story.out() == list(range(10)), "all once")


def test_one_that_ends_orderly_leaves_the_groups_place_to_the_next(story: Story) -> None:
    """A consumer that knew where its group began, and not how far the producer came, would set it back."""
    for first in (0, 10):
        with story.producer() as producer, story.consumer() as consumer:
            for transaction in consumer.transactions(producer):
                with transaction:
                    for message in transaction:
                        producer.send(story.target, message.value)
                if transaction.messages[-1].offset == first + 9:
                    break
        with respool.Producer(story.broker.address) as more:
            for number in range(first + 10, first + 20):
                more.send(story.source, str(number))
    wait_until(lambda: len(story.out()) >= 20, "all of both")
    assert story.out() == list(range(20))


def test_an_error_of_the_callers_own_takes_all_back_and_comes_out(story: Story) -> None:
    with story.producer() as producer, story.consumer() as consumer:

        def fail() -> None:
            for transaction in consumer.transactions(producer, messages_max=3):
                with transaction:
                    for message in transaction:
                        producer.send(story.target, message.value)
                        if message.offset == 4:
                            producer.flush()
                            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        # The same two go on: from the first message of the transaction that failed.
        transform(story, consumer=consumer, producer=producer)
    wait_until(lambda: story.out() == list(range(10)), "all once")
    assert len(story.out("read_uncommitted")) > 10


def test_what_the_cluster_aborts_is_done_again_by_the_loop(story: Story) -> None:
    with story.producer(pace="latency") as producer, story.consumer() as consumer:
        outcomes: list[bool] = []
        for transaction in consumer.transactions(producer, messages_max=5):
            with transaction:
                for message in transaction:
                    producer.send(story.target, message.value)
                if not outcomes:
                    producer.send(story.target, "9" * 20_000)
            outcomes.append(transaction.is_committed)
            if transaction.is_committed and transaction.messages[-1].offset == 9:
                break
    # After some failures librdkafka needs one more transaction to come to itself.
    assert not outcomes[0]
    assert outcomes[-2:] == [True, True]
    wait_until(lambda: story.out() == list(range(10)), "all once")


def test_what_fails_again_and_again_comes_out(story: Story) -> None:
    with story.producer(pace="latency") as producer, story.consumer() as consumer:

        def work() -> None:
            for transaction in consumer.transactions(producer):
                with transaction:
                    producer.send(story.target, "9" * 20_000)

        with pytest.raises(TransactionAborted, match=r"MSG_SIZE_TOO_LARGE|OUT_OF_ORDER"):
            work()
    assert story.out() == []


def test_a_member_whose_place_was_taken_is_fenced_and_holds_up_nobody(story: Story) -> None:
    with story.producer() as producer, story.consumer(instance="one") as consumer:
        (transaction,) = _first(consumer, producer)

        def overtake() -> None:
            with (
                transaction,
                story.producer(transactional_id=story.name + "-b") as other_producer,
                story.consumer(instance="one") as other,
            ):
                for message in transaction:
                    producer.send(story.target, message.value)
                transform(story, consumer=other, producer=other_producer)

        with pytest.raises(Fenced, match="FENCED_INSTANCE_ID"):
            overtake()
        wait_until(lambda: story.out() == list(range(10)), "all once")


def test_a_member_that_lost_its_partitions_without_knowing_commits_nothing(story: Story) -> None:
    # Another transactional id: only the group's generation can tell that it is too late.
    short = {
        "max.poll.interval.ms": 3_000,
        "session.timeout.ms": 3_000,
        "heartbeat.interval.ms": 300,
    }
    with story.producer() as producer, story.consumer(settings=short) as consumer:
        (transaction,) = _first(consumer, producer)
        with (
            transaction,
            story.producer(transactional_id=story.name + "-b") as other_producer,
            story.consumer(settings=short) as other,
        ):
            for message in transaction:
                producer.send(story.target, message.value)
            # It waits until the group has given up the first.
            transform(story, consumer=other, producer=other_producer)
        assert not transaction.is_committed
        wait_until(lambda: story.out() == list(range(10)), "all once")


def _first(consumer: respool.Consumer, producer: respool.Producer) -> list[Any]:
    return [next(iter(consumer.transactions(producer, messages_max=3)))]


def test_messages_that_were_not_handled_in_their_transaction_are_missed(story: Story) -> None:
    with story.producer() as producer, story.consumer() as consumer:
        loop = iter(consumer.transactions(producer))
        next(loop)
        with pytest.raises(NoTransaction, match="with transaction:"):
            next(loop)


def test_a_transaction_is_entered_once(story: Story) -> None:
    with story.producer() as producer, story.consumer() as consumer:
        (transaction,) = _first(consumer, producer)
        with transaction:
            assert [message.offset for message in transaction] == [0, 1, 2]
            assert len(transaction) == 3
        with pytest.raises(NoTransaction, match="is over"), transaction:
            pass


def test_both_sides_must_be_exactly_once(story: Story) -> None:
    with (
        story.producer() as producer,
        story.consumer(delivery="at-least-once") as consumer,
        pytest.raises(NoTransaction, match="at-least-once"),
    ):
        next(consumer.transactions(producer))
    with respool.Producer(story.broker.address) as plain, story.consumer() as consumer:
        with pytest.raises(NoTransaction, match="at-least-once"):
            next(consumer.transactions(plain))
        with pytest.raises(NoTransaction, match="not object"):
            next(consumer.transactions(object()))  # type: ignore[arg-type]
