"""Shrinks topics, and writes to them as clients do that know the old number of partitions."""

import asyncio
from typing import Any

from broker.running_broker import PRODUCE_VERSION, RunningBroker
from broker.transaction_client import read
from respool.records.build import NewRecord, build_batch
from respool.wire.api_table import Api
from respool.wire.layout_change import LAYOUT_CHANGE_VERSION

PRODUCER = 4_711


def change(
    broker: RunningBroker,
    count: int,
    kind: str = "shrink",
    *,
    topic: str = "rides",
    validate_only: bool = False,
) -> tuple[int, str]:
    """Ask for a change of the topic's partitions. Return the error code and its message."""
    reply = broker.ask(
        Api.CREATE_PARTITIONS,
        LAYOUT_CHANGE_VERSION,
        topics=[{"name": topic, "count": count, "assignments": None}],
        timeout=1000,
        validate_only=validate_only,
        layout_change=kind,
    )
    (result,) = reply.results
    return int(result.error_code), str(result.error_message or "")


def shrink(broker: RunningBroker, to: int, *, topic: str = "rides") -> None:
    assert change(broker, to, topic=topic) == (0, "")
    complete(broker)


def grow(broker: RunningBroker, to: int, *, topic: str = "rides") -> None:
    assert change(broker, to, "", topic=topic) == (0, "")
    complete(broker)


def complete(broker: RunningBroker) -> None:
    """Let the leaders do what they do after a change."""

    async def wait() -> None:
        families = broker.broker.layouts._families
        while not all(one.is_ready for one in families.values()):
            await asyncio.sleep(0)

    broker.run(wait())


def send(
    broker: RunningBroker,
    partition: int,
    sequence: int,
    *values: bytes,
    topic: str = "rides",
    epoch: int = 0,
    producer_id: int = PRODUCER,
) -> Any:
    """Send a batch of an idempotent producer. Return the answer for the partition."""
    now_ms = broker.clock.now_ms()
    records = [NewRecord(value=value, timestamp_ms=now_ms) for value in values or (b"v",)]
    batch = build_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    reply = broker.ask(
        Api.PRODUCE,
        PRODUCE_VERSION,
        transactional_id=None,
        acks=-1,
        timeout=1000,
        topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
    )
    (answer,) = reply.responses[0].partition_responses
    return answer


def sent(broker: RunningBroker, partition: int, sequence: int, *values: bytes, **how: Any) -> int:
    """Send a batch that must be taken; return the offset in the answer."""
    answer = send(broker, partition, sequence, *values, **how)
    assert answer.error_code == 0, answer
    return int(answer.base_offset)


def everything(broker: RunningBroker, count: int = 6, topic: str = "rides") -> list[list[bytes]]:
    """What consumers are shown of each partition."""
    return [read(broker, topic, number) for number in range(count)]
