"""Which neighbouring segments become one when they are compacted: as many as fit the limits of one segment.

What counts is what they have now, not what will be left of them: so a segment is full at the most, and what has become
small is joined the next time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from respool.log.offset_index import RELATIVE_OFFSET_MAX
from respool.log.segment import Segment
from respool.model.ids import Offset
from respool.model.topic_config import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentGroup:
    segments: tuple[Segment, ...]
    # Where the last of them ends.
    end: Offset

    @property
    def base_offset(self) -> Offset:
        return self.segments[0].base_offset

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)


def group_segments(
    segments: Sequence[Segment], *, end: Offset, config: TopicConfig
) -> list[SegmentGroup]:
    """Join them in order; `end` is where the last one ends."""
    ends = [*(segment.base_offset for segment in segments[1:]), end]
    groups: list[SegmentGroup] = []
    joined: list[Segment] = []
    room = _Room(config)
    for segment, segment_end in zip(segments, ends, strict=True):
        if joined and not room.has_for(joined[0], segment, segment_end):
            groups.append(SegmentGroup(segments=tuple(joined), end=segment.base_offset))
            joined = []
            room = _Room(config)
        room.take(segment)
        joined.append(segment)
    if joined:
        groups.append(SegmentGroup(segments=tuple(joined), end=end))
    return groups


class _Room:
    """What is left of one segment's limits."""

    def __init__(self, config: TopicConfig) -> None:
        self._bytes = config.segment_bytes
        self._offset_index_bytes = self._time_index_bytes = config.segment_index_bytes

    def has_for(self, first: Segment, segment: Segment, end: Offset) -> bool:
        offsets, times = _index_bytes(segment)
        return (
            segment.size <= self._bytes
            and offsets <= self._offset_index_bytes
            and times <= self._time_index_bytes
            and end - 1 - first.base_offset <= RELATIVE_OFFSET_MAX
        )

    def take(self, segment: Segment) -> None:
        offsets, times = _index_bytes(segment)
        self._bytes -= segment.size
        self._offset_index_bytes -= offsets
        self._time_index_bytes -= times


def _index_bytes(segment: Segment) -> tuple[int, int]:
    indexes = segment.indexes()
    files = (indexes.offsets.file, indexes.times.file)
    return files[0].count * files[0].entry_bytes, files[1].count * files[1].entry_bytes
