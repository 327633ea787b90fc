"""Questions about a topic's log: where partitions begin and end, which offset belongs to a time, how old ones go."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from respool.client.arrow.reading.plan import Retention
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import refused
from respool.client.kafka.errors import BrokerRefused, BrokerUnreachable
from respool.wire.api_table import Api

LATEST, EARLIEST = -1, -2
NO_OFFSET = -1
TOPIC_RESOURCE = 2

Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAt:
    offset: int
    # -1 for the log's ends.
    timestamp_ms: int


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
    """The offset of each partition at EARLIEST, at LATEST or at a time in ms: the first message of then or later.

    None where no message is that late. With read_committed the log ends before the first open transaction. Leaders that
    change meanwhile are asked again, for as long as the cluster's `retry_ms`.

    Raises:
        UnknownTopic, UnknownPartition, BrokerRefused, BrokerUnreachable
    """
    left = set(partitions)
    found: dict[int, OffsetAt | None] = {}
    seen = cluster.topic(topic)
    for partition in sorted(left):
        seen.leader_of(partition)
    patience = cluster.patience()
    while left:
        trouble: BrokerRefused | BrokerUnreachable | None = None
        led = cluster.by_leader(topic, sorted(left))
        for broker, wanted in led.items():
            try:
                answers = _ask(cluster, broker, topic, wanted, at=at, isolation=isolation)
            except BrokerUnreachable as error:
                trouble = error
                continue
            for partition, answer in answers.items():
                if isinstance(answer, BrokerRefused):
                    if not answer.retriable:
                        raise answer
                    trouble = answer
                else:
                    found[partition] = answer
                    left.discard(partition)
        if left:
            patience.after(trouble or BrokerUnreachable(f"nobody leads {topic}/{min(left)} now"))
            _refresh_quietly(cluster, topic)
    return found


def retention_of(cluster: Cluster, topic: str) -> Retention | None:
    """How the topic's messages are deleted; None where the broker does not tell."""
    fields = {
        "resources": [
            {
                "resource_type": TOPIC_RESOURCE,
                "resource_name": topic,
                "configuration_keys": ["retention.ms", "retention.bytes", "cleanup.policy"],
            }
        ],
        "include_synonyms": False,
        "include_documentation": False,
    }
    reply = cluster.retrying(lambda: cluster.request_any(Api.DESCRIBE_CONFIGS, fields))
    (answer,) = reply.results
    if answer.error_code:
        return None
    settings: Mapping[str, str | None] = {one.name: one.value for one in answer.configs}
    if "delete" not in (settings.get("cleanup.policy") or ""):
        # Compaction removes messages that newer ones replace, and no others.
        return Retention(ms=-1, bytes=-1)
    try:
        return Retention(
            ms=int(settings["retention.ms"] or ""), bytes=int(settings["retention.bytes"] or "")
        )
    except (KeyError, ValueError):
        return None


def _ask(
    cluster: Cluster,
    broker: int,
    topic: str,
    partitions: list[int],
    *,
    at: int,
    isolation: Isolation,
) -> dict[int, OffsetAt | BrokerRefused | None]:
    seen = cluster.topic(topic)
    wanted = []
    for partition in partitions:
        leader = seen.leader_of(partition)
        wanted.append(
            {
                "partition_index": partition,
                "current_leader_epoch": -1 if leader is None else leader.epoch,
                "timestamp": at,
            }
        )
    fields = {
        "replica_id": -1,
        "isolation_level": isolation_level(isolation),
        "topics": [{"name": topic, "partitions": wanted}],
    }
    reply = cluster.request(broker, Api.LIST_OFFSETS, fields)
    answers: dict[int, OffsetAt | BrokerRefused | None] = {}
    for one in (part for answer in reply.topics for part in answer.partitions):
        if one.error_code:
            doing = f"listing offsets of {topic}/{one.partition_index}"
            answers[one.partition_index] = refused(doing, one.error_code)
        elif one.offset == NO_OFFSET:
            answers[one.partition_index] = None
        else:
            answers[one.partition_index] = OffsetAt(offset=one.offset, timestamp_ms=one.timestamp)
    return answers


def _refresh_quietly(cluster: Cluster, topic: str) -> None:
    try:
        cluster.refresh(topic)
    except (BrokerUnreachable, BrokerRefused):
        # The next question fails too, and the patience of its asker counts.
        return
