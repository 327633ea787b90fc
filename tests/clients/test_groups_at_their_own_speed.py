"""Messages of six days, read by two groups at their own speeds; then one goes back three days.

In `make fuzz` they are a million, in `make test` a fifth of that in as many segments.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from support.broker_process import BrokerProcess
from support.confluent_client import TIMEOUT_S, producer
from support.group_member import GROUP_SETTINGS
from support.topics import Topics

pytestmark = [
    pytest.mark.clients,
    pytest.mark.long,
    pytest.mark.xdist_group("groups at their own speed"),
]

MESSAGES = 1_000_000 if os.environ.get("RESPOOL_FUZZ") == "long" else 200_000
KEYS = 1_000
PARTITIONS = 4
DAY = timedelta(days=1)
START = datetime(2025, 11, 14, 8, tzinfo=UTC)
END = START + 6 * DAY
TOPIC = "six-days"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", GROUP_SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def six_days(broker: BrokerProcess, topics: Topics) -> str:
    """Message `n` has the key `n % KEYS`, and times rise with `n` from START to END."""
    # Segments so small that the days lie in many of them.
    segment_bytes = 2 * MESSAGES
    topics.create(TOPIC, partitions=PARTITIONS, retention_ms=-1, segment_bytes=segment_bytes)
    sender = producer(
        broker.address,
        linger_ms=50,
        batch_num_messages=100_000,
        queue_buffering_max_messages=MESSAGES + 1,
        enable_idempotence=True,
    )
    keys = [b"key-%d" % number for number in range(KEYS)]
    for number in range(MESSAGES):
        sender.produce(TOPIC, b"%d" % number, keys[number % KEYS], timestamp=time_of(number))
    assert sender.flush(60) == 0
    return TOPIC


def time_of(number: int) -> int:
    return ms(START) + (ms(END) - ms(START)) * number // MESSAGES


def ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)


class Reader:
    """The only member of a group. It commits what it has read, batch by batch, and checks each message:

    of every key it must be the one after the last, so none is missing, comes twice, or out of order.
    """

    def __init__(self, address: str, group: str, *, batch: int, **settings: Any) -> None:
        self._settings = {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            # Fetch again as soon as there is room; by default a full second later.
            "fetch.queue.backoff.ms": 10,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self._batch = batch
        self.expect_from(0)
        self.join()

    def join(self) -> None:
        self._consumer = Consumer(self._settings)
        self._consumer.subscribe([TOPIC])

    def leave(self) -> None:
        self._consumer.close()

    def expect_from(self, first: int) -> None:
        """From now on, messages from this number on must come, and nothing else."""
        self.count = 0
        # Of each key, the number that must come next.
        self._next = {
            b"key-%d" % key: key + KEYS * max(0, -(-(first - key) // KEYS)) for key in range(KEYS)
        }

    def read(self) -> int:
        """Read and commit one batch; return how many messages were read in all."""
        batch = self._consumer.consume(self._batch, timeout=TIMEOUT_S)
        assert batch, f"nothing came in {TIMEOUT_S} s after {self.count} messages"
        following = self._next
        for message in batch:
            assert message.error() is None, message.error()
            key, value = message.key(), message.value()
            assert following[key] == int(value), f"{key!r}: {value!r}, not {following[key]}"
            following[key] += KEYS
        self._consumer.commit(asynchronous=False)
        self.count += len(batch)
        return self.count

    def assert_all_was_read(self) -> None:
        assert self._next == {b"key-%d" % key: MESSAGES + key for key in range(KEYS)}

    def committed(self) -> list[int]:
        wanted = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        return [one.offset for one in self._consumer.committed(wanted, timeout=TIMEOUT_S)]


def respool(broker: BrokerProcess, *arguments: str) -> Any:
    """One command, as it is installed; its answer."""
    done = subprocess.run(
        [sys.executable, "-m", "respool.cli", *arguments, "--broker", broker.address, "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_group_sees_every_message_once_and_one_that_rewinds_by_time_those_since(
    broker: BrokerProcess, six_days: str
) -> None:
    for group in ("fast", "slow"):
        respool(broker, "group", "reset", group, "--topic", six_days, "--to-earliest", "--yes")
    fast = Reader(broker.address, "fast", batch=MESSAGES // 20)
    # It asks for little at a time and keeps little in stock.
    slow = Reader(
        broker.address,
        "slow",
        batch=MESSAGES // 200,
        max_partition_fetch_bytes=MESSAGES // 16,
        queued_max_messages_kbytes=MESSAGES // 2_000,
    )
    while fast.read() < MESSAGES:
        slow.read()
    assert 0 < slow.count <= MESSAGES // 5
    # The slow one rests for a while, and goes on where it was.
    slow.leave()
    slow.join()
    while slow.read() < MESSAGES:
        pass
    fast.assert_all_was_read()
    slow.assert_all_was_read()
    ends = fast.committed()
    assert slow.committed() == ends
    assert sum(ends) == MESSAGES

    # Three days back: the members leave, the group is moved, and one comes again.
    since = END - 3 * DAY
    first = next(number for number in range(MESSAGES) if time_of(number) >= ms(since))
    fast.leave()
    to_time = ("--to-time", since.isoformat())
    planned = respool(broker, "group", "reset", "fast", *to_time, "--dry-run")
    moved = respool(broker, "group", "reset", "fast", *to_time, "--yes")
    assert planned["replays"] == moved["replays"] == MESSAGES - first
    fast.expect_from(first)
    fast.join()
    while fast.read() < MESSAGES - first:
        pass
    fast.assert_all_was_read()
    assert fast.committed() == ends

    # Nothing more comes, and the other group has noticed nothing.
    assert slow.committed() == ends
    assert [
        group["lag"] for group in respool(broker, "group", "lag", "fast", "slow")["groups"]
    ] == [0, 0]
    fast.leave()
    slow.leave()
