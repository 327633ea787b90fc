"""`kill -9` of a program that uses the message client, and of the broker under it: how often is each message handled?

At most once: never twice. At least once: never not at all. Exactly once: once.
"""

import random
from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import respool
from client.messages.conftest import SETTINGS
from client.messages.worker import END, Worker
from respool.client.messages.errors import ClientError, DeliveryFailed
from support.broker_process import BrokerProcess
from support.confluent_client import ConfluentClient
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("messages-kill")]

PARTITIONS = 2
KILLS = 4
# A broker is back in less than a second.
SOON = {"reconnect.backoff.max.ms": 100}


class Story:
    def __init__(self, broker: BrokerProcess, topics: Topics, folder: Path) -> None:
        self.broker = broker
        self.topics = topics
        self.effects = folder / "effects"
        self.target = topics.new("target", partitions=PARTITIONS)
        self.source = ""
        self.partitions = 0
        self.messages = 0

    def fill(self, messages: int, *, partitions: int) -> None:
        self.source = self.topics.new("source", partitions=partitions)
        self.partitions = partitions
        self.messages = messages
        with respool.Producer(self.broker.address, pace="throughput") as producer:
            for number in range(messages):
                producer.send(self.source, str(number), partition=number % partitions)

    def work_to_the_end(self, delivery: str, **wish: Any) -> None:
        """One more life, which ends when it has read everything."""
        with respool.Producer(self.broker.address) as producer:
            for partition in range(self.partitions):
                producer.send(self.source, END, partition=partition)
        assert self.worker(delivery, **wish).wait() == 0

    def worker(self, delivery: str, **wish: Any) -> Worker:
        return Worker(
            self.broker.address,
            delivery=delivery,
            source=self.source,
            partitions=self.partitions,
            target=self.target,
            effects=str(self.effects),
            # Groups remember a static member's topics.
            name=f"worker of {self.source}",
            **wish,
        )

    def handled(self) -> Counter[int]:
        text = self.effects.read_text() if self.effects.exists() else ""
        return Counter(map(int, text.split()))

    def made(self) -> Counter[int]:
        """What a read_committed reader finds in the target."""
        places = [(self.target, number) for number in range(PARTITIONS)]
        found = ConfluentClient().read(self.broker.address, places)
        return Counter(int(one.value or b"") for messages in found.values() for one in messages)


@pytest.fixture
def story(broker: BrokerProcess, topics: Topics, tmp_path: Path) -> Story:
    return Story(broker, topics, tmp_path)


# -- at a moment of our choice


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "async"])
@pytest.mark.parametrize(
    ("delivery", "die", "times"),
    [
        # Committed, and then not handled: lost.
        ("at-most-once", "before", 0),
        ("at-most-once", "after", 1),
        ("at-least-once", "before", 1),
        # Handled, and then not committed: twice.
        ("at-least-once", "after", 2),
    ],
)
def test_the_message_in_hand_when_it_dies_is_handled_as_often_as_was_promised(
    story: Story, delivery: str, die: str, times: int, is_async: bool
) -> None:
    story.fill(12, partitions=1)
    exact = {"pace": "latency", "commit_every_ms": 0, "is_async": is_async}
    assert story.worker(delivery, die=die, die_at=7, **exact).wait() == -9
    story.work_to_the_end(delivery, **exact)
    assert story.handled() == Counter({**dict.fromkeys(range(12), 1), 7: times}) - Counter()


@pytest.mark.parametrize("die", ["before", "after"])
def test_what_was_written_in_a_transaction_that_died_is_there_once(story: Story, die: str) -> None:
    story.fill(12, partitions=1)
    assert story.worker("exactly-once", die=die, die_at=7).wait() == -9
    story.work_to_the_end("exactly-once")
    assert story.made() == Counter(range(12))


# -- at any moment


def _kill_at_random(story: Story, delivery: str, *, seed: int, pace: str = "balanced") -> None:
    """Let it work in several lives, each ended in the middle of something, and the last one to the end."""
    rng = random.Random(seed)
    story.fill(3_000, partitions=PARTITIONS)
    # Each life has its share and no more, so that work is left for all of them, however late the kill comes.
    share = story.messages // (KILLS + 1)
    for _ in range(KILLS):
        goal = story.handled().total() + rng.randrange(1, share)
        worker = story.worker(delivery, pace=pace, handled_max=share)
        wait_until(
            lambda goal=goal, worker=worker: (
                story.handled().total() >= goal or not worker.is_running
            ),  # type: ignore[misc]
            f"{goal} done",
            seconds=120,
        )
        assert worker.is_running
        worker.kill()
    story.work_to_the_end(delivery, pace=pace)


def test_at_most_once_never_handles_a_message_twice(story: Story) -> None:
    _kill_at_random(story, "at-most-once", seed=1)
    handled = story.handled()
    assert max(handled.values()) == 1
    # A crash loses no more than what was taken at once.
    assert story.messages - KILLS * 100 <= len(handled) <= story.messages


def test_at_least_once_handles_every_message(story: Story) -> None:
    _kill_at_random(story, "at-least-once", seed=2)
    handled = story.handled()
    assert set(handled) == set(range(story.messages))
    assert handled.total() < 2 * story.messages


def test_exactly_once_makes_one_of_each_message(story: Story) -> None:
    _kill_at_random(story, "exactly-once", seed=3)
    assert story.made() == Counter(range(story.messages))


# -- the broker dies under a producer


@pytest.fixture
def mortal(tmp_path: Path) -> Any:
    with BrokerProcess(tmp_path / "data", SETTINGS) as broker:
        yield broker


def _send_while_it_dies(broker: BrokerProcess) -> tuple[list[int], int]:
    """What is in the log afterwards, and how many messages the producer said were not delivered."""
    topic = Topics(broker.address).new("sent")
    failed = 0
    with respool.Producer(
        broker.address, delivery="at-least-once", pace="latency", settings=SOON
    ) as producer:
        for number in range(2_000):
            if number % 500 == 250:
                broker.kill()
                broker.start()
            try:
                producer.send(topic, str(number))
            except DeliveryFailed as error:
                failed += error.count
                producer.send(topic, str(number))
        try:
            producer.flush()
        except DeliveryFailed as error:
            failed += error.count
    (messages,) = ConfluentClient().read(broker.address, [(topic, 0)]).values()
    return [int(one.value or b"") for one in messages], failed


def test_an_at_least_once_producer_delivers_all_in_order_whenever_the_broker_dies(
    mortal: BrokerProcess,
) -> None:
    sent, failed = _send_while_it_dies(mortal)
    assert failed == 0
    # Idempotent as well: what was sent again is there once.
    assert sent == list(range(2_000))


def test_an_at_most_once_producer_delivers_nothing_twice(mortal: BrokerProcess) -> None:
    topic = Topics(mortal.address).new("sent")
    numbers = count()
    delivered: set[int] = set()

    def in_log() -> list[int]:
        values = respool.read_table(topic, bootstrap=mortal.address)["value"].to_pylist()
        return [int(value) for value in values]

    with respool.Producer(
        mortal.address, delivery="at-most-once", pace="latency", settings=SOON
    ) as producer:

        def send() -> int:
            number = next(numbers)
            producer.send(topic, str(number))
            return number

        def is_connected() -> bool:
            """Without acknowledgements, what it sends before it notices that the broker died is lost."""
            with suppress(DeliveryFailed):
                number = send()
                producer.flush()
                return number in in_log()
            return False

        for _ in range(3):
            wait_until(is_connected, "a message arrived", seconds=60)
            sent = [send() for _ in range(250)]
            wait_until(lambda last=sent[-1]: last in in_log(), "the rest too", seconds=60)  # type: ignore[misc]
            delivered.update(sent)
            for _ in range(250):
                send()
            mortal.kill()
            mortal.start()
        with suppress(DeliveryFailed):
            producer.flush()
    found = in_log()
    assert max(Counter(found).values()) == 1
    assert delivered <= set(found)


def test_a_transaction_over_which_the_broker_dies_counts_once_or_is_said_not_to(
    mortal: BrokerProcess,
) -> None:
    topic = Topics(mortal.address).new("sent")
    committed: list[int] = []
    deaths = {3, 10, 17}
    with respool.Producer(
        mortal.address, delivery="exactly-once", transactional_id="writer", settings=SOON
    ) as producer:
        for number in range(20):
            try:
                with producer.transaction():
                    producer.send(topic, str(number))
                    if number in deaths:
                        mortal.kill()
                        mortal.start()
            except ClientError:
                continue
            committed.append(number)
    (messages,) = ConfluentClient().read(mortal.address, [(topic, 0)]).values()
    assert [int(one.value or b"") for one in messages] == committed
    assert set(range(20)) - set(committed) <= deaths, "only those may fail over which it died"


@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once"])
def test_a_consumer_lives_through_the_death_of_its_broker(
    mortal: BrokerProcess, delivery: Any
) -> None:
    topic = Topics(mortal.address).new("sent")
    found: list[int] = []
    with respool.Consumer(
        topic,
        group="g",
        bootstrap=mortal.address,
        delivery=delivery,
        commit_every_ms=0,
        settings=SOON,
    ) as consumer:
        for life in range(3):
            with respool.Producer(mortal.address) as producer:
                for number in range(50 * life, 50 * life + 50):
                    producer.send(topic, str(number))
            end = 50 * life + 49
            while not found or found[-1] != end:
                message = consumer.poll(0.2)
                if message is not None:
                    found.append(int(message.value or b""))
            mortal.kill()
            mortal.start()
    if delivery == "at-most-once":
        assert found == list(range(150))
    else:
        assert sorted(set(found)) == list(range(150))


def test_exactly_once_goes_on_after_its_broker_was_away(mortal: BrokerProcess) -> None:
    """librdkafka would forget who coordinates the group, and wait for ever with the offsets."""
    topics = Topics(mortal.address)
    source, target = topics.new("source"), topics.new("target")
    with respool.Producer(mortal.address) as producer:
        for number in range(30):
            producer.send(source, str(number))
    with (
        respool.Producer(
            mortal.address, delivery="exactly-once", transactional_id="copier", settings=SOON
        ) as producer,
        respool.Consumer(
            source,
            group="copier",
            bootstrap=mortal.address,
            delivery="exactly-once",
            settings=SOON,
        ) as consumer,
    ):
        done = 0
        for number, transaction in enumerate(consumer.transactions(producer, messages_max=5)):
            if number in (1, 3):
                mortal.kill()
                mortal.start()
            with transaction as messages:
                for message in messages:
                    producer.send(target, message.value)
            done += len(transaction) if transaction.is_committed else 0
            if done == 30:
                break
    (copied,) = ConfluentClient().read(mortal.address, [(target, 0)]).values()
    assert [int(one.value or b"") for one in copied] == list(range(30))
