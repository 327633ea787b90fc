"""What an acknowledgement promises for a topic, in words, by its settings and by how many replicas it has."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from respool.cli.kafka import Setting, TopicInfo

MIN_ISR = "min.insync.replicas"


def promise(settings: Sequence["Setting"], *, replicas: int | None = None) -> str:
    """What acks=all means for this topic, in words.

    `replicas` is how many its partitions have; None where it is not known.
    """
    values = {setting.name: setting.value for setting in settings}
    needed = int(values.get(MIN_ISR) or 1)
    if replicas is not None:
        # No more than there are: that is how the broker takes it.
        needed = min(needed, replicas)
    together = "" if needed <= 1 else f"; at least {needed} replicas must have it"
    return _promise_of_each(values) + together


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


def _promise_of_each(values: Mapping[str, str]) -> str:
    """What it means on every broker that holds it."""
    match values.get("respool.flush"):
        case "always":
            return "acks=all answers after the data is on disk (fdatasync)"
        case "interval":
            every_ms = values.get("respool.flush.interval.ms", "?")
            return (
                f"acks=all answers from the page cache; synced every {every_ms} ms: "
                "a power cut may lose up to that"
            )
        case "os":
            return "acks=all answers from the page cache; the operating system decides when: Kafka's promise"
        case _:
            return "unknown: this broker does not have respool.flush, so it is not a Respool broker"
