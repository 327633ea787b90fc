"""A topic with a log to read, the same at every contender: written once by prebuilt batches, as fast as it goes."""

import time
import uuid
from dataclasses import dataclass

from bench.load_client import measure
from bench.produce_load import ProduceSpec, window_for
from bench.requests import BATCH_SPAN_MS, Batch, Client
from bench.scale import KB, MESSAGE_BYTES
from bench.versus.contender import Contender

# What the Java producer fills by itself.
BATCH_BYTES = 16 * KB
FILL_SECONDS_MAX = 1_200.0
_ACKS_LEADER = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledTopic:
    name: str
    id: uuid.UUID
    messages: int
    # Messages' times begin here, and end there.
    time_first_ms: int
    time_end_ms: int


def fill(
    contender: Contender,
    name: str,
    *,
    messages: int,
    partitions: int = 1,
    batch_bytes: int = BATCH_BYTES,
) -> FilledTopic:
    broker = contender.broker
    sample = Batch.of_size(batch_bytes, message_bytes=MESSAGE_BYTES, time_ms=0)
    batches = -(-messages // sample.messages)
    # In the past: times far ahead of a broker's clock are refused.
    time_end_ms = int(time.time() * 1000)
    time_first_ms = time_end_ms - batches * BATCH_SPAN_MS
    contender.create_topic(name, partitions=partitions)
    measure(
        broker,
        ProduceSpec(
            host=broker.host,
            port=broker.port,
            topic=name,
            acks=_ACKS_LEADER,
            batch_bytes=batch_bytes,
            message_bytes=MESSAGE_BYTES,
            window=window_for(batch_bytes),
            partitions=partitions,
            seconds=FILL_SECONDS_MAX,
            bytes_max=batches * len(sample.data),
            time_first_ms=time_first_ms,
            time_step_ms=BATCH_SPAN_MS,
        ),
    )
    with Client(broker.host, broker.port) as client:
        topic_id = client.topic_id(name)
        written = sum(client.end_offset(name, number) for number in range(partitions))
    return FilledTopic(
        name=name,
        id=topic_id,
        messages=written,
        time_first_ms=time_first_ms,
        time_end_ms=time_end_ms,
    )
