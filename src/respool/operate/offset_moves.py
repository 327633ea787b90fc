"""Plan a reset of a group's offsets, partition by partition. Pure: target and offsets in, moves out.

```
                 start       target          committed      end
  partition  ----|-----------|---------------|--------------|
             gone            :  <-- replays  :
```
A target outside the partition's offset range is clamped to its start or end.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from respool.client.kafka.groups import OffsetAndMetadata
from respool.client.kafka.list_offsets import OffsetRange
from respool.client.kafka.metadata import Place, TopicMetadata
from respool.model.operator_errors import NotFound
from respool.model.seek_target import (
    AtOffset,
    AtTime,
    Earliest,
    Last,
    Latest,
    SeekTarget,
    clamp,
    resolve,
)
from respool.model.times import format_ms


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """Relative to the committed offset."""

    by: int


Target = SeekTarget | ShiftBy


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMove:
    """The committed offset of one partition, before and after a reset."""

    topic: str
    partition: int
    # None: the group has not committed here; its consumers start by auto.offset.reset.
    committed: int | None
    target: int
    # The target before clamping.
    asked: int
    held: OffsetRange

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def replays(self) -> int:
        """The number of still existing messages that will be read again."""
        return 0 if self.committed is None else max(0, self._position - self.target)

    @property
    def skips(self) -> int:
        """The number of messages that will not be read."""
        return 0 if self.committed is None else max(0, self.target - self._position)

    @property
    def reads(self) -> int:
        """The number of messages from the target to the end."""
        return self.held.end - self.target

    @property
    def is_clamped(self) -> bool:
        return self.asked != self.target

    @property
    def changes(self) -> bool:
        return self.committed != self.target

    @property
    def _position(self) -> int:
        assert self.committed is not None
        return _clamp(self.committed, self.held)

    def to_document(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "from": self.committed,
            "to": self.target,
            "replays": self.replays,
            "skips": self.skips,
        }


def choose_places(
    wanted: Mapping[str, list[int] | None],
    *,
    committed: Iterable[Place],
    topics: Mapping[str, TopicMetadata],
) -> list[Place]:
    """The partitions to move: those named, or else all partitions of the topics in which the group has committed.

    Partitions without a committed offset are included: otherwise consumers would start there by auto.offset.reset, and
    read what the reset should skip.

    Raises:
        NotFound: a topic or partition does not exist.
    """
    if not wanted:
        names = {topic for topic, _ in committed if topic in topics}
        return [(name, number) for name in sorted(names) for number in topics[name].leaders]
    places: list[Place] = []
    for name, numbers in wanted.items():
        topic = topics.get(name)
        if topic is None:
            raise NotFound(f"there is no topic {name!r}", hint="see: respool topic list")
        for number in topic.leaders if numbers is None else numbers:
            if number not in topic.leaders:
                raise NotFound(
                    f"{name} has no partition {number}",
                    hint=f"its partitions are 0 to {len(topic.leaders) - 1}",
                )
            places.append((name, number))
    return sorted(places)


def plan_moves(
    target: Target,
    places: Sequence[Place],
    *,
    committed: Mapping[Place, OffsetAndMetadata],
    ranges: Mapping[Place, OffsetRange],
    at_time: Mapping[Place, int | None],
) -> list[OffsetMove]:
    """One move for each partition with a leader; `at_time` has the resolved offsets of an `AtTime`.

    A shift leaves out partitions without a committed offset.
    """
    moves = []
    for place in places:
        held = ranges.get(place)
        position = committed[place].offset if place in committed else None
        if held is None or (isinstance(target, ShiftBy) and position is None):
            continue
        asked = _asked(target, position=position, held=held, at_time=at_time.get(place))
        moves.append(
            OffsetMove(
                topic=place[0],
                partition=place[1],
                committed=position,
                target=_clamp(asked, held),
                asked=asked,
                held=held,
            )
        )
    return moves


def target_text(target: Target) -> str:
    """The target in words, for messages: 'to offset 7'."""
    match target:
        case AtTime(ms):
            return f"to the first message at or after {format_ms(ms)}"
        case AtOffset(offset):
            return f"to offset {offset}"
        case Earliest():
            return "to the earliest message there is"
        case Latest():
            return "to the end"
        case Last(count):
            return f"to the last {count}"
        case ShiftBy(by):
            return f"by {by:+d}"


def _asked(target: Target, *, position: int | None, held: OffsetRange, at_time: int | None) -> int:
    if isinstance(target, ShiftBy):
        assert position is not None
        return position + target.by
    return resolve(target, low=held.start, high=held.end, at_time=at_time)


def _clamp(offset: int, held: OffsetRange) -> int:
    return clamp(offset, low=held.start, high=held.end)
