"""Splits a read into the table's part and the log's part, without gaps or duplicates. Pure.

```
        begin                position of V                       end
table   | ######## rows of V ######## |
log                                   | ######## the tail ######## |
```
The version V is loaded before the log's ends are read: rows that the table gets later are beyond V's positions, and
come from the log.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from respool.tables.errors import PositionBeyondLog, RecordsDeleted
from respool.tables.planning.positions import LogEnds, TopicRange


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridPart:
    """One partition of a read: the offsets [begin, position) of the table, and [position, end) of the log."""

    partition: int
    begin: int
    position: int
    end: int

    @property
    def from_table(self) -> TopicRange:
        return TopicRange(
            partition=self.partition, begin=self.begin, end=min(self.position, self.end)
        )

    @property
    def from_log(self) -> TopicRange:
        return TopicRange(
            partition=self.partition, begin=max(self.position, self.begin), end=self.end
        )


def plan_hybrid(
    topic: str,
    positions: Mapping[int, int],
    ends: Mapping[int, LogEnds],
    *,
    since: Mapping[int, int] | None = None,
    until: Mapping[int, int] | None = None,
) -> list[HybridPart]:
    """`since` and `until` are offsets by partition; without them, everything.

    Raises:
        RecordsDeleted: offsets between the table's position and the log start are in neither.
        PositionBeyondLog: the table has more than the log.
    """
    parts = []
    for partition, log in sorted(ends.items()):
        position = positions.get(partition, log.start)
        if position > log.end:
            raise PositionBeyondLog(
                f"the table has {topic}/{partition} up to offset {position}, and the log ends at {log.end}",
                hint="the log was truncated, or restored from an older copy",
            )
        begin = (since or {}).get(partition, 0)
        end = min(log.end, (until or {}).get(partition, log.end))
        if position < log.start and begin < log.start and end > position:
            hole = max(position, begin)
            raise RecordsDeleted(
                f"offsets {hole} to {log.start - 1} of {topic}/{partition} are neither in the table nor in the log",
                hint="they were deleted before respool table run had written them",
            )
        parts.append(HybridPart(partition=partition, begin=begin, position=position, end=end))
    return parts
