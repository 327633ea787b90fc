"""Reads one partition for one fetch: its unchanged records or their file range, aborted transactions, watermarks.

Called on the event loop or in another thread; it never changes the partition.
"""

from functools import partial
from struct import Struct
from typing import NamedTuple

from respool.broker.archive.archived_reads import ArchivedBatches
from respool.broker.fetch.archived_part import ArchivedPart
from respool.broker.fetch.archived_piece import ArchivedPiece
from respool.broker.fetch.readers import Reader, diverging_epoch
from respool.broker.fetch.sessions import FetchTarget
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.watermarks import ReadTo
from respool.broker.views.batch_filter import ViewCondition
from respool.broker.views.candidate_read import CandidateRead
from respool.broker.views.filtered_records import FilteredRecords
from respool.broker.views.scan_pass import ScanPass
from respool.broker.views.scanned_log import ScannedLog
from respool.broker.views.views import ViewReader, Views
from respool.log.partition_log import PartitionLog, ReadSpec, TailBatches
from respool.model.errors import OffsetOutOfRange, UnsupportedCompressionType
from respool.model.file_range import FileRange
from respool.model.ids import Offset
from respool.ports.disk import NotCached
from respool.records.batch import HEADER_BYTES, LENGTH_BYTES, Codec, read_header
from respool.wire.hot_replies import FetchedPartition

ZSTD_FROM_FETCH_VERSION = 10
_BASE_OFFSET_AND_LENGTH = Struct(">qi").unpack_from
_LAST_OFFSET_DELTA = Struct(">i").unpack_from
_LAST_OFFSET_DELTA_AT = 23
# With more aborted transactions than this the records are sent, with only the transactions that concern them.
LOCAL_READ_ABORTED_MAX = 200
# So much of an archived log is scanned for a reader that is not shown every record.
FILTERED_BYTES = 4 * 1024 * 1024
# So little at the log's end is sent whatever a reader's condition is.
NEAR_END_BYTES = 64 * 1024


class PartitionRead:
    def __init__(
        self,
        reader: Reader,
        *,
        views: Views,
        version: int,
        local_read_bytes_min: int,
        archived: ArchivedPart,
    ) -> None:
        self._reader = reader
        self._local_reads = LocalReadRanges(reader, bytes_min=local_read_bytes_min)
        self._version = version
        # A read_committed reader gets nothing of open transactions, and needs the list of aborted ones.
        self._read_committed = reader.read_to is ReadTo.STABLE
        self._views = views
        self._archived = archived
        # Created with the first partition that needs it.
        self._view_reader: ViewReader | None = None

    def read(
        self,
        partition: Partition,
        target: FetchTarget,
        left: int,
        *,
        is_first: bool,
        cached_only: bool,
        scan: ScanPass,
    ) -> FetchedPartition:
        """Read at most `left` bytes of records, except that the first batch of a reply may be larger.

        `scan` bounds what is scanned for a reader that is not shown every record.

        Raises:
            RequestError, StorageError: the partition cannot be read.
            NotCached: `cached_only`, and some bytes must be read from disk.
        """
        partition.check_leader_epoch(target.leader_epoch)
        self._reader.check(partition, target)
        log = partition.log
        # The order matters: both may advance in between, and the high watermark must not be the lower one.
        last_stable_offset = partition.last_stable_offset
        high_watermark = partition.high_watermark
        if partition.watermarks.held_end is not None and self._reader.read_to is not ReadTo.END:
            last_stable_offset = partition.watermarks.shown(last_stable_offset)
            high_watermark = partition.watermarks.shown(high_watermark)
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
        records: bytes | memoryview | TailBatches | FilteredRecords = b""
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
            condition = self._reader.condition(partition, target)
            # Local segments may be removed while another thread is here.
            is_archived = log.config.remote_storage_enable and spec.offset < log.local_start
            if condition is not None:
                # Without memory for a reply, nothing is scanned either.
                if left > 0:
                    records = self._read_filtered(
                        partition, target, spec, scan, condition, is_archived=is_archived
                    )
            elif is_archived:
                records, aborted = self._read_archived(partition, target, spec)
            else:
                local_read, records = self._read_as_stored(
                    log,
                    spec,
                    scan,
                    last_stable_offset=last_stable_offset,
                    high_watermark=high_watermark,
                )
            if not cached_only:
                # In another thread, roles may change during the read: a deposed leader truncates its log, and the
                # records written there next do not continue the follower's log.
                self._reader.check(partition, target)
            is_filtered = isinstance(records, FilteredRecords)
            if self._read_committed and records and not is_archived and not is_filtered:
                assert not isinstance(records, FilteredRecords)
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

    def _read_as_stored(
        self,
        log: PartitionLog,
        spec: ReadSpec,
        scan: ScanPass,
        *,
        last_stable_offset: Offset,
        high_watermark: Offset,
    ) -> "tuple[LocalRead | None, bytes | memoryview | TailBatches | FilteredRecords]":
        """Locate or read what the reader may need, in whole batches."""
        find = partial(
            self._local_reads.find,
            log,
            last_stable_offset=last_stable_offset,
            high_watermark=high_watermark,
        )
        # Without memory for a reply, nothing is searched either.
        query = self._reader.tag_query() if spec.bytes_max > 0 else None
        if query is not None and not _is_near_end(log, spec):
            if spec.cached_only:
                raise NotCached("a tag index is searched in another thread")
            read = CandidateRead(log, query, spec, scan, read_committed=self._read_committed)
            bytes_min = self._local_reads.bytes_min
            stretch = read.find_stretch(bytes_min=bytes_min) if bytes_min else None
            if stretch is not None:
                local_read = find(spec._replace(offset=stretch.begin, max_offset=stretch.end))
                if local_read is not None:
                    scan.skipped_bytes += stretch.passed_bytes
                    return local_read, b""
            candidates = read.run()
            if candidates is not None:
                return None, candidates
        local_read = find(spec)
        return local_read, b"" if local_read is not None else self._records(log, spec)

    def _read_filtered(
        self,
        partition: Partition,
        target: FetchTarget,
        spec: ReadSpec,
        scan: ScanPass,
        condition: ViewCondition,
        *,
        is_archived: bool,
    ) -> FilteredRecords | bytes:
        log: ScannedLog = partition.log
        if is_archived:
            wanted = spec._replace(bytes_max=FILTERED_BYTES, with_empty=True)
            found = self._take_archived(partition, target, wanted)
            if found is None:
                return b""
            log = piece = ArchivedPiece(found)
            spec = piece.within(spec)
        return self._of_views().read(
            log, spec, scan, key=target.key, topic_id=partition.topic_id, condition=condition
        )

    def _read_archived(
        self, partition: Partition, target: FetchTarget, spec: ReadSpec
    ) -> tuple[bytes, list[tuple[int, int]] | None]:
        """The records, if they have come, and the aborted transactions among them."""
        found = self._take_archived(partition, target, spec)
        if found is None:
            return b"", [] if self._read_committed else None
        self._check_codec(found.records)
        if found.aborted is None:
            return found.records, None
        return found.records, [(one.producer_id, one.first_offset) for one in found.aborted]

    def _take_archived(
        self, partition: Partition, target: FetchTarget, spec: ReadSpec
    ) -> ArchivedBatches | None:
        if spec.offset < partition.log_start:
            raise OffsetOutOfRange(
                f"{partition.name}: offset {spec.offset}, the log starts at {partition.log_start}"
            )
        if spec.offset >= spec.max_offset:
            return None
        return self._archived.take(target.key, partition, spec, with_aborted=self._read_committed)

    def _of_views(self) -> ViewReader:
        if self._view_reader is None:
            self._view_reader = ViewReader(
                self._views,
                read_committed=self._read_committed,
                takes_zstd=self._version >= ZSTD_FROM_FETCH_VERSION,
            )
        return self._view_reader

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


def _is_near_end(log: PartitionLog, spec: ReadSpec) -> bool:
    """True if what follows is nothing, or little and in memory.

    Then a tag index has not come so far, or does not help; and a reader at the end must be able to wait.
    """
    if spec.offset >= spec.max_offset:
        return True
    if not spec.cached_only:
        return False
    tail = log.read_tail(ReadSpec(spec.offset, spec.max_offset, NEAR_END_BYTES, at_least_one=False))
    return tail is not None and tail.end >= spec.max_offset


def aborted_among(
    log: PartitionLog,
    offset: Offset,
    records: bytes | memoryview | TailBatches,
    *,
    cached_only: bool,
) -> list[tuple[int, int]]:
    """Return producer id and first offset of each transaction with aborted records in `records`, from `offset` on.

    Raises:
        NotCached: `cached_only`, and an index would have to be read from disk.
    """
    if not log.has_aborted_from(offset):
        return []
    end = records.end if isinstance(records, TailBatches) else end_of(records)
    found = log.aborted_in(offset, end, cached_only=cached_only)
    return [(one.producer_id, one.first_offset) for one in found]


def end_of(records: bytes | memoryview) -> Offset:
    """Return the offset after the last complete batch; the first batch is always complete."""
    # Reads only the three needed fields: this runs for every batch sent to a read_committed consumer.
    position, size = 0, len(records)
    last = 0
    while position + LENGTH_BYTES <= size:
        _, length = _BASE_OFFSET_AND_LENGTH(records, position)
        following = position + LENGTH_BYTES + length
        if following > size:
            break
        last, position = position, following
    base_offset, _ = _BASE_OFFSET_AND_LENGTH(records, last)
    return Offset(base_offset + _LAST_OFFSET_DELTA(records, last + _LAST_OFFSET_DELTA_AT)[0] + 1)


class LocalRead(NamedTuple):
    file_range: FileRange
    # None for a read_uncommitted reader.
    aborted: list[tuple[int, int]] | None


class LocalReadRanges:
    """Local reads, the leader's side: finds the file range of the records that a reader on this host fetches.

    The records themselves are not read, so the aborted transactions are those of the rest of the segment. Readers
    ignore those that concern no record in the range.
    """

    def __init__(self, reader: Reader, *, bytes_min: int) -> None:
        """Fewer than `bytes_min` bytes are sent over the socket: that costs no more than opening a file."""
        self._reader = reader
        self.bytes_min = bytes_min

    def find(
        self,
        log: PartitionLog,
        spec: ReadSpec,
        *,
        last_stable_offset: Offset,
        high_watermark: Offset,
    ) -> LocalRead | None:
        """Return the range to read, or None if the records are to be sent.

        Raises:
            The exceptions of `PartitionLog.locate`; NotCached also if the records are in memory but the index is not.
        """
        end = self._reader.local_read_end(
            log, last_stable_offset=last_stable_offset, high_watermark=high_watermark
        )
        if end is None or self._is_small_and_cached(log, spec):
            return None
        found = log.locate(spec._replace(max_offset=min(spec.max_offset, end)))
        if found is None or found.file_range.size < self.bytes_min:
            return None
        if self._reader.read_to is not ReadTo.STABLE:
            return LocalRead(found.file_range, None)
        if not log.has_aborted_from(spec.offset):
            return LocalRead(found.file_range, [])
        aborted = log.aborted_in(
            spec.offset,
            found.end,
            cached_only=spec.cached_only,
            at_most=LOCAL_READ_ABORTED_MAX + 1,
        )
        if len(aborted) > LOCAL_READ_ABORTED_MAX:
            return None
        return LocalRead(found.file_range, [(one.producer_id, one.first_offset) for one in aborted])

    def _is_small_and_cached(self, log: PartitionLog, spec: ReadSpec) -> bool:
        """True if all available bytes are in memory and below `bytes_min`, as for most readers at the log's end."""
        if not spec.cached_only:
            return False
        cached = log.read_tail(
            ReadSpec(spec.offset, spec.max_offset, self.bytes_min, at_least_one=False)
        )
        return cached is not None and cached.end >= spec.max_offset
