"""Describes topics: configs, offsets, retention, and what an acks=all reply guarantees."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypedDict

from respool.client.kafka.list_offsets import OffsetRange
from respool.client.kafka.metadata import Place, TopicMetadata
from respool.model.operator_errors import UsageError
from respool.model.quantities import counted, human_bytes
from respool.model.times import format_long_duration_ms
from respool.model.view_config import OF
from respool.operate.cluster_admin import ClusterAdmin, TopicSetting
from respool.operate.sealed_partitions import describe_layout

MIN_ISR = "min.insync.replicas"


def list_topics(
    admin: ClusterAdmin, *, internal: bool
) -> tuple[list[dict[str, Any]], dict[str, list[TopicSetting]], int]:
    """A document for each topic, the topics' configs, and the number of partitions without a leader."""
    topics = [
        topic for _, topic in sorted(admin.topics().items()) if internal or not topic.is_internal
    ]
    ranges = admin.ranges(topics, isolation="read_uncommitted", led_only=True)
    configs = admin.settings([topic.name for topic in topics])
    documents = [_list_document(topic, ranges, configs[topic.name]) for topic in topics]
    return documents, configs, sum(topic.partitions for topic in topics) - len(ranges)


def describe_topic(admin: ClusterAdmin, name: str) -> dict[str, Any]:
    """
    Raises:
        NotFound: there is no such topic.
    """
    topic = admin.topic(name)
    ranges = admin.ranges([topic], isolation="read_uncommitted", led_only=True)
    settings = admin.settings([name])[name]
    parent = parent_of(settings)
    # A view shows some of the messages; only reading tells which.
    has_gaps = is_compacted(settings) or parent is not None
    partitions = []
    for number, leader in topic.leaders.items():
        held = ranges.get((name, number))
        partitions.append(
            {
                "partition": number,
                # None if the broker in the metadata did not answer as the leader.
                "leader": leader.broker if held and leader is not None else None,
                "start_offset": held.start if held else None,
                "end_offset": held.end if held else None,
                "messages": held.messages if held and not has_gaps else None,
                # The first is the preferred leader.
                "replicas": list(topic.replicas.get(number, ())),
                "in_sync": sorted(topic.in_sync.get(number, ())),
            }
        )
    return {
        "topic": name,
        "view_of": parent,
        # Nobody writes to a view.
        "acks_all": (
            acks_all(settings, replicas=fewest_replicas(topic)) if parent is None else None
        ),
        "settings": [
            {"name": each.name, "value": each.value, "source": each.source} for each in settings
        ],
        "partitions": partitions,
        # None for a topic that was never shrunk.
        "layout": describe_layout(admin, topic, ranges) if parent is None else None,
    }


def _list_document(
    topic: TopicMetadata,
    ranges: Mapping[Place, OffsetRange],
    settings: Sequence[TopicSetting],
) -> dict[str, Any]:
    held = [each for (name, _), each in ranges.items() if name == topic.name]
    # None if no partition has a leader: then the offsets are unknown.
    offsets = sum(each.messages for each in held) if held else None
    parent = parent_of(settings)
    return {
        "topic": topic.name,
        "view_of": parent,
        "partition_count": topic.partitions,
        # Compaction leaves gaps in the offsets: the number of messages is unknown.
        "messages": None if is_compacted(settings) or parent is not None else offsets,
        "messages_max": offsets,
        **retention_limits(settings),
    }


def parent_of(settings: Sequence[TopicSetting]) -> str | None:
    """The topic of which this is a view; None if it is a topic."""
    return next((each.value for each in settings if each.name == OF), None)


def is_compacted(settings: Sequence[TopicSetting]) -> bool:
    return "compact" in _policies(settings)


def _policies(settings: Sequence[TopicSetting]) -> set[str]:
    found = [each.value for each in settings if each.name == "cleanup.policy"]
    words = {word.strip() for text in found or ["delete"] for word in text.split(",")}
    # An empty policy: everything is kept.
    return words - {""}


def retention_limits(settings: Sequence[TopicSetting]) -> dict[str, object]:
    """The limits after which messages are deleted; None: no such limit."""
    values = {setting.name: setting.value for setting in settings}
    policies = _policies(settings)

    def limit(name: str) -> int | None:
        found = int(values.get(name, -1))
        return found if "delete" in policies and found >= 0 else None

    return {
        "cleanup_policy": sorted(policies),
        "retention_ms": limit("retention.ms"),
        "retention_bytes": limit("retention.bytes"),
    }


def retention(settings: Sequence[TopicSetting]) -> str:
    """How long messages are kept, in words: by time, by size, by key, or for ever."""
    limits = retention_limits(settings)
    kept_ms, kept_bytes = limits["retention_ms"], limits["retention_bytes"]
    words = []
    if isinstance(kept_ms, int):
        words.append(format_long_duration_ms(kept_ms))
    if isinstance(kept_bytes, int):
        words.append(f"{human_bytes(kept_bytes)} per partition")
    if is_compacted(settings):
        words.append("until its key has a newer one")
    return " or ".join(words) or "for ever"


# -- promises --------------------------------------------------------------------------------------------------------


class AcksAll(TypedDict):
    """What an acks=all reply guarantees."""

    # When replicas sync: always (before the reply), interval or os. None: not a Respool broker.
    flush: str | None
    # Only if `flush` is interval.
    flush_interval_ms: int | None
    # Replicas that must have the records before the reply.
    replicas_min: int


def acks_all(settings: Sequence[TopicSetting], *, replicas: int | None = None) -> AcksAll:
    """The guarantee of an acks=all reply. `replicas` is the replication factor; None: unknown."""
    values = {setting.name: setting.value for setting in settings}
    needed = int(values.get(MIN_ISR) or 1)
    every_ms = values.get("respool.flush.interval.ms", "")
    flush = values.get("respool.flush")
    return {
        "flush": flush,
        "flush_interval_ms": int(every_ms) if flush == "interval" and every_ms else None,
        # The broker lowers it to the replication factor.
        "replicas_min": needed if replicas is None else min(needed, replicas),
    }


def promise_in_words(promised: AcksAll) -> str:
    needed = promised["replicas_min"]
    together = "" if needed <= 1 else f"; at least {needed} replicas must have it"
    return _on_each_replica(promised) + together


def promise(settings: Sequence[TopicSetting], *, replicas: int | None = None) -> str:
    """The guarantee of an acks=all reply to this topic, in words."""
    return promise_in_words(acks_all(settings, replicas=replicas))


def fewest_replicas(topic: TopicMetadata) -> int | None:
    """The smallest replication factor of the topic's partitions; None: unknown."""
    return min((len(brokers) for brokers in topic.replicas.values() if brokers), default=None)


def asks_for_too_many(
    name: str, settings: Mapping[str, str], *, replicas: int | None
) -> str | None:
    """A message if the topic's min.insync.replicas exceeds its replication factor; else None."""
    asked = settings.get(MIN_ISR, "")
    if replicas is None or not asked.isdecimal() or int(asked) <= replicas:
        return None
    if replicas == 1:
        return f"{name} has only 1 replica, so {MIN_ISR}={asked} means no more than that one"
    return f"{name} has only {replicas} replicas, so {MIN_ISR}={asked} means all {replicas}"


def _on_each_replica(promised: AcksAll) -> str:
    match promised["flush"]:
        case "always":
            return "acks=all answers after the data is on disk (fdatasync)"
        case "interval":
            return (
                f"acks=all answers from the page cache; synced every {promised['flush_interval_ms']} ms: "
                "a power cut may lose up to that"
            )
        case "os":
            return "acks=all answers from the page cache; the operating system decides when: Kafka's promise"
        case _:
            return "unknown: this broker does not have respool.flush, so it is not a Respool broker"


# -- checks ----------------------------------------------------------------------------------------------------------


def check_setting_names(unset: Sequence[str], known: Sequence[str]) -> None:
    """
    Raises:
        UsageError: a name is not a topic setting; brokers ignore unknown names, as Kafka does.
    """
    for name in unset:
        if name not in known:
            alike = get_close_matches(name, known, n=1)
            hint = f"did you mean {alike[0]}?" if alike else ""
            raise UsageError(f"--unset {name}: there is no such topic setting", hint=hint)


def check_growth(topic: TopicMetadata, partitions: int, *, active: int | None = None) -> None:
    """`active`: how many partitions take messages, if the topic was shrunk.

    Raises:
        UsageError: that is fewer than now.
    """
    have = topic.partitions if active is None else active
    if partitions < have:
        raise UsageError(
            f"{topic.name} has {counted(have, 'partition')}; this command cannot shrink to {partitions}",
            hint=f"respool topic shrink {topic.name} --to {partitions} keeps the others to be read",
        )
