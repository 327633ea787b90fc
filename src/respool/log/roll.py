"""When the active segment is full or old enough for a new one to be begun."""

from zlib import crc32

from respool.log.index.offset_index import RELATIVE_OFFSET_MAX
from respool.log.segment import Segment
from respool.model.ids import Offset
from respool.model.topic_config import TopicConfig


class RollRule:
    """The limits of one segment: the topic's settings, less the segment's own jitter."""

    __slots__ = ("_age_ms_max", "_bytes_max")

    def __init__(self, config: TopicConfig, *, folder: str, base_offset: Offset) -> None:
        self._bytes_max = config.segment_bytes
        age_ms_max = config.segment_age_ms_max
        jitter_ms_max = min(config.segment_jitter_ms, age_ms_max)
        # Derived from the name instead of drawn at random: runs are repeatable, and rolls still spread out.
        jitter_ms = (
            crc32(f"{folder}/{base_offset}".encode()) % jitter_ms_max if jitter_ms_max else 0
        )
        self._age_ms_max = age_ms_max - jitter_ms

    def is_due_for(
        self,
        segment: Segment,
        *,
        size: int,
        last_offset: Offset,
        max_timestamp: int,
        now_ms: int,
    ) -> bool:
        """Must a batch of that size, last offset and timestamp go into a new segment?

        Age is the span of the records' own timestamps, as in Kafka. By the clock, a backfill of old records would get
        a segment for each batch.
        """
        if not segment.size:
            return False
        if (
            segment.size + size > self._bytes_max
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or segment.is_index_full
        ):
            return True
        first = segment.first_timestamp
        age_ms = max_timestamp - first if first >= 0 else now_ms - segment.created_ms
        return age_ms > self._age_ms_max

    def is_due_at(self, segment: Segment, now_ms: int) -> bool:
        """Has a segment that nobody appends to just now become too old?

        By the clock, from the first record's timestamp, but not from before the segment was begun. One that was not
        written to since the start is left alone: it need not be opened for this, and retention rolls it in time.
        """
        if not segment.size or not segment.is_writable:
            return False
        return now_ms - max(segment.first_timestamp, segment.created_ms) > self._age_ms_max
