"""Receiving: what is committed when, rewinding, rebalances, and bad input."""

import threading
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition

import respool
from respool.client.messages.consumer import WAIT_SECONDS, Idleness
from respool.client.messages.errors import (
    BadArgument,
    BrokerUnreachable,
    ClientClosed,
    CommitFailed,
    NoTransaction,
    OffsetBeyondEnd,
    OutsideRetention,
    SettingContradicts,
    UnknownTopic,
    UsedByTwoThreads,
)
from respool.testing import Broker
from support.broker_process import BrokerProcess
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("messages-consumer")]

START = datetime(2026, 1, 1, tzinfo=UTC)
_groups = count()
# A rebalance reaches members with their next heartbeat.
EAGER: dict[str, object] = {"heartbeat.interval.ms": 100}
PROTOCOLS: dict[str, dict[str, object]] = {
    "eager": EAGER,
    "cooperative": {**EAGER, "partition.assignment.strategy": "cooperative-sticky"},
    "next generation": {"group.protocol": "consumer"},
}


class Story:
    """A topic with messages b"0", b"1", ... a day apart, dealt to its partitions in turn; and a group of its own."""

    def __init__(self, broker: BrokerProcess, topics: Topics) -> None:
        self.broker = broker
        self.topics = topics
        self.topic = ""
        self.group = f"group-{next(_groups)}"

    def make(self, *, partitions: int = 1, messages: int = 6) -> None:
        # Its messages are old.
        self.topic = self.topics.new("story", partitions=partitions, retention_ms=-1)
        self.write(0, messages, partitions=partitions)

    def write(self, first: int, end: int, *, partitions: int = 1) -> None:
        with respool.Producer(self.broker.address) as producer:
            for number in range(first, end):
                producer.send(
                    self.topic,
                    str(number),
                    partition=number % partitions,
                    timestamp=START + timedelta(days=number),
                )

    def consumer(self, **arguments: Any) -> respool.Consumer:
        return respool.Consumer(
            self.topic,
            **{
                "group": self.group,
                "bootstrap": self.broker.address,
                "settings": EAGER,
                **arguments,
            },
        )

    def committed(self, partitions: int = 1) -> list[int]:
        asker = KafkaConsumer({"bootstrap.servers": self.broker.address, "group.id": self.group})
        try:
            places = [TopicPartition(self.topic, number) for number in range(partitions)]
            return [one.offset for one in asker.committed(places, timeout=10)]
        finally:
            asker.close()


@pytest.fixture
def story(broker: BrokerProcess, topics: Topics) -> Story:
    return Story(broker, topics)


def take(consumer: respool.Consumer, messages: int) -> list[int]:
    """So many messages, however long it takes, and not one more."""
    found: list[int] = []
    wait_until(lambda: _take_one(consumer, found, messages), f"{messages} messages")
    return found


def _take_one(consumer: respool.Consumer, found: list[int], messages: int) -> bool:
    if len(found) < messages and (message := consumer.poll(0.2)) is not None:
        assert message.value is not None
        found.append(int(message.value))
    return len(found) == messages


# -- every field


def test_every_field_of_a_message_comes_out(story: Story) -> None:
    story.make(messages=0)
    when = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    with respool.Producer(story.broker.address) as producer:
        producer.send(story.topic, b"v", b"k", timestamp=when, headers=[("a", b"1"), ("a", None)])
        producer.send(story.topic, None, b"")
    with story.consumer() as consumer:
        first, second = consumer.messages(), consumer.messages()
        assert next(first) == respool.Message(
            topic=story.topic,
            partition=0,
            offset=0,
            timestamp=when,
            key=b"k",
            value=b"v",
            headers=(("a", b"1"), ("a", None)),
        )
        empty = next(second)
    assert (empty.key, empty.value, empty.headers) == (b"", None, ())
    assert empty.header("a") is None


# -- when it is committed


def test_at_most_once_has_committed_before_it_hands_over(story: Story) -> None:
    story.make()
    with story.consumer(delivery="at-most-once", pace="latency") as consumer:
        assert take(consumer, 2) == [0, 1]
        assert story.committed() == [2]
    assert story.committed() == [2]


def test_at_most_once_gives_back_what_it_never_handed_over(story: Story) -> None:
    story.make()
    with story.consumer(delivery="at-most-once") as consumer:
        assert take(consumer, 2) == [0, 1]
        # In larger batches: a crash here would lose the rest. A clean end does not.
        assert story.committed() == [6]
    assert story.committed() == [2]
    with story.consumer(delivery="at-most-once") as consumer:
        assert take(consumer, 4) == [2, 3, 4, 5]


def test_at_least_once_commits_what_was_done_when_it_is_asked_for_more(story: Story) -> None:
    story.make()
    with story.consumer(commit_every_ms=0) as consumer:
        assert take(consumer, 2) == [0, 1]
        assert story.committed() == [1]


def test_leaving_the_block_says_that_all_is_done(story: Story) -> None:
    story.make()
    with story.consumer() as consumer:
        assert take(consumer, 2) == [0, 1]
    assert story.committed() == [2]


def test_leaving_with_an_error_says_that_the_last_is_not(story: Story) -> None:
    story.make()

    def handle() -> None:
        with story.consumer() as consumer:
            assert take(consumer, 2) == [0, 1]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        handle()
    assert story.committed() == [1]
    with story.consumer() as consumer:
        assert take(consumer, 5) == [1, 2, 3, 4, 5]


def test_closing_alone_does_not_say_that_the_last_is_done(story: Story) -> None:
    story.make()
    consumer = story.consumer()
    assert take(consumer, 2) == [0, 1]
    consumer.close()
    assert story.committed() == [1]


def test_a_commit_says_that_all_is_done_or_all_up_to_a_message(story: Story) -> None:
    story.make()
    with story.consumer(commit="manual") as consumer:
        messages: list[respool.Message] = []
        while len(messages) < 6:
            messages += consumer.poll_batch()
        # Where a new group begins is written down, and no more.
        assert story.committed() == [0]
        consumer.commit(messages[2])
        assert story.committed() == [3]
        consumer.commit()
        assert story.committed() == [6]


def test_what_is_not_committed_by_hand_is_not_committed_at_the_end(story: Story) -> None:
    story.make()
    with story.consumer(commit="manual") as consumer:
        assert take(consumer, 2) == [0, 1]
        consumer.commit()
        assert take(consumer, 1) == [2]
    assert story.committed() == [2]


# -- groups: point to point, publish and subscribe


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_of_a_group_share_and_another_group_has_all(story: Story, protocol: str) -> None:
    story.make(partitions=2, messages=0)
    settings = PROTOCOLS[protocol]
    with (
        story.consumer(settings=settings) as one,
        story.consumer(settings=settings) as two,
        story.consumer(group=story.group + "-other") as all_alone,
    ):

        def is_shared() -> bool:
            one.poll(0.1)
            two.poll(0.1)
            return len(one.assignment) == len(two.assignment) == 1

        wait_until(is_shared, "one partition each")
        story.write(0, 20, partitions=2)
        assert sorted(take(one, 10) + take(two, 10)) == list(range(20))
        assert sorted(take(all_alone, 20)) == list(range(20))


def test_what_a_member_has_done_is_not_given_to_the_one_that_takes_over(story: Story) -> None:
    story.make(partitions=2, messages=20)
    with story.consumer(commit_every_ms=60_000) as one:
        first = take(one, 10)
        with story.consumer(commit_every_ms=60_000) as two:
            rest: list[int] = []

            def is_all_read() -> bool:
                for consumer in (one, two):
                    rest.extend(int(m.value or b"") for m in consumer.poll_batch(timeout_s=0.1))
                return len(set(first + rest)) == 20

            wait_until(is_all_read, "all 20")
    # The partitions were taken away in between: what was done was committed then, although it was not yet time.
    assert sorted(first + rest) == list(range(20))


def test_a_new_group_may_begin_at_the_end_and_then_misses_nothing(story: Story) -> None:
    story.make()
    consumer = story.consumer(start="latest")
    wait_until(lambda: consumer.poll(0.1) or consumer.assignment, "joined")
    wait_until(lambda: consumer.poll(0.1) or story.committed() == [6], "its place is written down")
    # It never read anything, and yet what comes while it is away is its own.
    consumer.close()
    story.write(6, 8)
    with story.consumer(start="latest") as consumer:
        assert take(consumer, 2) == [6, 7]


def test_a_new_group_does_not_wait_until_its_beginning_is_written_down() -> None:
    with Broker(topics={"rides": 1}) as broker:
        with respool.Producer(broker.bootstrap) as producer:
            producer.send("rides", "first")
        with (
            broker.faults.delay_replies("OffsetCommit") as unanswered,
            respool.Consumer("rides", group="g", bootstrap=broker.bootstrap) as consumer,
        ):
            message = consumer.poll(10)
            wait_until(lambda: unanswered.struck == 1, "the commit of its beginning")
            unanswered.clear()
        assert message is not None
        assert message.value == b"first"


def test_where_a_new_group_begins_is_written_down_again_when_brokers_refused_it() -> None:
    with (
        Broker(topics={"rides": 1}) as broker,
        broker.faults.answer_with_error("REBALANCE_IN_PROGRESS", "OffsetCommit") as refused,
        respool.Consumer(
            "rides", group="g", bootstrap=broker.bootstrap, start="latest", commit="manual"
        ) as consumer,
    ):
        wait_until(lambda: consumer.poll(0.1) or refused.struck, "the first commit")
        asker = KafkaConsumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        try:
            place = TopicPartition("rides", 0)
            wait_until(
                lambda: consumer.poll(0.1) or asker.committed([place], timeout=10)[0].offset == 0,
                "the next",
            )
        finally:
            asker.close()


# -- rewinding


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_consumer_reads_again_from_where_it_was_rewound_to(story: Story, protocol: str) -> None:
    story.make()
    expected: list[tuple[Any, list[int]]] = [
        ("earliest", [0, 1, 2, 3, 4, 5]),
        (4, [4, 5]),
        ({0: 3}, [3, 4, 5]),
        (START + timedelta(days=2), [2, 3, 4, 5]),
        (START + timedelta(days=1, hours=1), [2, 3, 4, 5]),
        ("2026-01-06T00:00:00+00:00", [5]),
    ]
    with story.consumer(settings=PROTOCOLS[protocol]) as consumer:
        take(consumer, 6)
        for to, messages in expected:
            consumer.rewind(to=to)
            assert take(consumer, len(messages)) == messages, to
        assert consumer.poll(0.3) is None


def test_so_long_ago_is_counted_from_now(story: Story) -> None:
    story.make(messages=0)
    now = datetime.now(UTC)
    with respool.Producer(story.broker.address) as producer:
        for days in (5, 4, 3, 2, 1):
            producer.send(story.topic, str(days), timestamp=now - timedelta(days=days))
    with story.consumer() as consumer:
        take(consumer, 5)
        consumer.rewind(timedelta(days=3, hours=1))
        assert take(consumer, 3) == [3, 2, 1]


def test_to_the_end_leaves_out_what_is_there_and_not_what_comes(story: Story) -> None:
    story.make()
    with story.consumer() as consumer:
        assert take(consumer, 1) == [0]
        consumer.rewind("latest")
        story.write(6, 8)
        assert take(consumer, 2) == [6, 7]


def test_before_anything_is_assigned_a_rewind_is_for_what_comes_first(story: Story) -> None:
    story.make(partitions=3)
    with story.consumer() as consumer:
        take(consumer, 6)
    with story.consumer() as consumer:
        consumer.rewind("earliest")
        assert sorted(take(consumer, 6)) == [0, 1, 2, 3, 4, 5]
        assert consumer.poll(0.3) is None


def test_only_the_partitions_named_are_moved(story: Story) -> None:
    story.make(partitions=3)
    with story.consumer() as consumer:
        take(consumer, 6)
        consumer.rewind({(story.topic, 1): 0})
        assert take(consumer, 2) == [1, 4]
        assert consumer.poll(0.3) is None


@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once"])
def test_the_group_knows_so_that_whoever_has_the_partition_next_goes_on_from_there(
    story: Story, delivery: Any
) -> None:
    story.make()
    with story.consumer(delivery=delivery) as consumer:
        take(consumer, 6)
        consumer.rewind(2)
    with story.consumer(delivery=delivery) as consumer:
        assert take(consumer, 4) == [2, 3, 4, 5]


def test_a_rewind_outlives_a_rebalance(story: Story) -> None:
    story.make(partitions=2, messages=20)
    with ExitStack() as stack:
        one = stack.enter_context(story.consumer())
        take(one, 20)
        one.rewind("earliest")
        two = stack.enter_context(story.consumer())
        found: list[int] = []

        def is_all_read_again() -> bool:
            for consumer in (one, two):
                found.extend(int(m.value or b"") for m in consumer.poll_batch(timeout_s=0.1))
            return set(found) == set(range(20)) and len(two.assignment) == 1

        wait_until(is_all_read_again, "all 20 again")


def test_a_rewind_to_what_is_not_there_moves_nothing(story: Story) -> None:
    story.make()
    with story.consumer() as consumer:
        take(consumer, 2)
        with pytest.raises(OffsetBeyondEnd, match="no offset 99 yet; the log ends at 6"):
            consumer.rewind(99)
        with pytest.raises(BadArgument, match="/7 is not this consumer's"):
            consumer.rewind({7: 0})
        with pytest.raises(BadArgument, match="give a datetime with a zone, a timedelta"):
            consumer.rewind(object())  # type: ignore[arg-type]
        assert take(consumer, 4) == [2, 3, 4, 5]


def test_a_rewind_beyond_retention_says_what_there_is(story: Story) -> None:
    story.make()
    deleted = story.topics.admin.delete_records([TopicPartition(story.topic, 0, 3)])
    for future in deleted.values():
        future.result(10)
    with story.consumer() as consumer:
        assert take(consumer, 3) == [3, 4, 5]
        for to in (1, START, START + timedelta(days=2)):
            with pytest.raises(OutsideRetention) as error:
                consumer.rewind(to)
            assert error.value.first_offset == 3
        consumer.rewind(START, missing="available")
        assert take(consumer, 3) == [3, 4, 5]
        consumer.rewind(1, missing="available")
        assert take(consumer, 3) == [3, 4, 5]


def test_messages_deleted_before_they_were_read_are_not_passed_over_in_silence(
    story: Story,
) -> None:
    story.make()
    with story.consumer() as consumer:
        take(consumer, 2)
    for future in story.topics.admin.delete_records([TopicPartition(story.topic, 0, 4)]).values():
        future.result(10)
    with story.consumer() as consumer:
        for _ in range(2):
            with pytest.raises(OutsideRetention, match="next to read is 2; there is 4 up to 6"):
                take(consumer, 1)
        consumer.rewind("earliest")
        assert take(consumer, 2) == [4, 5]


# -- loops


def test_a_loop_ends_when_nothing_has_come_for_a_while(story: Story) -> None:
    story.make()
    with story.consumer() as consumer:
        take(consumer, 1)
        assert [message.offset for message in consumer.messages(idle_s=0.5)] == [1, 2, 3, 4, 5]


def test_a_loop_ends_after_the_message_in_hand_when_it_is_told_to(story: Story) -> None:
    story.make()
    with story.consumer() as consumer:
        seen = []
        for message in consumer:
            seen.append(message.offset)
            if message.offset == 2:
                threading.Thread(target=consumer.stop).start()
                wait_until(consumer._reader.stopping.is_set, "told")
        assert seen == [0, 1, 2]
    assert story.committed() == [3]


# -- bad input


def test_two_threads_in_one_consumer_are_told_apart(story: Story) -> None:
    story.make(messages=0)
    with story.consumer() as consumer:
        take(consumer, 0)
        waiting = threading.Thread(target=lambda: consumer.poll(3.0))
        waiting.start()
        wait_until(consumer._busy.locked, "the other thread is inside")
        with pytest.raises(UsedByTwoThreads, match="one thread at a time"):
            consumer.poll(0)
        consumer.stop()
        waiting.join()
        assert consumer.poll(0) is None


def test_a_closed_consumer_stays_closed_and_may_be_closed_twice(story: Story) -> None:
    story.make()
    consumer = story.consumer()
    consumer.close()
    consumer.close()
    for act in (consumer.poll, consumer.commit, lambda: consumer.rewind(0), consumer.poll_batch):
        with pytest.raises(ClientClosed, match="was closed"):
            act()


def test_a_message_of_a_partition_that_went_to_another_is_not_committed(story: Story) -> None:
    story.make(messages=1)
    with story.consumer(commit="manual") as consumer:
        take(consumer, 1)
        foreign = respool.Message(
            topic=story.topic, partition=5, offset=0, timestamp=None, key=None, value=None
        )
        with pytest.raises(CommitFailed, match="no longer this consumer's"):
            consumer.commit(foreign)


def test_a_topic_that_is_not_there_is_said_at_once(story: Story) -> None:
    with pytest.raises(UnknownTopic, match="'nowhere'"):
        respool.Consumer("nowhere", group="g", bootstrap=story.broker.address)


def test_nobody_at_the_address_is_said() -> None:
    with pytest.raises(BrokerUnreachable, match=r"no broker at 127\.0\.0\.1:1, from bootstrap "):
        respool.Consumer("rides", group="g", bootstrap="127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"topics": []}, "topics is a name"),
        ({"topics": [3]}, "topics is a name"),
        ({"group": ""}, "needs group="),
        ({"delivery": "twice"}, "delivery is one of"),
        ({"pace": "fast"}, "pace is one of"),
        ({"start": "yesterday"}, "start is 'earliest' or 'latest'"),
        ({"commit": "never"}, "commit is 'auto' or 'manual'"),
        ({"commit": "manual", "delivery": "at-most-once"}, "is for at-least-once"),
        ({"commit_every_ms": -1}, "0 or more"),
        ({"settings": {"session.timeout": 3}}, "No such configuration property"),
    ],
)
def test_a_wrong_argument_says_what_would_be_right(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(BadArgument, match=why):
        respool.Consumer(
            **{"topics": "rides", "group": "g", "bootstrap": "127.0.0.1:1", **arguments}
        )


def test_a_setting_against_the_guarantee_is_refused() -> None:
    with pytest.raises(SettingContradicts, match="commits follow delivery="):
        respool.Consumer("rides", group="g", settings={"enable.auto.commit": True})


def test_exactly_once_hands_over_in_transactions_only(story: Story) -> None:
    story.make()
    with story.consumer(delivery="exactly-once") as consumer:
        for act in (consumer.poll, lambda: next(iter(consumer)), consumer.commit):
            with pytest.raises(NoTransaction, match="transactions"):
                act()


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.has_joined = True

    def idleness(self, idle_s: float | None) -> Idleness:
        return Idleness(idle_s, is_idle=lambda: self.has_joined, now=lambda: self.now_s)


def test_it_is_over_when_nothing_has_come_for_so_long() -> None:
    clock = Clock()
    idleness = clock.idleness(5)
    clock.now_s = 4.9
    assert not idleness.is_over()
    idleness.on_message()
    clock.now_s = 9.8
    assert not idleness.is_over()
    clock.now_s = 9.9
    assert idleness.is_over()


def test_joining_the_group_is_no_idleness() -> None:
    clock = Clock()
    clock.has_joined = False
    idleness = clock.idleness(1)
    clock.now_s = 3
    assert not idleness.is_over()
    clock.has_joined = True
    clock.now_s = 3.9
    assert not idleness.is_over()
    clock.now_s = 4
    assert idleness.is_over()


def test_without_an_end_it_is_never_over() -> None:
    clock = Clock()
    idleness = clock.idleness(None)
    clock.now_s = 1e9
    assert not idleness.is_over()
    assert idleness.wait_s == WAIT_SECONDS


def test_one_wait_is_no_longer_than_the_whole() -> None:
    assert Clock().idleness(0.2).wait_s == 0.2
