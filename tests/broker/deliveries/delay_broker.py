"""A broker with a topic of delayed records: a raw client that produces and reads, and a clock that the test sets."""

from typing import Any

from broker.deliveries.read_log import read_log
from broker.running_broker import RunningBroker
from broker.views.reading import Client
from respool.broker.deliveries.delivery_worker import DeliveryWorker
from respool.broker.partitions.partition import Partition
from respool.records.build import NewRecord, build_batch
from respool.records.record import Record
from respool.wire.api_table import Api

TOPIC = "reminders"
FETCH_VERSION = 12
PRODUCE_VERSION = 9
EVERYTHING = 2**31 - 1
HeaderPairs = tuple[tuple[str, bytes | None], ...]


def record(value: bytes, *headers: tuple[str, bytes | None], timestamp_ms: int = -1) -> NewRecord:
    return NewRecord(key=b"key", value=value, headers=headers, timestamp_ms=timestamp_ms)


def delayed(value: bytes, delay: bytes, *headers: tuple[str, bytes | None]) -> NewRecord:
    return record(value, ("respool-delay", delay), *headers)


class DelayBroker:
    def __init__(self, broker: RunningBroker, *, settings: dict[str, Any] | None = None) -> None:
        self.running = broker
        broker.create_topic(TOPIC, respool_delay="true", **(settings or {}))

    @property
    def partition(self) -> Partition:
        return self.running.broker.partitions.find(TOPIC, 0)

    @property
    def worker(self) -> DeliveryWorker:
        found = self.running.broker.deliveries.worker(self.partition)
        assert found is not None
        return found

    @property
    def pending_count(self) -> int:
        return self.running.broker.deliveries.pending_count(self.partition)

    def send(self, *records: NewRecord, version: int = PRODUCE_VERSION, **batch: Any) -> int:
        """Produce one batch, and return its base offset."""
        answer = self.answer_to(*records, version=version, **batch)
        assert answer.error_code == 0, answer
        return int(answer.base_offset)

    def answer_to(self, *records: NewRecord, version: int = PRODUCE_VERSION, **batch: Any) -> Any:
        data = {"index": 0, "records": build_batch(records, **batch)}
        reply = self.running.ask(
            Api.PRODUCE,
            version,
            transactional_id=None,
            acks=-1,
            timeout=1000,
            topic_data=[{"name": TOPIC, "partition_data": [data]}],
        )
        return reply.responses[0].partition_responses[0]

    def deliver(self, after_ms: int = 0) -> None:
        """Let time pass, and then everything happen that is due."""
        self.running.clock.advance(after_ms)
        self.running.run(self._deliver())

    async def _deliver(self) -> None:
        # What is appended in one pass is fed in the next one.
        for _ in range(3):
            while await self.worker.run_pass():
                pass

    def visible(self, *, offset: int = 0, read_committed: bool = False) -> list[Record]:
        """What a consumer sees from an offset on."""
        client = Client(offset)
        end = (
            self.partition.high_watermark
            if not read_committed
            else self.partition.last_stable_offset
        )
        while client.position < end:
            before = client.position
            client.take(self._fetch(before, read_committed=read_committed))
            assert client.position > before
        return client.records

    def values(self, **how: Any) -> list[bytes | None]:
        return [one.value for one in self.visible(**how)]

    def stored(self) -> list[Record]:
        """Everything in the log, hidden records included."""
        return read_log(self.partition.log)

    def _fetch(self, offset: int, *, read_committed: bool) -> bytes:
        wish = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": EVERYTHING,
        }
        reply = self.running.ask(
            Api.FETCH,
            FETCH_VERSION,
            replica_id=-1,
            max_wait=0,
            min_bytes=0,
            max_bytes=EVERYTHING,
            isolation_level=int(read_committed),
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": TOPIC, "partitions": [wish]}],
            forgotten_topics_data=[],
            rack_id="",
        )
        (part,) = reply.responses[0].partitions
        assert part.error_code == 0, part
        return bytes(part.records or b"")
