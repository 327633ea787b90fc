"""Decides which offsets of each partition a table lacks, from its positions and the log's ends. Pure.

```
        log start          position                      end (last stable offset)
   deleted |   in the table   | ###### to be written ###### |  open transactions
```
"""

from collections.abc import Mapping
from dataclasses import dataclass

from respool.tables.errors import PositionBeyondLog, RecordsDeleted


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    """The offsets [start, end) that the log of one partition has for readers of committed messages."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRange:
    partition: int
    begin: int
    end: int

    @property
    def is_empty(self) -> bool:
        return self.begin >= self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedOffsets:
    """Offsets [begin, end) that were deleted before the table had them."""

    partition: int
    begin: int
    end: int

    def __str__(self) -> str:
        return f"partition {self.partition}: offsets {self.begin} to {self.end - 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    ranges: tuple[TopicRange, ...]
    gaps: tuple[DeletedOffsets, ...] = ()


def lacking(
    positions: Mapping[int, int],
    ends: Mapping[int, LogEnds],
    *,
    topic: str,
    accept_gaps: bool,
) -> Lacking:
    """
    A partition without a position begins at its log start: records deleted before the table was created are not a gap.

    Raises:
        RecordsDeleted: there is a gap, and gaps are not accepted.
        PositionBeyondLog: the table's position is beyond the log's end.
    """
    ranges, gaps = [], []
    for partition, log in sorted(ends.items()):
        position = positions.get(partition, log.start)
        if position > log.end:
            raise PositionBeyondLog(
                f"the table has {topic}/{partition} up to offset {position}, and the log ends at {log.end}",
                hint="the log was truncated, or the topic restored from an older copy: restore the log, or create the "
                "table again",
            )
        if position < log.start:
            gaps.append(DeletedOffsets(partition=partition, begin=position, end=log.start))
        begin = max(position, log.start)
        ranges.append(TopicRange(partition=partition, begin=begin, end=log.end))
    if gaps and not accept_gaps:
        count = sum(one.end - one.begin for one in gaps)
        raise RecordsDeleted(
            f"{count} offsets of {topic} were deleted before the table had them: {'; '.join(map(str, gaps))}",
            hint="keep the topic longer (retention.ms), or continue without them: "
            f"respool topic alter {topic} --set respool.table.gap=continue",
        )
    return Lacking(ranges=tuple(one for one in ranges if not one.is_empty), gaps=tuple(gaps))
