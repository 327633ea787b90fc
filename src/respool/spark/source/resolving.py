"""Points as options say them -> offsets of partitions, with the brokers' help."""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from respool.client.arrow.reading.points import format_ms
from respool.spark.options import BadOption
from respool.spark.source.brokers import Brokers, Offsets, TopicSeen
from respool.spark.source.points import (
    EARLIEST,
    LATEST,
    AtEnd,
    AtOffsets,
    AtTime,
    AtTimes,
    ByPartition,
    Point,
)

Resolved: TypeAlias = dict[str, Offsets]
Unmatched: TypeAlias = Literal["error", "latest"]


def resolve(
    brokers: Brokers, point: Point, topics: Mapping[str, TopicSeen], *, unmatched: Unmatched
) -> Resolved:
    """The offset of each partition at the point. `unmatched`: what it is where no message is as late as its time.

    Raises:
        BadOption: it does not say so for every partition, or for some that there are not; or no message is that late.
    """
    if isinstance(point, AtOffsets | AtTimes):
        check_covers(point.option, point.by, topics)
    return {
        name: _of_topic(brokers, point, name, seen.partitions, unmatched)
        for name, seen in topics.items()
    }


def check_covers(option: str, by: ByPartition, topics: Mapping[str, TopicSeen]) -> None:
    """
    Raises:
        BadOption
    """
    if unwanted := by.keys() - topics.keys():
        raise BadOption(
            f"{option} names the topics {sorted(unwanted)}, which are not read or not there"
        )
    for name, seen in topics.items():
        said = by.get(name, {}).keys()
        if missing := sorted(set(seen.partitions) - said):
            raise BadOption(
                f"{option} must say it for every partition that is read; of {name!r} it lacks {missing}"
            )
        if unwanted_too := sorted(said - set(seen.partitions)):
            raise BadOption(
                f"{option} has partitions {unwanted_too} of {name!r}, which are not read or not there"
            )


def _of_topic(
    brokers: Brokers, point: Point, topic: str, partitions: tuple[int, ...], unmatched: Unmatched
) -> Offsets:
    match point:
        case AtEnd(which="earliest"):
            return brokers.earliest(topic, partitions)
        case AtEnd():
            return brokers.latest(topic, partitions)
        case AtOffsets():
            return _at_offsets(brokers, topic, point.by[topic])
        case AtTime():
            return _at_time(
                brokers, point.option, topic, partitions, ms=point.ms, unmatched=unmatched
            )
    found: dict[int, int] = {}
    times = point.by[topic]
    for ms in sorted(set(times.values())):
        those = tuple(number for number in partitions if times[number] == ms)
        found |= _at_time(brokers, point.option, topic, those, ms=ms, unmatched=unmatched)
    return found


def _at_offsets(brokers: Brokers, topic: str, said: Offsets) -> Offsets:
    found = dict(said)
    for sign, ask in ((LATEST, brokers.latest), (EARLIEST, brokers.earliest)):
        if those := [number for number, offset in said.items() if offset == sign]:
            found |= ask(topic, those)
    return found


def _at_time(
    brokers: Brokers,
    option: str,
    topic: str,
    partitions: Iterable[int],
    *,
    ms: int,
    unmatched: Unmatched,
) -> dict[int, int]:
    # The end first: a message that comes while we ask lies behind it.
    ends = brokers.latest(topic, partitions)
    found = brokers.at_time(topic, partitions, ms)
    if unmatched == "error":
        for number, offset in found.items():
            if offset is None:
                raise BadOption(
                    f"{option} = {ms} ({format_ms(ms)}): {topic}/{number} has no message of then or later. With "
                    "startingOffsetsByTimestampStrategy = latest it begins at its end"
                )
    return {number: ends[number] if one is None else one for number, one in found.items()}
