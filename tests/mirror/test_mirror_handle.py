"""`respool.start_mirror` between two brokers of this process."""

import re
from collections.abc import Iterator, Sequence
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import respool
from respool.client.kafka.admin import change_layout
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.configs import ConfigResource, describe_configs
from respool.client.kafka.layout_descriptions import describe_layout
from respool.mirror.cluster_link import ACTIVE_CONFIG
from respool.mirror.comparison import compare_partitions
from respool.mirror.mirror_handle import MirrorEnded
from respool.mirror.partition_copy import CopyState
from respool.mirror.progress import MirrorEvent, Severity
from respool.mirror.promotion import promote
from respool.mirror.target_topics import TopicFilter
from respool.model.operator_errors import NotFound, OperatorError, Unreachable, UsageError
from respool.testing import Broker
from respool.wire.layout_change import LayoutChangeKind
from support.topics import Topics
from support.waiting import wait_until

pytestmark = pytest.mark.clients
TIMEOUT_S = 60


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker(topics={"rides": 2}) as broker:
        yield broker


@pytest.fixture
def target() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def produce(broker: Broker, values: Sequence[str], topic: str = "rides") -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2)
    assert producer.flush(TIMEOUT_S) == 0


def read(broker: Broker, count: int, topic: str = "rides") -> list[str]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
    messages = consumer.consume(count, timeout=TIMEOUT_S)
    consumer.close()
    return sorted(message.value().decode() for message in messages)


def committed(broker: Broker, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition("rides", 0)], timeout=TIMEOUT_S)
    consumer.close()
    return int(found.offset)


def start(source: Broker, target: Broker, **options: Any) -> "respool.Mirror":
    options.setdefault("topics", ".*")
    return respool.start_mirror(source.bootstrap, target.bootstrap, **options)


def test_it_follows_the_source_until_it_is_stopped(source: Broker, target: Broker) -> None:
    produce(source, ["a", "b"])
    with start(source, target) as mirror:
        mirror.wait_until_caught_up(TIMEOUT_S)
        assert read(target, 2) == ["a", "b"]
        produce(source, ["c", "d", "e"])
        mirror.wait_until_caught_up(TIMEOUT_S)
        assert read(target, 5) == ["a", "b", "c", "d", "e"]
        status = mirror.status()
        assert (status.lag, status.offsets_copied, status.partition_count) == (0, 5, 2)
        assert [(one.topic, one.end, one.state) for one in status.topics] == [
            ("rides", 5, CopyState.COPYING)
        ]
        assert mirror.is_running
    assert not mirror.is_running
    assert mirror.status() == status
    assert mirror.wait()


def test_caught_up_includes_topics_that_are_new_and_offsets_of_groups(
    source: Broker, target: Broker
) -> None:
    with start(source, target, groups="bill.*") as mirror:
        mirror.wait_until_caught_up(TIMEOUT_S)
        source.create_topic("fares", partitions=2)
        produce(source, ["1", "2", "3"], "fares")
        produce(source, ["a", "b", "c"])
        consumer = Consumer({"bootstrap.servers": source.bootstrap, "group.id": "billing"})
        consumer.commit(offsets=[TopicPartition("rides", 0, 2)], asynchronous=False)
        consumer.close()
        mirror.wait_until_caught_up(TIMEOUT_S)
        assert read(target, 3, "fares") == ["1", "2", "3"]
        assert committed(target, "billing") == 2
        assert mirror.status().group_count == 1


def test_paused_it_fetches_nothing_and_unpaused_it_continues(
    source: Broker, target: Broker
) -> None:
    produce(source, ["a", "b"])
    with start(source, target) as mirror:
        mirror.wait_until_caught_up(TIMEOUT_S)
        mirror.pause()
        assert mirror.is_paused
        produce(source, ["c", "d"])
        with pytest.raises(TimeoutError):
            mirror.wait_until_caught_up(1.0)
        assert mirror.status().offsets_copied == 2
        mirror.unpause()
        mirror.wait_until_caught_up(TIMEOUT_S)
        assert read(target, 4) == ["a", "b", "c", "d"]
        mirror.pause()
    assert not mirror.is_paused


def test_once_ends_by_itself(source: Broker, target: Broker) -> None:
    produce(source, ["a", "b"])
    mirror = start(source, target, topics=["rides", "nothing"], once=True)
    assert mirror.wait(TIMEOUT_S)
    assert mirror.status().offsets_copied == 2
    with pytest.raises(MirrorEnded):
        mirror.wait_until_caught_up(TIMEOUT_S)
    mirror.stop()


def test_views_are_left_out_and_named(source: Broker, target: Broker) -> None:
    """What they show is copied with their parent, at the same offsets; at the target they are made by hand."""
    views = Topics(source.bootstrap)
    views.view("rides.v.paid", of="rides", where="tag = 'paid'", listed=True)
    views.view("rides.v.open", of="rides", where="tag = 'open'")
    produce(source, ["a", "b"])
    events: list[MirrorEvent] = []
    with start(source, target, topics="rides.*", on_event=events.append) as mirror:
        mirror.wait_until_caught_up(TIMEOUT_S)
        # One of that name at the target is no topic that is in the way.
        Topics(target.bootstrap).view("rides.v.paid", of="rides", where="exists(tag)", listed=True)
        produce(source, ["c"])
        mirror.wait_until_caught_up(TIMEOUT_S)
        assert [one.topic for one in mirror.status().topics] == ["rides"]
    (event,) = [one for one in events if "rides.v.paid" in one.message]
    assert event.severity is Severity.INFO
    assert "is a view and is not copied" in event.message
    with Cluster(source.bootstrap) as old, Cluster(target.bootstrap) as new:
        found = compare_partitions(old, new, TopicFilter((re.compile("rides.*"),)))
    assert [(one.topic, one.partition, one.lag) for one in found] == [
        ("rides", 0, 0),
        ("rides", 1, 0),
    ]


def test_a_failure_is_raised_where_it_is_waited_for(source: Broker, target: Broker) -> None:
    mirror = start(source, target, topics="nothing", once=True)
    with pytest.raises(NotFound, match=r"no topic at .* matches the patterns") as raised:
        mirror.wait(TIMEOUT_S)
    # A program has no options.
    assert "--topics" not in str(raised.value)
    with pytest.raises(NotFound), mirror:
        pass
    with pytest.raises(NotFound):
        mirror.wait_until_caught_up(TIMEOUT_S)


def test_a_topic_that_diverged_is_stopped_and_named(source: Broker, target: Broker) -> None:
    produce(source, ["a", "b"])
    start(source, target, once=True).wait(TIMEOUT_S)
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    admin.delete_topics(["rides"])["rides"].result(TIMEOUT_S)
    source.create_topic("rides", partitions=2)
    produce(source, ["other"])
    events: list[MirrorEvent] = []
    with (
        pytest.raises(OperatorError, match="1 topic not mirrored: rides"),
        start(source, target, on_event=events.append) as mirror,
    ):
        mirror.wait_until_caught_up(TIMEOUT_S)
    (error,) = [one for one in events if one.severity is Severity.ERROR]
    assert error.message.startswith("rides/")
    assert "respool topic delete rides" in error.hint
    assert read(target, 2) == ["a", "b"]


def test_an_exception_in_the_block_stops_it_and_is_not_replaced(
    source: Broker, target: Broker
) -> None:
    with pytest.raises(KeyError), start(source, target, topics="nothing", once=True) as mirror:
        raise KeyError
    assert not mirror.is_running


def test_events_go_to_the_log_by_default(
    source: Broker, target: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "respool.mirror")
    start(source, target, once=True).wait(TIMEOUT_S)
    assert "created rides at the target" in caplog.messages


def test_waiting_takes_no_longer_than_allowed(source: Broker, target: Broker) -> None:
    produce(source, ["a", "b"])
    is_held, release = Event(), Event()

    def hold(event: MirrorEvent) -> None:
        # It is called in the mirror's thread, which goes no further until it returns.
        is_held.set()
        assert release.wait(TIMEOUT_S)

    with start(source, target, on_event=hold) as mirror:
        assert is_held.wait(TIMEOUT_S)
        assert not mirror.wait(0.01)
        with pytest.raises(TimeoutError, match=r"within 0\.01 seconds"):
            mirror.wait_until_caught_up(0.01)
        release.set()
        mirror.wait_until_caught_up(TIMEOUT_S)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"topics": 5}, "topics=5: a regular expression is needed"),
        ({"topics": ["a", 5]}, r"topics=\['a', 5\]: a regular"),
        ({"exclude": 5}, "exclude=5: a regular"),
        ({"groups": b"a"}, "groups=b'a': a regular"),
        ({"from_security": "x"}, "from_security='x': a respool.Security is needed"),
        ({"to_security": "x"}, "to_security='x': a respool.Security is needed"),
        ({"to_timeouts": 5}, "to_timeouts=5: a dict"),
        ({"source": 5}, "source=5: text is needed"),
    ],
    ids=str,
)
def test_arguments_of_another_type_are_named_before_anything_is_sent(
    arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        respool.start_mirror(**{"source": "x:1", "target": "y:1", "topics": ".*", **arguments})


def test_what_cannot_be_is_refused_at_once(source: Broker) -> None:
    with pytest.raises(UsageError, match="topics '\\(' is not a regular expression"):
        respool.start_mirror("x:1", "y:1", topics="(")
    with pytest.raises(UsageError, match="same cluster"):
        start(source, source)
    # Brokers know a mirror by its client id, and let only mirrors write with offsets.
    for name in ("client_id", "first_contact_ms", "connect_timeout"):
        with pytest.raises(UsageError, match=f"from_timeouts has '{name}'"):
            respool.start_mirror("x:1", "y:1", topics=".*", from_timeouts={name: 1})
        with pytest.raises(UsageError, match=f"to_timeouts has '{name}'"):
            respool.start_mirror("x:1", "y:1", topics=".*", to_timeouts={name: 1})
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        respool.start_mirror(source.bootstrap, "127.0.0.1:1", topics=".*")


def test_a_mirror_of_a_shrunk_topic_takes_messages_as_its_source_once_it_is_promoted(
    source: Broker, target: Broker
) -> None:
    source.create_topic("trips", partitions=4, respool_shrink_barrier_ms="0")
    with Cluster(source.bootstrap) as at_source, Cluster(target.bootstrap) as at_target:
        produce(source, ["a", "b"], "trips")
        with start(source, target, topics="trips") as mirror:
            mirror.wait_until_caught_up(TIMEOUT_S)
            change_layout(at_source, "trips", LayoutChangeKind.SHRINK, count=1)
            produce(source, ["c", "d"], "trips")
            mirror.wait_until_caught_up(TIMEOUT_S)
            # Sealed partitions as they are, and what came since in the heir.
            assert read(target, 4, "trips") == ["a", "b", "c", "d"]
            until_noted(mirror, at_target, "1")
            # What is retired at the source stays in the copy, which is continued.
            change_layout(at_source, "trips", LayoutChangeKind.RETIRE_FORCED)
            produce(source, ["e"], "trips")
            mirror.wait_until_caught_up(TIMEOUT_S)
        promotion = promote(at_target, "trips")
        assert (promotion.active, promotion.was_mirror) == (1, True)
        assert str(promotion).endswith("; shrunk to 1 partitions, as the source was")
        produce(target, ["f", "g"], "trips")
        layout = describe_layout(at_target, "trips")
        assert layout is not None
        assert (layout.active, layout.listed) == (1, 4)
        assert read(target, 7, "trips") == ["a", "b", "c", "d", "e", "f", "g"]
        assert promote(at_target, "trips").active is None


def until_noted(mirror: "respool.Mirror", target: Cluster, active: str) -> None:
    def noted() -> bool:
        assert mirror.is_running
        found = describe_configs(target, ConfigResource.TOPIC, ["trips"])["trips"]
        return found[ACTIVE_CONFIG].value == active

    wait_until(noted, "the copy has the source's layout")
