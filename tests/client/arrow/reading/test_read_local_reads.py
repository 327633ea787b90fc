"""Reading a broker of this machine: large reads come from its files, and are what everybody else is sent."""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import respool
from respool.client.kafka import local_reads
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.list_offsets import LATEST, Isolation, OffsetAt, offsets_for
from respool.local_reads.local_file_read import read_file_range
from respool.model.file_range import FileRange
from support.broker_process import BrokerProcess
from support.confluent_client import TIMEOUT_S, ConfluentClient, producer
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("arrow-lent")]

READER = ConfluentClient()


@pytest.fixture
def local_read(monkeypatch: pytest.MonkeyPatch) -> list[FileRange]:
    """All that was read from the broker's files."""
    seen: list[FileRange] = []

    def read(file_range: FileRange, target: memoryview) -> None:
        read_file_range(file_range, target)
        seen.append(file_range)

    monkeypatch.setattr(local_reads, "read_file_range", read)
    # Nothing is known of brokers of other tests.
    monkeypatch.setattr(local_reads, "_NOT_BEFORE", {})
    return seen


def write(broker: BrokerProcess, topic: str, count: int, *, partitions: int = 1) -> None:
    rng = Random(count)
    writer = producer(broker.address, linger_ms=5, batch_size=20_000)
    for number in range(count):
        writer.produce(topic, rng.randbytes(400) + b"%d" % number, partition=number % partitions)
        writer.poll(0)
    assert writer.flush(TIMEOUT_S) == 0


def values(table: pa.Table) -> list[bytes]:
    found: list[bytes] = table.column("value").to_pylist()
    return found


def expected(broker: BrokerProcess, topic: str, *, partitions: int = 1) -> list[bytes | None]:
    """As a client reads it that is always sent all."""
    places = [(topic, number) for number in range(partitions)]
    found = READER.read(broker.address, places)
    return [message.value for file_range in places for message in found[file_range]]


def end_of(
    broker: BrokerProcess, topic: str, isolation: Isolation = "read_uncommitted"
) -> OffsetAt | None:
    with Cluster(broker.address) as cluster:
        return offsets_for(cluster, topic, [0], LATEST, isolation=isolation)[0]


def test_a_table_is_read_from_the_brokers_files(
    broker: BrokerProcess, topics: Topics, local_read: list[FileRange]
) -> None:
    # Several segments, so that places end where these do.
    topic = topics.new("lent", partitions=2, segment_bytes=300_000)
    write(broker, topic, 4_000, partitions=2)
    table = respool.read_table(topic, bootstrap=broker.address)
    assert values(table) == expected(broker, topic, partitions=2)
    assert len({file_range.inode for file_range in local_read}) > 2
    assert sum(file_range.size for file_range in local_read) > 1_000_000


def test_what_was_aborted_is_left_out_of_what_is_lent(
    broker: BrokerProcess, topics: Topics, local_read: list[FileRange]
) -> None:
    topic = topics.new("aborted", segment_bytes=400_000)
    rng = Random(5)
    writers = [
        producer(broker.address, transactional_id=f"{topic}-{number}", batch_size=20_000)
        for number in range(2)
    ]
    for writer in writers:
        writer.init_transactions(TIMEOUT_S)
    for _ in range(12):
        for writer in writers:
            writer.begin_transaction()
            for _ in range(150):
                writer.produce(topic, rng.randbytes(400))
            writer.flush(TIMEOUT_S)
        for writer in writers:
            end: Callable[[float], None] = rng.choice(
                (writer.commit_transaction, writer.abort_transaction)
            )
            end(TIMEOUT_S)
    # A transaction has ended for its producer before all partitions have heard of it.
    wait_until(
        lambda: end_of(broker, topic, "read_committed") == end_of(broker, topic), "all is stable"
    )
    committed = values(respool.read_table(topic, bootstrap=broker.address))
    assert committed == expected(broker, topic)
    everything = respool.read_table(topic, bootstrap=broker.address, isolation="read_uncommitted")
    assert 0 < len(committed) < everything.num_rows == 12 * 2 * 150
    assert sum(file_range.size for file_range in local_read) > 2_000_000


def test_of_messages_with_tags_only_their_part_of_the_files_is_read(
    broker: BrokerProcess, topics: Topics, local_read: list[FileRange]
) -> None:
    topic = topics.new("tagged", respool_tags="tag", segment_bytes=1_000_000)
    writer = producer(broker.address, linger_ms=5, batch_size=20_000)
    for number in range(8_000):
        # A long stretch of each.
        tag = "paid" if 3_000 <= number < 4_000 else "open"
        writer.produce(topic, b"%0400d" % number, headers=[("tag", tag)], partition=0)
        writer.poll(0)
    assert writer.flush(TIMEOUT_S) == 0

    def is_little() -> bool:
        local_read.clear()
        paid = respool.read_table(topic, bootstrap=broker.address, tags={"tag": "paid"})
        assert values(paid) == [b"%0400d" % number for number in range(3_000, 4_000)]
        return 400_000 < sum(file_range.size for file_range in local_read) < 600_000

    wait_until(is_little, "the topic is indexed")


def test_segments_that_are_deleted_meanwhile_are_no_trouble(
    broker: BrokerProcess, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.new("deleted", segment_bytes=300_000)
    write(broker, topic, 3_000)
    moved: list[str] = []

    def read(file_range: FileRange, target: memoryview) -> None:
        # Out of use, as a broker renames it, between its word and our reading.
        if len(moved) == 1:
            Path(file_range.path).rename(file_range.path + ".away")
            try:
                read_file_range(file_range, target)
            finally:
                Path(file_range.path + ".away").rename(file_range.path)
                moved.append(file_range.path)
            return
        moved.append(file_range.path)
        read_file_range(file_range, target)

    monkeypatch.setattr(local_reads, "read_file_range", read)
    monkeypatch.setattr(local_reads, "_NOT_BEFORE", {})
    found = respool.read_table(topic, bootstrap=broker.address, fetch_bytes=200_000)
    assert values(found) == expected(broker, topic)
    # Then all was sent.
    assert len(moved) == 2


def test_a_broker_may_be_told_not_to_lend(tmp_path: Path, local_read: list[FileRange]) -> None:
    with BrokerProcess(tmp_path / "data", {"local_reads": "false"}) as broker:
        topic = Topics(broker.address).new("kept")
        write(broker, topic, 1_000)
        found = respool.read_table(topic, bootstrap=broker.address)
        assert values(found) == expected(broker, topic)
    assert local_read == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every file")
def test_who_may_not_open_the_files_is_sent_all(
    broker: BrokerProcess, topics: Topics, local_read: list[FileRange]
) -> None:
    topic = topics.new("closed")
    write(broker, topic, 1_000)
    first = next(broker.data.glob(f"{topic}-0/*.log"))
    first.chmod(0)
    try:
        found = respool.read_table(topic, bootstrap=broker.address)
    finally:
        first.chmod(0o640)
    assert values(found) == expected(broker, topic)
    assert local_read == []
