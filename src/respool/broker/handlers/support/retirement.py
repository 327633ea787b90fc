"""Retires sealed partitions: takes them out of the topic once they are empty and every group has read them.

Records for them go to their heirs as before: some clients never hear of it.
"""

from collections.abc import Mapping

from respool.broker.broker import Broker
from respool.broker.metrics.remote_ends import RemoteEnds
from respool.model.cluster import TopicImage
from respool.model.errors import (
    InvalidPartitions,
    LeaderNotAvailable,
    PolicyViolation,
    RequestError,
    UnknownTopicOrPartition,
)
from respool.model.ids import BrokerId, Offset, TopicPartition

NAMED_MAX = 10


async def retire(broker: Broker, name: str, *, is_forced: bool, validate_only: bool) -> None:
    """
    Raises:
        InvalidPartitions: no partition is sealed.
        PolicyViolation: they have records, or groups have not read them to the end; `is_forced` allows both.
        LeaderNotAvailable: a leader cannot be asked.
    """
    broker.image.check_is_no_view(name, instead="retire partitions of")
    topic = broker.image.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"there is no topic {name!r}")
    if topic.layout is None or topic.layout.active == len(topic.partitions):
        raise InvalidPartitions(f"{name!r} has no sealed partitions")
    if not is_forced:
        sealed = range(topic.layout.active, len(topic.partitions))
        await _check_empty(broker, topic, sealed)
        await _check_read(broker, topic, sealed)
    await broker.topics.retire(topic, validate_only=validate_only)


async def _check_empty(broker: Broker, topic: TopicImage, sealed: range) -> None:
    left = {
        number: end - start
        for number, (start, end) in (await _ranges(broker, topic, sealed)).items()
        if end > start
    }
    if left:
        raise PolicyViolation(
            f"sealed partitions of {topic.name!r} still have records, until their retention ends: "
            + _shown([f"{number} ({count} offsets)" for number, count in left.items()])
        )


async def _check_read(broker: Broker, topic: TopicImage, sealed: range) -> None:
    ends: dict[int, Offset] = {}
    for number in sealed:
        handover = topic.partitions[number].handover
        if handover is not None and handover.sealed_end:
            ends[number] = handover.sealed_end
    readers = await broker.topic_readers.readers(topic)
    behind = [one.group_id for one in readers if one.is_behind(ends)]
    if behind:
        raise PolicyViolation(
            f"groups have not read the sealed partitions of {topic.name!r} to their ends: {_shown(behind)}"
        )


async def _ranges(
    broker: Broker, topic: TopicImage, sealed: range
) -> Mapping[int, tuple[Offset, Offset]]:
    """The start and end of each sealed log."""
    found: dict[int, tuple[Offset, Offset]] = {}
    elsewhere: dict[BrokerId, dict[TopicPartition, list[Offset]]] = {}
    for number in sealed:
        name = TopicPartition(topic.name, number)
        try:
            log = broker.partitions.find_leader(*name).log
            found[number] = (log.log_start, log.log_end)
        except RequestError:
            leader = topic.partitions[number].leader
            if leader is not None and leader != broker.id:
                elsewhere.setdefault(leader, {})[name] = [Offset(0)]
    if broker.link is not None:
        remote = RemoteEnds(broker.link)
        for leader, names in elsewhere.items():
            for name, end in (await remote.ask(leader, names)).items():
                found[name.partition] = (end.log_start, end.high_watermark)
    unknown = [str(number) for number in sealed if number not in found]
    if unknown:
        raise LeaderNotAvailable(
            f"leaders of sealed partitions of {topic.name!r} cannot be asked now: {_shown(unknown)}"
        )
    return found


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
