"""What one client wrote, every client reads identically: all writers, codecs and readers, idempotent and not."""

import time
from collections.abc import Mapping

import pytest

from support.all_clients import INSTALLED, each_client
from support.broker_process import BrokerProcess
from support.message import CODECS, KafkaClient, Message, Place, Received
from support.stored import stored_batches
from support.topics import Topics

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("cross-reading")]

NOW_MS = int(time.time() * 1000)
MESSAGES = (
    Message(
        key=b"k1",
        value=b"with everything",
        headers=(("h", b"1"), ("h", b"2"), ("other", b"")),
        timestamp_ms=NOW_MS - 5000,
    ),
    Message(value=b"without a key", timestamp_ms=NOW_MS - 4000),
    Message(key=b"k2", value=None, timestamp_ms=NOW_MS - 4500),
    Message(key=b"", value=b"", timestamp_ms=NOW_MS - 4000),
    Message(key=b"long", value=b"0123456789" * 200),
)


def _topic(writer: KafkaClient, codec: str, idempotent: bool) -> str:
    return f"{writer.name}-{codec}-{'idempotent' if idempotent else 'plain'}"


@pytest.fixture(scope="module")
def written(broker: BrokerProcess, topics: Topics) -> list[Place]:
    """One topic by each client in each codec, with and without idempotence."""
    places = []
    for writer in INSTALLED:
        messages = [writer.express(message) for message in MESSAGES]
        for codec in CODECS:
            for idempotent in (True, False):
                topic = _topic(writer, codec, idempotent)
                topics.create(topic)
                writer.write(
                    broker.address, (topic, 0), messages, codec=codec, idempotent=idempotent
                )
                places.append((topic, 0))
    return places


@pytest.fixture(scope="module")
def readings() -> dict[str, Mapping[Place, list[Received]]]:
    """What each client read, once it has: one pass over all topics is enough."""
    return {}


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", each_client())
@pytest.mark.parametrize("reader", each_client())
def test_what_one_client_wrote_another_reads_identically(
    *,
    broker: BrokerProcess,
    written: list[Place],
    readings: dict[str, Mapping[Place, list[Received]]],
    reader: KafkaClient,
    writer: KafkaClient,
    codec: str,
    idempotent: bool,
) -> None:
    if reader.name not in readings:
        readings[reader.name] = reader.read(broker.address, written)
    received = readings[reader.name][_topic(writer, codec, idempotent), 0]
    sent = [writer.express(message) for message in MESSAGES]
    assert [one.offset for one in received] == list(range(len(sent)))
    for got, expected in zip(received, sent, strict=True):
        assert got.is_copy_of(expected), f"{expected} came as {got}"


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", each_client())
def test_batches_are_stored_in_the_producers_codec(
    *,
    broker: BrokerProcess,
    written: list[Place],
    writer: KafkaClient,
    codec: str,
    idempotent: bool,
) -> None:
    batches = stored_batches(broker.data, (_topic(writer, codec, idempotent), 0))
    # The last one has the long message. librdkafka leaves one that would not shrink as it is.
    assert batches[-1].codec == codec
    assert {batch.codec for batch in batches} <= {codec, "none"}
    assert all((batch.producer_id >= 0) == idempotent for batch in batches)
