"""The start or end of a read, as given by the options of Spark's Kafka connector. Pure."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from respool.model.seek_target import AtOffset, AtTime, Earliest, Latest, SeekTarget
from respool.spark.option_values import BadOption, Options

# The offsets by which Spark's options name the start and end of the log.
LATEST, EARLIEST = -1, -2

ByPartition: TypeAlias = Mapping[str, Mapping[int, SeekTarget]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A target for all partitions, or one for each; and the option that set it."""

    option: str
    everywhere: SeekTarget | None = None
    by: ByPartition | None = None

    @property
    def has_offsets(self) -> bool:
        """True if it is given by offsets of partitions."""
        return any(isinstance(one, AtOffset) for _, _, one in self._named())

    def target(self, topic: str, partition: int) -> SeekTarget:
        if self.by is not None:
            return self.by[topic][partition]
        assert self.everywhere is not None
        return self.everywhere

    def refuse(self, end: Earliest | Latest, why: str) -> None:
        """
        Raises:
            BadOption: the point is this end of the log.
        """
        name, number = ("latest", LATEST) if end == Latest() else ("earliest", EARLIEST)
        if self.everywhere == end:
            raise BadOption(f"{self.option} = {name!r}: {why}")
        for topic, partition, target in self._named():
            if target == end:
                raise BadOption(
                    f"{self.option} has {number} ({name}) for {topic}/{partition}: {why}"
                )

    def _named(self) -> Iterator[tuple[str, int, SeekTarget]]:
        for topic, targets in (self.by or {}).items():
            for partition, target in targets.items():
                yield topic, partition, target


def point_of(
    options: Options, side: Literal["starting", "ending"], *, default: Earliest | Latest
) -> Point:
    """A single time takes precedence over times per partition, and those over offsets.

    Raises:
        BadOption: it has none of these forms.
    """
    time, times, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    # All are queried, so that all are known.
    ms = options.time_ms(time)
    by_time, said = options.text(times), options.text(offsets)
    if ms is not None:
        return Point(option=time, everywhere=AtTime(ms))
    if by_time is not None:
        found = by_partition(times, by_time, least=0)
        return Point(option=times, by=_mapped(found, AtTime))
    if said is None:
        return Point(option=offsets, everywhere=default)
    match said.lower():
        case "earliest":
            return Point(option=offsets, everywhere=Earliest())
        case "latest":
            return Point(option=offsets, everywhere=Latest())
    if not said.startswith("{"):
        raise BadOption(
            f'{offsets} = {said!r}: \'earliest\', \'latest\', or offsets such as {{"rides": {{"0": 23, "1": -2}}}}'
        )
    found = by_partition(offsets, said, least=EARLIEST)
    return Point(option=offsets, by=_mapped(found, _target_of_offset))


def _target_of_offset(offset: int) -> SeekTarget:
    if offset == LATEST:
        return Latest()
    return Earliest() if offset == EARLIEST else AtOffset(offset)


def _mapped(
    found: Mapping[str, Mapping[int, int]], target_of: Callable[[int], SeekTarget]
) -> ByPartition:
    return {
        topic: {partition: target_of(number) for partition, number in numbers.items()}
        for topic, numbers in found.items()
    }


def by_partition(option: str, said: str, *, least: int) -> dict[str, dict[int, int]]:
    """Parse {"topic": {"0": 23}}, with numbers of at least `least`."""
    found: dict[str, dict[int, int]] = {}
    for topic, numbers in json_object(option, said).items():
        if not isinstance(numbers, dict):
            raise BadOption(
                f'{option} has {numbers!r} for {topic!r}: partitions are needed, such as {{"0": 23}}'
            )
        found[topic] = {
            _partition(option, topic, key): _number(option, topic, value, least)
            for key, value in numbers.items()
        }
    return found


def assigned(option: str, said: str) -> dict[str, tuple[int, ...]]:
    """Parse {"topic": [0, 1]}."""
    found: dict[str, tuple[int, ...]] = {}
    for topic, partitions in json_object(option, said).items():
        if not isinstance(partitions, list) or not partitions:
            raise BadOption(
                f"{option} has {partitions!r} for {topic!r}: a list of partitions, such as [0, 1]"
            )
        found[topic] = tuple(sorted({_partition(option, topic, one) for one in partitions}))
    return found


def json_object(option: str, said: str, *, of: str = "topics' names") -> dict[str, Any]:
    try:
        found = json.loads(said, object_pairs_hook=_each_once)
    except ValueError as error:
        raise BadOption(f"{option} = {said!r} is no JSON: {error}") from None
    if not isinstance(found, dict) or not found:
        raise BadOption(f"{option} = {said!r}: an object with {of} is needed")
    return found


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"a name stands twice among {', '.join(name for name, _ in pairs)}")
    return found


def _partition(option: str, topic: str, said: object) -> int:
    text = str(said) if isinstance(said, str | int) and not isinstance(said, bool) else ""
    if not (text.isascii() and text.isdigit()):
        raise BadOption(f"{option} has partition {said!r} of {topic!r}: whole numbers from 0 on")
    return int(text)


def _number(option: str, topic: str, said: object, least: int) -> int:
    if not isinstance(said, int) or isinstance(said, bool) or not least <= said < 2**63:
        raise BadOption(f"{option} has {said!r} for {topic!r}: a whole number from {least} on")
    return said
