"""One fetch request in flight: read its partitions, wait until there is enough, encode the reply.

Bytes in memory are read on the event loop; bytes on disk are read in another thread. The reply's memory is bounded by
the free budget: if none is free, the fetch waits as if there were no data.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from respool.broker.fetch.archived_part import ArchivedPart
from respool.broker.fetch.fetch_rights import FetchRights
from respool.broker.fetch.partition_read import PartitionRead
from respool.broker.fetch.readers import FetchBroker, Reader
from respool.broker.fetch.sessions import FetchScope, FetchTarget
from respool.broker.metrics.fetched_messages import count_served
from respool.broker.outcome import Reply
from respool.broker.partitions.commit_waiters import FetchWaiter
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.watermarks import ReadTo
from respool.broker.views.filtered_records import FilteredRecords
from respool.broker.views.scan_pass import ScanPass
from respool.model.errors import RequestError, StorageError, StorageFailed
from respool.model.ids import ZERO_TOPIC_ID
from respool.ports.disk import NotCached
from respool.wire.codec import Request
from respool.wire.hot_replies import FetchedPartition, FetchReplyTopic, encode_fetch_reply

# With less than this free in the budget, a reply waits until others have been sent.
ROOM_MIN = 64 * 1024


@dataclass(slots=True)
class FetchAnswer:
    partitions: list[tuple[FetchTarget, FetchedPartition]] = field(default_factory=list)
    record_bytes: int = 0
    # The part of `record_bytes` that only says that nothing is shown up to the end: no reason to answer at once.
    idle_bytes: int = 0
    # False while there are at most markers: they do not count as a reply's first batch, which may be larger than the
    # limits.
    has_records: bool = False
    # The part of `record_bytes` that is sent over the socket, and takes memory until then.
    sent_bytes: int = 0
    has_error: bool = False
    # Partitions whose log could not be read. They go offline when the answer is encoded: the
    # read may have happened in another thread, and a partition's state belongs to the event loop.
    failures: list[tuple[Partition, StorageError]] = field(default_factory=list)
    # What consumers get. Counted when the answer is encoded, because an answer that is too small is read again.
    served: list[tuple[Partition, FetchTarget, FetchedPartition]] = field(default_factory=list)
    # What was scanned for readers that are not shown every record.
    scan: ScanPass | None = None

    @property
    def bytes_worth_sending(self) -> int:
        return self.record_bytes - self.idle_bytes


class FetchRun:
    def __init__(
        self,
        *,
        broker: FetchBroker,
        scope: FetchScope,
        version: int,
        correlation_id: int,
        bytes_min: int,
        bytes_max: int,
        wait_max_s: float,
        reader: Reader,
        is_of_follower: bool,
        rights: FetchRights,
        throttle_ms: int = 0,
        on_encoded: Callable[[int], None] | None = None,
    ) -> None:
        """`on_encoded` gets the bytes of the reply, those read locally included."""
        self._broker = broker
        self._scope = scope
        self._version = version
        self._correlation_id = correlation_id
        self._bytes_max = min(bytes_max, broker.settings.fetch.fetch_bytes_max)
        # A fetch whose minimum exceeds its maximum would otherwise wait in vain.
        self._bytes_min = min(bytes_min, self._bytes_max)
        self._wait_max_s = wait_max_s
        self._reader = reader
        self._is_of_follower = is_of_follower
        self._rights = rights
        self._throttle_ms = throttle_ms
        self._on_encoded = on_encoded
        self._refused = rights.refused
        self._is_of_consumer = reader.read_to is not ReadTo.END
        local_reader = broker.world.local_reader
        self.archived = ArchivedPart(broker.archive)
        self._read = PartitionRead(
            reader,
            views=broker.views,
            version=version,
            local_read_bytes_min=0 if local_reader is None else local_reader.local_read_bytes_min,
            archived=self.archived,
        ).read

    @property
    def has_room(self) -> bool:
        memory = self._broker.memory
        # A small budget may never have ROOM_MIN available.
        most = memory.followers_share if self._is_of_follower else memory.limit // 2
        return self._available >= min(ROOM_MIN, most)

    @property
    def _room(self) -> int:
        """How many bytes of records the answer may contain now."""
        return min(self._bytes_max, max(ROOM_MIN, self._available))

    @property
    def _available(self) -> int:
        memory = self._broker.memory
        if self._is_of_follower:
            return memory.available_for_followers
        return memory.available_for_replies

    def is_enough(self, answer: FetchAnswer) -> bool:
        # A fetch without partitions has nothing to wait for.
        return (
            answer.bytes_worth_sending >= self._bytes_min
            or answer.has_error
            or not self._wait_max_s
            or not self._scope.targets
        )

    def read(self, *, cached_only: bool) -> FetchAnswer:
        """Read every partition once, within the limits.

        Raises:
            NotCached: `cached_only`, and some bytes must be read from disk.
        """
        answer = FetchAnswer()
        self._read_into(answer, self._room, cached_only=cached_only)
        return answer

    def _read_into(self, answer: FetchAnswer, room: int, *, cached_only: bool = False) -> None:
        """Read every partition. With `room` 0 the answer has everything except records."""
        views = self._broker.views
        answer.scan = views.quick_pass() if cached_only else views.thorough_pass()
        for target in self._scope.targets:
            fetched = self._read_target(target, answer, answer.scan, room, cached_only=cached_only)
            answer.record_bytes += fetched.record_bytes
            answer.sent_bytes += len(fetched.records)
            if isinstance(fetched.records, FilteredRecords):
                answer.idle_bytes += len(fetched.records) if fetched.records.is_idle else 0
                answer.has_records |= fetched.records.message_count > 0
            elif fetched.record_bytes:
                answer.has_records = True
            # A divergent log and a preferred read replica are reported immediately, like errors.
            if (
                fetched.error_code
                or fetched.diverging_epoch is not None
                or fetched.preferred_read_replica >= 0
            ):
                answer.has_error = True
            answer.partitions.append((target, fetched))

    def _read_target(
        self,
        target: FetchTarget,
        answer: FetchAnswer,
        scan: ScanPass,
        room: int,
        *,
        cached_only: bool,
    ) -> FetchedPartition:
        refusal = self._refused.get(target.topic) if self._refused else None
        if refusal is not None:
            return _failed(target, refusal)
        try:
            partition = self._reader.find(target)
            log = partition.log
        except RequestError as error:
            return _failed(target, error)
        truncations = log.truncations
        try:
            fetched = self._read(
                partition,
                target,
                # Markers are small, and take no room from records.
                room - answer.bytes_worth_sending,
                is_first=room > 0 and not answer.has_records,
                cached_only=cached_only,
                scan=scan,
            )
        except RequestError as error:
            return _failed(target, error)
        except StorageError as error:
            if not log.was_truncated_since(truncations):
                answer.failures.append((partition, error))
            return _failed(target, StorageFailed(f"{partition.name}: {error}"))
        if self._is_of_consumer and fetched.record_bytes:
            answer.served.append((partition, target, fetched))
        return fetched

    async def answer_from_disk(self, request: Request) -> Reply:
        answer = await self._read_from_disk()
        if self.archived.is_waited_for:
            request.waits_for_others = True
            return await self.answer_from_archive(answer)
        if answer.idle_bytes and not self.is_enough(answer):
            request.waits_for_others = True
            self._broker.views.count(answer.scan)
            return await self.answer_when_more(answer)
        return self.encode(answer)

    async def _read_from_disk(self) -> FetchAnswer:
        # Reserve the memory before the read: otherwise all fetches waiting for the disk would count on the same memory.
        memory, room = self._broker.memory, self._room
        answer = FetchAnswer()
        memory.charge(room, is_to_follower=self._is_of_follower)
        try:
            await self._broker.offload.run(lambda: self._read_into(answer, room))
        finally:
            self._release_when_charged(room)
        return answer

    async def answer_later(self, answer: FetchAnswer) -> Reply:
        """Wait for more records, or for those that are archived only."""
        if self.archived.is_waited_for:
            return await self.answer_from_archive(answer)
        return await self.answer_when_more(answer)

    async def answer_from_archive(self, answer: FetchAnswer) -> Reply:
        """Wait for the records that are archived only; those of other partitions do not wait with them."""
        if answer.record_bytes and self.is_enough(answer):
            # The downloads begin, and the next fetch finds them.
            await self.archived.wait(0)
            self.archived.end()
            return self.encode(answer)
        answer.partitions.clear()
        answer.served.clear()
        wait_ms = self._broker.settings.archive.fetch_wait_ms
        try:
            await self.archived.wait(max(self._wait_max_s, wait_ms / 1000))
        finally:
            self.archived.end()
        return self.encode(await self._read_again())

    async def answer_when_room(self) -> Reply:
        """Wait until memory for replies is free, at most for the fetch's maximum wait."""
        loop = asyncio.get_running_loop()
        room: asyncio.Future[None] = loop.create_future()
        deadline = loop.call_later(self._wait_max_s, _set_done, room)
        try:
            while not self.has_room and not room.done():
                woken: asyncio.Future[None] = loop.create_future()
                self._broker.memory.when_room(partial(_set_done, woken))
                await asyncio.wait([room, woken], return_when=asyncio.FIRST_COMPLETED)
        finally:
            deadline.cancel()
        if self.has_room:
            answer = await self._read_again()
            if self.archived.is_waited_for:
                return await self.answer_from_archive(answer)
            return self.encode(answer)
        answer = FetchAnswer()
        self._read_into(answer, 0)
        return self.encode(answer)

    async def answer_when_more(self, answer: FetchAnswer) -> Reply:
        """Long polling: wait until enough bytes are committed, something changes, or the maximum wait has passed.

        A reader of a view keeps waiting if nothing of what was committed is shown.
        """
        loop = asyncio.get_running_loop()
        wait_until = loop.time() + self._wait_max_s
        while True:
            await self._wait_for_more(answer, wait_until)
            answer = await self._read_again()
            if self.archived.is_waited_for:
                return await self.answer_from_archive(answer)
            if not answer.idle_bytes or self.is_enough(answer) or loop.time() >= wait_until:
                return self.encode(answer)
            self._broker.views.count(answer.scan)

    async def _wait_for_more(self, answer: FetchAnswer, wait_until: float) -> None:
        waiter = FetchWaiter(bytes_wanted=self._bytes_min - answer.bytes_worth_sending)
        partitions = list(self._partitions())
        for partition in partitions:
            partition.add_fetch_waiter(waiter, self._reader.read_to)
            # One turn of the event loop may lie between the read and here; a commit in between woke nobody.
        if self._has_moved_on(answer):
            waiter.wake()
        # Everything is read again after the wait: meanwhile, these records would take memory that nobody accounts for.
        answer.partitions.clear()
        answer.served.clear()
        deadline = asyncio.get_running_loop().call_at(wait_until, waiter.wake)
        try:
            await waiter.ready
        finally:
            deadline.cancel()
            for partition in partitions:
                partition.remove_fetch_waiter(waiter)

    def _has_moved_on(self, answer: FetchAnswer) -> bool:
        """True if any partition has changed since it was read."""
        for target, fetched in answer.partitions:
            try:
                partition = self._reader.find(target)
            except RequestError:
                return fetched.error_code == 0
            if not partition.is_online or self._reader.has_more(partition, target, fetched):
                return True
        return False

    async def _read_again(self) -> FetchAnswer:
        try:
            answer = self.read(cached_only=True)
        except NotCached:
            return await self._read_from_disk()
        # Other fetches wake in this turn of the event loop too, and would count on the same memory.
        self._broker.memory.charge(answer.sent_bytes, is_to_follower=self._is_of_follower)
        self._release_when_charged(answer.sent_bytes)
        return answer

    def _release_when_charged(self, amount: int) -> None:
        """Release the reservation in the next turn of the loop: by then the connection has charged its unsent bytes."""
        if amount:
            release = partial(
                self._broker.memory.release_reservation, is_to_follower=self._is_of_follower
            )
            asyncio.get_running_loop().call_soon(release, amount)

    def _partitions(self) -> Iterator[Partition]:
        for target in self._scope.targets:
            try:
                yield self._reader.find(target)
            except RequestError:
                # The error is in the answer already; there is nothing to wait for.
                continue

    def _refuse_revoked(self, answer: FetchAnswer) -> None:
        """Take out what the client may not read any more: the fetch may have waited for minutes."""
        self._refused = refused = self._rights.now()
        if refused:
            answer.partitions = [
                (target, _failed(target, refused[target.topic]))
                if target.topic in refused
                else (target, fetched)
                for target, fetched in answer.partitions
            ]
            answer.served = [one for one in answer.served if one[1].topic not in refused]

    def encode(self, answer: FetchAnswer) -> Reply:
        for partition, error in answer.failures:
            partition.on_storage_error(error)
        self._refuse_revoked(answer)
        for partition, target, fetched in answer.served:
            count_served(partition, fetched, fetch_offset=target.fetch_offset)
        self._broker.views.count(answer.scan, is_sent=True)
        local_bytes = 0
        topics: dict[object, list[FetchedPartition]] = {}
        for target, fetched in answer.partitions:
            if self._scope.is_incremental and not _has_news(target, fetched):
                continue
            target.sent_high_watermark = fetched.high_watermark
            target.sent_log_start = fetched.log_start_offset
            topics.setdefault(target.topic, []).append(fetched)
            if fetched.record_bytes:
                self._scope.on_served(target)
            if fetched.file_range is not None:
                self._broker.local_read_bytes.inc(fetched.file_range.size)
                local_bytes += fetched.file_range.size
        reply = encode_fetch_reply(
            self._correlation_id,
            self._version,
            [_fetched_topic(topic, partitions) for topic, partitions in topics.items()],
            session_id=self._scope.session_id,
            throttle_ms=self._throttle_ms,
        )
        if self._on_encoded is not None:
            self._on_encoded(sum(map(len, reply)) + local_bytes)
        return reply


def _failed(target: FetchTarget, error: RequestError) -> FetchedPartition:
    return FetchedPartition(target.partition, error.code, -1, -1, -1, b"")


def _has_news(target: FetchTarget, fetched: FetchedPartition) -> bool:
    return bool(
        fetched.record_bytes
        or fetched.error_code
        or fetched.diverging_epoch
        or fetched.preferred_read_replica >= 0
        or fetched.high_watermark != target.sent_high_watermark
        or fetched.log_start_offset != target.sent_log_start
    )


def _fetched_topic(topic: object, partitions: list[FetchedPartition]) -> FetchReplyTopic:
    if isinstance(topic, str):
        return FetchReplyTopic(topic, ZERO_TOPIC_ID, partitions)
    assert isinstance(topic, type(ZERO_TOPIC_ID))
    return FetchReplyTopic("", topic, partitions)


def _set_done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
