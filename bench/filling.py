"""Topics with a log to read: filled once through the broker, as fast as it goes."""

import time
import uuid
from dataclasses import dataclass

from bench.broker_process import BrokerProcess
from bench.load_client import measure
from bench.produce_load import ProduceSpec, window_for
from bench.requests import BATCH_SPAN_MS, Batch, Client
from bench.scale import MESSAGE_BYTES

FILL_SECONDS_MAX = 1_200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledTopic:
    name: str
    id: uuid.UUID
    partitions: int
    # All batches are alike.
    batch_bytes: int
    batch_messages: int
    # Of each partition.
    batches: int
    # Batches' times begin here and are `BATCH_SPAN_MS` apart.
    time_first_ms: int

    @property
    def offset_end(self) -> int:
        return self.batches * self.batch_messages

    @property
    def time_end_ms(self) -> int:
        return self.time_first_ms + self.batches * self.partitions * BATCH_SPAN_MS


def fill(
    broker: BrokerProcess,
    *,
    log_bytes: int,
    batch_bytes: int,
    partitions: int = 1,
    name: str = "filled",
) -> FilledTopic:
    """Create a topic and write `log_bytes` over all its partitions, one batch after the other, with rising times."""
    sample = Batch.of_size(batch_bytes, message_bytes=MESSAGE_BYTES, time_ms=0)
    batches = max(1, log_bytes // len(sample.data) // partitions)
    # In the past: times far ahead of the broker's clock are refused.
    time_first_ms = int(time.time() * 1000) - batches * partitions * BATCH_SPAN_MS
    with Client(broker.host, broker.port) as client:
        topic_id = client.create_topic(
            name,
            partitions=partitions,
            settings={"respool.flush": "os", "retention.ms": "-1"},
        )
    measure(
        broker,
        ProduceSpec(
            host=broker.host,
            port=broker.port,
            topic=name,
            acks=1,
            batch_bytes=batch_bytes,
            message_bytes=MESSAGE_BYTES,
            window=window_for(batch_bytes),
            partitions=partitions,
            seconds=FILL_SECONDS_MAX,
            bytes_max=batches * partitions * len(sample.data),
            time_first_ms=time_first_ms,
            time_step_ms=BATCH_SPAN_MS,
        ),
    )
    return FilledTopic(
        name=name,
        id=topic_id,
        partitions=partitions,
        batch_bytes=len(sample.data),
        batch_messages=sample.messages,
        batches=batches,
        time_first_ms=time_first_ms,
    )
