"""Readers of one partition that a test drives: positions, commits and rewinding, as each client library has them."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

import aiokafka
import kafka
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from support.message import Place

T = TypeVar("T")
TIMEOUT_S = 60.0
# A broker answers a fetch of a view at which nothing new is shown after this time.
WAIT_MS = 20


class PlaceReader(Protocol):
    """Reads one partition from its start, or from where its group has committed."""

    def __init__(self, address: str, place: Place, *, group: str, isolation: str) -> None: ...

    def read_to(self, end: int) -> list[tuple[int, bytes]]:
        """Read until the client's position is `end`; what came: offsets and values. Any error is raised."""
        ...

    def seek(self, offset: int) -> None: ...

    def commit(self) -> int:
        """Commit where it is, as the client does by itself; what is committed then."""
        ...

    def close(self) -> None: ...


class ConfluentPlaceReader:
    def __init__(self, address: str, place: Place, *, group: str, isolation: str) -> None:
        self._place = place
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "check.crcs": True,
                "isolation.level": isolation,
                "fetch.wait.max.ms": WAIT_MS,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(*place, self._committed(missing=0))])

    def read_to(self, end: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        while True:
            message = self._consumer.poll(TIMEOUT_S)
            assert message is not None, f"nothing came after {found[-1:]}"
            error = message.error()
            if error is None:
                found.append((message.offset(), message.value()))
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            # The event has the position: control batches move it, and `position()` shows messages only.
            elif message.offset() >= end:
                assert message.offset() == end
                return found

    def seek(self, offset: int) -> None:
        self._consumer.seek(TopicPartition(*self._place, offset))

    def commit(self) -> int:
        self._consumer.commit(asynchronous=False)
        return self._committed(missing=-1)

    def close(self) -> None:
        self._consumer.close()

    def _committed(self, *, missing: int) -> int:
        (found,) = self._consumer.committed([TopicPartition(*self._place)], timeout=TIMEOUT_S)
        return missing if found.offset == OFFSET_INVALID else int(found.offset)


class KafkaPythonPlaceReader:
    def __init__(self, address: str, place: Place, *, group: str, isolation: str) -> None:
        self._place = kafka.TopicPartition(*place)
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=address,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level=isolation,
            fetch_max_wait_ms=WAIT_MS,
        )
        self._consumer.assign([self._place])

    def read_to(self, end: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        while self._consumer.position(self._place) < end:
            polled = self._consumer.poll(timeout_ms=WAIT_MS)
            found += [(one.offset, one.value) for part in polled.values() for one in part]
        assert self._consumer.position(self._place) == end
        return found

    def seek(self, offset: int) -> None:
        self._consumer.seek(self._place, offset)

    def commit(self) -> int:
        self._consumer.commit()
        return int(self._consumer.committed(self._place))

    def close(self) -> None:
        self._consumer.close()


class AiokafkaPlaceReader:
    """On an event loop in another thread, since its consumer is asynchronous."""

    def __init__(self, address: str, place: Place, *, group: str, isolation: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._place = aiokafka.TopicPartition(*place)

        async def start() -> Any:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=address,
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level=isolation,
                fetch_max_wait_ms=WAIT_MS,
            )
            await consumer.start()
            consumer.assign([self._place])
            return consumer

        self._consumer = self._run(start())

    def read_to(self, end: int) -> list[tuple[int, bytes]]:
        async def read() -> list[tuple[int, bytes]]:
            found: list[tuple[int, bytes]] = []
            while await self._consumer.position(self._place) < end:
                polled = await self._consumer.getmany(self._place, timeout_ms=WAIT_MS)
                found += [(one.offset, one.value) for part in polled.values() for one in part]
            assert await self._consumer.position(self._place) == end
            return found

        return self._run(read())

    def seek(self, offset: int) -> None:
        async def seek() -> None:
            self._consumer.seek(self._place, offset)

        self._run(seek())

    def commit(self) -> int:
        async def commit() -> int:
            await self._consumer.commit()
            return int(await self._consumer.committed(self._place))

        return self._run(commit())

    def close(self) -> None:
        self._run(self._consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)


READERS: dict[str, type[PlaceReader]] = {
    "confluent": ConfluentPlaceReader,
    "kafka-python": KafkaPythonPlaceReader,
    "aiokafka": AiokafkaPlaceReader,
}
