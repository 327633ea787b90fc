"""The position of a replay, derived from the content of the target. Pure.

The headers of every copy name the replay, its origin, and its number among the copies from that source partition in
this target partition:

```
  respool-replay-id       3fa94c01
  respool-source          rides/2/4711
  respool-replay-number   1290
```
Copies of one source partition arrive in each target partition in order and without gaps, so the last copy implies all
earlier ones. A replay that resumes reads the end of the target.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from respool.records.record import Headers, Record
from respool.replay.copy_plan import CopyPlan

ID_HEADER = "respool-replay-id"
SOURCE_HEADER = "respool-source"
NUMBER_HEADER = "respool-replay-number"

# Checkpoints are recorded in the audit entry; with more pairs of partitions, the target is read instead.
CHECKPOINT_PAIRS_MAX = 5_000


class Origin(NamedTuple):
    """The source of a copy."""

    partition: int
    offset: int
    # The number among the copies from `partition` in one target partition, starting at 0.
    number: int


def headers_of(replay_id: str, topic: str, *, partition: int, offset: int, number: int) -> Headers:
    return (
        (ID_HEADER, replay_id.encode()),
        (SOURCE_HEADER, b"%s/%d/%d" % (topic.encode(), partition, offset)),
        (NUMBER_HEADER, b"%d" % number),
    )


def origin_of(record: Record, replay_id: str) -> Origin | None:
    """The origin of a copy; None for a record that this replay did not write."""
    # A copy of a copy has the headers of both replays; dict() keeps the last, which are the newer ones.
    found = dict(record.headers)
    source, number = found.get(SOURCE_HEADER), found.get(NUMBER_HEADER)
    if found.get(ID_HEADER) != replay_id.encode() or source is None or number is None:
        return None
    _, partition, offset = source.rsplit(b"/", 2)
    return Origin(int(partition), int(offset), int(number))


class CopyPosition:
    """The copies known to be in the target. The position never moves back."""

    def __init__(self, plan: CopyPlan) -> None:
        self._plan = plan
        # By source partition: every message below this offset is copied, or not selected.
        self.done_below = {number: span.start for number, span in plan.spans.items()}
        # By target partition: all copies below this offset are counted in `_last`.
        self.read_to = dict(plan.target_ends)
        # By source and target partition: the last copy there.
        self._last: dict[tuple[int, int], Origin] = {}

    def on_copy(self, target: int, origin: Origin, *, at_offset: int) -> None:
        """Register a copy in the target. Must be called in order of `at_offset`."""
        pair = origin.partition, target
        last = self._last.get(pair)
        if last is None or origin.number > last.number:
            self._last[pair] = origin
        self.read_to[target] = max(self.read_to.get(target, 0), at_offset + 1)

    def is_copied(self, source: int, target: int, offset: int) -> bool:
        last = self._last.get((source, target))
        return last is not None and offset <= last.offset

    def next_number(self, source: int, target: int) -> int:
        last = self._last.get((source, target))
        return 0 if last is None else last.number + 1

    def read_from(self, source: int) -> int:
        """The offset to resume at in a source partition: the first that may not be copied."""
        span = self._plan.spans[source]
        reached = []
        for target in self._plan.targets_of(source):
            last = self._last.get((source, target))
            reached.append(span.start if last is None else last.offset + 1)
        return max(self.done_below[source], min(reached))

    @property
    def is_complete(self) -> bool:
        return all(
            self.done_below[source] >= span.stop for source, span in self._plan.spans.items()
        )

    @property
    def copied(self) -> int:
        """Number of copies in the target."""
        return sum(last.number + 1 for last in self._last.values())

    def to_document(self) -> dict[str, Any] | None:
        if len(self._last) > CHECKPOINT_PAIRS_MAX:
            return None
        return {
            "done_below": {str(number): offset for number, offset in self.done_below.items()},
            "read_to": {str(number): offset for number, offset in self.read_to.items()},
            "last": [
                [source, target, last.offset, last.number]
                for (source, target), last in self._last.items()
            ],
        }

    @classmethod
    def from_document(cls, plan: CopyPlan, document: Mapping[str, Any] | None) -> "CopyPosition":
        position = cls(plan)
        if document is None:
            return position
        position.done_below |= {int(n): offset for n, offset in document["done_below"].items()}
        position.read_to |= {int(n): offset for n, offset in document["read_to"].items()}
        position._last = {
            (source, target): Origin(source, offset, number)
            for source, target, offset, number in document["last"]
        }
        return position
