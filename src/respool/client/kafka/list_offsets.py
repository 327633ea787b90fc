"""ListOffsets: the start and end offsets of partitions, and the offset for a timestamp or another seek target."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code, refused
from respool.client.kafka.errors import BrokerRefused, BrokerUnreachable, NoLeader
from respool.client.kafka.metadata import Place
from respool.client.kafka.versions import LIST_OFFSETS_OF_MAX_TIMESTAMP
from respool.model.seek_target import AtTime, SeekTarget, clamp, resolve
from respool.wire.api_table import Api

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
NO_OFFSET = -1
_LEADERLESS = frozenset({Code.not_leader_or_follower, Code.leader_not_available})

Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAt:
    offset: int
    # -1 for the log's start and end.
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """A partition holds the offsets from `start` up to, not including, `end`."""

    start: int
    end: int

    @property
    def messages(self) -> int:
        return max(0, self.end - self.start)


def isolation_level(isolation: Isolation) -> int:
    return int(isolation == "read_committed")


def offsets_for(
    cluster: Cluster,
    topic: str,
    partitions: Iterable[int],
    at: int,
    *,
    isolation: Isolation = "read_committed",
) -> dict[int, OffsetAt | None]:
    """Like `list_offsets`, for partitions of one topic, by partition number."""
    found = list_offsets(cluster, [(topic, one) for one in partitions], at, isolation=isolation)
    return {partition: offset for (_, partition), offset in found.items()}


def list_offsets(
    cluster: Cluster,
    places: Iterable[Place],
    at: int,
    *,
    isolation: Isolation = "read_committed",
    led_only: bool = False,
) -> dict[Place, OffsetAt | None]:
    """Each partition's offset at EARLIEST, LATEST, MAX_TIMESTAMP, or of its first message at or after a time in ms.

    None if no message is that late. With read_committed the log ends before the first open transaction. After a leader
    change the new leader is asked, with retries for the cluster's `retry_ms`. With `led_only`, partitions that have no
    leader, or whose leader has just changed, are left out instead.

    Raises:
        UnknownTopic, UnknownPartition, BrokerRefused, BrokerUnreachable
    """
    left = set(places)
    found: dict[Place, OffsetAt | None] = {}
    for topic, partition in sorted(left):
        cluster.topic(topic).leader_of(partition)
    retry = cluster.retry_timer()
    while left:
        last_error: BrokerRefused | BrokerUnreachable | None = None
        led = leaders_of(cluster, left)
        if led_only:
            left = {place for asked in led.values() for place in asked}
        for broker, asked in led.items():
            try:
                answers = _request(cluster, broker, asked, at=at, isolation=isolation)
            except BrokerUnreachable as error:
                last_error = error
                continue
            for place, answer in answers.items():
                if not isinstance(answer, BrokerRefused):
                    found[place] = answer
                    left.discard(place)
                elif led_only and answer.code in _LEADERLESS:
                    left.discard(place)
                elif not answer.retriable:
                    raise answer
                else:
                    last_error = answer
        if left:
            retry.wait_or_raise(last_error or NoLeader(*min(left)))
            refresh_quietly(cluster, {topic for topic, _ in left})
    return found


def offset_ranges(
    cluster: Cluster,
    places: Iterable[Place],
    *,
    isolation: Isolation = "read_committed",
    led_only: bool = False,
) -> dict[Place, OffsetRange]:
    """The offset range of each partition, for a reader with this isolation level. Otherwise like `list_offsets`."""
    wanted = list(places)
    starts = list_offsets(cluster, wanted, EARLIEST, isolation=isolation, led_only=led_only)
    ends = list_offsets(cluster, wanted, LATEST, isolation=isolation, led_only=led_only)
    return {
        place: OffsetRange(start=start.offset, end=end.offset)
        for place in wanted
        if (start := starts.get(place)) is not None and (end := ends.get(place)) is not None
    }


def leaders_of(cluster: Cluster, places: Iterable[Place]) -> dict[int, list[Place]]:
    """Broker -> the partitions among these that it leads; partitions without a leader are left out."""
    found: dict[int, list[Place]] = {}
    for topic, partition in sorted(places):
        leader = cluster.topic(topic).leader_of(partition)
        if leader is not None:
            found.setdefault(leader.broker, []).append((topic, partition))
    return found


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """Topic -> its partitions among these, sorted."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        grouped.setdefault(topic, []).append(partition)
    return grouped


def answers_by_place(topics: Iterable[Any]) -> list[tuple[Place, Any]]:
    """Flatten a reply that has one answer per partition of each topic."""
    return [
        ((str(topic.name), int(one.partition_index)), one)
        for topic in topics
        for one in topic.partitions
    ]


def refresh_quietly(cluster: Cluster, topics: Iterable[str]) -> None:
    """Refresh before a retry. If this fails, the next attempt fails too, and the caller's retry limit applies."""
    for topic in sorted(topics):
        try:
            cluster.refresh(topic)
        except (BrokerUnreachable, BrokerRefused):
            return


def _request(
    cluster: Cluster, broker: int, places: list[Place], *, at: int, isolation: Isolation
) -> Mapping[Place, OffsetAt | BrokerRefused | None]:
    fields = {
        "replica_id": -1,
        "isolation_level": isolation_level(isolation),
        "topics": [
            {
                "name": topic,
                "partitions": [_partition_fields(cluster, topic, one, at) for one in partitions],
            }
            for topic, partitions in by_topic(places).items()
        ],
    }
    versions = LIST_OFFSETS_OF_MAX_TIMESTAMP if at == MAX_TIMESTAMP else None
    reply = cluster.request(broker, Api.LIST_OFFSETS, fields, versions=versions)
    answers: dict[Place, OffsetAt | BrokerRefused | None] = {}
    for place, one in answers_by_place(reply.topics):
        if one.error_code:
            answers[place] = refused(f"listing offsets of {_text_of(place)}", one.error_code)
        elif one.offset == NO_OFFSET:
            answers[place] = None
        else:
            answers[place] = OffsetAt(offset=one.offset, timestamp_ms=one.timestamp)
    return answers


def _partition_fields(cluster: Cluster, topic: str, partition: int, at: int) -> dict[str, Any]:
    leader = cluster.topic(topic).leader_of(partition)
    return {
        "partition_index": partition,
        "current_leader_epoch": -1 if leader is None else leader.epoch,
        "timestamp": at,
    }


def _text_of(place: Place) -> str:
    return f"{place[0]}/{place[1]}"


def resolve_target(
    cluster: Cluster,
    topic: str,
    target: SeekTarget,
    held: Mapping[int, tuple[int, int]],
    *,
    isolation: Isolation = "read_committed",
) -> dict[int, int]:
    """The target offset of each partition, clamped to its range; `held` is partition -> (first offset, end offset).

    Raises:
        UnknownTopic, UnknownPartition, BrokerRefused, BrokerUnreachable
    """
    found: dict[int, OffsetAt | None] = {}
    if isinstance(target, AtTime):
        found = offsets_for(cluster, topic, held, target.ms, isolation=isolation)
    offsets = {}
    for partition, (low, high) in held.items():
        at = found.get(partition)
        offset = resolve(target, low=low, high=high, at_time=None if at is None else at.offset)
        offsets[partition] = clamp(offset, low=low, high=high)
    return offsets
