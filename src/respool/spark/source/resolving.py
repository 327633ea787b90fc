"""Resolves the points in options to offsets of partitions."""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from respool.client.arrow.reading.read_bounds import format_ms
from respool.model.seek_target import AtOffset, AtTime, Earliest, Latest
from respool.spark.option_values import BadOption
from respool.spark.source.brokers import Brokers, Offsets, TopicSeen
from respool.spark.source.start_points import Point

Resolved: TypeAlias = dict[str, Offsets]
Unmatched: TypeAlias = Literal["error", "latest"]


def resolve(
    brokers: Brokers, point: Point, topics: Mapping[str, TopicSeen], *, unmatched: Unmatched
) -> Resolved:
    """The offset of each partition at the point. `unmatched`: what to do if no message is as late as the time.

    Raises:
        BadOption: the point lacks a partition, or names an unknown one; or no message is as late as the time.
    """
    if point.by is not None:
        check_covers(point.option, point.by, topics)
    return {
        name: _of_topic(brokers, point, name, seen.partitions, unmatched)
        for name, seen in topics.items()
    }


def check_covers(
    option: str, by: Mapping[str, Mapping[int, object]], topics: Mapping[str, TopicSeen]
) -> None:
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
    targets = {number: point.target(topic, number) for number in partitions}
    found = {n: target.offset for n, target in targets.items() if isinstance(target, AtOffset)}
    for end, ask in ((Latest(), brokers.latest), (Earliest(), brokers.earliest)):
        if those := tuple(number for number, target in targets.items() if target == end):
            found |= ask(topic, those)
    times = {target.ms for target in targets.values() if isinstance(target, AtTime)}
    for ms in sorted(times):
        those = tuple(number for number, target in targets.items() if target == AtTime(ms))
        found |= _at_time(brokers, point.option, topic, those, ms=ms, unmatched=unmatched)
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
    # The ends first: a message that arrives during these requests lies beyond them.
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
