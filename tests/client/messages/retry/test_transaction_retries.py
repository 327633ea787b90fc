"""Exactly once: the retry, the offset and what else was sent are committed together, or not at all."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

import respool
from client.messages.retry.story import Boom, RetryStory, header
from respool.client.messages import library
from respool.client.messages.errors import NoTransaction

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("messages-retry-transactions")]


class Transformer:
    """Messages of the story's topic -> receipts, exactly once."""

    def __init__(self, story: RetryStory) -> None:
        self.story = story
        self.receipts = story.topics.new("receipts")
        self.handled: list[tuple[bytes | None, int]] = []
        self.transactions = 0

    def run(
        self,
        act: Callable[[respool.Producer, respool.Message], object],
        *,
        until: Callable[[respool.Consumer], object],
        **arguments: Any,
    ) -> None:
        with ExitStack() as stack:
            producer = stack.enter_context(
                respool.Producer(
                    self.story.broker.bootstrap,
                    delivery="exactly-once",
                    transactional_id=self.story.group,
                )
            )
            consumer = stack.enter_context(
                self.story.consumer(delivery="exactly-once", **arguments)
            )
            for transaction in consumer.transactions(producer):
                self.transactions += 1
                with transaction:
                    for message in transaction:
                        self.handled.append((message.value, message.attempt))
                        with consumer.handling(message):
                            act(producer, message)
                if until(consumer):
                    return

    def receipt(self, producer: respool.Producer, message: respool.Message) -> None:
        producer.send(self.receipts, message.value)

    @property
    def sent(self) -> list[bytes]:
        return [one.value or b"" for one in self.story.read(self.receipts)]


@pytest.fixture
def transformer(story: RetryStory) -> Transformer:
    return Transformer(story)


def test_failed_messages_are_retried_and_buried_in_the_transaction(
    transformer: Transformer,
) -> None:
    story = transformer.story
    story.send(b"good", b"bad", b"better")

    def act(producer: respool.Producer, message: respool.Message) -> None:
        if message.value == b"bad":
            raise Boom("bad")
        transformer.receipt(producer, message)

    transformer.run(act, until=lambda consumer: consumer.buried)
    assert transformer.sent == [b"good", b"better"]
    assert transformer.handled.count((b"bad", 1)) == 1
    assert (b"bad", 3) in transformer.handled
    assert [one.value for one in story.letters()] == [b"bad"]
    assert story.committed() == [3]


def test_what_a_handler_sent_before_it_failed_is_not_committed(transformer: Transformer) -> None:
    """It cannot be removed from the transaction, which is therefore repeated without the message."""
    story = transformer.story
    story.send(b"0", b"1", b"2")

    def act(producer: respool.Producer, message: respool.Message) -> None:
        transformer.receipt(producer, message)
        if message.value == b"1" and message.attempt < 3:
            producer.flush()
            raise Boom("after sending")

    transformer.run(act, until=lambda _: (b"1", 3) in transformer.handled)
    assert sorted(transformer.sent) == [b"0", b"1", b"2"]
    assert transformer.handled.count((b"1", 1)) == 1
    assert transformer.handled.count((b"1", 2)) == 1
    assert len(story.read(story.retry_topic)) == 2


def test_many_that_fail_after_sending_do_not_end_the_loop(transformer: Transformer) -> None:
    """More than the number of times that a transaction is repeated after errors of the cluster."""
    values = [b"%d" % number for number in range(12)]
    transformer.story.send(*values)

    def act(producer: respool.Producer, message: respool.Message) -> None:
        transformer.receipt(producer, message)
        raise Boom("after sending")

    transformer.run(act, until=lambda consumer: consumer.buried == 12)
    assert transformer.sent == []
    assert sorted(one.value or b"" for one in transformer.story.letters()) == sorted(values)


def test_an_aborted_transaction_retries_nothing(transformer: Transformer) -> None:
    story = transformer.story
    story.send(b"0")
    with (
        respool.Producer(
            story.broker.bootstrap, delivery="exactly-once", transactional_id=story.group
        ) as producer,
        story.consumer(delivery="exactly-once") as consumer,
    ):
        transaction = next(consumer.transactions(producer))

        def fail_after_a_retry() -> None:
            with transaction:
                consumer.retry(transaction.messages[0], Boom())
                producer.flush()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_after_a_retry()
        assert consumer.retried == 0
    assert story.committed() in ([0], [-1001])
    transformer.run(transformer.receipt, until=lambda _: True)
    assert transformer.handled == [(b"0", 1)]


def test_a_message_without_an_origin_is_buried_in_the_transaction(
    transformer: Transformer,
) -> None:
    story = transformer.story
    story.create_topics()
    with respool.Producer(story.broker.bootstrap) as producer:
        producer.send(story.retry_topic, b"stray")
    transformer.run(transformer.receipt, until=lambda consumer: consumer.buried)
    assert transformer.handled == []
    assert [one.value for one in story.letters()] == [b"stray"]
    assert story.committed(story.retry_topic) == [1]


def test_a_message_larger_than_the_producer_sends_is_buried_with_a_pointer(
    transformer: Transformer,
) -> None:
    story = transformer.story
    with respool.Producer(story.broker.bootstrap) as producer:
        producer.send(story.topic, b"x" * 999_800)

    def act(producer: respool.Producer, message: respool.Message) -> None:
        raise Boom("large")

    transformer.run(act, until=lambda consumer: consumer.buried)
    (letter,) = story.letters()
    assert (letter.value, header(letter, "__dlq.errors.truncated")) == (None, b"value")


def test_a_topic_that_takes_less_than_at_the_start_does_not_abort_for_ever(
    transformer: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # librdkafka logs an error, and the log of the broker in this process must have none.
    monkeypatch.setattr(library.log, "disabled", True)
    story = transformer.story
    story.send(b"x" * 5_000)

    def act(producer: respool.Producer, message: respool.Message) -> None:
        for topic in (story.retry_topic, story.letters_topic):
            story.alter(topic, "max.message.bytes", "3000")
        raise Boom("large")

    transformer.run(act, until=lambda consumer: consumer.buried)
    (letter,) = story.letters()
    assert letter.value is None
    assert header(letter, "__dlq.errors.truncated") == b"value"


def test_a_message_is_handled_inside_its_transaction_only(transformer: Transformer) -> None:
    story = transformer.story
    story.send(b"0")
    with (
        respool.Producer(
            story.broker.bootstrap, delivery="exactly-once", transactional_id=story.group
        ) as producer,
        story.consumer(delivery="exactly-once") as consumer,
    ):
        for transaction in consumer.transactions(producer):
            (message,) = transaction.messages
            with pytest.raises(NoTransaction, match="inside"):
                consumer.retry(message, Boom())
            with transaction:
                pass
            with pytest.raises(NoTransaction, match="inside"), consumer.handling(message):
                pass
            break
