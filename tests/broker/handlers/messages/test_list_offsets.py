"""ListOffsets for readers of committed records: the log ends where the first open transaction begins."""

from collections.abc import Coroutine
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.running_broker import EARLIEST, LATEST, LIST_OFFSETS_VERSION, RunningBroker
from broker.wire_client import encode_request
from respool.broker.dispatch import handle
from respool.broker.handlers.messages.list_offsets import QUICK_LOOKUPS_MAX
from respool.broker.outcome import Pipelined
from respool.log.partition_log import PartitionLog
from respool.model.errors import DiskFailed
from respool.records.batch import RecordBatch, read_header
from respool.records.build import NewRecord, build_batch
from respool.records.markers import EndTransactionMarker
from respool.wire.api_table import Api
from respool.wire.codec import decode_request

MAX_TIMESTAMP = -3
COMMITTED, UNCOMMITTED = 1, 0
ADA = 7


@pytest.fixture
def rides(running_broker: RunningBroker) -> RunningBroker:
    """Times 10 and 20, and in an open transaction 30; without waiting for the disk."""
    running_broker.create_topic("rides", respool_flush="os")

    async def fill() -> None:
        partition = running_broker.broker.partitions.find("rides", 0)
        for time, producer in ((10, -1), (20, -1), (30, ADA)):
            data = build_batch(
                [NewRecord(value=b"v", timestamp_ms=time)],
                producer_id=producer,
                producer_epoch=0 if producer >= 0 else -1,
                base_sequence=0 if producer >= 0 else -1,
                is_transactional=producer >= 0,
            )
            batch = RecordBatch(read_header(data), data)
            guard = partition.log.begin_verification(batch.header) if producer >= 0 else None
            partition.append(batch, now_ms=time, guard=guard)

    running_broker.run(fill())
    return running_broker


def offset(broker: RunningBroker, at: int, isolation_level: int) -> int:
    wish = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": at}
    reply = broker.ask(
        Api.LIST_OFFSETS,
        LIST_OFFSETS_VERSION,
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[{"name": "rides", "partitions": [wish]}],
    )
    (partition,) = reply.topics[0].partitions
    assert partition.error_code == 0
    return int(partition.offset)


@pytest.mark.parametrize(
    ("at", "committed", "uncommitted"),
    [
        (LATEST, 2, 3),
        (EARLIEST, 0, 0),
        (15, 1, 1),
        (25, -1, 2),
        (MAX_TIMESTAMP, 1, 2),
    ],
)
def test_nothing_of_an_open_transaction_is_found_by_readers_of_committed_records(
    rides: RunningBroker, at: int, committed: int, uncommitted: int
) -> None:
    assert offset(rides, at, COMMITTED) == committed
    assert offset(rides, at, UNCOMMITTED) == uncommitted


def test_once_it_has_ended_it_is_found(rides: RunningBroker) -> None:
    marker = EndTransactionMarker(
        producer_id=ADA, producer_epoch=0, coordinator_epoch=0, is_commit=True
    )

    async def end() -> None:
        rides.broker.partitions.find("rides", 0).append_marker(marker, now_ms=40)

    rides.run(end())
    assert offset(rides, LATEST, COMMITTED) == 4
    assert offset(rides, 25, COMMITTED) == 2


def test_of_many_times_asked_for_at_once_a_few_are_looked_up_on_the_loop(
    rides: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    offload, in_threads = rides.broker.offload, []
    run = offload.run

    async def counted(work: Any) -> Any:
        in_threads.append(work)
        return await run(work)

    monkeypatch.setattr(offload, "run", counted)
    wish = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": 15}
    reply = rides.ask(
        Api.LIST_OFFSETS,
        LIST_OFFSETS_VERSION,
        replica_id=-1,
        isolation_level=UNCOMMITTED,
        topics=[{"name": "rides", "partitions": [wish] * (QUICK_LOOKUPS_MAX + 8)}],
    )
    assert {one.offset for one in reply.topics[0].partitions} == {1}
    assert len(in_threads) == 8


def wishes(*asked: tuple[int, int]) -> list[dict[str, int]]:
    return [
        {"partition_index": number, "current_leader_epoch": -1, "timestamp": time}
        for number, time in asked
    ]


def answers(broker: RunningBroker, *asked: tuple[int, int]) -> list[tuple[int, int, int]]:
    """Number, error code and offset of each partition."""
    reply = broker.ask(
        Api.LIST_OFFSETS,
        LIST_OFFSETS_VERSION,
        replica_id=-1,
        isolation_level=UNCOMMITTED,
        topics=[{"name": "rides", "partitions": wishes(*asked)}],
    )
    return [
        (one.partition_index, int(one.error_code), one.offset) for one in reply.topics[0].partitions
    ]


@pytest.mark.parametrize("at", [15, 99, LATEST, EARLIEST, -9])
def test_a_lookup_in_memory_is_answered_before_anything_else_runs(
    rides: RunningBroker, at: int
) -> None:
    frame = encode_request(
        Api.LIST_OFFSETS,
        LIST_OFFSETS_VERSION,
        replica_id=-1,
        isolation_level=UNCOMMITTED,
        topics=[{"name": "rides", "partitions": wishes((0, at))}],
    )
    assert not isinstance(handle(decode_request(frame), rides.broker), Coroutine | Pipelined)


def test_each_partition_has_its_own_answer_in_the_order_of_the_request(
    rides: RunningBroker,
) -> None:
    """Times on the event loop, the largest one in a thread, and a partition that does not exist."""
    asked = [(0, 15), (0, MAX_TIMESTAMP), (7, MAX_TIMESTAMP), (0, 25), (0, -9), (0, LATEST)]
    assert answers(rides, *asked) == [
        (0, 0, 1),
        (0, 0, 2),
        (7, ErrorCode.unknown_topic_or_partition, -1),
        (0, 0, 2),
        (0, ErrorCode.invalid_request, -1),
        (0, 0, 3),
    ]


def test_a_disk_that_fails_in_a_lookup_takes_its_partition_offline(
    rides: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise DiskFailed("as the test wants it")

    monkeypatch.setattr(PartitionLog, "latest_timestamp", fail)
    storage_error = ErrorCode.kafka_storage_error
    assert answers(rides, (0, 15), (0, MAX_TIMESTAMP)) == [(0, 0, 1), (0, storage_error, -1)]
    assert not rides.broker.partitions.find("rides", 0).is_online
    assert answers(rides, (0, 15)) == [(0, storage_error, -1)]
