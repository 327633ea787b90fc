"""The part of a log that could be compacted, how much of it is dirty, whether compaction is due, and which segments
merge.

```
 log_start            cleaned_end                     end        active segment
     |---- clean ---------|---------- dirty -----------|--- not yet ---|--------
```
The clean part has one record per key; the dirty part was appended since. Only whole inactive segments below every bound
are used: nothing uncommitted, and nothing younger than `min.compaction.lag.ms`.
"""

from dataclasses import dataclass

from respool.log.batch_walk import walk_headers
from respool.log.index.offset_index import RELATIVE_OFFSET_MAX
from respool.log.index.segment_indexes import SegmentIndexes
from respool.log.segment import Segment
from respool.log.segments import Segments
from respool.model.config_rules import INT_MAX, LONG_MAX
from respool.model.ids import NO_TIMESTAMP, Offset
from respool.model.topic_config import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSpan:
    # All segments from the log's first one, oldest first.
    segments: tuple[Segment, ...]
    # The bounds of the dirty part.
    begin: Offset
    end: Offset
    clean_bytes: int
    dirty_bytes: int
    # True if a dirty record is older than `max.compaction.lag.ms`.
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)

    def is_due(self, config: TopicConfig) -> bool:
        return self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio


def find_span(
    segments: Segments, config: TopicConfig, *, cleaned_end: Offset, bound: Offset, now_ms: int
) -> CompactionSpan | None:
    """Return what could be compacted below `bound`; None if nothing there is dirty."""
    count = clean_bytes = dirty_bytes = 0
    is_overdue = False
    end = segments.first.base_offset
    for index, segment in enumerate(segments.all[:-1]):
        segment_end = segments.end_of(index, log_end=bound)
        if segment_end > bound:
            break
        if segment_end <= cleaned_end:
            clean_bytes += segment.size
        else:
            if _is_too_young(segment, config, now_ms):
                break
            dirty_bytes += segment.size
            is_overdue = is_overdue or _is_overdue(segment, config, now_ms)
        count += 1
        end = segment_end
    if not dirty_bytes:
        return None
    begin = max(cleaned_end, segments.first.base_offset)
    assert begin < end <= bound, f"a span from {begin} to {end}, bound {bound}"
    return CompactionSpan(
        segments=segments.all[:count],
        begin=begin,
        end=end,
        clean_bytes=clean_bytes,
        dirty_bytes=dirty_bytes,
        is_overdue=is_overdue,
    )


def _is_too_young(segment: Segment, config: TopicConfig, now_ms: int) -> bool:
    lag_ms = config.min_compaction_lag_ms
    return lag_ms > 0 and segment.retention_timestamp > now_ms - lag_ms


def _is_overdue(segment: Segment, config: TopicConfig, now_ms: int) -> bool:
    lag_ms = config.max_compaction_lag_ms
    if lag_ms == LONG_MAX:
        return False
    if segment.first_timestamp == NO_TIMESTAMP:
        # Unknown after a start; cached, because every check needs it.
        first = next(walk_headers(segment.file, 0, segment.size))
        segment.first_timestamp = first.header.max_timestamp
    return 0 <= segment.first_timestamp < now_ms - lag_ms


# Positions in a segment have 31 bits. Records may grow slightly by new timestamps.
POSITION_MAX = INT_MAX - INT_MAX // 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentGroup:
    """Consecutive segments that become one, which has the first one's base offset."""

    segments: tuple[Segment, ...]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """How many segments become one: as many as fit the limits of a segment.

    The retained size of those already merged counts, and the full size of the next one. A tenth over the limit
    is allowed: otherwise full segments that retain little could never be merged.
    """

    bytes_max: int
    index_bytes_max: int

    @classmethod
    def of(cls, config: TopicConfig) -> "GroupLimits":
        return cls(
            bytes_max=min(_with_a_tenth(config.segment_bytes), POSITION_MAX),
            index_bytes_max=_with_a_tenth(config.segment_index_bytes),
        )

    def have_room_for(
        self,
        segment: Segment,
        *,
        end: Offset,
        base_offset: Offset,
        size: int,
        indexes: SegmentIndexes,
    ) -> bool:
        """True if all of this segment, which ends at `end`, fits after `size` bytes with these indexes."""
        if size + segment.size > self.bytes_max or end - 1 - base_offset > RELATIVE_OFFSET_MAX:
            return False
        joined, more = _index_bytes(indexes), _index_bytes(segment.indexes())
        return max(joined[0] + more[0], joined[1] + more[1]) <= self.index_bytes_max


def _with_a_tenth(limit: int) -> int:
    return limit + limit // 10


def _index_bytes(indexes: SegmentIndexes) -> tuple[int, int]:
    offsets, times = indexes.offsets.file, indexes.times.file
    return offsets.count * offsets.entry_bytes, times.count * times.entry_bytes
