"""One fetch request under way: read its partitions, wait for more when there is too little, encode the answer.

Bytes in memory are read on the loop; bytes that must come from the disk are read in another thread. Memory for the
reply is bounded by what the budget has left: with none left, the fetch waits like one that finds no data.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from respool.broker.aborted_records import aborted_among
from respool.broker.broker import Broker
from respool.broker.commit_waiters import FetchWaiter
from respool.broker.fetch_sessions import FetchScope, FetchTarget
from respool.broker.outcome import Reply
from respool.broker.partition import Partition
from respool.broker.read_marks import ReadTo
from respool.log.partition_log import PartitionLog
from respool.model.errors import (
    RequestError,
    StorageError,
    StorageFailed,
    UnknownTopicId,
    UnsupportedCompressionType,
)
from respool.model.ids import ZERO_TOPIC_ID, BrokerId, LeaderEpoch, Offset, TopicId
from respool.ports.disk import NotCached
from respool.records.batch import HEADER_BYTES, Codec, read_header
from respool.wire.hot_replies import FetchedPartition, FetchedTopic, encode_fetch_reply

ZSTD_FROM_FETCH_VERSION = 10
FOLLOWERS_READ_FROM_VERSION = 11
# With less than this left in the budget a reply waits for others to be sent.
ROOM_MIN = 64 * 1024


class FollowerFetch(NamedTuple):
    """A fetch by another broker, which follows."""

    broker: BrokerId
    broker_epoch: int


@dataclass(slots=True)
class FetchAnswer:
    partitions: list[tuple[FetchTarget, FetchedPartition]] = field(default_factory=list)
    record_bytes: int = 0
    has_error: bool = False
    # Partitions whose log could not be read. They go offline when the answer is encoded: the
    # read may have happened in another thread, and a partition's state belongs to the loop.
    failures: list[tuple[Partition, StorageError]] = field(default_factory=list)


class FetchRun:
    def __init__(
        self,
        *,
        broker: Broker,
        scope: FetchScope,
        version: int,
        correlation_id: int,
        bytes_min: int,
        bytes_max: int,
        wait_max_s: float,
        read_committed: bool = False,
        follower: FollowerFetch | None = None,
        client_rack: str = "",
        is_mirror: bool = False,
    ) -> None:
        self._broker = broker
        self._scope = scope
        self._version = version
        self._correlation_id = correlation_id
        self._bytes_max = min(bytes_max, broker.settings.fetch_bytes_max)
        # Who asks for more than fits does not wait for what cannot come.
        self._bytes_min = min(bytes_min, self._bytes_max)
        self._wait_max_s = wait_max_s
        # Its reader takes nothing of a transaction that is open, and wants to know which were aborted.
        self._read_committed = read_committed
        self._read_to = ReadTo.STABLE if read_committed else ReadTo.COMMITTED
        self._follower = follower
        self._client_rack = client_rack
        # Who copies a log wants all that is in it, also headers that compaction left without records.
        self._with_empty = follower is not None or is_mirror
        if follower is not None:
            self._read_to = ReadTo.END
            self._hear(follower)

    def _hear(self, follower: FollowerFetch) -> None:
        """What a follower asks for says what it has: that is how records become committed."""
        now_ms = self._broker.clock.monotonic_ms()
        for target in self._scope.targets:
            try:
                partition = self._find(target)
                self._check_follower(partition, target, follower)
                log = partition.log
                is_within = log.log_start <= target.fetch_offset <= log.log_end
                if not is_within or self._diverging_epoch(partition, target) is not None:
                    # It says nothing about what both have.
                    continue
                partition.role.on_follower_fetch(
                    follower.broker,
                    broker_epoch=follower.broker_epoch,
                    leader_epoch=LeaderEpoch(target.leader_epoch),
                    offset=Offset(target.fetch_offset),
                    log_start=Offset(target.log_start),
                    now_ms=now_ms,
                )
            except RequestError:
                # The answer says it.
                continue

    def _check_follower(
        self, partition: Partition, target: FetchTarget, follower: FollowerFetch
    ) -> None:
        if partition.leader is not None:
            partition.leader.check_fetch(
                follower.broker,
                broker_epoch=follower.broker_epoch,
                leader_epoch=LeaderEpoch(target.leader_epoch),
            )

    @property
    def has_room(self) -> bool:
        memory = self._broker.memory
        return memory.available_for_replies >= min(ROOM_MIN, memory.limit // 2)

    @property
    def _room(self) -> int:
        """How many bytes of records the answer may have now."""
        return min(self._bytes_max, max(ROOM_MIN, self._broker.memory.available_for_replies))

    def is_enough(self, answer: FetchAnswer) -> bool:
        # Without partitions there is nothing to wait for.
        return (
            answer.record_bytes >= self._bytes_min
            or answer.has_error
            or not self._wait_max_s
            or not self._scope.targets
        )

    def read(self, *, cached_only: bool) -> FetchAnswer:
        """Read every partition once, as far as the limits go.

        Raises:
            NotCached: `cached_only`, and some bytes must come from the disk.
        """
        answer = FetchAnswer()
        self._read_into(answer, self._room, cached_only=cached_only)
        return answer

    def _read_into(self, answer: FetchAnswer, room: int, *, cached_only: bool = False) -> None:
        """Without room there are no records in it, and all else."""
        for target in self._scope.targets:
            fetched = self._read_target(target, answer, room, cached_only=cached_only)
            answer.record_bytes += len(fetched.records)
            # A reader whose log is not ours must hear it at once, as if it were an error.
            if fetched.error_code or fetched.diverging_epoch is not None:
                answer.has_error = True
            if fetched.preferred_read_replica >= 0:
                answer.has_error = True
            answer.partitions.append((target, fetched))

    def _read_target(
        self, target: FetchTarget, answer: FetchAnswer, room: int, *, cached_only: bool
    ) -> FetchedPartition:
        try:
            partition = self._find(target)
        except RequestError as error:
            return _failed(target, error)
        try:
            return self._read_partition(
                partition,
                target,
                room - answer.record_bytes,
                is_first=room > 0 and not answer.record_bytes,
                cached_only=cached_only,
            )
        except RequestError as error:
            return _failed(target, error)
        except StorageError as error:
            answer.failures.append((partition, error))
            return _failed(target, StorageFailed(f"{partition.name}: {error}"))

    def _read_partition(
        self,
        partition: Partition,
        target: FetchTarget,
        left: int,
        *,
        is_first: bool,
        cached_only: bool,
    ) -> FetchedPartition:
        partition.check_leader_epoch(target.leader_epoch)
        if self._follower is not None:
            self._check_follower(partition, target, self._follower)
        elif partition.follower is not None:
            partition.follower.check_readable(Offset(target.fetch_offset))
        log = partition.log
        # In this order: both may move meanwhile, and then this one is at least as high.
        last_stable_offset = partition.last_stable_offset
        high_watermark = partition.high_watermark
        preferred = self._closer_replica(partition, target)
        if preferred is not None:
            return FetchedPartition(
                target.partition,
                0,
                high_watermark,
                last_stable_offset,
                log.log_start,
                b"",
                preferred_read_replica=preferred,
            )
        diverging = self._diverging_epoch(partition, target)
        records = b""
        aborted: list[tuple[int, int]] | None = [] if self._read_committed else None
        if diverging is None and not self._is_at_end(log, target):
            # The first batch comes whole even if it is larger than any limit: else a consumer
            # would ask for it forever.
            records = log.read(
                Offset(target.fetch_offset),
                max_offset=self._max_offset(log, last_stable_offset, high_watermark),
                bytes_max=min(left, target.bytes_max),
                at_least_one=is_first,
                cached_only=cached_only,
                with_empty=self._with_empty,
            )
            self._check_codec(records)
            if self._read_committed and records:
                aborted = aborted_among(
                    log, Offset(target.fetch_offset), records, cached_only=cached_only
                )
        return FetchedPartition(
            target.partition,
            0,
            high_watermark,
            last_stable_offset,
            log.log_start,
            records,
            aborted,
            diverging_epoch=diverging,
        )

    def _is_at_end(self, log: PartitionLog, target: FetchTarget) -> bool:
        """A follower that has everything, as nearly always."""
        return self._read_to is ReadTo.END and target.fetch_offset == log.log_end

    def _max_offset(
        self, log: PartitionLog, last_stable_offset: Offset, high_watermark: Offset
    ) -> Offset:
        if self._read_to is ReadTo.END:
            return log.log_end
        return last_stable_offset if self._read_committed else high_watermark

    def _closer_replica(self, partition: Partition, target: FetchTarget) -> BrokerId | None:
        """Another broker that this consumer had better read from (KIP-392)."""
        if not self._client_rack or self._follower is not None or partition.leader is None:
            return None
        return partition.leader.closest_replica(
            client_rack=self._client_rack, offset=Offset(target.fetch_offset)
        )

    def _find(self, target: FetchTarget) -> Partition:
        name = target.topic
        if not isinstance(name, str):
            topic = self._broker.image.topics_by_id.get(TopicId(name))
            if topic is None:
                raise UnknownTopicId(f"there is no topic with id {name}")
            name = topic.name
        partitions = self._broker.partitions
        if self._follower is not None or self._version < FOLLOWERS_READ_FROM_VERSION:
            return partitions.find_leader(name, target.partition)
        return partitions.find_readable(name, target.partition)

    def _diverging_epoch(self, partition: Partition, target: FetchTarget) -> tuple[int, int] | None:
        """Where the reader's log and ours part, if they do (KIP-595); replicas ask, and some consumers."""
        log = partition.log
        if target.last_fetched_epoch < 0:
            return None
        if target.last_fetched_epoch == log.latest_epoch and target.fetch_offset <= log.log_end:
            # As nearly always.
            return None
        epoch, end = log.end_of_epoch(LeaderEpoch(target.last_fetched_epoch))
        if epoch < target.last_fetched_epoch or end < target.fetch_offset:
            return epoch, end
        return None

    def _check_codec(self, records: bytes) -> None:
        if self._version >= ZSTD_FROM_FETCH_VERSION or len(records) < HEADER_BYTES:
            return
        if read_header(records).codec_bits == Codec.ZSTD:
            raise UnsupportedCompressionType(
                f"zstd needs Fetch version {ZSTD_FROM_FETCH_VERSION}, the request has {self._version}"
            )

    async def answer_from_disk(self) -> Reply:
        # Reserved while it is read: else all that wait for the disk would find the same room.
        memory, room = self._broker.memory, self._room
        answer = FetchAnswer()
        memory.take(room)
        try:
            await self._broker.offload.run(lambda: self._read_into(answer, room))
        finally:
            # In the next turn of the loop the connection charges what its client does not take.
            asyncio.get_running_loop().call_soon(memory.give, room)
        return self.encode(answer)

    async def answer_when_room(self) -> Reply:
        """The memory for replies is taken: wait until some is given back, at most as long as for data."""
        loop = asyncio.get_running_loop()
        room: asyncio.Future[None] = loop.create_future()
        deadline = loop.call_later(self._wait_max_s, _settle, room)
        try:
            while not self.has_room and not room.done():
                woken: asyncio.Future[None] = loop.create_future()
                self._broker.memory.when_room(partial(_settle, woken))
                await asyncio.wait([room, woken], return_when=asyncio.FIRST_COMPLETED)
        finally:
            deadline.cancel()
        if self.has_room:
            return await self._read_and_encode()
        answer = FetchAnswer()
        self._read_into(answer, 0)
        return self.encode(answer)

    async def answer_when_more(self, answer: FetchAnswer) -> Reply:
        """Long polling: sleep until enough bytes are committed, something changes, or the time is up."""
        waiter = FetchWaiter(bytes_wanted=self._bytes_min - answer.record_bytes)
        partitions = list(self._partitions())
        for partition in partitions:
            partition.add_fetch_waiter(waiter, self._read_to)
        # This may run a turn of the loop after the read: what was committed in between woke nobody.
        if self._has_moved_on(answer):
            waiter.wake()
        deadline = asyncio.get_running_loop().call_later(self._wait_max_s, waiter.wake)
        try:
            await waiter.ready
        finally:
            deadline.cancel()
            for partition in partitions:
                partition.remove_fetch_waiter(waiter)
        return await self._read_and_encode()

    def _has_moved_on(self, answer: FetchAnswer) -> bool:
        """Whether any partition is no longer as it was read."""
        for target, fetched in answer.partitions:
            try:
                partition = self._find(target)
            except RequestError:
                return fetched.error_code == 0
            if not partition.is_online or self._has_more(partition, target, fetched):
                return True
        return False

    def _has_more(
        self, partition: Partition, target: FetchTarget, fetched: FetchedPartition
    ) -> bool:
        if self._read_to is ReadTo.END:
            return not fetched.records and partition.log.log_end > target.fetch_offset
        if self._read_committed:
            return partition.last_stable_offset != fetched.last_stable_offset
        return partition.high_watermark != fetched.high_watermark

    async def _read_and_encode(self) -> Reply:
        try:
            return self.encode(self.read(cached_only=True))
        except NotCached:
            return await self.answer_from_disk()

    def _partitions(self) -> Iterator[Partition]:
        for target in self._scope.targets:
            try:
                yield self._find(target)
            except RequestError:
                # Its error is in the answer already; there is nothing to wait for.
                continue

    def encode(self, answer: FetchAnswer) -> Reply:
        for partition, error in answer.failures:
            partition.on_storage_error(error)
        topics: dict[object, list[FetchedPartition]] = {}
        for target, fetched in answer.partitions:
            if self._scope.is_incremental and not _has_news(target, fetched):
                continue
            target.told_high_watermark = fetched.high_watermark
            target.told_log_start = fetched.log_start_offset
            topics.setdefault(target.topic, []).append(fetched)
            if fetched.records:
                self._scope.on_served(target)
        return encode_fetch_reply(
            self._correlation_id,
            self._version,
            [_fetched_topic(topic, partitions) for topic, partitions in topics.items()],
            session_id=self._scope.session_id,
        )


def _failed(target: FetchTarget, error: RequestError) -> FetchedPartition:
    return FetchedPartition(target.partition, error.code, -1, -1, -1, b"")


def _has_news(target: FetchTarget, fetched: FetchedPartition) -> bool:
    return bool(
        fetched.records
        or fetched.error_code
        or fetched.diverging_epoch
        or fetched.high_watermark != target.told_high_watermark
        or fetched.log_start_offset != target.told_log_start
    )


def _fetched_topic(topic: object, partitions: list[FetchedPartition]) -> FetchedTopic:
    if isinstance(topic, str):
        return FetchedTopic(topic, ZERO_TOPIC_ID, partitions)
    assert isinstance(topic, type(ZERO_TOPIC_ID))
    return FetchedTopic("", topic, partitions)


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
