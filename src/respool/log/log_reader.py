"""Reads of a log from any thread while its owner appends: records by offset and by time, and its bounds."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from respool.log.archive_source import SegmentToArchive, find_segment_to_archive
from respool.log.index.transaction_index import AbortedTransaction
from respool.log.log_parts import LogParts
from respool.log.log_tail import TailBatches
from respool.log.read_batches import ReadSpec, StoredRange, find_batches
from respool.log.segments import Segments
from respool.log.tag_indexing import TagIndexing, TagTools
from respool.log.tag_query import TagName
from respool.log.tagged_read import TagCursor, TaggedBatches, read_tagged
from respool.log.time_lookup import (
    TimestampedOffset,
    find_first_at_or_after,
    find_latest,
    find_time_at,
)
from respool.model.archiving.archive_errors import NotLocal
from respool.model.errors import OffsetOutOfRange
from respool.model.file_range import FileRange
from respool.model.ids import LeaderEpoch, Offset
from respool.model.topic_config import TopicConfig


class LocatedBatches(NamedTuple):
    file_range: FileRange
    # No batch in it ends after this offset; the last one may end before it.
    end: Offset


class LogReader:
    def __init__(self, parts: LogParts) -> None:
        self._parts = parts

    @property
    def folder(self) -> str:
        """The folder of the log's files. Until the first append it does not exist."""
        return self._parts.folder

    @property
    def log_end(self) -> Offset:
        """The offset of the next record."""
        return self._parts.end.offset

    @property
    def synced_end(self) -> Offset:
        """Everything before this offset is durable."""
        return self._parts.synced.offset

    @property
    def has_folder(self) -> bool:
        """False for a new log until its first append."""
        return self._parts.has_folder

    @property
    def is_folder_durable(self) -> bool:
        """False for a new log until its first sync: a power cut may remove its folder."""
        return self._parts.is_folder_durable

    @property
    def size_bytes(self) -> int:
        return self._parts.segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._parts.segments)

    @property
    def first_base_offset(self) -> Offset:
        """The first segment's base offset; its first records may be deleted."""
        return self._parts.segments.first.base_offset

    @property
    def config(self) -> TopicConfig:
        return self._parts.config

    @property
    def log_start(self) -> Offset:
        """The first existing offset."""
        return self._parts.log_start

    @property
    def local_start(self) -> Offset:
        """The first offset on this disk. In an archived topic, records between the log start and it are archived."""
        return self._parts.local_start

    @property
    def truncations(self) -> int:
        """Take it before a read, for `was_truncated_since`."""
        return self._parts.truncations

    def was_truncated_since(self, truncations: int) -> bool:
        """True if the log was truncated since, or is being truncated: a failed read is then no disk failure."""
        return truncations % 2 == 1 or self._parts.truncations != truncations

    def read(self, spec: ReadSpec) -> bytes | memoryview:
        """Return batches as they are stored.

        Raises:
            OffsetOutOfRange: the log does not contain the offset, or no longer does.
            NotLocal: the topic is archived, and this offset is in the archive only.
            NotCached: `cached_only`, and bytes would have to come from the disk.
            SegmentCorrupt, DiskFailed: the disk does not have what it should.
        """
        found = self._find(spec)
        if found is None:
            return b""
        return found.segment.read(found.position, found.size, cached_only=spec.cached_only)

    def read_tagged(
        self, cursor: TagCursor, spec: ReadSpec, *, locate_only: bool = False
    ) -> TaggedBatches | None:
        """Return the next batches that may match a query, as the tag index has it; None where there is no index.

        Raises:
            As `read`. It may read the disk.
        """
        parts = self._parts
        end, segments = parts.end, parts.segments
        if not max(parts.log_start, segments.first.base_offset) <= spec.offset < end.offset:
            return None
        return read_tagged(
            segments,
            cursor,
            spec.offset,
            max_offset=min(spec.max_offset, end.offset),
            bytes_max=spec.bytes_max,
            end=end,
            locate_only=locate_only,
        )

    def index_tags(self, names: Collection[TagName], tools: TagTools) -> TagIndexing:
        """The making of what `read_tagged` uses, for these headers, or the key."""
        return TagIndexing(self._parts, tuple(names), tools)

    def locate(self, spec: ReadSpec) -> LocatedBatches | None:
        """Return the file range that `read` would return, for a process on this machine; None if there is none.

        Raises:
            As `read`. `cached_only` concerns what must be read to locate it.
        """
        found = self._find(spec)
        if found is None:
            return None
        file_range = found.segment.file.file_range(found.position, found.size)
        return (
            None
            if file_range is None
            else LocatedBatches(file_range._replace(head=found.head), found.end)
        )

    def _find(self, spec: ReadSpec) -> StoredRange | None:
        # The end first: segments replaced after it still hold every offset up to it.
        parts = self._parts
        end, synced, segments = parts.end, parts.synced, parts.segments
        first_offset = max(parts.log_start, segments.first.base_offset)
        offset = spec.offset
        if not first_offset <= offset <= end.offset:
            self._check_local(offset, first_offset)
            raise OffsetOutOfRange(f"offset {offset}, the log has {first_offset} to {end.offset}")
        if spec.max_offset > end.offset:
            spec = spec._replace(max_offset=end.offset)
        if offset >= spec.max_offset:
            return None
        return find_batches(segments, spec, end=end, synced=synced)

    def read_tail(self, spec: ReadSpec) -> TailBatches | None:
        """As `read`, from the batches appended last: no disk access, no copy, whole batches only. None if not there.

        Unlike the other methods it is for the thread that owns the log.
        """
        parts = self._parts
        if spec.offset < parts.log_start:
            return None
        return parts.tail.read(spec)

    def has_aborted_from(self, offset: Offset) -> bool:
        """True if a transaction may have been aborted at or after `offset`. Cheap; false positives are possible.

        Raises:
            OffsetOutOfRange: the log starts after it by now.
        """
        return self._segments_from(offset).has_aborted(offset)

    def aborted_in(
        self,
        offset: Offset,
        end: Offset,
        *,
        cached_only: bool = False,
        at_most: int | None = None,
    ) -> list[AbortedTransaction]:
        """Aborted transactions that overlap [offset, end), ordered by first offset.

        `end` is at most the last stable offset. `at_most` limits the number returned; there may be more.

        Raises:
            OffsetOutOfRange: the log starts after `offset` by now.
            NotCached: `cached_only`, and an index would have to come from the disk.
            SegmentCorrupt, DiskFailed: the disk does not have what it should.
        """
        return self._segments_from(offset).aborted_in(
            offset, end, cached_only=cached_only, at_most=at_most
        )

    def _segments_from(self, offset: Offset) -> Segments:
        """The segments, checked to still contain `offset`.

        1. A reader takes records from the first segment.   2. The owner removes that segment and its index.
        3. The reader looks up aborted transactions: finding none would expose aborted records.
        """
        segments = self._parts.segments
        if offset < segments.first.base_offset:
            self._check_local(offset, segments.first.base_offset)
            raise OffsetOutOfRange(
                f"offset {offset}, the log starts at {segments.first.base_offset} by now"
            )
        return segments

    @property
    def epoch_entries(self) -> Sequence[tuple[LeaderEpoch, Offset]]:
        """The leader epochs from the log start on, each with its first offset."""
        return self._parts.epochs.entries

    def size_from(self, offset: Offset) -> int:
        """The size of the segments with records at or after the offset."""
        segments = self._parts.segments
        return sum([one.size for one in segments.all[max(segments.index_of(offset), 0) :]])

    def segment_to_archive(self, begin: Offset, *, bound: Offset) -> SegmentToArchive | None:
        """The finished segment that contains `begin`, if it ends at or before `bound`; for the log's owner.

        `bound` is durable, committed, and no transaction is open below it.
        """
        return find_segment_to_archive(self._parts, begin, bound=bound)

    def _check_local(self, offset: Offset, local_start: Offset) -> None:
        """
        Raises:
            NotLocal: the offset is in the archive only.
        """
        parts = self._parts
        if parts.config.remote_storage_enable and parts.log_start <= offset < local_start:
            raise NotLocal(
                f"{self.folder}: offset {offset} is archived, the disk has {local_start} on"
            )

    def locally_aborted_in(self, offset: Offset, end: Offset) -> list[AbortedTransaction]:
        """As `aborted_in`, of those whose markers are on this disk."""
        segments = self._parts.segments
        return (
            segments.aborted_in(max(offset, segments.first.base_offset), end)
            if end > offset
            else []
        )

    def first_at_or_after(
        self, timestamp_ms: int, *, max_offset: Offset, quickly: bool = False
    ) -> TimestampedOffset | None:
        """Return the first record before `max_offset` with this timestamp or a later one.

        Raises:
            NotCached: `quickly`, and it would have to read the disk or take long.
        """
        return find_first_at_or_after(
            self._parts.segments,
            timestamp_ms,
            log_start=self.log_start,
            max_offset=min(max_offset, self.log_end),
            quickly=quickly,
        )

    def time_at(self, offset: Offset) -> int | None:
        """The timestamp of the first record at or after `offset`, to within its batch; None if there is no record."""
        parts = self._parts
        end = parts.end.offset
        return find_time_at(parts.segments, max(offset, parts.log_start), log_end=end)

    def latest_timestamp(self, *, max_offset: Offset) -> TimestampedOffset | None:
        """Return the first record with the largest timestamp before `max_offset`."""
        return find_latest(
            self._parts.segments, log_start=self.log_start, max_offset=min(max_offset, self.log_end)
        )
