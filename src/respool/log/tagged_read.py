"""Reads of batches that may match a condition: the others are passed over by the tag index, unread."""

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from respool.log.index.tag_columns import Tags, TagSearch
from respool.log.segment import Segment
from respool.log.segments import LogPoint, Segments
from respool.log.tag_query import TagQuery
from respool.model.ids import Offset
from respool.records.batch import HEADER_BYTES, BatchHeader, read_header


class TaggedBatches(NamedTuple):
    """The part of the log after an offset."""

    # Nothing between the asked offset and this one matches.
    passed_to: Offset
    # The bytes of the batches passed over, and the header of the last one.
    passed_bytes: int
    last_passed: BatchHeader | None
    # Whole batches from there on that may match; empty if there is none before `end`, or if they were only located.
    data: bytes | memoryview
    # Their size.
    size: int
    # The offset after them.
    end: Offset


class TagCursor:
    """Where one reader's search is, so that a search over many reads takes each step once. For one thread at a time."""

    def __init__(self, query: TagQuery) -> None:
        self.query = query
        self._search: TagSearch | None = None

    def search(self, tags: Tags) -> TagSearch | None:
        """None if the index says nothing about the query."""
        search = self._search
        if search is None or search.tags is not tags or search.extent != tags.extent:
            search = self._search = TagSearch(tags, self.query.clauses)
        return search if search.is_useful else None


def read_tagged(
    segments: Segments,
    cursor: TagCursor,
    offset: Offset,
    *,
    max_offset: Offset,
    bytes_max: int,
    end: LogPoint,
    locate_only: bool = False,
) -> TaggedBatches | None:
    """Return the next batches that may match, at most `bytes_max` of them or one; None where there is no index.

    All batches before `max_offset` end at or before it.

    Raises:
        SegmentCorrupt, DiskFailed: the disk does not have what it should.
    """
    index = segments.index_of(offset)
    segment = segments.all[index]
    tags = (
        segment.tags.growing
        if segment is end.segment
        else segment.tags.of_finished(segment, secret_check=cursor.query.secret_check)
    )
    search = None if tags is None else cursor.search(tags)
    if tags is None or search is None:
        return None
    segment_end = segments.end_of(index, log_end=end.offset)
    read = _SegmentRead(segment, search, min(max_offset, segment_end))
    return read.read(offset, bytes_max, locate_only=locate_only)


class _SegmentRead:
    def __init__(self, segment: Segment, search: TagSearch, max_offset: Offset) -> None:
        self._segment = segment
        self._search = search
        self._tags = search.tags
        self._max_offset = max_offset
        count = search.extent.batch_count
        # The batches before it are before the reader's end.
        self._limit = bisect_left(self._tags.bases, max_offset - segment.base_offset, 0, count)

    def read(self, offset: Offset, bytes_max: int, *, locate_only: bool) -> TaggedBatches | None:
        limit = self._limit
        # The batch that holds the offset, or one before it.
        first = bisect_right(self._tags.bases, offset - self._segment.base_offset, 0, limit) - 1
        first = max(first, 0)
        if first >= limit or offset >= self._offset_of(limit):
            return None
        found = min(self._search.next_from(first), limit)
        end = found
        begin_position = self._position_of(found)
        while end < limit and self._search.next_from(end) == end:
            if end > found and self._position_of(end + 1) - begin_position > bytes_max:
                break
            end += 1
        end_position = self._position_of(end)
        return TaggedBatches(
            passed_to=max(offset, self._offset_of(found)),
            passed_bytes=begin_position - self._position_of(first),
            last_passed=self._header(found - 1) if found > first else None,
            data=b"" if locate_only else self._read(begin_position, end_position),
            size=end_position - begin_position,
            end=max(offset, self._offset_of(end)),
        )

    def _read(self, begin: int, end: int) -> bytes | memoryview:
        return self._segment.read(begin, end - begin) if begin < end else b""

    def _header(self, batch: int) -> BatchHeader:
        return read_header(self._segment.read(self._tags.positions[batch], HEADER_BYTES))

    def _position_of(self, batch: int) -> int:
        """Where it begins, or where the batch before it ends."""
        extent = self._search.extent
        return self._tags.positions[batch] if batch < extent.batch_count else extent.position

    def _offset_of(self, batch: int) -> Offset:
        extent = self._search.extent
        if batch < min(self._limit, extent.batch_count):
            return Offset(self._segment.base_offset + self._tags.bases[batch])
        if batch < extent.batch_count or extent.offset < 0:
            return self._max_offset
        # The index ends within the segment.
        return min(extent.offset, self._max_offset)
