"""Reads one partition for one fetch: its unchanged records and its watermarks.

Called on the event loop or in another thread; it never changes the partition.
"""

from respool.broker.fetch.aborted_records import aborted_among
from respool.broker.fetch.local_read_ranges import LocalRead, LocalReadRanges
from respool.broker.fetch.readers import Reader, diverging_epoch
from respool.broker.fetch.sessions import FetchTarget
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.watermarks import ReadTo
from respool.log.partition_log import PartitionLog, ReadSpec, TailBatches
from respool.model.errors import UnsupportedCompressionType
from respool.model.ids import Offset
from respool.records.batch import HEADER_BYTES, Codec, read_header
from respool.wire.hot_replies import FetchedPartition

ZSTD_FROM_FETCH_VERSION = 10


class PartitionRead:
    def __init__(self, reader: Reader, *, version: int, local_read_bytes_min: int) -> None:
        self._reader = reader
        self._local_reads = LocalReadRanges(reader, bytes_min=local_read_bytes_min)
        self._version = version
        # A read_committed reader gets nothing of open transactions, and needs the list of aborted ones.
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
        """Read at most `left` bytes of records, except that the first batch of a reply may be larger.

        Raises:
            RequestError, StorageError: the partition cannot be read.
            NotCached: `cached_only`, and some bytes must be read from disk.
            NotCached: `cached_only`, and some bytes must come from the disk.
        """
        partition.check_leader_epoch(target.leader_epoch)
        self._reader.check(partition, target)
        log = partition.log
        # The order matters: both may advance in between, and the high watermark must not be the lower one.
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
        local_read: LocalRead | None = None
        if diverging is None and not self._is_at_end(log, target):
            spec = ReadSpec(
                offset=Offset(target.fetch_offset),
                max_offset=self._reader.end(
                    log, last_stable_offset=last_stable_offset, high_watermark=high_watermark
                ),
                bytes_max=min(left, target.bytes_max),
                at_least_one=is_first,
                cached_only=cached_only,
                with_empty=self._reader.with_empty,
            )
            local_read = self._local_reads.find(
                log, spec, last_stable_offset=last_stable_offset, high_watermark=high_watermark
            )
            if local_read is None:
                records = self._records(log, spec)
            if not cached_only:
                # In another thread, roles may change during the read: a deposed leader truncates its log, and the
                # records written there next do not continue the follower's log.
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
            aborted if local_read is None else local_read.aborted,
            diverging_epoch=diverging,
            file_range=None if local_read is None else local_read.file_range,
        )

    def _records(self, log: PartitionLog, spec: ReadSpec) -> bytes | memoryview | TailBatches:
        # A read in another thread is made only after a cached read has found that the records are not in memory.
        if spec.cached_only and self._version >= ZSTD_FROM_FETCH_VERSION:
            tail = log.read_tail(spec)
            if tail is not None:
                return tail
        records = log.read(spec)
        self._check_codec(records)
        return records

    def _is_at_end(self, log: PartitionLog, target: FetchTarget) -> bool:
        """True if a follower has everything, which is nearly always the case."""
        return self._reader.read_to is ReadTo.END and target.fetch_offset == log.log_end

    def _check_codec(self, records: bytes | memoryview) -> None:
        if self._version >= ZSTD_FROM_FETCH_VERSION or len(records) < HEADER_BYTES:
            return
        if read_header(records).codec_bits == Codec.ZSTD:
            raise UnsupportedCompressionType(
                f"zstd needs Fetch version {ZSTD_FROM_FETCH_VERSION}, the request has {self._version}"
            )
