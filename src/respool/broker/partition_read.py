"""What one partition gives to one fetch: records as they lie in the log, and how far it is committed.

Read on the loop or in another thread; nothing here changes the partition.
"""

from typing import NamedTuple

from respool.broker.aborted_records import aborted_among
from respool.broker.fetch_readers import Reader, diverging_epoch
from respool.broker.fetch_sessions import FetchTarget
from respool.broker.partition import Partition
from respool.broker.read_marks import ReadTo
from respool.log.partition_log import PartitionLog, TailBatches
from respool.model.errors import UnsupportedCompressionType
from respool.model.file_place import FilePlace
from respool.model.ids import Offset
from respool.records.batch import HEADER_BYTES, Codec, read_header
from respool.wire.hot_replies import FetchedPartition

ZSTD_FROM_FETCH_VERSION = 10
# Of more aborted transactions the reader is told with the records that they are about.
LENT_ABORTED_MAX = 1_000


class _Wish(NamedTuple):
    offset: Offset
    max_offset: Offset
    bytes_max: int
    # The first batch comes whole even if it is larger than any limit: else a consumer would ask for it forever.
    is_first: bool
    cached_only: bool


class PartitionRead:
    def __init__(self, reader: Reader, *, version: int, lent_bytes_min: int) -> None:
        self._reader = reader
        self._lent_bytes_min = lent_bytes_min
        self._version = version
        # Its reader takes nothing of a transaction that is open, and wants to know which were aborted.
        self._read_committed = reader.read_to is ReadTo.STABLE

    def read(
        self,
        partition: Partition,
        target: FetchTarget,
        left: int,
        *,
        is_first: bool,
        cached_only: bool,
    ) -> FetchedPartition:
        """At most `left` bytes of records, unless it is the first of its answer that has any.

        Raises:
            RequestError, StorageError: there is nothing to be read.
            NotCached: `cached_only`, and some bytes must come from the disk.
        """
        partition.check_leader_epoch(target.leader_epoch)
        self._reader.check(partition, target)
        log = partition.log
        # In this order: both may move meanwhile, and then this one is at least as high.
        last_stable_offset = partition.last_stable_offset
        high_watermark = partition.high_watermark
        preferred = self._reader.closer_replica(partition, target)
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
        diverging = diverging_epoch(log, target)
        records: bytes | memoryview | TailBatches = b""
        aborted: list[tuple[int, int]] | None = [] if self._read_committed else None
        place = None
        if diverging is None and not self._is_at_end(log, target):
            wish = _Wish(
                offset=Offset(target.fetch_offset),
                max_offset=self._reader.end(
                    log, last_stable_offset=last_stable_offset, high_watermark=high_watermark
                ),
                bytes_max=min(left, target.bytes_max),
                is_first=is_first,
                cached_only=cached_only,
            )
            lent_end = self._reader.lent_end(
                log, last_stable_offset=last_stable_offset, high_watermark=high_watermark
            )
            if lent_end is not None:
                place, aborted = self._lend(log, wish._replace(max_offset=lent_end))
            if place is None:
                records = self._records(log, wish)
            if not cached_only:
                # In another thread, while the loop goes on: a leader that is none any more cuts its log off, and what
                # is written there instead is not what comes after the follower's records.
                self._reader.check(partition, target)
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
            place=place,
        )

    def _lend(
        self, log: PartitionLog, wish: _Wish
    ) -> tuple[FilePlace | None, list[tuple[int, int]] | None]:
        """Where to read it from, if that is worth it, and what of it was aborted, if the reader wants to know."""
        none_aborted: list[tuple[int, int]] | None = [] if self._read_committed else None
        found = log.locate(
            wish.offset,
            max_offset=wish.max_offset,
            bytes_max=wish.bytes_max,
            at_least_one=wish.is_first,
            cached_only=wish.cached_only,
            with_empty=self._reader.with_empty,
        )
        if found is None or found.place.size < self._lent_bytes_min:
            return None, none_aborted
        if not self._read_committed or not log.has_aborted_from(wish.offset):
            return found.place, none_aborted
        # Nobody looks at the records here, so these may be some too many: of the whole rest of the segment.
        aborted = log.aborted_in(wish.offset, found.end, cached_only=wish.cached_only)
        if len(aborted) > LENT_ABORTED_MAX:
            return None, none_aborted
        return found.place, [(one.producer_id, one.first_offset) for one in aborted]

    def _records(self, log: PartitionLog, wish: _Wish) -> bytes | memoryview | TailBatches:
        # Who reads in another thread came here before, and found that it is not in memory.
        if wish.cached_only and self._version >= ZSTD_FROM_FETCH_VERSION:
            tail = log.read_tail(
                wish.offset,
                max_offset=wish.max_offset,
                bytes_max=wish.bytes_max,
                at_least_one=wish.is_first,
            )
            if tail is not None:
                return tail
        records = log.read(
            wish.offset,
            max_offset=wish.max_offset,
            bytes_max=wish.bytes_max,
            at_least_one=wish.is_first,
            cached_only=wish.cached_only,
            with_empty=self._reader.with_empty,
        )
        self._check_codec(records)
        return records

    def _is_at_end(self, log: PartitionLog, target: FetchTarget) -> bool:
        """A follower that has everything, as nearly always."""
        return self._reader.read_to is ReadTo.END and target.fetch_offset == log.log_end

    def _check_codec(self, records: bytes | memoryview) -> None:
        if self._version >= ZSTD_FROM_FETCH_VERSION or len(records) < HEADER_BYTES:
            return
        if read_header(records).codec_bits == Codec.ZSTD:
            raise UnsupportedCompressionType(
                f"zstd needs Fetch version {ZSTD_FROM_FETCH_VERSION}, the request has {self._version}"
            )
