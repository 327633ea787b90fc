"""aiokafka as a `KafkaClient`; each call runs an event loop of its own."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from support.message import DEFAULT_FETCH, FetchSettings, Message, Place, Received

TIMEOUT_MS = 20_000


@asynccontextmanager
async def consumer(address: str, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer for `assign`, without a group."""
    reader = AIOKafkaConsumer(
        bootstrap_servers=address,
        group_id=None,
        enable_auto_commit=False,
        **{"auto_offset_reset": "none", "fetch_max_wait_ms": 100, **settings},
    )
    await reader.start()
    try:
        yield reader
    finally:
        await reader.stop()


@asynccontextmanager
async def producer(address: str, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    sender = AIOKafkaProducer(bootstrap_servers=address, linger_ms=5, **settings)
    await sender.start()
    try:
        yield sender
    finally:
        await sender.stop()


class AiokafkaClient:
    name = "aiokafka"

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
        async def send_all() -> None:
            async with producer(
                address,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                acks=acks if acks == "all" else int(acks),
            ) as sender:
                sent = [
                    await sender.send(
                        place[0],
                        message.value,
                        message.key,
                        place[1],
                        message.timestamp_ms,
                        list(message.headers),
                    )
                    for message in messages
                ]
                await asyncio.wait_for(asyncio.gather(*sent), TIMEOUT_MS / 1000)

        asyncio.run(send_all())

    def read(self, address: str, places: Iterable[Place]) -> Mapping[Place, list[Received]]:
        found: dict[Place, list[Received]] = {place: [] for place in places}

        async def read_all() -> None:
            async with consumer(address) as reader:
                partitions = [TopicPartition(*place) for place in found]
                reader.assign(partitions)
                await reader.seek_to_beginning()
                ends = await reader.end_offsets(partitions)
                while [one for one in partitions if await reader.position(one) < ends[one]]:
                    batch = await reader.getmany(timeout_ms=TIMEOUT_MS)
                    assert batch, "nothing came in time"
                    for partition, messages in batch.items():
                        found[partition.topic, partition.partition] += map(received, messages)

        asyncio.run(read_all())
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
        found: list[Received] = []

        async def read() -> None:
            async with consumer(
                address,
                fetch_min_bytes=fetch.bytes_min,
                max_partition_fetch_bytes=fetch.partition_bytes_max,
                fetch_max_wait_ms=fetch.wait_ms,
            ) as reader:
                partition = TopicPartition(*place)
                reader.assign([partition])
                reader.seek(partition, offset)
                while len(found) < count:
                    batch = await reader.getmany(
                        timeout_ms=TIMEOUT_MS, max_records=count - len(found)
                    )
                    assert batch, f"{len(found)} of {count} messages came"
                    found.extend(map(received, batch[partition]))

        asyncio.run(read())
        return found

    def bounds(self, address: str, place: Place) -> tuple[int, int]:
        async def ask() -> tuple[int, int]:
            async with consumer(address) as reader:
                partition = TopicPartition(*place)
                starts = await reader.beginning_offsets([partition])
                ends = await reader.end_offsets([partition])
                return starts[partition], ends[partition]

        return asyncio.run(ask())

    def offset_at(self, address: str, place: Place, time_ms: int) -> int | None:
        async def ask() -> int | None:
            async with consumer(address) as reader:
                partition = TopicPartition(*place)
                found = (await reader.offsets_for_times({partition: time_ms}))[partition]
                return None if found is None else int(found.offset)

        return asyncio.run(ask())


def received(message: Any) -> Received:
    return Received(
        offset=message.offset,
        timestamp_ms=message.timestamp,
        value=message.value,
        key=message.key,
        headers=tuple(message.headers),
    )
