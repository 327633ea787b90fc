"""Tables into a real broker, read back by clients that we did not write: every field equal."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pytest

import respool
from respool import ArrowProducer, WriteFailed, write_table
from respool.client.arrow.errors import RecordTooLarge, WrongColumn
from respool.client.kafka.errors import (
    BadArgument,
    BrokerUnreachable,
    ClientClosed,
    UnknownPartition,
    UnknownTopic,
)
from respool.columnar.errors import NullNotAllowed, TimestampInvalid
from support.all_clients import CLIENTS
from support.broker_process import BrokerProcess
from support.message import CODECS, KafkaClient, Message, Received
from support.topics import Topics

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("arrow-writing")]

READERS = [CLIENTS[name] for name in ("kafka-python", "aiokafka", "confluent")]
START_MS = 1_700_000_000_000

# Whatever a record can be.
MESSAGES = (
    Message(key=b"k1", value=b"v1", timestamp_ms=START_MS),
    Message(key=None, value=b"no key", timestamp_ms=START_MS + 5),
    Message(key=b"tombstone", value=None, timestamp_ms=START_MS + 2),
    Message(key=b"", value=b"", timestamp_ms=START_MS + 90_000_000),
    Message(key=None, value=None, timestamp_ms=START_MS),
    Message(
        key=b"headers",
        value=b"\x00\xff" * 300,
        headers=(("a", b"1"), ("", None), ("a", b""), ("ü", b"\xfe")),
        timestamp_ms=START_MS - 3,
    ),
    Message(key=b"x" * 5_000, value=b"y" * 70_000, timestamp_ms=START_MS),
)


def table_of(messages: Sequence[Message]) -> pa.Table:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.table(
        {
            "key": pa.array([one.key for one in messages], pa.binary()),
            "value": pa.array([one.value for one in messages], pa.binary()),
            "timestamp": pa.array(
                [one.timestamp_ms for one in messages], pa.timestamp("ms", "UTC")
            ),
            "headers": pa.array(
                [[{"key": key, "value": value} for key, value in one.headers] for one in messages],
                pa.list_(header),
            ),
        }
    )


def numbers(count: int, *, value_bytes: int = 20) -> pa.Table:
    return pa.table(
        {
            "key": [b"%d" % number for number in range(count)],
            "value": [b"%0*d" % (value_bytes, number) for number in range(count)],
        }
    )


def values(received: Sequence[Received]) -> list[int]:
    return [int(one.value or b"-1") for one in received]


# Every field.


@pytest.mark.parametrize("client", READERS, ids=lambda client: client.name)
@pytest.mark.parametrize("codec", CODECS)
def test_every_field_is_read_back_by_other_clients(
    broker: BrokerProcess, topics: Topics, codec: Any, client: KafkaClient
) -> None:
    topic = topics.new("fields", retention_ms=-1)
    result = write_table(table_of(MESSAGES), topic, compression=codec, bootstrap=broker.address)
    assert result.partitions[topic, 0].first_offset == 0
    assert result.partitions[topic, 0].last_offset == len(MESSAGES) - 1
    found = client.read(broker.address, [(topic, 0)])[topic, 0]
    assert [one.offset for one in found] == list(range(len(MESSAGES)))
    for one, sent in zip(found, MESSAGES, strict=True):
        assert one.is_copy_of(sent), (one, sent)


def test_what_is_written_is_read_back_as_the_same_table(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("round-trip", retention_ms=-1)
    sent = table_of(MESSAGES)
    write_table(sent, topic, bootstrap=broker.address)
    found = respool.read_table(topic, bootstrap=broker.address)
    assert found.select(["key", "value", "timestamp", "headers"]).to_pylist() == sent.to_pylist()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(pl.DataFrame({"key": ["a", None], "value": ["x", "y"]}), id="polars"),
        pytest.param(pd.DataFrame({"key": ["a", None], "value": ["x", "y"]}), id="pandas"),
        pytest.param(pa.record_batch({"key": ["a", None], "value": ["x", "y"]}), id="batch"),
        pytest.param(
            pa.table({"key": ["a", None], "value": ["x", "y"]}).cast(
                pa.schema([("key", pa.string_view()), ("value", pa.large_binary())])
            ),
            id="views",
        ),
        pytest.param(
            pa.table(
                {
                    "key": pa.array(["a", None]).dictionary_encode(),
                    "value": pa.array([b"x", b"y"], pa.binary(1)),
                }
            ),
            id="dictionaries",
        ),
    ],
)
def test_frames_and_all_kinds_of_columns_are_taken(
    broker: BrokerProcess, topics: Topics, data: Any
) -> None:
    topic = topics.new("frames")
    write_table(data, topic, bootstrap=broker.address)
    found = CLIENTS["confluent"].read(broker.address, [(topic, 0)])[topic, 0]
    assert [(one.key, one.value) for one in found] == [(b"a", b"x"), (None, b"y")]


def test_a_stream_of_batches_is_taken(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.new("stream")
    parts = numbers(1_000).to_batches(max_chunksize=100)
    reader = pa.RecordBatchReader.from_batches(parts[0].schema, iter(parts))
    assert write_table(reader, topic, bootstrap=broker.address).rows_in == 1_000
    found = CLIENTS["confluent"].read(broker.address, [(topic, 0)])[topic, 0]
    assert values(found) == list(range(1_000))


def test_rows_without_a_time_get_the_time_of_writing(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.new("times", retention_ms=-1)
    table = pa.table({"value": ["a", "b"], "timestamp": pa.array([None, START_MS], pa.int64())})
    write_table(table, topic, bootstrap=broker.address)
    first, second = CLIENTS["confluent"].read(broker.address, [(topic, 0)])[topic, 0]
    assert second.timestamp_ms == START_MS
    assert first.timestamp_ms > START_MS + 1_000_000


# How many.


def test_an_empty_table_writes_nothing(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.new("empty")
    result = write_table(numbers(0), topic, bootstrap=broker.address)
    assert (result.rows, result.rows_in, result.partitions) == (0, 0, {})
    assert CLIENTS["confluent"].bounds(broker.address, (topic, 0)) == (0, 0)


def test_one_row_is_one_message(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.new("one")
    assert write_table(numbers(1), topic, bootstrap=broker.address).rows_in == 1
    assert len(CLIENTS["confluent"].read(broker.address, [(topic, 0)])[topic, 0]) == 1


@pytest.mark.parametrize("client", READERS, ids=lambda client: client.name)
def test_a_hundred_thousand_rows_come_in_order_to_where_other_clients_would_send_them(
    broker: BrokerProcess, topics: Topics, client: KafkaClient
) -> None:
    topic = topics.new("many", partitions=3)
    result = write_table(numbers(100_000), topic, bootstrap=broker.address)
    assert result.rows_in == 100_000
    found = client.read(broker.address, [(topic, number) for number in range(3)])
    assert sorted(number for part in found.values() for number in values(part)) == list(
        range(100_000)
    )
    for place, part in found.items():
        assert values(part) == sorted(values(part))
        assert len(part) == result.partitions[place].rows
    # The same keys again, by confluent's producer: each comes where ours did.
    ours = {one.key: place[1] for place, part in found.items() for one in part[:50]}
    again = topics.new("again", partitions=3)
    _produce_by_key(broker.address, again, list(ours))
    theirs = CLIENTS["confluent"].read(broker.address, [(again, number) for number in range(3)])
    assert {one.key: place[1] for place, part in theirs.items() for one in part} == ours


def _produce_by_key(address: str, topic: str, keys: Sequence[bytes | None]) -> None:
    from confluent_kafka import Producer

    sender = Producer(
        {"bootstrap.servers": address, "partitioner": "murmur2_random", "log_level": 0}
    )
    for key in keys:
        sender.produce(topic, b"v", key)
    assert sender.flush(20) == 0


def test_a_hundred_thousand_rows_can_be_one_record_batch(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("one-batch", max_message_bytes=20_000_000)
    result = write_table(
        numbers(100_000),
        topic,
        batch_bytes=16_000_000,
        compression="zstd",
        bootstrap=broker.address,
    )
    assert result.rows_in == 100_000
    found = CLIENTS["kafka-python"].read(broker.address, [(topic, 0)])[topic, 0]
    assert values(found) == list(range(100_000))


def test_small_writes_share_record_batches(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.new("small")
    with ArrowProducer(broker.address, linger_ms=10_000) as producer:
        for number in range(200):
            producer.write(pa.table({"value": [b"%d" % number]}), topic)
        assert producer.buffered_bytes == 0, "they wait for each other"
        result = producer.flush()
    assert result.rows_in == 200
    found = respool.read_table(topic, bootstrap=broker.address)
    assert [int(one) for one in found["value"].to_pylist()] == list(range(200))


def test_small_writes_leave_when_they_have_lingered(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.new("lingered")
    with ArrowProducer(broker.address, linger_ms=1) as producer:
        producer.write(numbers(3), topic)
        # Nobody flushes; it waits for messages, not for time.
        found = CLIENTS["confluent"].read_from(broker.address, (topic, 0), 0, count=3)
    assert values(found) == [0, 1, 2]


def test_a_topic_that_has_grown_is_noticed(
    broker: BrokerProcess, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.new("growing")
    by_row = {"partitioner": "round-robin", "linger_ms": 0}
    with ArrowProducer(broker.address, **by_row) as producer:  # type: ignore[arg-type]
        producer.write(numbers(4), topic)
        topics.grow(topic, partitions=2)
        producer.write(numbers(4), topic)
        assert producer.flush().partitions.keys() == {(topic, 0)}
        monkeypatch.setattr("respool.client.arrow.writing.destinations.METADATA_SECONDS_MAX", 0.0)
        producer.write(numbers(4), topic)
        assert producer.flush().partitions.keys() == {(topic, 0), (topic, 1)}


# Promises.


@pytest.mark.parametrize("acks", ["all", 1, 0])
@pytest.mark.parametrize("idempotent", [True, False])
def test_each_kind_of_acknowledgement_writes(
    broker: BrokerProcess, topics: Topics, acks: Any, idempotent: bool
) -> None:
    topic = topics.new("acks")
    if idempotent and acks != "all":
        with pytest.raises(BadArgument, match="idempotent=True needs acks='all'"):
            ArrowProducer(broker.address, acks=acks, idempotent=True)
        return
    result = write_table(
        numbers(5_000),
        topic,
        acks=acks,
        idempotent=idempotent,
        batch_bytes=10_000,
        bootstrap=broker.address,
    )
    assert result.rows_in == 5_000
    assert (result.partitions[topic, 0].first_offset is None) == (acks == 0)
    found = CLIENTS["confluent"].read_from(broker.address, (topic, 0), 0, count=5_000)
    assert sorted(values(found)) == list(range(5_000))


def test_what_is_buffered_stays_within_its_bound(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.new("bounded", partitions=2)
    limit = 100_000
    seen: list[int] = []
    with ArrowProducer(broker.address, batch_bytes=20_000, buffer_bytes=limit) as producer:

        def parts() -> Iterator[pa.RecordBatch]:
            for part in numbers(40_000, value_bytes=100).to_batches(max_chunksize=500):
                seen.append(producer.buffered_bytes)
                yield part

        schema = numbers(1).schema
        producer.write(pa.RecordBatchReader.from_batches(schema, parts()), topic)
        assert producer.flush().rows_in == 40_000
    assert 0 < max(seen) <= limit
    assert producer.buffered_bytes == 0


def test_after_close_nothing_is_taken(broker: BrokerProcess, topics: Topics) -> None:
    producer = ArrowProducer(broker.address)
    producer.close()
    producer.close()
    with pytest.raises(ClientClosed):
        producer.write(numbers(1), topics.new("closed"))


def test_closing_flushes(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.new("closing")
    with ArrowProducer(broker.address, linger_ms=10_000) as producer:
        producer.write(numbers(10), topic)
    assert CLIENTS["confluent"].bounds(broker.address, (topic, 0)) == (0, 10)


# What cannot be written.


def test_a_topic_that_is_not_there_is_named(broker: BrokerProcess) -> None:
    with pytest.raises(UnknownTopic, match="no topic 'nowhere'"):
        write_table(numbers(1), "nowhere", bootstrap=broker.address)


def test_a_partition_that_is_not_there_is_named_and_nothing_is_written(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("partitions", partitions=2)
    table = pa.table({"value": ["a", "b"], "to": [1, 2]})
    with pytest.raises(UnknownPartition, match="no partition 2; it has 2"):
        write_table(table, topic, partition="to", bootstrap=broker.address)
    assert CLIENTS["confluent"].bounds(broker.address, (topic, 1)) == (0, 0)


def test_the_last_row_of_a_large_table_is_looked_at_before_the_first_is_sent(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("looked-at", partitions=2)
    rows = 40
    table = pa.table({"value": [b"x" * 1_000_000] * rows, "to": [0] * (rows - 1) + [2]})
    with ArrowProducer(broker.address) as producer:
        with pytest.raises(UnknownPartition):
            producer.write(table, topic, partition="to")
        large = pa.table({"value": [*table["value"].to_pylist(), b"x" * 2_000_000]})
        with pytest.raises(RecordTooLarge, match=f"row {rows} needs"):
            producer.write(large, topic)
        # What was refused at the door is nobody's loss: the next flush knows nothing of it.
        producer.write(numbers(3), topic)
        assert producer.flush().rows == 3
    found = CLIENTS["confluent"].read(broker.address, [(topic, 0), (topic, 1)])
    assert sum(map(len, found.values())) == 3


def test_a_column_of_a_wrong_type_is_named_and_nothing_is_written(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("wrong")
    with pytest.raises(WrongColumn, match="column 'ride' is int64; a key is binary or string"):
        write_table(
            pa.table({"ride": [1], "value": ["a"]}), topic, key="ride", bootstrap=broker.address
        )
    assert CLIENTS["confluent"].bounds(broker.address, (topic, 0)) == (0, 0)


def test_a_header_without_a_key_and_a_time_before_1970_are_refused(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("odd")
    table = pa.table({"value": ["a"], "headers": [[{"key": None, "value": b"x"}]]})
    table = table.cast(
        pa.schema(
            [
                ("value", pa.string()),
                ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            ]
        )
    )
    with pytest.raises(NullNotAllowed):
        write_table(table, topic, bootstrap=broker.address)
    with pytest.raises(TimestampInvalid):
        write_table(pa.table({"value": ["a"], "timestamp": [-5]}), topic, bootstrap=broker.address)
    assert CLIENTS["confluent"].bounds(broker.address, (topic, 0)) == (0, 0)


def test_a_row_larger_than_the_topic_takes_is_named_with_the_limit_and_nothing_is_written(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("large", max_message_bytes=2_000)
    table = pa.table({"value": [b"a", b"x" * 3_000]})
    with pytest.raises(
        RecordTooLarge, match=r"row 1 needs 30\d\d bytes.*2000 bytes at the most"
    ) as told:
        write_table(table, topic, bootstrap=broker.address)
    assert (told.value.row, told.value.limit) == (1, 2_000)
    assert CLIENTS["confluent"].bounds(broker.address, (topic, 0)) == (0, 0)


def test_batches_are_as_large_as_the_topic_takes(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.new("tight", max_message_bytes=2_000)
    assert write_table(numbers(5_000), topic, bootstrap=broker.address).rows_in == 5_000


def test_a_row_that_only_the_broker_finds_too_large_fails_with_its_words(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("dense", max_message_bytes=2_000)
    noise = random.Random(6).randbytes(20_000)
    table = pa.table({"value": [b"fine", noise, b"after"]})
    with pytest.raises(WriteFailed, match=r"MESSAGE_TOO_LARGE: .*2000") as told:
        # It might have become small enough, so it had to be tried.
        write_table(table, topic, compression="lz4", batch_bytes=2_000, bootstrap=broker.address)
    line = told.value.partitions[topic, 0]
    assert (line.rows, line.not_in_rows, line.uncertain_rows) == (1, 2, 0)
    assert CLIENTS["confluent"].bounds(broker.address, (topic, 0)) == (0, 1)


def test_a_producer_goes_on_after_a_failure_that_was_told(
    broker: BrokerProcess, topics: Topics
) -> None:
    compacted = topics.new("compacted", cleanup_policy="compact")
    with ArrowProducer(broker.address, linger_ms=0) as producer:
        producer.write(pa.table({"key": ["a"], "value": ["first"]}), compacted)
        producer.write(
            pa.table({"key": pa.array([None], pa.string()), "value": ["keyless"]}), compacted
        )
        with pytest.raises(WriteFailed, match="INVALID_RECORD") as told:
            producer.flush()
        assert told.value.partitions[compacted, 0].rows == 1
        assert told.value.result.rows_not_in == 1
        producer.write(pa.table({"key": ["b"], "value": ["second"]}), compacted)
        assert producer.flush().partitions[compacted, 0].first_offset == 1
    found = CLIENTS["confluent"].read(broker.address, [(compacted, 0)])[compacted, 0]
    assert [one.value for one in found] == [b"first", b"second"]


def test_settings_that_cannot_be_are_refused() -> None:
    for wrong in (
        {"acks": 2},
        {"compression": "rar"},
        {"compression_level": 3},
        {"compression": "snappy", "compression_level": 3},
        {"compression": "gzip", "compression_level": 10},
        {"compression": "zstd", "compression_level": 23},
        {"request_timeout_ms": 0},
        {"delivery_timeout_ms": 0},
        {"in_flight_max": 6},
        {"in_flight_max": 0},
        {"batch_bytes": 10},
        {"batch_bytes": 2_000, "buffer_bytes": 1_000},
        {"linger_ms": -1},
        {"transactional_id": ""},
        {"transactional_id": "t", "acks": 1},
        {"partitioner": "random"},
        {"bootstrap": "nowhere"},
    ):
        settings: dict[str, Any] = dict(wrong)
        with pytest.raises(BadArgument):
            ArrowProducer(**settings)


def test_a_broker_that_is_not_there_is_told_of() -> None:
    with pytest.raises(BrokerUnreachable, match=r"no broker at 127\.0\.0\.1:1"):
        write_table(numbers(1), "rides", bootstrap="127.0.0.1:1", delivery_timeout_ms=100)
