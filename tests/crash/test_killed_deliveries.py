"""`kill -9` while delayed messages are delivered: each comes once, none early."""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from crash.conftest import StartBroker
from support.broker_cluster import SHORT_SESSIONS, BrokerCluster
from support.confluent_client import ConfluentClient, producer
from support.message import Place, Received
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("kill")]

READER = ConfluentClient()


def test_each_delayed_message_is_delivered_once_through_kills(start_broker: StartBroker) -> None:
    _deliver_and_kill(start_broker, messages=3_000, kills=3, spread_ms=3_000)


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
@pytest.mark.timeout(1_800)
def test_each_of_many_delayed_messages_is_delivered_once_through_many_kills(
    start_broker: StartBroker,
) -> None:
    _deliver_and_kill(start_broker, messages=100_000, kills=50, spread_ms=60_000)


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
@pytest.mark.timeout(900)
def test_each_delayed_message_is_delivered_once_while_leaders_are_killed(tmp_path: Path) -> None:
    with BrokerCluster(tmp_path, settings=SHORT_SESSIONS) as cluster:
        topic = Topics(cluster.bootstrap).new(
            "reminders", replicas=3, respool_delay="true", segment_bytes=50_000
        )

        def kill_the_leader() -> None:
            leader = cluster.brokers[_leader(cluster.bootstrap, topic)]
            leader.kill()
            leader.start()
            cluster.wait_until_well()

        _kill_while_delivering(
            cluster.bootstrap,
            topic,
            kill_the_leader,
            messages=20_000,
            kills=10,
            spread_ms=60_000,
        )


def _deliver_and_kill(
    start_broker: StartBroker, *, messages: int, kills: int, spread_ms: int
) -> None:
    broker = start_broker()
    # Small segments, so that some kills come while one is rolled.
    topic = Topics(broker.address).new("reminders", respool_delay="true", segment_bytes=50_000)

    def kill() -> None:
        broker.kill()
        broker.start()

    _kill_while_delivering(
        broker.address, topic, kill, messages=messages, kills=kills, spread_ms=spread_ms
    )


def _kill_while_delivering(
    address: str,
    topic: str,
    kill: Callable[[], None],
    *,
    messages: int,
    kills: int,
    spread_ms: int,
) -> None:
    place = (topic, 0)
    _send(address, topic, messages, random.Random(26), spread_ms=spread_ms)
    for number in range(kills):
        _wait_for_end(address, place, messages + 1 + messages * number // kills)
        kill()
    # Behind the messages that were sent lies a copy of each.
    _wait_for_end(address, place, 2 * messages)
    found = READER.read(address, [place])[place]
    assert sorted(int(one.value or b"") for one in found) == list(range(messages))
    assert min(map(_lateness_ms, found)) >= 0


def _send(address: str, topic: str, count: int, rng: random.Random, *, spread_ms: int) -> None:
    # Soon enough that deliveries begin while the test waits, and none before all were sent.
    begin_ms = int(time.time() * 1000) + 2_000 + count // 50
    sender = producer(address, compression_type="zstd")
    for number in range(count):
        at = begin_ms + rng.randrange(spread_ms)
        sender.produce(topic, b"%d" % number, headers={"respool-deliver-at": str(at)})
        sender.poll(0)
    assert sender.flush(60) == 0


def _wait_for_end(address: str, place: Place, end: int) -> None:
    wait_until(lambda: READER.bounds(address, place)[1] >= end, f"the log reaches {end}")


def _lateness_ms(message: Received) -> int:
    """By the broker's clock at the append."""
    due = dict(message.headers)["respool-due-at"]
    assert due is not None
    return message.timestamp_ms - int(due)


def _leader(address: str, topic: str) -> int:
    found = AdminClient({"bootstrap.servers": address}).list_topics(topic, timeout=30)
    return int(found.topics[topic].partitions[0].leader)
