"""kafka-python 3 as a `KafkaClient`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from support.message import DEFAULT_FETCH, FetchSettings, Message, Place, Received

TIMEOUT_MS = 20_000


def consumer(address: str, **settings: Any) -> KafkaConsumer:
    """A consumer for `assign`, without a group."""
    return KafkaConsumer(
        bootstrap_servers=address,
        group_id=None,
        enable_auto_commit=False,
        **{"auto_offset_reset": "none", "fetch_max_wait_ms": 100, **settings},
    )


class KafkaPythonClient:
    name = "kafka-python"

    def express(self, message: Message) -> Message:
        return message

    def write(
        self,
        address: str,
        place: Place,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        idempotent: bool = True,
        acks: str = "all",
    ) -> None:
        sender = KafkaProducer(
            bootstrap_servers=address,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks=acks if acks == "all" else int(acks),
            linger_ms=5,
        )
        try:
            futures = [
                sender.send(
                    place[0],
                    message.value,
                    message.key,
                    list(message.headers),
                    place[1],
                    message.timestamp_ms,
                )
                for message in messages
            ]
            for future in futures:
                future.get(TIMEOUT_MS / 1000)
        finally:
            sender.close(timeout=TIMEOUT_MS / 1000)

    def read(self, address: str, places: Iterable[Place]) -> Mapping[Place, list[Received]]:
        found: dict[Place, list[Received]] = {place: [] for place in places}
        reader = consumer(address)
        try:
            partitions = [TopicPartition(*place) for place in found]
            reader.assign(partitions)
            reader.seek_to_beginning()
            ends = reader.end_offsets(partitions)
            while any(reader.position(one) < ends[one] for one in partitions):
                batch = reader.poll(timeout_ms=TIMEOUT_MS)
                assert batch, "nothing came in time"
                for partition, messages in batch.items():
                    found[partition.topic, partition.partition] += map(received, messages)
        finally:
            reader.close()
        return found

    def read_from(
        self,
        address: str,
        place: Place,
        offset: int,
        *,
        count: int,
        fetch: FetchSettings = DEFAULT_FETCH,
    ) -> list[Received]:
        reader = consumer(
            address,
            fetch_min_bytes=fetch.bytes_min,
            max_partition_fetch_bytes=fetch.partition_bytes_max,
            fetch_max_wait_ms=fetch.wait_ms,
        )
        found: list[Received] = []
        try:
            partition = TopicPartition(*place)
            reader.assign([partition])
            reader.seek(partition, offset)
            while len(found) < count:
                batch = reader.poll(timeout_ms=TIMEOUT_MS, max_records=count - len(found))
                assert batch, f"{len(found)} of {count} messages came"
                found += map(received, batch[partition])
        finally:
            reader.close()
        return found

    def bounds(self, address: str, place: Place) -> tuple[int, int]:
        reader = consumer(address)
        try:
            partition = TopicPartition(*place)
            starts, ends = reader.beginning_offsets([partition]), reader.end_offsets([partition])
        finally:
            reader.close()
        return starts[partition], ends[partition]

    def offset_at(self, address: str, place: Place, time_ms: int) -> int | None:
        reader = consumer(address)
        try:
            partition = TopicPartition(*place)
            found = reader.offsets_for_times({partition: time_ms})[partition]
        finally:
            reader.close()
        return None if found is None else found.offset


def received(message: Any) -> Received:
    return Received(
        offset=message.offset,
        timestamp_ms=message.timestamp,
        value=message.value,
        key=message.key,
        headers=tuple(message.headers),
    )
