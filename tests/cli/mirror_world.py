"""Two brokers, a mirror between them, and eyes on both logs."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, Producer, TopicPartition

from cli.running import Ended, Run
from respool.records.batch import RecordBatch
from respool.records.validate import check_stored, walk_batches
from respool.wire.api_table import Api
from support.broker_process import BrokerProcess
from support.quick_broker import quick_broker
from support.raw_client import RawClient, fetch_fields

WAIT_SECONDS = 60
SETTINGS = {
    "group_initial_rebalance_delay_ms": 0,
    "offsets_topic_partitions": 1,
    "transactions_topic_partitions": 1,
    "compaction_check_ms": 200,
    "retention_check_ms": 200,
}
LEADER_EPOCH = slice(12, 16)


class Side(NamedTuple):
    """What a partition holds: where it begins and ends, and its batches but for empty ones and leader epochs."""

    start: int
    end: int
    batches: list[bytes]


class Reachable(Protocol):
    @property
    def address(self) -> str: ...


class Place(NamedTuple):
    """Where a broker of this process is."""

    address: str


class MirrorWorld:
    def __init__(self, run: Run, source: Reachable, target: Reachable) -> None:
        self._run = run
        self.source = source
        self.target = target

    def run(self, *arguments: str, code: int = 0, stdin: bytes = b"") -> Ended:
        ended = self._run(*arguments, stdin=stdin)
        assert ended.code == code, f"{ended.code}: {ended.out}\n{ended.err}"
        return ended

    def at_source(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> Ended:
        return self.run(*arguments, "--broker", self.source.address, stdin=stdin, code=code)

    def at_target(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> Ended:
        return self.run(*arguments, "--broker", self.target.address, stdin=stdin, code=code)

    def mirror(self, *arguments: str, topics: str = ".*", code: int = 0) -> Ended:
        """Copy all that is there."""
        return self.run(
            "mirror", *self._ends(), "--topics", topics, "--once", *arguments, code=code
        )

    def begin_mirror(self, *arguments: str, topics: str = ".*") -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "respool.cli", "mirror", *self._ends(), "--topics", topics]
        return subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def status(self, topics: str = ".*") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(
            self.run("mirror", "status", *self._ends(), "--topics", topics, "--json").out
        )["partitions"]
        return found

    def _ends(self) -> tuple[str, ...]:
        return "--from", self.source.address, "--to", self.target.address

    def is_same(self, topic: str, partitions: int = 1) -> bool:
        return all(
            look(self.source.address, topic, number) == look(self.target.address, topic, number)
            for number in range(partitions)
        )


class MortalWorld(MirrorWorld):
    """Its brokers are processes, which a test may kill."""

    source: BrokerProcess
    target: BrokerProcess


@contextmanager
def two_brokers(run: Run, **of_target: Any) -> Iterator[MirrorWorld]:
    """In this process, for claims about the mirror and not about its brokers."""
    with quick_broker(SETTINGS) as source, quick_broker({**SETTINGS, **of_target}) as target:
        yield MirrorWorld(run, Place(source.bootstrap), Place(target.bootstrap))


@contextmanager
def two_broker_processes(run: Run, folder: Path) -> Iterator[MortalWorld]:
    with (
        BrokerProcess(folder / "source", SETTINGS) as source,
        BrokerProcess(folder / "target", SETTINGS) as target,
    ):
        yield MortalWorld(run, source, target)


def look(address: str, topic: str, partition: int = 0) -> Side:
    with RawClient(address) as client:
        start, end = (_offset(client, topic, partition, at) for at in (-2, -1))
        batches: list[bytes] = []
        offset = start
        while offset < end:
            fields = fetch_fields(topic, [(partition, offset)], 1 << 20)
            (answer,) = client.ask(Api.FETCH, 12, **fields).responses[0].partitions
            assert answer.error_code == 0
            if not answer.records:
                break
            for position, header in walk_batches(answer.records):
                data = bytearray(answer.records[position : position + header.size])
                assert check_stored(header, data)
                data[LEADER_EPOCH] = b"    "
                if header.record_count and header.last_offset >= offset:
                    batches.append(bytes(data))
                offset = max(offset, header.next_offset)
        return Side(start, end, batches)


def end_of(address: str, topic: str, partition: int) -> int:
    with RawClient(address) as client:
        return _offset(client, topic, partition, -1)


def _offset(client: RawClient, topic: str, partition: int, at: int) -> int:
    wish = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": at}
    reply = client.ask(
        Api.LIST_OFFSETS,
        5,
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": topic, "partitions": [wish]}],
    )
    (answer,) = reply.topics[0].partitions
    assert answer.error_code == 0
    return int(answer.offset)


def headers_of(side: Side) -> list[RecordBatch]:
    return [RecordBatch(header, data) for data in side.batches for _, header in walk_batches(data)]


def read(address: str, topic: str, count: int, *, isolation: str = "read_committed") -> list[Any]:
    """Values with offsets, keys, headers and timestamps of partition 0, as a stock client reads them."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    while True:
        message = consumer.poll(WAIT_SECONDS)
        assert message is not None, f"{len(found)} of {count} messages"
        if message.error() is not None:
            # The end, as far as this reader may go.
            break
        found.append(
            (
                message.offset(),
                message.key(),
                message.value(),
                message.headers(),
                message.timestamp(),
            )
        )
    consumer.close()
    return found


def produce(address: str, topic: str, values: list[str], **settings: Any) -> None:
    """One message after the other, in several batches."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, **settings})
    for number, value in enumerate(values):
        producer.produce(
            topic,
            key=f"key-{number % 3}",
            value=value,
            headers=[("h", value.encode())],
            partition=0,
            timestamp=1_763_107_200_000 + number,
        )
        if number % 7 == 0:
            assert producer.flush(WAIT_SECONDS) == 0
    assert producer.flush(WAIT_SECONDS) == 0
