"""What an acknowledgement promises for a topic, in words, by its settings and by how many replicas it has."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from respool.cli.kafka import Setting, TopicInfo

MIN_ISR = "min.insync.replicas"


class AcksAll(TypedDict):
    """What an acks=all answer promises."""

    # When each replica syncs: always (before the answer), interval or os. None: not a Respool broker.
    flush: str | None
    # With interval.
    flush_interval_ms: int | None
    # How many replicas must have it before the answer.
    replicas_min: int


def acks_all(settings: Sequence["Setting"], *, replicas: int | None = None) -> AcksAll:
    """What acks=all means for this topic. `replicas` is how many its partitions have; None where it is not known."""
    values = {setting.name: setting.value for setting in settings}
    needed = int(values.get(MIN_ISR) or 1)
    every_ms = values.get("respool.flush.interval.ms", "")
    flush = values.get("respool.flush")
    return {
        "flush": flush,
        "flush_interval_ms": int(every_ms) if flush == "interval" and every_ms else None,
        # No more than there are: that is how the broker takes it.
        "replicas_min": needed if replicas is None else min(needed, replicas),
    }


def in_words(promised: AcksAll) -> str:
    needed = promised["replicas_min"]
    together = "" if needed <= 1 else f"; at least {needed} replicas must have it"
    return _on_each_replica(promised) + together


def promise(settings: Sequence["Setting"], *, replicas: int | None = None) -> str:
    """What acks=all means for this topic, in words."""
    return in_words(acks_all(settings, replicas=replicas))


def fewest_replicas(topic: "TopicInfo") -> int | None:
    """How many replicas its partitions have; the fewest, where they differ. None when nobody says."""
    return min((len(brokers) for brokers in topic.replicas.values() if brokers), default=None)


def asks_for_too_many(
    name: str, settings: Mapping[str, str], *, replicas: int | None
) -> str | None:
    """What a topic's own min.insync.replicas really means, where it is more than it has replicas; else None."""
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
