"""A consumer that retries, at least once: what is done when, and what happens if a retry cannot be written."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import respool
from client.messages.retry.story import SOON, Boom, RetryStory, fail, header
from respool.client.messages.errors import BadArgument, ClientClosed, ReceiveFailed, RetryRefused
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("messages-retry")]


def test_a_failed_message_comes_again_with_its_next_attempt(story: RetryStory) -> None:
    story.send(b"0", key=b"ride-1", headers={"tag": b"paid"})
    seen: list[respool.Message] = []

    def act(message: respool.Message) -> None:
        seen.append(message)
        if message.attempt < 3:
            fail(message)

    with story.consumer() as consumer:
        story.handle(consumer, act, until=lambda: len(seen) == 3)
        wait_until(lambda: consumer.poll(0.1) is None and consumer.retried == 2, "answers")
        assert consumer.buried == 0
    assert [one.attempt for one in seen] == [1, 2, 3]
    assert {(one.key, one.value, one.header("tag")) for one in seen} == {(b"ride-1", b"0", b"paid")}
    origin = seen[0].origin
    assert (origin.topic, origin.partition, origin.offset) == (story.topic, 0, 0)
    assert [one.origin for one in seen] == [origin] * 3
    assert story.committed() == [1]


def test_after_the_last_attempt_it_is_buried_and_does_not_come_again(story: RetryStory) -> None:
    story.send(b"0")
    with story.consumer() as consumer:
        story.handle(consumer, fail, until=lambda: consumer.buried)
        assert consumer.poll(0.3) is None
        assert (consumer.retried, consumer.buried) == (2, 1)
    assert len(story.letters()) == 1
    with story.consumer() as consumer:
        assert list(consumer.messages(idle_s=0.3)) == []


def test_other_messages_are_handled_while_one_waits(story: RetryStory) -> None:
    story.send(b"bad", b"1", b"2")
    seen: list[bytes | None] = []

    def act(message: respool.Message) -> None:
        if message.value == b"bad":
            fail(message)
        seen.append(message.value)

    with story.consumer(options={"delays": ["1h"]}) as consumer:
        story.handle(consumer, act, until=lambda: len(seen) == 2)
    assert seen == [b"1", b"2"]


def test_a_retry_is_not_early(story: RetryStory) -> None:
    story.send(b"0")
    options = {"delays": ("10s", "1m")}
    for attempt, seconds in [(1, 10), (2, 60)]:
        failed: list[int] = []

        def act(message: respool.Message, failed: list[int] = failed) -> None:
            failed.append(message.attempt)
            fail(message)

        with story.consumer(options=options) as consumer:
            story.handle(consumer, act, until=partial(bool, failed))
        assert failed == [attempt]
        story.broker.clock.advance(seconds=seconds - 2)
        with story.consumer(options=options) as consumer:
            assert list(consumer.messages(idle_s=0.3)) == []
        story.broker.clock.advance(seconds=3)
    handled: list[respool.Message] = []
    with story.consumer(options=options) as consumer:
        story.handle(consumer, handled.append, until=lambda: handled)
    assert handled[0].attempt == 3


def test_a_crash_between_send_and_commit_makes_no_second_retry(story: RetryStory) -> None:
    """The second one has the id of the first, and replaces it."""
    story.send(b"0")
    options = {"delays": ["1h"]}
    # Sent, and not committed.
    story.fail_once(options=options, commit="manual")
    assert story.committed() != [1]
    story.fail_once(options=options)
    assert story.committed() == [1]
    story.broker.clock.advance(hours=1, seconds=1)
    handled: list[respool.Message] = []
    with story.consumer(options=options) as consumer:
        story.handle(consumer, handled.append, until=lambda: handled)
        assert list(consumer.messages(idle_s=0.3)) == []
    assert [one.attempt for one in handled] == [2]


def test_retry_says_the_same_as_handling(story: RetryStory) -> None:
    story.send(b"0")
    with story.consumer(options={"give_up": Boom}) as consumer:
        message = next(consumer.messages())
        consumer.retry(message, OSError("no answer"))
        again = next(consumer.messages())
        assert again.attempt == 2
        consumer.retry(again, Boom("hopeless"))
    (letter,) = story.letters()
    assert header(letter, "__dlq.errors.delivery.count") == b"2"


def test_what_is_not_the_fault_of_the_message_is_raised_and_nothing_is_sent(
    story: RetryStory,
) -> None:
    story.send(b"0")
    with (
        pytest.raises(KeyboardInterrupt),
        story.consumer() as consumer,
        consumer.handling(next(consumer.messages())),
    ):
        raise KeyboardInterrupt
    assert story.read(story.retry_topic) == []
    assert story.committed() != [1]


def test_without_dead_letters_the_last_error_ends_the_loop_and_the_message_stays(
    story: RetryStory,
) -> None:
    story.send(b"0")
    options = {"dead_letters": False, "delays": [SOON]}
    for _ in range(2):
        with pytest.raises(Boom), story.consumer(options=options) as consumer:
            story.handle(consumer, fail, until=lambda: False)
    assert story.letters_topic not in story.topics.admin.list_topics(timeout=60).topics
    assert story.committed(story.retry_topic) != [1]


def test_handlers_in_other_threads_may_report_failures(story: RetryStory) -> None:
    story.send(*(b"%d" % number for number in range(20)))
    with story.consumer(commit="manual") as consumer:
        messages: list[respool.Message] = []
        while len(messages) < 20:
            messages += consumer.poll_batch(20, 0.2)
        threads = [
            threading.Thread(target=consumer.retry, args=(one, Boom("in a thread")))
            for one in messages
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        consumer.commit(messages[-1])
        assert story.committed() == [20]
        assert consumer.retried == 20


# -- a retry that cannot be written


def test_a_refused_retry_is_raised_and_the_message_is_read_again(story: RetryStory) -> None:
    story.send(b"0", b"1", b"2")
    seen: list[bytes | None] = []

    def act(message: respool.Message) -> None:
        seen.append(message.value)
        if message.value == b"1" and len(seen) < 4:
            fail(message)

    with story.consumer() as consumer:
        fault = story.broker.faults.answer_with_error("POLICY_VIOLATION", topic=story.retry_topic)
        with fault, pytest.raises(RetryRefused, match="POLICY_VIOLATION") as raised:
            story.handle(consumer, act, until=lambda: False)
        assert f"{story.topic}/0 offset 1" in str(raised.value)
        assert story.committed() <= [1]
        story.handle(consumer, act, until=lambda: seen[-2:] == [b"1", b"2"])
    assert story.committed() == [3]
    assert story.read(story.retry_topic) == []


@pytest.mark.parametrize(
    "end",
    [lambda consumer, message: consumer.commit(message), lambda consumer, _: consumer.close()],
    ids=["commit", "close"],
)
def test_a_refused_retry_is_raised_by_commit_and_by_close(
    story: RetryStory, end: Callable[[respool.Consumer, respool.Message], None]
) -> None:
    story.send(b"0")
    consumer = story.consumer(commit="manual")
    message = next(consumer.messages())
    with story.broker.faults.answer_with_error("POLICY_VIOLATION", topic=story.retry_topic):
        consumer.retry(message, Boom("x"))
        with pytest.raises(RetryRefused):
            end(consumer, message)
    consumer.close()
    assert story.committed() != [1]


def test_a_topic_that_takes_less_than_at_the_start_has_it_buried_smaller(
    story: RetryStory,
) -> None:
    story.send(b"x" * 5_000)
    with story.consumer() as consumer:
        message = next(consumer.messages())
        for topic in (story.retry_topic, story.letters_topic):
            story.alter(topic, "max.message.bytes", "3000")
        with consumer.handling(message):
            fail(message)
        wait_until(lambda: consumer.poll(0.1) is None and consumer.buried, "the dead letter")
    (letter,) = story.letters()
    assert (letter.value, header(letter, "__dlq.errors.truncated")) == (None, b"value")


# -- what others wrote into the retry topic


def test_a_message_without_an_origin_is_buried_as_it_is(story: RetryStory) -> None:
    story.create_topics()
    with respool.Producer(story.broker.bootstrap) as producer:
        producer.send(story.retry_topic, b"stray", b"k", headers={"__dlq.errors.offset": b"?"})
    with story.consumer() as consumer:
        wait_until(lambda: consumer.poll(0.1) or consumer.buried, "the dead letter")
        assert consumer.poll(0.1) is None
    (letter,) = story.letters()
    assert (letter.key, letter.value) == (b"k", b"stray")
    assert header(letter, "__dlq.errors.offset") == b"?"
    assert header(letter, "__dlq.errors.delivery.count") is None
    assert story.committed(story.retry_topic) == [1]


def test_without_dead_letters_a_message_without_an_origin_is_left_where_it_is(
    story: RetryStory,
) -> None:
    story.create_topics()
    with respool.Producer(story.broker.bootstrap) as producer:
        producer.send(story.retry_topic, b"stray")
    with story.consumer(options={"dead_letters": False}) as consumer:
        for _ in range(2):
            with pytest.raises(RetryRefused, match="rewind"):
                wait_until(lambda: consumer.poll(0.1), "the error")
        consumer.rewind({(story.retry_topic, 0): 1})
        assert list(consumer.messages(idle_s=0.3)) == []
    assert story.committed(story.retry_topic) == [1]


def test_a_message_whose_headers_cannot_be_read_is_buried_without_them(story: RetryStory) -> None:
    """It had taken the messages that were fetched with it along: all of them were skipped."""
    story.send(b"before")
    story.send_with_odd_header(b"odd")
    story.send(b"after")
    seen: list[respool.Message] = []
    with story.consumer() as consumer:
        story.handle(consumer, seen.append, until=lambda: len(seen) == 2)
    assert [one.value for one in seen] == [b"before", b"after"]
    (letter,) = story.letters()
    assert letter.value == b"odd"
    assert header(letter, "__dlq.errors.truncated") == b"headers"
    assert header(letter, "__dlq.errors.offset") == b"1"


def test_without_retries_such_a_message_is_an_error_and_can_be_skipped(story: RetryStory) -> None:
    story.send(b"before")
    story.send_with_odd_header(b"odd")
    story.send(b"after")
    with story.consumer(retry=None) as consumer:
        messages = consumer.messages()
        assert next(messages).value == b"before"
        for _ in range(2):
            with pytest.raises(ReceiveFailed, match="offset 1"):
                consumer.poll(5)
        consumer.rewind({(story.topic, 0): 2})
        assert next(consumer.messages()).value == b"after"


# -- bad arguments


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"delivery": "at-most-once"}, "loses it"),
        ({"retry": ("10s", "1m")}, "respool.Retry"),
        ({"retry": respool.Retry}, "respool.Retry"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(
    story: RetryStory, arguments: Any, reason: str
) -> None:
    with pytest.raises(BadArgument, match=reason):
        story.consumer(**arguments)


@pytest.mark.parametrize("name", ["retry_topic", "letters_topic"])
def test_a_group_does_not_read_its_own_retries_by_name(story: RetryStory, name: str) -> None:
    story.create_topics()
    with pytest.raises(BadArgument, match="sent there again"):
        respool.Consumer([story.topic, getattr(story, name)], **story.arguments())


def test_a_consumer_that_does_not_retry_says_how_it_would(story: RetryStory) -> None:
    story.send(b"0")
    with story.consumer(retry=None) as consumer:
        message = next(consumer.messages())
        with pytest.raises(BadArgument, match=r"respool.Retry"), consumer.handling(message):
            pass
        with pytest.raises(BadArgument, match=r"respool.Retry"):
            consumer.retry(message, Boom())
        assert (consumer.retried, consumer.buried) == (0, 0)
    with pytest.raises(ClientClosed):
        consumer.retry(message, Boom())


def test_handling_that_succeeds_sends_nothing(story: RetryStory) -> None:
    story.send(b"0")
    with story.consumer() as consumer, consumer.handling(next(consumer.messages())) as message:
        assert message.value == b"0"
    assert story.read(story.retry_topic) == []
    assert story.committed() == [1]
