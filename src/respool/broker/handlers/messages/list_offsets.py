"""ListOffsets (key 2): a partition's first and last offsets, and the offset for a timestamp.

| timestamp       | returned                                                                  |
|-----------------|---------------------------------------------------------------------------|
| a time in ms    | the first record at or after it                                            |
| -1 latest       | the high watermark: the next offset a consumer could read                 |
| -2 earliest     | the log's start                                                             |
| -3 max time     | the record with the largest timestamp                                      |
| -4 local start  | the log's start on this disk                                                |
| -5 tiered end, -6 | nothing is tiered: no offset                                             |

Another broker of the cluster may send an offset together with the latest-timestamp request (`time_at`, a tagged field):
the reply has the timestamp of the first record at or after that offset.

With isolation_level=1 the lookup ends at the last stable offset for consumers: nothing beyond it is found.
"""

from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import DESCRIBE_TOPIC
from respool.broker.outcome import Reply
from respool.broker.partitions.partition import Partition
from respool.log.partition_log import PartitionLog, TimestampedOffset
from respool.model.errors import (
    InvalidRequest,
    OffsetNotAvailable,
    RequestError,
    StorageError,
    StorageFailed,
)
from respool.model.ids import NO_TIMESTAMP, Offset
from respool.ports.disk import NotCached
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

READ_COMMITTED = 1
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
NO_OFFSET = -1
# Partitions of one request that are looked up on the event loop; more would block other requests.
QUICK_LOOKUPS_MAX = 32


@serves(Api.LIST_OFFSETS, versions=(1, 11), rights=(DESCRIBE_TOPIC,))
async def list_offsets(request: Request, broker: Broker) -> Reply:
    if broker.auto_created:
        broker.auto_created.on_used(topic.name for topic in request.body.topics)
    answers = _Answers(request, broker)
    topics = [
        {
            "name": topic.name,
            "partitions": [await answers.answer(topic.name, one) for one in topic.partitions],
        }
        for topic in request.body.topics
    ]
    return [encode_reply(request, {"throttle_time": 0, "topics": topics})]


class _Answers:
    """The replies to one request's partitions."""

    def __init__(self, request: Request, broker: Broker) -> None:
        self._broker = broker
        self._read_committed = getattr(request.body, "isolation_level", 0) == READ_COMMITTED
        self._by_follower = broker.member is not None and request.body.replica_id >= 0
        self._quick_left = QUICK_LOOKUPS_MAX

    async def answer(self, topic: str, asked: Any) -> dict[str, object]:
        fields: dict[str, object] = {
            "partition_index": asked.partition_index,
            "error_code": 0,
            "timestamp": NO_TIMESTAMP,
            "offset": NO_OFFSET,
            "leader_epoch": -1,
        }
        try:
            # A view's offsets are its parent's.
            log_name = self._broker.image.log_name(topic)
            partition = self._broker.partitions.find_leader(log_name, asked.partition_index)
            partition.check_leader_epoch(getattr(asked, "current_leader_epoch", -1))
            end = _end(
                partition,
                asked.timestamp,
                read_committed=self._read_committed,
                by_follower=self._by_follower,
            )
            fields.update(await self._look_up(partition, asked.timestamp, end))
            time_at = getattr(asked, "time_at", NO_OFFSET)
            if asked.timestamp == LATEST and NO_OFFSET < time_at < end:
                # Another broker wants the age of the next record that a group reads.
                fields["timestamp"] = await self._time_at(partition, Offset(time_at))
        except RequestError as error:
            fields["error_code"] = error.code
        return fields

    async def _look_up(
        self, partition: Partition, timestamp: int, end: Offset
    ) -> dict[str, object]:
        log = partition.log
        if timestamp == LATEST:
            return {"offset": end, "leader_epoch": partition.leader_epoch}
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return {"offset": log.log_start, "leader_epoch": log.epoch_at(log.log_start)}
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return {}
        if timestamp < EARLIEST_PENDING_UPLOAD:
            raise InvalidRequest(f"{timestamp} is neither a time nor a known special timestamp")
        truncations = log.truncations
        try:
            found = await self._find(log, timestamp, end)
        except StorageError as error:
            if not log.was_truncated_since(truncations):
                partition.on_storage_error(error)
            raise StorageFailed(f"{partition.name}: {error}") from error
        if found is None:
            # A match may be beyond the high watermark known here, if this new leader does not know the current one yet.
            _check_end_known(partition)
            return {}
        return {
            "offset": found.offset,
            "timestamp": found.timestamp,
            "leader_epoch": found.leader_epoch,
        }

    async def _time_at(self, partition: Partition, offset: Offset) -> int:
        log = partition.log
        try:
            found = await self._broker.offload.run(lambda: log.time_at(offset))
        except StorageError as error:
            raise StorageFailed(f"{partition.name}: {error}") from error
        return NO_TIMESTAMP if found is None else found

    async def _find(
        self, log: PartitionLog, timestamp: int, end: Offset
    ) -> TimestampedOffset | None:
        offload = self._broker.offload
        # A lookup by timestamp opens batches. That is too slow for the event loop, unless one is small and in memory.
        if timestamp == MAX_TIMESTAMP:
            return await offload.run(lambda: log.latest_timestamp(max_offset=end))
        if self._quick_left:
            self._quick_left -= 1
            try:
                return log.first_at_or_after(timestamp, max_offset=end, quickly=True)
            except NotCached:
                pass
        return await offload.run(lambda: log.first_at_or_after(timestamp, max_offset=end))


def _end(
    partition: Partition, timestamp: int, *, read_committed: bool, by_follower: bool
) -> Offset:
    """The log's end for this isolation level or replica."""
    if by_follower:
        # A follower asks for the log end, committed or not.
        return partition.log.log_end
    if timestamp in (LATEST, MAX_TIMESTAMP):
        _check_end_known(partition)
    return partition.last_stable_offset if read_committed else partition.high_watermark


def _check_end_known(partition: Partition) -> None:
    """Fail while a new leader does not know its predecessor's high watermark: the end must not move backwards."""
    leader = partition.leader
    if leader is not None and not leader.is_end_known:
        raise OffsetNotAvailable(f"{partition.name}: the new leader does not know the end yet")
