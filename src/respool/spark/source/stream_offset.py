"""A stream's position in its checkpoint. Pure.

    {"rides": {"id": "5c1f...", "offsets": {"0": 4711, "1": 4000}}}      the next offset of each partition

The id identifies the topic of the offsets: a later topic of the same name has another id. The format of Spark's Kafka
connector, {"rides": {"0": 4711}}, is accepted too, so that a query can switch over with its checkpoint; the id is
unknown then.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from respool.model.errors import RespoolError


class CheckpointUnreadable(RespoolError):
    """The checkpoint contains something other than a position."""


@dataclass(frozen=True, slots=True)
class TopicAt:
    # None if it is not known.
    id: str | None
    offsets: Mapping[int, int]

    def is_another_than(self, other: "TopicAt") -> bool:
        return self.id is not None and other.id is not None and self.id != other.id


Position: TypeAlias = Mapping[str, TopicAt]


def to_json(position: Position) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for topic in sorted(position):
        at = position[topic]
        offsets = {str(number): at.offsets[number] for number in sorted(at.offsets)}
        made[topic] = {"id": at.id, "offsets": offsets} if at.id else {"offsets": offsets}
    return made


def from_json(said: Mapping[str, Any]) -> Position:
    """
    Raises:
        CheckpointUnreadable
    """
    try:
        return MappingProxyType({topic: _topic_at(one) for topic, one in said.items()})
    except (AttributeError, TypeError, ValueError) as error:
        raise CheckpointUnreadable(
            f"the checkpoint has {said!r} where the offsets of topics should be: it belongs to another source"
        ) from error


def _topic_at(said: Mapping[str, Any]) -> TopicAt:
    offsets = said.get("offsets", said)
    numbers = {int(partition): offset for partition, offset in offsets.items()}
    if not all(isinstance(one, int) and one >= 0 for one in numbers.values()):
        raise ValueError("an offset is not a number")
    return TopicAt(said.get("id"), MappingProxyType(numbers))
