"""DeleteRecords (key 21): give up the oldest records of partitions, up to an offset.

The answer goes out when the new log start is on the disk, so that no restart brings the records back, and when every
replica has followed that fetches or may be elected. The files they lie in are removed where nothing else is in them.
"""

import asyncio
from typing import Any

from respool.broker.admin_log import listed
from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import DELETE_TOPIC
from respool.broker.outcome import Reply
from respool.broker.partitions.commit_waiters import FutureListener
from respool.broker.partitions.partition import Partition
from respool.model.errors import (
    InvalidTopic,
    OffsetOutOfRange,
    PolicyViolation,
    RequestError,
    RequestTimedOut,
    StorageError,
    StorageFailed,
)
from respool.model.ids import Offset
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

# Instead of an offset: everything that is committed.
HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


@serves(Api.DELETE_RECORDS, versions=(0, 2), rights=(DELETE_TOPIC,))
async def delete_records(request: Request, broker: Broker) -> Reply:
    timeout_s = max(0.0, request.body.timeout.total_seconds())
    topics = []
    for topic in request.body.topics:
        answers = [
            await _answer(broker, topic.name, one, timeout_s=timeout_s) for one in topic.partitions
        ]
        _log_deleted(request, broker, topic.name, answers)
        topics.append({"name": topic.name, "partitions": answers})
    return [encode_reply(request, {"throttle_time": 0, "topics": topics})]


def _log_deleted(
    request: Request, broker: Broker, topic: str, answers: list[dict[str, object]]
) -> None:
    starts = [
        f"{one['partition_index']} before {one['low_watermark']}"
        for one in answers
        if not one["error_code"]
    ]
    if starts:
        what = f"deleted records of topic {topic!r}: partition {listed(starts)}"
        broker.admin_log.log(request, what)


async def _answer(broker: Broker, topic: str, asked: Any, *, timeout_s: float) -> dict[str, object]:
    fields: dict[str, object] = {"partition_index": asked.partition_index}
    try:
        if topic in broker.image.topics and broker.image.topics[topic].internal:
            raise InvalidTopic(f"records of the internal topic {topic!r} cannot be deleted")
        partition = broker.partitions.find_leader(topic, asked.partition_index)
        low_watermark = await _delete(broker, partition, asked.offset, timeout_s=timeout_s)
    except RequestError as error:
        return {**fields, "error_code": error.code, "low_watermark": NO_LOW_WATERMARK}
    return {**fields, "error_code": 0, "low_watermark": low_watermark}


async def _delete(broker: Broker, partition: Partition, offset: int, *, timeout_s: float) -> Offset:
    """Raise the log start to `offset`, durably, and return where the log starts then."""
    log = partition.log
    # A mirror starts where its source does, whatever its policy.
    if not log.config.has_retention and not log.config.respool_mirror:
        raise PolicyViolation(
            f"{partition.name}: cleanup.policy is {log.config.cleanup_policy}, without 'delete'"
        )
    if offset == HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise OffsetOutOfRange(
            f"{partition.name}: offset {offset} is not within 0 and the high watermark "
            f"{partition.high_watermark}"
        )
    try:
        # Below the start there is nothing left to delete. But a retry comes here too, when the log start was raised
        # and could not be written down: so that is done in any case.
        if offset > log.log_start:
            log.raise_log_start(Offset(offset))
            partition.on_log_start_moved()
        await broker.offload.run(lambda: broker.folder.write_checkpoints({partition.name: log}, {}))
    except StorageError as error:
        raise StorageFailed(f"{partition.name}: {error}") from error
    broker.housekeeping.clean(partition)
    await _when_followed(partition, log.log_start, timeout_s)
    return log.log_start


async def _when_followed(partition: Partition, log_start: Offset, timeout_s: float) -> None:
    """Until all have deleted them who fetch or may be elected: else one that is elected would bring them back."""
    followed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    listener = FutureListener(followed)
    if not partition.waiters.wait_for_deletion(log_start, listener):
        return
    try:
        async with asyncio.timeout(timeout_s):
            await followed
    except TimeoutError:
        raise RequestTimedOut(
            f"{partition.name}: not every replica has deleted the records before {log_start} yet"
        ) from None
    finally:
        # Else each that is asked again and again would stay behind, as long as a replica is away.
        partition.waiters.stop_waiting_for_deletion(listener)
