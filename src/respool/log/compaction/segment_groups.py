"""Which neighbouring segments become one when they are compacted: as many as fit the limits of one segment.

What counts is what is left of those that were joined already, and all of the next one. A tenth over the limit is
allowed: full segments, of which mostly little is left, could never be joined otherwise.
"""

from dataclasses import dataclass

from respool.log.index.offset_index import RELATIVE_OFFSET_MAX
from respool.log.index.segment_indexes import SegmentIndexes
from respool.log.segment import Segment
from respool.model.config_rules import INT_MAX
from respool.model.ids import Offset
from respool.model.topic_config import TopicConfig

# Positions in a segment have 31 bits. Records may grow a little by other timestamps.
POSITION_MAX = INT_MAX - INT_MAX // 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentGroup:
    """Segments that follow each other, and what is to take their place begins where the first does."""

    segments: tuple[Segment, ...]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
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
        """Does all of this segment, which ends at `end`, fit behind so many bytes and these indexes of another?"""
        if size + segment.size > self.bytes_max or end - 1 - base_offset > RELATIVE_OFFSET_MAX:
            return False
        joined, more = _index_bytes(indexes), _index_bytes(segment.indexes())
        return max(joined[0] + more[0], joined[1] + more[1]) <= self.index_bytes_max


def _with_a_tenth(limit: int) -> int:
    return limit + limit // 10


def _index_bytes(indexes: SegmentIndexes) -> tuple[int, int]:
    offsets, times = indexes.offsets.file, indexes.times.file
    return offsets.count * offsets.entry_bytes, times.count * times.entry_bytes
