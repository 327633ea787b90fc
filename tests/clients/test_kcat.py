"""What only kcat has: listings as JSON, offsets counted from the end, stretches of time."""

import json
from collections.abc import Iterator

import pytest

from respool.testing import Broker
from support.confluent_client import ConfluentClient
from support.kcat_client import KCAT, MISSING, kcat
from support.message import Message
from support.quick_broker import quick_broker
from support.topics import Topics

pytestmark = [
    pytest.mark.clients,
    pytest.mark.xdist_group("kcat"),
    pytest.mark.skipif(KCAT is None, reason=MISSING),
]

T0_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with quick_broker() as running:
        yield running


@pytest.fixture(scope="module")
def topics(broker: Broker) -> Topics:
    return Topics(broker.bootstrap)


@pytest.fixture(scope="module")
def history(broker: Broker, topics: Topics) -> str:
    topic = topics.new("history")
    messages = [Message(value=b"%d" % n, timestamp_ms=T0_MS + n * 1000) for n in range(10)]
    ConfluentClient().write(broker.bootstrap, (topic, 0), messages, idempotent=False)
    return topic


def read(broker: Broker, topic: str, *arguments: str) -> list[str]:
    return kcat(
        broker.bootstrap, "-C", "-q", "-e", "-t", topic, "-Xfetch.wait.max.ms=10", *arguments
    ).split()


def test_the_cluster_is_listed(broker: Broker, topics: Topics) -> None:
    topic = topics.new("listed", partitions=2)
    listed = json.loads(kcat(broker.bootstrap, "-L", "-J"))
    assert [one["name"] for one in listed["brokers"]] == [broker.bootstrap]
    (found,) = [one for one in listed["topics"] if one["topic"] == topic]
    assert [one["leader"] for one in found["partitions"]] == [1, 1]


def test_the_last_messages_are_read(broker: Broker, history: str) -> None:
    assert read(broker, history, "-o", "-3") == ["7", "8", "9"]


def test_nothing_is_read_from_the_end(broker: Broker, history: str) -> None:
    assert read(broker, history, "-o", "end") == []


def test_a_stretch_of_time_is_read(broker: Broker, history: str) -> None:
    begin, end = f"s@{T0_MS + 2000}", f"e@{T0_MS + 5000}"
    assert read(broker, history, "-o", begin, "-o", end) == ["2", "3", "4"]
