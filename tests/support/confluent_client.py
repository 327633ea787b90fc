"""confluent-kafka (librdkafka) as a `KafkaClient`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka import Message as Delivered

from support.message import DEFAULT_FETCH, FetchSettings, Message, Place, Received

TIMEOUT_S = 60.0


def consumer(address: str, **settings: Any) -> Consumer:
    """A consumer for `assign`; its group is never used. Settings with `_` for `.`."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            "log_level": 0,
            **named,
        }
    )


def producer(address: str, **settings: Any) -> Producer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": address, "linger.ms": 5, "log_level": 0, **named})


class Deliveries:
    """What became of each message, in the order librdkafka told."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.errors: list[KafkaError] = []

    def __call__(self, error: KafkaError | None, message: Delivered) -> None:
        if error is None:
            self.offsets.append(message.offset())
        else:
            self.errors.append(error)


class ConfluentClient:
    name = "confluent"

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
        sender = producer(address, compression_type=codec, enable_idempotence=idempotent, acks=acks)
        told = Deliveries()
        for message in messages:
            sender.produce(
                place[0],
                message.value,
                message.key,
                place[1],
                on_delivery=told,
                timestamp=message.timestamp_ms or 0,
                headers=list(message.headers),
            )
        left = sender.flush(TIMEOUT_S)
        assert not left, f"{left} messages were not answered"
        if told.errors:
            raise KafkaException(told.errors[0])
        assert len(told.offsets) == len(messages)

    def read(self, address: str, places: Iterable[Place]) -> Mapping[Place, list[Received]]:
        found: dict[Place, list[Received]] = {place: [] for place in places}
        reader = consumer(address)
        try:
            # Not "from the beginning": librdkafka waits half a second before it asks where that is.
            starts = {
                place: reader.get_watermark_offsets(TopicPartition(*place), timeout=TIMEOUT_S)[0]
                for place in found
            }
            reader.assign([TopicPartition(*place, start) for place, start in starts.items()])
            unfinished = set(found)
            while unfinished:
                message = reader.poll(TIMEOUT_S)
                assert message is not None, f"nothing came from {sorted(unfinished)}"
                place = message.topic(), message.partition()
                error = message.error()
                if error is None:
                    found[place].append(received(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(place)
                else:
                    raise KafkaException(error)
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
            fetch_wait_max_ms=fetch.wait_ms,
            enable_partition_eof=False,
        )
        found: list[Received] = []
        try:
            reader.assign([TopicPartition(*place, offset)])
            while len(found) < count:
                message = reader.poll(TIMEOUT_S)
                assert message is not None, f"{len(found)} of {count} messages came"
                if message.error():
                    raise KafkaException(message.error())
                found.append(received(message))
        finally:
            reader.close()
        return found

    def bounds(self, address: str, place: Place) -> tuple[int, int]:
        reader = consumer(address)
        try:
            low, high = reader.get_watermark_offsets(TopicPartition(*place), timeout=TIMEOUT_S)
        finally:
            reader.close()
        return low, high

    def offset_at(self, address: str, place: Place, time_ms: int) -> int | None:
        reader = consumer(address)
        try:
            wish = TopicPartition(*place, time_ms)
            (found,) = reader.offsets_for_times([wish], timeout=TIMEOUT_S)
        finally:
            reader.close()
        # For "none" librdkafka says the end.
        return None if found.offset == OFFSET_END else int(found.offset)


def received(message: Any) -> Received:
    return Received(
        offset=message.offset(),
        timestamp_ms=message.timestamp()[1],
        value=message.value(),
        key=message.key(),
        headers=tuple(message.headers() or ()),
    )
