"""Where a read begins or ends, as Spark's Kafka connector has it said: ends of the log, offsets, times. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from respool.spark.options import BadOption, Options

LATEST, EARLIEST = -1, -2

LogEnd: TypeAlias = Literal["earliest", "latest"]
ByPartition: TypeAlias = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AtEnd:
    option: str
    which: LogEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOffsets:
    """Of each partition; LATEST and EARLIEST are allowed."""

    option: str
    by: ByPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTime:
    """The first message of then or later, by the brokers' index."""

    option: str
    ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTimes:
    option: str
    by: ByPartition


Point: TypeAlias = AtEnd | AtOffsets | AtTime | AtTimes


def point_of(options: Options, side: Literal["starting", "ending"], *, default: LogEnd) -> Point:
    """One time for all comes before times, and those before offsets, whatever else is given.

    Raises:
        BadOption: it is none of the forms.
    """
    time, times, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    # All are asked for, so that all are known.
    ms = options.time_ms(time)
    by_time, said = options.text(times), options.text(offsets)
    if ms is not None:
        return AtTime(option=time, ms=ms)
    if by_time is not None:
        return AtTimes(option=times, by=by_partition(times, by_time, least=0))
    if said is None:
        return AtEnd(option=offsets, which=default)
    match said.lower():
        case "earliest":
            return AtEnd(option=offsets, which="earliest")
        case "latest":
            return AtEnd(option=offsets, which="latest")
    if not said.startswith("{"):
        raise BadOption(
            f'{offsets} = {said!r}: \'earliest\', \'latest\', or offsets such as {{"rides": {{"0": 23, "1": -2}}}}'
        )
    return AtOffsets(option=offsets, by=by_partition(offsets, said, least=EARLIEST))


def refuse_end(point: Point, which: LogEnd, why: str) -> None:
    """
    Raises:
        BadOption: it begins or ends at this end of the log.
    """
    number = LATEST if which == "latest" else EARLIEST
    if isinstance(point, AtEnd) and point.which == which:
        raise BadOption(f"{point.option} = {which!r}: {why}")
    if isinstance(point, AtOffsets):
        for topic, offsets in point.by.items():
            for partition, offset in offsets.items():
                if offset == number:
                    raise BadOption(
                        f"{point.option} has {number} ({which}) for {topic}/{partition}: {why}"
                    )


def by_partition(option: str, said: str, *, least: int) -> ByPartition:
    """{"topic": {"0": 23}}, with numbers from `least` on."""
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
    """{"topic": [0, 1]}"""
    found: dict[str, tuple[int, ...]] = {}
    for topic, partitions in json_object(option, said).items():
        if not isinstance(partitions, list) or not partitions:
            raise BadOption(
                f"{option} has {partitions!r} for {topic!r}: a list of partitions, such as [0, 1]"
            )
        found[topic] = tuple(sorted({_partition(option, topic, one) for one in partitions}))
    return found


def json_object(option: str, said: str) -> dict[str, Any]:
    try:
        found = json.loads(said)
    except ValueError as error:
        raise BadOption(f"{option} = {said!r} is no JSON: {error}") from None
    if not isinstance(found, dict) or not found:
        raise BadOption(f"{option} = {said!r}: an object with topics' names is needed")
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
