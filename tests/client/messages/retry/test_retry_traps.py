"""What home-made retries get wrong, each with a real broker. The pure parts are in test_failure_decisions.py."""

from collections.abc import Sized
from functools import partial
from typing import Any

import pytest

import respool
from client.messages.retry.story import SOON, Boom, RetryStory, fail, header
from respool.client.messages.errors import ForeignRetry, RetryTopicMissing
from respool.client.messages.retry import retry_topics
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("messages-retry-traps")]


def is_long(found: Sized, count: int) -> bool:
    return len(found) == count


def test_1_a_group_id_with_any_characters_retries(story: RetryStory) -> None:
    story.group = f"билинг/eu:{story.group} " + "x" * 300
    story.send(b"0")
    with story.consumer() as consumer:
        story.handle(consumer, fail, until=lambda: consumer.buried)
    assert len(story.retry_topic) == 249
    assert [one.value for one in story.letters()] == [b"0"]


def test_2_a_retry_of_another_application_is_left_where_it_is(story: RetryStory) -> None:
    """Two applications with one group id take each other's retries."""
    story.send(b"0")
    story.fail_once()
    other = story.topics.new("invoices")
    arguments = story.arguments()
    for _ in range(2):
        with (
            pytest.raises(ForeignRetry, match=story.topic),
            respool.Consumer(other, **arguments) as stranger,
        ):
            wait_until(lambda: stranger.poll(0.2), "the message of the other application")
    assert story.committed(story.retry_topic) == [0]
    values: list[respool.Message] = []
    with story.consumer() as consumer:
        story.handle(consumer, values.append, until=lambda: values)
    assert [one.attempt for one in values] == [2]


def test_3_nothing_is_committed_before_its_retry_is_acknowledged(story: RetryStory) -> None:
    story.send(b"0", b"1", b"2")
    story.create_topics()
    seen: list[bytes | None] = []

    def act(message: respool.Message) -> None:
        seen.append(message.value)
        if message.value == b"1" and message.attempt == 1:
            fail(message)

    with story.consumer() as consumer:
        with story.retries_unanswered():
            story.handle(consumer, act, until=lambda: len(seen) == 3)
            assert consumer.poll(0.1) is None
            assert (story.committed(), consumer.retried) == ([1], 0)
        story.handle(consumer, act, until=lambda: consumer.retried == 1)
        wait_until(lambda: consumer.poll(0.1) is None and story.committed() == [3], "the commit")


def test_4_attempts_are_counted_in_the_message(story: RetryStory) -> None:
    """Each attempt is made by another consumer, as after crashes."""
    story.send(b"poison")
    attempts: list[int] = []

    def act(message: respool.Message) -> None:
        attempts.append(message.attempt)
        fail(message)

    for number in (1, 2, 3):
        with story.consumer() as consumer:
            story.handle(consumer, act, until=partial(is_long, attempts, number))
    assert attempts == [1, 2, 3]
    assert len(story.letters()) == 1


def test_5_headers_do_not_grow(story: RetryStory) -> None:
    story.send(b"0")
    sizes = []

    def act(message: respool.Message) -> None:
        sizes.append(sum(len(name) + len(value or b"") for name, value in message.headers))
        raise Boom("x" * 100_000)

    with story.consumer(options={"delays": [SOON] * 5}) as consumer:
        story.handle(consumer, act, until=lambda: consumer.buried)
    assert sizes[1] < 2_500
    assert max(sizes[1:]) - min(sizes[1:]) < 50


def test_6_a_message_too_large_for_its_retry_is_buried_with_a_pointer(story: RetryStory) -> None:
    for topic in (story.retry_topic, story.letters_topic):
        configs: dict[str, Any] = {"max_message_bytes": 5_000}
        if topic == story.retry_topic:
            configs |= story.delay_configs
        story.topics.create(topic, **configs)
    story.send(b"x" * 4_900, key=b"ride-1")
    with story.consumer() as consumer:
        story.handle(consumer, fail, until=lambda: consumer.buried)
        assert consumer.retried == 0
    (letter,) = story.letters()
    assert (letter.key, letter.value) == (b"ride-1", None)
    assert header(letter, "__dlq.errors.truncated") == b"value"
    assert header(letter, "__dlq.errors.topic") == story.topic.encode()
    assert header(letter, "__dlq.errors.offset") == b"0"


def test_6_topics_made_by_the_consumer_have_room_for_the_largest_message(
    story: RetryStory,
) -> None:
    story.topic = story.topics.new("large", max_message_bytes=3_000_000)
    with respool.Producer(
        story.broker.bootstrap, settings={"message.max.bytes": 3_000_000}
    ) as producer:
        producer.send(story.topic, b"x" * 2_999_000)
    with story.consumer() as consumer:
        story.handle(consumer, fail, until=lambda: consumer.buried)
        assert consumer.retried == 2
    assert [len(one.value or b"") for one in story.letters()] == [2_999_000]


def test_7_a_retry_does_not_need_what_it_was_made_of(story: RetryStory) -> None:
    """The origin's retention may be shorter than the delays."""
    story.send(b"0")
    story.fail_once()
    story.delete_records()
    handled: list[respool.Message] = []
    with story.consumer() as consumer:
        story.handle(consumer, handled.append, until=lambda: handled)
    assert [(one.value, one.attempt) for one in handled] == [(b"0", 2)]


def test_8_a_delay_longer_than_the_poll_interval_pauses_nothing(story: RetryStory) -> None:
    story.send(b"0", b"1")
    settings = {"max.poll.interval.ms": 6_000, "session.timeout.ms": 6_000}
    seen: list[tuple[bytes | None, int]] = []

    def act(message: respool.Message) -> None:
        seen.append((message.value, message.attempt))
        if message.value == b"0" and message.attempt == 1:
            fail(message)

    with story.consumer(options={"delays": ["1h"]}, settings=settings) as consumer:
        story.handle(consumer, act, until=lambda: len(seen) == 2)
    assert seen == [(b"0", 1), (b"1", 1)]
    story.broker.clock.advance(minutes=59)
    with story.consumer(options={"delays": ["1h"]}) as consumer:
        assert list(consumer.messages(idle_s=0.5)) == []
    story.broker.clock.advance(minutes=2)
    with story.consumer(options={"delays": ["1h"]}) as consumer:
        story.handle(consumer, act, until=lambda: len(seen) == 3)
    assert seen[2] == (b"0", 2)


def test_9_a_value_that_cannot_be_decoded_is_retried_and_buried(story: RetryStory) -> None:
    story.send(b"\xff", b"ok")
    decoded = []
    options = {"give_up": UnicodeDecodeError}
    with story.consumer(options=options) as consumer:
        story.handle(
            consumer,
            lambda message: decoded.append((message.value or b"").decode()),
            until=lambda: consumer.buried and decoded,
        )
    assert decoded == ["ok"]
    (letter,) = story.letters()
    assert header(letter, "respool-error-class") == b"UnicodeDecodeError"
    assert letter.value == b"\xff"


def test_10_start_latest_does_not_skip_retries(story: RetryStory) -> None:
    story.create_topics()
    story.put_into_retry_topic(b"again")
    story.send(b"old")
    handled: list[respool.Message] = []
    with story.consumer(start="latest") as consumer:
        story.handle(consumer, handled.append, until=lambda: handled)
    assert [(one.value, one.attempt) for one in handled] == [(b"again", 1)]


def test_10_a_rewind_does_not_move_the_retries(story: RetryStory) -> None:
    story.send(b"0")
    story.fail_once()
    handled: list[respool.Message] = []
    with story.consumer() as consumer:
        consumer.rewind("latest")
        story.handle(consumer, handled.append, until=lambda: handled)
        assert consumer.poll(0.3) is None
        consumer.rewind({0: 0})
        story.handle(consumer, handled.append, until=lambda: len(handled) == 2)
    assert [(one.topic, one.attempt) for one in handled] == [
        (story.retry_topic, 2),
        (story.topic, 1),
    ]


def test_11_a_renamed_group_begins_with_an_empty_retry_topic(story: RetryStory) -> None:
    story.send(b"0")
    story.fail_once()
    before = story.retry_topic
    story.group += "-renamed"
    with story.consumer(start="latest") as consumer:
        assert list(consumer.messages(idle_s=0.3)) == []
    assert len(story.read(before)) == 1


def test_12_a_topic_that_cannot_be_created_is_reported_at_the_start(
    story: RetryStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_topics, "DEAD_LETTER_CONFIGS", {"retention.ms": "soon"})
    with pytest.raises(RetryTopicMissing) as raised:
        story.consumer()
    assert f"respool topic create {story.letters_topic} --partitions 1" in str(raised.value)


def test_13_a_dead_letter_says_where_it_comes_from(story: RetryStory) -> None:
    """So that it can be put back for the group that failed, and for no other."""
    story.send(b"0", key=b"ride-1", headers={"tag": b"paid"})
    with story.consumer() as consumer:
        story.handle(consumer, fail, until=lambda: consumer.buried)
    (letter,) = story.letters()
    assert header(letter, "__dlq.errors.topic") == story.topic.encode()
    assert header(letter, "__dlq.errors.partition") == b"0"
    assert header(letter, "__dlq.errors.offset") == b"0"
    assert header(letter, "__dlq.errors.group") == story.group.encode()
    assert header(letter, "__dlq.errors.delivery.count") == b"3"
    assert header(letter, "__dlq.errors.message") == b"not b'0'"
    assert header(letter, "respool-error-class") == b"client.messages.retry.story.Boom"
    assert header(letter, "tag") == b"paid"
    assert header(letter, "respool-delivered-from") is None


@pytest.mark.parametrize(("key", "value"), [(b"ride-1", None), (None, b"0"), (None, None)])
def test_14_tombstones_and_null_keys_survive(
    story: RetryStory, key: bytes | None, value: bytes | None
) -> None:
    story.send(value, key=key)
    with story.consumer() as consumer:
        story.handle(consumer, fail, until=lambda: consumer.buried)
        assert consumer.retried == 2
    assert [(one.key, one.value) for one in story.letters()] == [(key, value)]


def test_15_in_a_storm_reading_stops(story: RetryStory) -> None:
    story.send(*(b"%d" % number for number in range(50)))
    now_s = [0.0]
    options = {"retry_rate_max": 5, "delays": ["1h"]}
    seen: list[respool.Message] = []

    def act(message: respool.Message) -> None:
        seen.append(message)
        fail(message)

    with story.consumer(options=options) as consumer:
        story.stop_the_clock_of(consumer, now_s)
        story.handle(consumer, act, until=lambda: len(seen) == 6)
        for _ in range(3):
            assert consumer.poll(0.1) is None
        now_s[0] += 1
        story.handle(consumer, act, until=lambda: len(seen) == 11)
        assert consumer.poll(0.1) is None
        # What was not handled stays in its topic, and the group keeps its members.
        assert consumer.assignment
    assert story.committed() == [11]


def test_16_a_retry_names_the_view_it_was_read_from(story: RetryStory) -> None:
    """A view's offsets are those of its parent; a topic that looks like one stands for it."""
    story.topic = story.topics.new("rides.v.paid")
    story.send(b"0", b"1")
    origins = []

    def act(message: respool.Message) -> None:
        if message.attempt == 1 and message.value == b"1":
            fail(message)
        origins.append(message.origin)

    with story.consumer() as consumer:
        story.handle(consumer, act, until=lambda: len(origins) == 2)
    assert [(one.topic, one.offset) for one in origins] == [(story.topic, 0), (story.topic, 1)]
    assert origins[1].timestamp is not None
