"""Reads a share partition's log for one member, and lets it acquire what was read.

One stretch of the log after the other: records that came back lie apart from each other, and from the new ones.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from respool.broker.fetch.readers import FetchBroker
from respool.broker.share.share_partition import RECORD_BYTES, SharePartition
from respool.broker.share.share_sessions import SessionKey, ShareTarget
from respool.broker.share.stored_batches import (
    SharedBatch,
    deliverable,
    is_keyed_quickly,
    key_hashes,
    stored_batches,
)
from respool.broker.steady_clock import SteadyClock
from respool.broker.views.batch_filter import ViewCondition
from respool.broker.views.filtered_records import FilteredRecords
from respool.broker.views.views import ViewReader
from respool.coordination.share.acquisition import Acquired, AcquiredRange, AcquireMode
from respool.log.partition_log import AbortedTransaction, PartitionLog, ReadSpec, TailBatches
from respool.model.cluster import TopicImage
from respool.model.errors import OffsetOutOfRange
from respool.model.ids import Offset
from respool.ports.disk import NotCached

# Stretches of the log in one answer.
STRETCHES_MAX = 16
# Bytes that are read at once, at least and at most.
READ_BYTES_MIN = 16 * 1024
READ_BYTES_MAX = 4 * 1024 * 1024
# Batches smaller than this are joined: copying one costs less than sending another buffer.
JOIN_BYTES_MAX = 32 * 1024


class ShareReadBroker(FetchBroker, Protocol):
    steady_clock: SteadyClock


@dataclass(slots=True)
class SharedRecords:
    """What one share partition adds to an answer."""

    buffers: list[bytes | memoryview] = field(default_factory=list)
    size: int = 0
    acquired: list[AcquiredRange] = field(default_factory=list)
    record_count: int = 0

    def add(self, batches: list[SharedBatch], acquired: Acquired) -> None:
        for index in acquired.batches:
            self.buffers += batches[index].buffers
            self.size += batches[index].size
        self.acquired += acquired.ranges
        self.record_count += acquired.record_count

    def join_if_small(self) -> None:
        if len(self.buffers) > 1 and self.size < len(self.buffers) * JOIN_BYTES_MAX:
            self.buffers = [b"".join(self.buffers)]


@dataclass(slots=True)
class AnswerLimits:
    """What an answer may still have, over all of its partitions."""

    records: int
    size: int
    batch_size: int
    mode: AcquireMode
    # The first batch of an answer may be larger than the limit.
    is_empty: bool = True

    @property
    def is_full(self) -> bool:
        return self.records <= 0 or self.size <= 0

    def on_taken(self, records: int, size: int) -> None:
        self.records -= records
        self.size -= size
        self.is_empty = self.is_empty and not records


class ShareReading:
    def __init__(
        self,
        broker: ShareReadBroker,
        share: SharePartition,
        target: ShareTarget,
        topic: TopicImage,
        *,
        key: SessionKey,
    ) -> None:
        self._broker = broker
        self._share = share
        self._target = target
        self._topic = topic
        self._key = key

    async def acquire(self, limits: AnswerLimits) -> SharedRecords:
        """Acquire what the answer has room for. Other fetches do not read this share partition meanwhile.

        Raises:
            RequestError: the partition cannot be read here.
            StorageError: its disk has failed.
        """
        share, taken = self._share, SharedRecords()
        share.is_reading = True
        position = Offset(0)
        try:
            for _ in range(STRETCHES_MAX):
                machine = share.machine()
                offset = machine.next_offset(self._now_ms, at_least=position)
                if limits.is_full or offset is None or offset >= share.readable_end:
                    break
                if offset > machine.end:
                    break
                before = machine.version, taken.record_count
                position = await self._acquire_from(offset, limits, taken)
                if position <= offset and (share.machine().version, taken.record_count) == before:
                    break
        finally:
            share.is_reading = False
        taken.join_if_small()
        return taken

    @property
    def _now_ms(self) -> int:
        return self._broker.steady_clock.now_ms()

    async def _acquire_from(
        self, offset: Offset, limits: AnswerLimits, taken: SharedRecords
    ) -> Offset:
        share = self._share
        log, end = share.partition.log, share.readable_end
        wanted = int(limits.records * share.record_bytes * 1.25)
        spec = ReadSpec(
            offset=offset,
            max_offset=end,
            bytes_max=min(limits.size, max(READ_BYTES_MIN, min(wanted, READ_BYTES_MAX))),
            at_least_one=limits.is_empty,
        )
        try:
            batches, aborted = await self._read(log, spec)
        except OffsetOutOfRange:
            # Retention was faster: what is lost ends.
            share.after_log_start(log.log_start)
            return max(offset, log.log_start)
        if not batches:
            return offset
        # The leader may have changed during the read, and the group's state with it.
        keys = await self._keys(batches) if share.machine().is_ordered else None
        machine = share.machine()
        acquired = machine.acquire(
            self._key.member,
            deliverable(batches, offset, aborted=aborted, keys=keys),
            mode=limits.mode,
            records_max=limits.records,
            batch_size=limits.batch_size,
            now_ms=self._now_ms,
        )
        size = taken.size
        taken.add(batches, acquired)
        limits.on_taken(acquired.record_count, taken.size - size)
        if acquired.ended:
            share.after_change()
        self._learn_size(batches)
        return Offset(batches[-1].last_offset + 1)

    async def _keys(self, batches: list[SharedBatch]) -> dict[int, int]:
        """The keys of records that never were acquired."""
        share = self._share
        first, hasher = share.machine().end, share.hasher
        if is_keyed_quickly(batches, first, self._broker.world.scanner):
            return key_hashes(batches, first, hasher)
        return await self._broker.offload.run(lambda: key_hashes(batches, first, hasher))

    async def _read(
        self, log: PartitionLog, spec: ReadSpec
    ) -> tuple[list[SharedBatch], list[AbortedTransaction]]:
        condition = self._broker.views.condition(
            log.config, None if self._topic.view is None else self._topic
        )
        if condition is None:
            with suppress(NotCached):
                return self._read_now(log, spec._replace(cached_only=True), None)
        return await self._broker.offload.run(lambda: self._read_now(log, spec, condition))

    def _read_now(
        self, log: PartitionLog, spec: ReadSpec, condition: ViewCondition | None
    ) -> tuple[list[SharedBatch], list[AbortedTransaction]]:
        read_committed = self._share.settings.read_committed
        records: bytes | memoryview | TailBatches
        if condition is not None:
            records = b"".join(self._read_view(log, spec, condition).buffers)
        else:
            tail = log.read_tail(spec) if spec.cached_only else None
            records = log.read(spec) if tail is None else tail
        batches = stored_batches(records)
        if not read_committed or not batches or not log.has_aborted_from(spec.offset):
            return batches, []
        end = Offset(batches[-1].last_offset + 1)
        return batches, log.aborted_in(spec.offset, end, cached_only=spec.cached_only)

    def _read_view(
        self, log: PartitionLog, spec: ReadSpec, condition: ViewCondition
    ) -> FilteredRecords:
        views = self._broker.views
        reader = ViewReader(
            views, read_committed=self._share.settings.read_committed, takes_zstd=True
        )
        return reader.read(
            log,
            spec,
            views.thorough_pass(),
            key=self._target,
            topic_id=self._share.partition.topic_id,
            condition=condition,
        )

    def _learn_size(self, batches: list[SharedBatch]) -> None:
        records = sum(one.record_count for one in batches)
        if records:
            average = sum(one.size for one in batches) / records
            known = self._share.record_bytes
            is_guess = known == RECORD_BYTES
            self._share.record_bytes = average if is_guess else known + (average - known) / 4
