"""What clients that we did not write put in, a table shows: every field, in every codec, whatever befell the log."""

import time
from datetime import UTC, datetime
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import respool
from respool.client.arrow.reading import pieces
from respool.records.batch import Codec
from respool.records.build import NewRecord, build_batch
from support.all_clients import CLIENTS
from support.broker_process import BrokerProcess
from support.confluent_client import TIMEOUT_S, ConfluentClient, producer
from support.message import CODECS, KafkaClient, Message, Received
from support.raw_client import RawClient
from support.stored import stored_batches
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("arrow-round-trip")]

NOW_MS = int(time.time() * 1000)
WRITER = ConfluentClient()
# kcat takes text only.
LIBRARIES = [name for name in CLIENTS if name != "kcat"]
MESSAGES = [
    Message(key=b"key", value=b"value", headers=(("trace", b"1"), ("trace", None))),
    Message(key=None, value=None),
    Message(key=b"", value=b"", headers=(("", b""),)),
    Message(key=b"k" * 1_000, value=bytes(range(256)) * 40, timestamp_ms=NOW_MS - 1),
    Message(key="Straße".encode(), value=b"\xff\x00", headers=(("größe", "µ".encode()),)),
    *[
        Message(key=b"%d" % (n % 7), value=b"v" * (n % 50), timestamp_ms=NOW_MS - n)
        for n in range(500)
    ],
]


def messages_of(table: pa.Table) -> list[Received]:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return [
        Received(
            offset=row["offset"],
            timestamp_ms=round((row["timestamp"] - epoch).total_seconds() * 1000),
            value=row["value"],
            key=row["key"],
            headers=tuple((one["key"], one["value"]) for one in row["headers"]),
        )
        for row in table.to_pylist()
    ]


def can_say(writer: KafkaClient, message: Message) -> bool:
    """Only librdkafka takes a header without a value, and a message that has neither key nor value."""
    has_nulls = message.key is message.value is None or None in dict(message.headers).values()
    return writer.name == WRITER.name or not has_nulls


def read(broker: BrokerProcess, topic: str, **wish: Any) -> pa.Table:
    return respool.read_table(topic, bootstrap=broker.address, **wish)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", [CLIENTS[name] for name in LIBRARIES], ids=LIBRARIES)
def test_what_any_client_wrote_is_read_as_that_client_reads_it(
    broker: BrokerProcess, topics: Topics, writer: KafkaClient, codec: str
) -> None:
    topic = topics.new("written")
    written = [writer.express(message) for message in MESSAGES if can_say(writer, message)]
    writer.write(broker.address, (topic, 0), written, codec=codec)
    found = messages_of(read(broker, topic))
    assert len(found) == len(written)
    assert all(one.is_copy_of(sent) for one, sent in zip(found, written, strict=True))
    assert found == WRITER.read(broker.address, [(topic, 0)])[topic, 0]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [1, 100_000])
def test_batches_of_one_and_of_a_hundred_thousand_are_read_whole(
    broker: BrokerProcess, topics: Topics, codec: Codec, count: int
) -> None:
    topic = topics.new("sized", max_message_bytes=20_000_000)
    records = [NewRecord(value=b"%d" % n, timestamp_ms=NOW_MS + n % 10) for n in range(count)]
    with RawClient(broker.address) as client:
        for _ in range(2):
            assert client.produce(topic, build_batch(records, codec=codec)).error_code == 0
    table = read(broker, topic, fetch_bytes=100_000)
    assert table.column("offset").to_pylist() == list(range(2 * count))
    assert table.column("value").to_pylist() == [b"%d" % n for n in range(count)] * 2
    # From the middle of a batch to the middle of the next one.
    middle = read(broker, topic, since=count // 2, until=count + count // 2 + 1)
    assert middle.column("offset").to_pylist() == list(range(count // 2, count + count // 2 + 1))


def test_whose_clock_it_was_is_shown(broker: BrokerProcess, topics: Topics) -> None:
    kept = topics.new("kept")
    stamped = topics.new("stamped", message_timestamp_type="LogAppendTime")
    message = Message(value=b"x", timestamp_ms=NOW_MS - 50_000)
    for topic in (kept, stamped):
        WRITER.write(broker.address, (topic, 0), [message])
    assert read(broker, kept).column("timestamp_type").to_pylist() == [0]
    table = read(broker, stamped)
    assert table.column("timestamp_type").to_pylist() == [1]
    assert messages_of(table)[0].timestamp_ms >= NOW_MS


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_gaps_that_compaction_left_are_passed(
    broker: BrokerProcess, topics: Topics, codec: str
) -> None:
    topic = topics.new(
        "compacted",
        cleanup_policy="compact",
        segment_bytes=1024,
        min_cleanable_dirty_ratio=0.01,
        file_delete_delay_ms=0,
    )
    rng = Random(7)
    messages = [
        Message(key=b"%d" % (n % 5), value=rng.randbytes(240), timestamp_ms=NOW_MS)
        for n in range(200)
    ]
    for at in range(0, 200, 20):
        WRITER.write(broker.address, (topic, 0), messages[at : at + 20], codec=codec)

    def is_compacted() -> bool:
        try:
            stored = sum(one.record_count for one in stored_batches(broker.data, (topic, 0)))
        except FileNotFoundError:
            return False
        return stored < 100

    wait_until(is_compacted, "old values are gone")

    def are_gaps_passed() -> bool:
        """False: more was compacted meanwhile."""
        found = messages_of(read(broker, topic))
        by_other = WRITER.read(broker.address, [(topic, 0)])[topic, 0]
        # Beginning in a gap: with the next one there is.
        part = messages_of(read(broker, topic, since=found[0].offset - 1, until=found[3].offset))
        if messages_of(read(broker, topic)) != found:
            return False
        assert found == by_other
        assert len(found) < 100
        assert {one.key: one.value for one in found} == {one.key: one.value for one in messages}
        assert part == found[:3]
        return True

    wait_until(are_gaps_passed, "nothing is being compacted")


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_aborted_and_open_transactions_are_left_out_unless_asked_for(
    broker: BrokerProcess, topics: Topics, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What was fetched is decoded in several turns, which must not forget who has aborted.
    monkeypatch.setattr(pieces, "DECOMPRESSED_AT_ONCE", 30)
    topic = topics.new("transactions")
    first = producer(broker.address, transactional_id=f"{topic}-1", compression_type=codec)
    second = producer(broker.address, transactional_id=f"{topic}-2", compression_type=codec)
    for one in (first, second):
        one.init_transactions(TIMEOUT_S)

    def write(sender: Any, *values: bytes) -> None:
        for value in values:
            sender.produce(topic, value, partition=0)
        assert sender.flush(TIMEOUT_S) == 0

    first.begin_transaction()
    second.begin_transaction()
    write(first, b"aborted-1")
    write(second, b"kept-1")
    write(first, b"aborted-2")
    second.commit_transaction(TIMEOUT_S)
    first.abort_transaction(TIMEOUT_S)
    first.begin_transaction()
    write(first, b"kept-2")
    first.commit_transaction(TIMEOUT_S)
    WRITER.write(broker.address, (topic, 0), [Message(value=b"plain")])
    second.begin_transaction()
    write(second, b"open")
    WRITER.write(broker.address, (topic, 0), [Message(value=b"behind")])

    committed = read(broker, topic).column("value").to_pylist()
    everything = read(broker, topic, isolation="read_uncommitted").column("value").to_pylist()
    assert committed == [b"kept-1", b"kept-2", b"plain"]
    assert everything == [
        b"aborted-1",
        b"kept-1",
        b"aborted-2",
        b"kept-2",
        b"plain",
        b"open",
        b"behind",
    ]
    # One batch at a time: whose records are void does not depend on where a fetch begins.
    small = read(broker, topic, fetch_bytes=1).column("value").to_pylist()
    assert small == committed
    with respool.stream_batches(topic, bootstrap=broker.address, since=0) as stream:
        got: list[bytes] = []
        while len(got) < 3:
            got += next(stream).column("value").to_pylist()
        second.commit_transaction(TIMEOUT_S)
        while len(got) < 5:
            got += next(stream).column("value").to_pylist()
    assert got == [*committed, b"open", b"behind"]


def test_an_empty_topic_is_an_empty_table_with_all_columns(
    broker: BrokerProcess, topics: Topics
) -> None:
    table = read(broker, topics.new("empty", partitions=3))
    assert table.num_rows == 0
    assert table.column_names == [
        "topic",
        "partition",
        "key",
        "value",
        "offset",
        "timestamp",
        "timestamp_type",
        "headers",
    ]
