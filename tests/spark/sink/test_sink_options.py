"""What the sink may be told, and what is refused by name."""

import pytest

from respool.spark.option_values import BadOption, Options
from respool.spark.sink.sink_options import SinkOptions, Stamp

BROKERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def read(**given: str) -> SinkOptions:
    return SinkOptions.of(_options(given), is_stream=True)


def read_batch(**given: str) -> SinkOptions:
    return SinkOptions.of(_options(given), is_stream=False)


def _options(given: dict[str, str]) -> Options:
    named = {name.replace("_", "."): value for name, value in given.items()}
    return Options(BROKERS | named)


def test_names_are_taken_in_any_case() -> None:
    found = read(TOPIC="rides", KAFKA_COMPRESSION_TYPE="ZSTD", includeheaders="false")
    assert (found.topic, found.compression, found.include_headers) == ("rides", "zstd", False)


def test_kafkas_producer_settings_become_the_clients() -> None:
    found = read(
        kafka_batch_size="65536",
        kafka_linger_ms="20",
        kafka_compression_type="zstd",
        kafka_compression_zstd_level="7",
        kafka_delivery_timeout_ms="5000",
        kafka_request_timeout_ms="2000",
        kafka_socket_connection_setup_timeout_ms="1500",
        kafka_partitioner_class="org.apache.kafka.clients.producer.RoundRobinPartitioner",
        kafka_acks="-1",
        kafka_max_block_ms="1",
    ).producer_settings()
    assert found["batch_bytes"] == 65536
    assert found["linger_ms"] == 20
    assert (found["compression"], found["compression_level"]) == ("zstd", 7)
    assert (found["delivery_timeout_ms"], found["request_timeout_ms"]) == (5000, 2000)
    assert found["connect_timeout_ms"] == 1500
    # Its default is the client's own, which is shorter until a broker has answered.
    assert read().producer_settings()["connect_timeout_ms"] is None
    assert found["partitioner"] == "round-robin"


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ({}, 600_000),
        ({"transactionTimeout": "2m"}, 120_000),
        ({"kafka_transaction_timeout_ms": "30000"}, 30_000),
    ],
)
def test_the_timeout_of_transactions_has_two_names(
    given: dict[str, str], milliseconds: int
) -> None:
    assert read(**given).transaction_timeout_ms == milliseconds


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"kafka_acks": "1"}, "kafka.acks = '1'"),
        ({"kafka_enable_idempotence": "false"}, "contradicts exactly-once"),
        ({"kafka_transactional_id": "mine"}, "names its transactions itself"),
        ({"kafka_partitioner_class": "com.example.Mine"}, "there is no Java"),
        ({"kafka_value_serializer": "x"}, "encode them in Spark"),
        ({"transactionTimeout": "2m", "kafka_transaction_timeout_ms": "1"}, "mean the same"),
        ({"transactionTimeout": "soon"}, "transactionTimeout = 'soon'"),
        ({"transactiontimeuot": "1m"}, "did you mean 'transactionTimeout'"),
        ({"kafka_compression_type": "brotli"}, "kafka.compression.type = 'brotli'"),
        ({"txnAppId": "a", "txnVersion": "1"}, "for batch writes"),
        ({"startingOffsets": "earliest"}, "no option 'startingoffsets'"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(given: dict[str, str], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        read(**given)


def test_a_batch_write_may_have_a_name() -> None:
    found = read_batch(txnAppId="nightly", txnVersion="7")
    assert found.stamp == Stamp(app="nightly", version=7)
    with pytest.raises(BadOption, match="go together"):
        read_batch(txnAppId="nightly")
    with pytest.raises(BadOption, match="needs exactlyOnce"):
        read_batch(txnAppId="nightly", txnVersion="7", exactlyOnce="false")
