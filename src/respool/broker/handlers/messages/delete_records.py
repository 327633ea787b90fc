"""DeleteRecords (key 21): delete the oldest records of partitions, up to an offset.

The reply is sent when the new log start is durable, so that no restart brings the records back, and when every replica
that fetches or may be elected has the new log start too. Segments that lie completely below the log start are deleted.
"""

import asyncio
import logging
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
from respool.model.quantities import counted
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

logger = logging.getLogger(__name__)

# This value in place of an offset means everything that is committed.
HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


@serves(Api.DELETE_RECORDS, versions=(0, 2), rights=(DELETE_TOPIC,))
async def delete_records(request: Request, broker: Broker) -> Reply:
    timeout_s = max(0.0, request.body.timeout.total_seconds())
    topics = []
    for topic in request.body.topics:
        answers = [
            await _answer(request, broker, topic.name, one, timeout_s=timeout_s)
            for one in topic.partitions
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


async def _answer(
    request: Request, broker: Broker, topic: str, asked: Any, *, timeout_s: float
) -> dict[str, object]:
    fields: dict[str, object] = {"partition_index": asked.partition_index}
    try:
        broker.access.check(request, DELETE_TOPIC, topic)
        if topic in broker.image.topics and broker.image.topics[topic].internal:
            raise InvalidTopic(f"records of the internal topic {topic!r} cannot be deleted")
        broker.image.check_is_no_view(topic, instead="delete records of")
        partition = broker.partitions.find_leader(topic, asked.partition_index)
        low_watermark = await _delete(broker, partition, asked.offset, timeout_s=timeout_s)
    except RequestError as error:
        return {**fields, "error_code": error.code, "low_watermark": NO_LOW_WATERMARK}
    return {**fields, "error_code": 0, "low_watermark": low_watermark}


async def _delete(broker: Broker, partition: Partition, offset: int, *, timeout_s: float) -> Offset:
    """Raise the log start to `offset`, durably, and return the new log start."""
    log = partition.log
    # A mirror's log start follows its source's, whatever its cleanup policy. Without a policy the broker deletes
    # nothing by itself, but clients may, as in Kafka.
    config = log.config
    if config.is_compacted and not config.has_retention and not config.respool_mirror:
        raise PolicyViolation(
            f"{partition.name}: cleanup.policy is {config.cleanup_policy}, without 'delete'"
        )
    if offset == HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise OffsetOutOfRange(
            f"{partition.name}: offset {offset} is not within 0 and the high watermark "
            f"{partition.high_watermark}"
        )
    await _when_folder_durable(partition, Offset(offset), timeout_s)
    try:
        # At or below the log start there is nothing to delete. The checkpoint is written all the same, because this may
        # be a retry after the log start was raised and the checkpoint could not be written.
        if offset > log.log_start:
            cancelled = await broker.deliveries.count_waiting(partition, Offset(offset))
            if cancelled:
                logger.info(
                    "%s: records before %d are deleted, and with them %s that waited",
                    partition.name,
                    offset,
                    counted(cancelled, "delayed record"),
                )
            log.raise_log_start(Offset(offset))
            partition.on_log_start_moved()
        await broker.offload.run(lambda: broker.folder.write_checkpoints({partition.name: log}, {}))
    except StorageError as error:
        raise StorageFailed(f"{partition.name}: {error}") from error
    broker.housekeeping.clean(partition)
    await _when_followed(partition, log.log_start, timeout_s)
    return log.log_start


async def _when_folder_durable(partition: Partition, offset: Offset, timeout_s: float) -> None:
    """Wait for the first sync of a new log, which has no checkpoint before it; `respool.flush` may let it wait long."""
    if partition.log.is_folder_durable:
        return
    synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if not partition.waiters.wait_for_disk(offset, FutureListener(synced)):
        return
    try:
        async with asyncio.timeout(timeout_s):
            await synced
    except TimeoutError:
        raise RequestTimedOut(
            f"{partition.name}: nothing was deleted, since the new partition is not on disk yet"
        ) from None


async def _when_followed(partition: Partition, log_start: Offset, timeout_s: float) -> None:
    """Wait for replicas that fetch or may be elected: a new leader with the old log start would restore the records."""
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
        # Otherwise retries would pile up listeners for as long as a replica is away.
        partition.waiters.stop_waiting_for_deletion(listener)
