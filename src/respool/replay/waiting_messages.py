"""Reads the messages that a share group has not finished, without taking them from its workers."""

from collections.abc import Iterable
from dataclasses import dataclass

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.configs import ConfigResource, describe_configs
from respool.client.kafka.list_offsets import Isolation
from respool.client.kafka.share_group_admin import describe_share_group, fetch_share_starts
from respool.records.record import Record
from respool.replay.copy_plan import Span
from respool.replay.errors import ReplayNotFound, client_errors_translated
from respool.replay.record_reader import RecordRangeReader
from respool.replay.topic_lookup import check_leaders, describe_topic, held_spans

_ISOLATION = "share.isolation.level"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingMessage:
    topic: str
    partition: int
    record: Record


def peek(
    cluster: Cluster, group: str, *, topics: Iterable[str] = (), messages_max: int
) -> list[WaitingMessage]:
    """The oldest `messages_max` messages of each partition, from the group's start on.

    The first is not finished. Later ones may be: workers finish messages in any order, and only the partition's leader
    knows which. A worker may hold any of them.

    Raises:
        ReplayNotFound: there is no such share group, or it does not read one of the topics.
        ReplayError: the messages cannot be read.
    """
    wanted = set(topics)
    with client_errors_translated():
        if describe_share_group(cluster, group) is None:
            raise ReplayNotFound(
                f"there is no share group {group!r} at {cluster.bootstrap}",
                hint="see: respool queue list",
            )
        starts = fetch_share_starts(cluster, group)
        unknown = wanted - {topic for topic, _ in starts}
        if unknown:
            raise ReplayNotFound(
                f"share group {group!r} has not read topic {min(unknown)!r}",
                hint=f"what it reads: respool queue describe {group}",
            )
        isolation = _isolation(cluster, group)
        found: list[WaitingMessage] = []
        for topic in sorted(wanted or {one for one, _ in starts}):
            offsets = {
                partition: start.offset
                for (name, partition), start in starts.items()
                if name == topic and start.offset is not None
            }
            found += _read(cluster, topic, offsets, messages_max, isolation)
    return found


def _isolation(cluster: Cluster, group: str) -> Isolation:
    """A group that reads only committed messages is shown no others."""
    found = cluster.retrying(
        lambda: describe_configs(cluster, ConfigResource.GROUP, [group], keys=[_ISOLATION])
    )
    setting = found[group].get(_ISOLATION)
    is_committed = setting is not None and setting.value == "read_committed"
    return "read_committed" if is_committed else "read_uncommitted"


def _read(
    cluster: Cluster,
    topic: str,
    offsets: dict[int, int],
    messages_max: int,
    isolation: Isolation,
) -> list[WaitingMessage]:
    described = describe_topic(cluster, topic)
    check_leaders(cluster, described)
    held = held_spans(cluster, topic, offsets, isolation=isolation)
    spans = {
        number: Span(max(offsets[number], span.start), span.stop)
        for number, span in held.items()
        if offsets[number] < span.stop
    }
    taken: dict[int, list[Record]] = {number: [] for number in spans}
    reader = RecordRangeReader(cluster, topic, spans, isolation=isolation)
    try:
        for fetched in reader.batches():
            for number, records in fetched:
                taken[number] += records[: messages_max - len(taken[number])]
                if len(taken[number]) >= messages_max:
                    reader.hold(number)
            if all(len(taken[number]) >= messages_max for number in reader.undone):
                break
    finally:
        reader.close()
    return [
        WaitingMessage(topic=topic, partition=number, record=record)
        for number in sorted(taken)
        for record in taken[number]
    ]
