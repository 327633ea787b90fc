"""ListOffsets (key 2): a partition's first and last offsets, and the offset for a timestamp.

| timestamp       | returned                                                                  |
|-----------------|---------------------------------------------------------------------------|
| a time in ms    | the first record at or after it                                            |
| -1 latest       | the high watermark: the next offset a consumer could read                 |
| -2 earliest     | the log's start                                                             |
| -3 max time     | the record with the largest timestamp                                      |
| -4 local start  | the first offset on the brokers' disks; from v8 on                         |
| -5 tiered end   | the last archived offset, -1 if there is none; from v9 on                  |
| -6 pending      | the first offset that is not archived; -1 without archive; from v11 on     |

Another broker of the cluster may send an offset together with the latest-timestamp request (`time_at`, a tagged field):
the reply has the timestamp of the first record at or after that offset.

With isolation_level=1 the lookup ends at the last stable offset for consumers: nothing beyond it is found.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from respool.broker.archive.archive import Archive
from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import CLUSTER_ACTION, DESCRIBE_TOPIC
from respool.broker.outcome import Outcome, Reply
from respool.broker.partitions.partition import Partition
from respool.log.partition_log import TimestampedOffset
from respool.model.errors import (
    InvalidRequest,
    OffsetNotAvailable,
    RequestError,
    RequestTimedOut,
    StorageError,
    StorageFailed,
    UnsupportedVersion,
)
from respool.model.ids import Offset
from respool.ports.disk import NotCached
from respool.wire.api_table import Api
from respool.wire.codec import Request
from respool.wire.hot_replies import ListedOffset, encode_list_offsets_reply

READ_COMMITTED = 1
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
NO_OFFSET = -1
BOUNDS = frozenset({EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD})
# The first versions of ListOffsets with these.
SINCE_VERSION = {EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
# Partitions of one request that are looked up on the event loop; more would block other requests.
QUICK_LOOKUPS_MAX = 32


@serves(
    Api.LIST_OFFSETS,
    versions=(1, 11),
    rights=(DESCRIBE_TOPIC, CLUSTER_ACTION.when("a replica asks")),
)
def list_offsets(request: Request, broker: Broker) -> Outcome:
    if broker.auto_created:
        broker.auto_created.on_used(
            topic.name
            for topic in request.body.topics
            if broker.access.may(request, DESCRIBE_TOPIC, topic.name)
        )
    answers = _Answers(request, broker)
    return answers.finish() if answers.has_slow else answers.encode()


# A lookup off the event loop.
_Slow: TypeAlias = Callable[[], Coroutine[Any, Any, ListedOffset]]


class _Answers:
    """The replies to one request's partitions; those of slow lookups follow in `finish`."""

    def __init__(self, request: Request, broker: Broker) -> None:
        body = request.body
        self._request = request
        self._broker = broker
        self._read_committed = getattr(body, "isolation_level", 0) == READ_COMMITTED
        # A client that only claims to be a replica gets what consumers get.
        self._by_follower = (
            broker.member is not None
            and body.replica_id >= 0
            and broker.access.may(request, CLUSTER_ACTION)
        )
        self._quick_left = QUICK_LOOKUPS_MAX
        # Each with the place of its answer.
        self._slow: list[tuple[list[ListedOffset], int, _Slow]] = []
        self._topics = [(topic.name, self._answer_all(topic)) for topic in body.topics]

    @property
    def has_slow(self) -> bool:
        return bool(self._slow)

    async def finish(self) -> Reply:
        for listed, place, look_up in self._slow:
            try:
                listed[place] = await look_up()
            except RequestError as error:
                listed[place] = ListedOffset(listed[place].partition, error.code)
        return self.encode()

    def encode(self) -> Reply:
        request = self._request
        return [
            encode_list_offsets_reply(
                request.correlation_id,
                request.version,
                self._topics,
                throttle_ms=request.throttle_ms,
            )
        ]

    def _answer_all(self, topic: Any) -> list[ListedOffset]:
        listed: list[ListedOffset] = []
        for asked in topic.partitions:
            try:
                answer = self._answer(topic.name, asked)
            except RequestError as error:
                answer = ListedOffset(asked.partition_index, error.code)
            if not isinstance(answer, ListedOffset):
                self._slow.append((listed, len(listed), answer))
                answer = ListedOffset(asked.partition_index)
            listed.append(answer)
        return listed

    def _answer(self, topic: str, asked: Any) -> ListedOffset | _Slow:
        self._broker.access.check(self._request, DESCRIBE_TOPIC, topic)
        timestamp = asked.timestamp
        # A view's offsets are its parent's.
        log_name = self._broker.image.log_name(topic)
        partition = self._broker.partitions.find_leader(log_name, asked.partition_index)
        partition.check_leader_epoch(getattr(asked, "current_leader_epoch", -1))
        end = _end(
            partition,
            timestamp,
            read_committed=self._read_committed,
            by_follower=self._by_follower,
        )
        if timestamp >= 0 or timestamp == MAX_TIMESTAMP:
            return self._find(partition, timestamp, end)
        if timestamp == LATEST:
            time_at = getattr(asked, "time_at", NO_OFFSET)
            latest = ListedOffset(
                partition.name.partition, offset=end, leader_epoch=partition.leader_epoch
            )
            if NO_OFFSET < time_at < end:
                # Another broker wants the age of the next record that a group reads.
                return partial(self._with_time, latest, partition, Offset(time_at))
            return latest
        if timestamp in BOUNDS:
            return self._bound(partition, timestamp)
        raise InvalidRequest(f"{timestamp} is neither a time nor a known special timestamp")

    def _bound(self, partition: Partition, timestamp: int) -> ListedOffset | _Slow:
        """A bound of the log or of one of its tiers."""
        since = SINCE_VERSION.get(timestamp)
        if since is not None and self._request.version < since:
            raise UnsupportedVersion(f"{timestamp} needs ListOffsets version {since}")
        log = partition.log
        if timestamp == EARLIEST:
            return _at(partition, log.log_start)
        if timestamp == EARLIEST_LOCAL:
            return _at(partition, log.local_start)
        if self._broker.archive is None or not log.config.remote_storage_enable:
            return ListedOffset(partition.name.partition)
        return partial(self._archived_end, partition, timestamp)

    def _find(self, partition: Partition, timestamp: int, end: Offset) -> ListedOffset | _Slow:
        """A lookup by timestamp opens batches: too slow for the event loop, unless one is small and in memory."""
        log = partition.log
        archive = self._broker.archive
        if archive is not None and log.log_start < log.local_start:
            return partial(self._find_in_both, archive, partition, timestamp, end)
        if timestamp == MAX_TIMESTAMP:
            return partial(
                self._find_in_thread, partition, lambda: log.latest_timestamp(max_offset=end)
            )
        if self._quick_left:
            self._quick_left -= 1
            truncations = log.truncations
            try:
                found = log.first_at_or_after(timestamp, max_offset=end, quickly=True)
                return _listed(partition, found)
            except NotCached:
                pass
            except StorageError as error:
                raise _failed(partition, truncations, error) from error
        return partial(
            self._find_in_thread,
            partition,
            lambda: log.first_at_or_after(timestamp, max_offset=end),
        )

    async def _find_in_both(
        self, archive: Archive, partition: Partition, timestamp: int, end: Offset
    ) -> ListedOffset:
        """Look up what is archived only, then what is local; the archive may take its time."""
        log = partition.log
        try:
            async with asyncio.timeout(self._broker.settings.archive.lookup_ms / 1000):
                if timestamp == MAX_TIMESTAMP:
                    archived = await archive.latest(partition)
                else:
                    archived = await archive.first_at_or_after(partition, timestamp, max_offset=end)
        except TimeoutError:
            raise RequestTimedOut(
                f"{partition.name}: the archive does not answer in time"
            ) from None
        if timestamp != MAX_TIMESTAMP:
            if archived is not None:
                return _listed(partition, archived)
            return await self._find_in_thread(
                partition, lambda: log.first_at_or_after(timestamp, max_offset=end)
            )
        local = await self._find_in_thread(partition, lambda: log.latest_timestamp(max_offset=end))
        # If times are equal, the first record.
        is_archived = archived is not None and archived.timestamp >= local.timestamp
        return _listed(partition, archived) if is_archived else local

    async def _archived_end(self, partition: Partition, timestamp: int) -> ListedOffset:
        archive = self._broker.archive
        assert archive is not None
        manifest = await archive.manifest(partition)
        archived_end = manifest.archived_end or Offset(0)
        if timestamp == EARLIEST_PENDING_UPLOAD:
            return _at(partition, max(archived_end, partition.log_start))
        if not manifest.segments:
            return ListedOffset(partition.name.partition)
        # As in Kafka, the last archived offset itself.
        return _at(partition, Offset(archived_end - 1))

    async def _find_in_thread(
        self, partition: Partition, look_up: Callable[[], TimestampedOffset | None]
    ) -> ListedOffset:
        truncations = partition.log.truncations
        try:
            found = await self._broker.offload.run(look_up)
        except StorageError as error:
            raise _failed(partition, truncations, error) from error
        return _listed(partition, found)

    async def _with_time(
        self, listed: ListedOffset, partition: Partition, offset: Offset
    ) -> ListedOffset:
        log = partition.log
        try:
            found = await self._broker.offload.run(lambda: log.time_at(offset))
        except StorageError as error:
            raise StorageFailed(f"{partition.name}: {error}") from error
        return listed if found is None else listed._replace(timestamp=found)


def _at(partition: Partition, offset: Offset) -> ListedOffset:
    return ListedOffset(
        partition.name.partition, offset=offset, leader_epoch=partition.log.epoch_at(offset)
    )


def _listed(partition: Partition, found: TimestampedOffset | None) -> ListedOffset:
    if found is None:
        # A match may be beyond the high watermark known here, if this new leader does not know the current one yet.
        _check_end_known(partition)
        return ListedOffset(partition.name.partition)
    return ListedOffset(
        partition.name.partition,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _failed(partition: Partition, truncations: int, error: StorageError) -> StorageFailed:
    if not partition.log.was_truncated_since(truncations):
        partition.on_storage_error(error)
    return StorageFailed(f"{partition.name}: {error}")


def _end(
    partition: Partition, timestamp: int, *, read_committed: bool, by_follower: bool
) -> Offset:
    """The log's end for this isolation level or replica."""
    if by_follower:
        # A follower asks for the log end, committed or not.
        return partition.log.log_end
    if timestamp in (LATEST, MAX_TIMESTAMP):
        _check_end_known(partition)
    end = partition.last_stable_offset if read_committed else partition.high_watermark
    return partition.watermarks.shown(end)


def _check_end_known(partition: Partition) -> None:
    """Fail while a new leader does not know its predecessor's high watermark: the end must not move backwards."""
    leader = partition.leader
    if leader is not None and not leader.is_end_known:
        raise OffsetNotAvailable(f"{partition.name}: the new leader does not know the end yet")
