"""Where a reset moves a group, partition by partition. Pure: options and offsets in, moves out.

```
                 start       target          committed      end
  partition  ----|-----------|---------------|--------------|
             gone            :  <-- replays  :
```
A target outside of what the partition holds is brought to its start or end, and told.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from respool.cli import options
from respool.model.operator_errors import NotFound, UsageError
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

if TYPE_CHECKING:
    from respool.cli.kafka import OffsetRange, TopicInfo
    from respool.client.kafka.groups import Committed
from respool.client.kafka.metadata import Place


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """Relative to the committed offset."""

    by: int


Target = SeekTarget | ShiftBy


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """From where to where one partition of the group goes."""

    topic: str
    partition: int
    # None: the group never committed here, and has begun wherever its consumers are set to.
    committed: int | None
    target: int
    # What was asked for, before it was brought into what the partition holds.
    asked: int
    held: "OffsetRange"

    @property
    def place(self) -> "Place":
        return self.topic, self.partition

    @property
    def replays(self) -> int:
        """Messages that will be read again. Those that are gone cannot be."""
        return 0 if self.committed is None else max(0, self._stands_at - self.target)

    @property
    def skips(self) -> int:
        """Messages that will not be read."""
        return 0 if self.committed is None else max(0, self.target - self._stands_at)

    @property
    def reads(self) -> int:
        """Messages from the target to the end."""
        return self.held.end - self.target

    @property
    def is_clamped(self) -> bool:
        return self.asked != self.target

    @property
    def changes(self) -> bool:
        return self.committed != self.target

    @property
    def _stands_at(self) -> int:
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


def parse_target(
    *,
    to_time: str | None,
    to_offset: int | None,
    to_earliest: bool,
    to_latest: bool,
    shift_by: int | None,
    now: datetime,
) -> Target:
    """
    Raises:
        UsageError: none or several are given, or the time cannot be read.
    """
    given = [to_time is not None, to_offset is not None, to_earliest, to_latest]
    if sum([*given, shift_by is not None]) != 1:
        raise UsageError(
            "say where to, once: --to-time, --to-offset, --to-earliest, --to-latest or --shift-by"
        )
    if to_time is not None:
        return AtTime(options.time_ms(to_time, option="--to-time", now=now))
    if to_offset is not None:
        return AtOffset(to_offset)
    if shift_by is not None:
        return ShiftBy(shift_by)
    return Earliest() if to_earliest else Latest()


def choose_places(
    wanted: Mapping[str, list[int] | None],
    *,
    committed: "Iterable[Place]",
    topics: "Mapping[str, TopicInfo]",
) -> "list[Place]":
    """The partitions to move: those named, or else all of every topic the group has committed in and that still exists.

    Also those where it has committed nothing: left alone, its consumers would begin there wherever they are set to,
    and read what was to be skipped.

    Raises:
        NotFound: a topic or partition is not there.
    """
    if not wanted:
        names = {topic for topic, _ in committed if topic in topics}
        return [(name, number) for name in sorted(names) for number in topics[name].partitions]
    places: list[Place] = []
    for name, numbers in wanted.items():
        topic = topics.get(name)
        if topic is None:
            raise NotFound(f"there is no topic {name!r}", hint="see: respool topic list")
        for number in topic.partitions if numbers is None else numbers:
            if number not in topic.leaders:
                raise NotFound(
                    f"{name} has no partition {number}",
                    hint=f"its partitions are 0 to {len(topic.leaders) - 1}",
                )
            places.append((name, number))
    return sorted(places)


def plan_moves(
    target: Target,
    places: "Sequence[Place]",
    *,
    committed: "Mapping[Place, Committed]",
    ranges: "Mapping[Place, OffsetRange]",
    at_time: "Mapping[Place, int | None]",
) -> list[Move]:
    """One move for each place whose partition is led; `at_time` answers an `AtTime`.

    A partition without a committed offset cannot be shifted, and is left out then.
    """
    moves = []
    for place in places:
        held = ranges.get(place)
        stands = committed[place].offset if place in committed else None
        if held is None or (isinstance(target, ShiftBy) and stands is None):
            continue
        asked = _asked(target, stands=stands, held=held, at_time=at_time.get(place))
        moves.append(
            Move(
                topic=place[0],
                partition=place[1],
                committed=stands,
                target=_clamp(asked, held),
                asked=asked,
                held=held,
            )
        )
    return moves


def target_text(target: Target) -> str:
    """As it stands in messages: 'to offset 7'."""
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


def _asked(target: Target, *, stands: int | None, held: "OffsetRange", at_time: int | None) -> int:
    if isinstance(target, ShiftBy):
        assert stands is not None
        return stands + target.by
    return resolve(target, low=held.start, high=held.end, at_time=at_time)


def _clamp(offset: int, held: "OffsetRange") -> int:
    return clamp(offset, low=held.start, high=held.end)
