"""What producers are promised and refused: acks, sizes, times, codecs of the topic."""

import time

import pytest
from aiokafka.errors import MessageSizeTooLargeError as AiokafkaTooLarge
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, TopicPartition
from kafka import KafkaProducer
from kafka import TopicPartition as PythonTopicPartition
from kafka.errors import MessageSizeTooLargeError

from support.all_clients import each_client
from support.broker_process import BrokerProcess
from support.confluent_client import ConfluentClient, Deliveries, consumer, producer
from support.kafka_python_client import consumer as python_consumer
from support.kcat_client import KcatFailed
from support.message import CODECS, KafkaClient, Message
from support.stored import stored_batches
from support.topics import Topics

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("producing")]

# Compresses well, and is not small in any codec.
PROSE = b"the quick brown fox jumps over the lazy dog. " * 100


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("client", each_client())
def test_messages_arrive_whatever_acks_a_producer_asks_for(
    broker: BrokerProcess, topics: Topics, client: KafkaClient, acks: str
) -> None:
    topic = topics.new("acks")
    messages = [Message(value=b"%d" % number) for number in range(20)]
    client.write(broker.address, (topic, 0), messages, idempotent=False, acks=acks)
    received = client.read_from(broker.address, (topic, 0), 0, count=20)
    assert [one.value for one in received] == [one.value for one in messages]


@pytest.mark.parametrize("acks", [1, "all"])
def test_kafka_python_s_end_offset_is_never_behind_its_own_acknowledged_record(
    broker: BrokerProcess, topics: Topics, acks: int | str
) -> None:
    """With acks=1 it was in most tries, because the reply left before the sync."""
    place = PythonTopicPartition(topics.new("ends"), 0)
    reader = python_consumer(broker.address)
    sender = KafkaProducer(
        bootstrap_servers=broker.address, acks=acks, enable_idempotence=False, linger_ms=0
    )
    try:
        behind = []
        for number in range(200):
            sent = sender.send(place.topic, b"%d" % number, partition=0).get(20)
            end = reader.end_offsets([place])[place]
            if end <= sent.offset:
                behind.append((sent.offset, end))
        assert behind == []
    finally:
        sender.close()
        reader.close()


@pytest.mark.parametrize("client", each_client())
def test_a_message_too_large_for_the_topic_is_refused_and_the_next_is_not(
    broker: BrokerProcess, topics: Topics, client: KafkaClient
) -> None:
    topic = topics.new("small", max_message_bytes=1_000)
    with pytest.raises(
        (KafkaException, MessageSizeTooLargeError, AiokafkaTooLarge, KcatFailed)
    ) as caught:
        client.write(broker.address, (topic, 0), [Message(value=b"x" * 2_000)], idempotent=False)
    if isinstance(caught.value, KafkaException):
        assert caught.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    if isinstance(caught.value, KcatFailed):
        assert "Message size too large" in str(caught.value)
    client.write(broker.address, (topic, 0), [Message(value=b"x" * 500)], idempotent=False)
    assert client.bounds(broker.address, (topic, 0)) == (0, 1)


def test_an_idempotent_confluent_producer_goes_on_after_a_refused_message(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("small", max_message_bytes=1_000)
    sender = producer(broker.address, enable_idempotence=True)
    told = Deliveries()
    for size in (500, 2_000, 501):
        sender.produce(topic, b"x" * size, partition=0, on_delivery=told)
        assert not sender.flush(20)
    assert [error.code() for error in told.errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
    received = ConfluentClient().read(broker.address, [(topic, 0)])[topic, 0]
    assert [len(one.value or b"") for one in received] == [500, 501]


@pytest.mark.parametrize("client", each_client())
def test_a_large_batch_arrives_whole_when_the_topic_allows_it(
    broker: BrokerProcess, topics: Topics, client: KafkaClient
) -> None:
    topic = topics.new("roomy")
    # Of all the clients' own limits, kcat's on a line of input is the smallest.
    message = Message(value=b"x" * 900_000)
    client.write(broker.address, (topic, 0), [message], idempotent=False)
    (received,) = client.read_from(broker.address, (topic, 0), 0, count=1)
    assert received.value == message.value


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("client", each_client())
def test_a_topic_that_keeps_the_brokers_time_overrides_the_producers(
    broker: BrokerProcess, topics: Topics, client: KafkaClient, codec: str
) -> None:
    topic = topics.new("stamped", message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    messages = [Message(value=b"%d" % n, timestamp_ms=1_000 + n) for n in range(3)]
    client.write(broker.address, (topic, 0), messages, codec=codec, idempotent=False)
    after_ms = int(time.time() * 1000)
    received = client.read_from(broker.address, (topic, 0), 0, count=3)
    assert all(before_ms <= one.timestamp_ms <= after_ms for one in received)
    assert all(one.is_log_append_time for one in stored_batches(broker.data, (topic, 0)))
    assert client.offset_at(broker.address, (topic, 0), 2_000) == 0


def test_consumers_are_told_that_a_time_is_the_brokers(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("stamped", message_timestamp_type="LogAppendTime")
    ConfluentClient().write(broker.address, (topic, 0), [Message(value=b"v")], idempotent=False)
    reader = consumer(broker.address)
    reader.assign([TopicPartition(topic, 0, 0)])
    message = reader.poll(10)
    reader.close()
    assert message is not None
    assert message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_stored_in_the_codec_the_topic_wants(
    broker: BrokerProcess, topics: Topics, wanted: str, codec: str
) -> None:
    topic = topics.new("packed", compression_type=wanted)
    messages = [Message(key=b"k", value=PROSE, timestamp_ms=5_000 + n) for n in range(3)]
    ConfluentClient().write(broker.address, (topic, 0), messages, codec=codec, idempotent=False)
    stored = {batch.codec for batch in stored_batches(broker.data, (topic, 0))}
    assert stored == {"none" if wanted == "uncompressed" else wanted}


@pytest.mark.parametrize("reader", each_client())
def test_what_the_broker_compressed_every_client_reads(
    broker: BrokerProcess, topics: Topics, reader: KafkaClient
) -> None:
    messages = [Message(key=b"k", value=PROSE, timestamp_ms=5_000 + n) for n in range(3)]
    places = []
    for codec in CODECS:
        wanted = "uncompressed" if codec == "none" else codec
        places.append((topics.new("packed", compression_type=wanted), 0))
        ConfluentClient().write(
            broker.address, places[-1], messages, codec="snappy", idempotent=False
        )
    for received in reader.read(broker.address, places).values():
        assert len(received) == len(messages)
        assert all(one.is_copy_of(sent) for one, sent in zip(received, messages, strict=True))


@pytest.mark.parametrize("client", each_client())
def test_an_idempotent_producer_writes_to_a_topic_with_another_codec(
    broker: BrokerProcess, topics: Topics, client: KafkaClient
) -> None:
    topic = topics.new("packed", compression_type="gzip")
    messages = [Message(value=PROSE + b"%d" % n) for n in range(50)]
    client.write(broker.address, (topic, 0), messages, codec="snappy", idempotent=True)
    received = client.read(broker.address, [(topic, 0)])[topic, 0]
    assert [one.value for one in received] == [one.value for one in messages]


@pytest.mark.parametrize("client", each_client())
def test_a_time_too_far_in_the_future_is_refused(
    broker: BrokerProcess, topics: Topics, client: KafkaClient
) -> None:
    if client.name == "kcat":
        pytest.skip("kcat cannot give a message a time")
    topic = topics.new("punctual")
    tomorrow_ms = int(time.time() * 1000) + 86_400_000
    with pytest.raises(Exception, match=r"(?i)timestamp"):
        client.write(
            broker.address,
            (topic, 0),
            [Message(value=b"v", timestamp_ms=tomorrow_ms)],
            idempotent=False,
        )
    assert client.bounds(broker.address, (topic, 0)) == (0, 0)
