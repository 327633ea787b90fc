"""Topic settings about the number of partitions: how it is made smaller, and whether it changes by itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from respool.model.config_rules import (
    INT_MAX,
    LONG_MAX,
    ConfigKind,
    int_between,
    long_between,
    one_of,
    yes_or_no,
)
from respool.model.errors import InvalidConfig
from respool.model.layouts.elastic_mode import ElasticMode

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSettings:
    respool_elastic: ElasticMode = field(
        default=ElasticMode.OFF,
        metadata=one_of(
            ConfigKind.STRING,
            ElasticMode,
            "Whether the topic gets twice as many partitions under load, and half as many after quiet hours: 'off'; "
            "'unkeyed' for records whose keys need no order; 'on' also with keys, which may move when it grows.",
        ),
    )
    respool_elastic_max_partitions: int = field(
        default=64,
        metadata=int_between(
            1, INT_MAX, "With respool.elastic: no growth beyond this number of partitions."
        ),
    )
    respool_elastic_min_partitions: int = field(
        default=1,
        metadata=int_between(
            1, INT_MAX, "With respool.elastic: no shrink below this number of partitions."
        ),
    )
    respool_elastic_pause_ms: int = field(
        default=10 * MINUTE_MS,
        metadata=long_between(
            MINUTE_MS,
            LONG_MAX,
            "With respool.elastic: how long the number of partitions stays after any change of it.",
        ),
    )
    respool_elastic_target_bytes_per_second: int = field(
        default=5_000_000,
        metadata=long_between(
            1,
            LONG_MAX,
            "With respool.elastic: what one partition should take from producers. Above it for a minute the topic "
            "grows; it shrinks after an hour in which half as many partitions would have had less than half of it.",
        ),
    )
    respool_mirror_active_partitions: int = field(
        default=0,
        metadata=int_between(
            0,
            INT_MAX,
            "With respool.mirror: how many partitions take records at the source, if it was shrunk; 0 for all. "
            "'respool mirror' keeps it, and 'respool mirror promote' shrinks the topic to it.",
        ),
    )
    respool_partitions_shrink: bool = field(
        default=False,
        metadata=yes_or_no(
            "Whether CreatePartitions with a smaller number shrinks the topic; false: it is refused, as by Kafka. "
            "'respool topic shrink' needs no such permission."
        ),
    )
    respool_shrink_barrier_ms: int = field(
        default=30_000,
        metadata=long_between(
            0,
            LONG_MAX,
            "After a shrink, and after a later growth: how long consumers are at most not shown new records of a "
            "partition while a group has not read what the same keys got before, in another one; 0 for not at all.",
        ),
    )


# Of a topic whose settings contradict each other.
NOT_ELASTIC: Mapping[str, Any] = {
    "respool_elastic": ElasticMode.OFF,
    "respool_elastic_min_partitions": 1,
    "respool_elastic_max_partitions": INT_MAX,
}


def check_layout_settings(settings: LayoutSettings, *, is_compacted: bool) -> None:
    """
    Raises:
        InvalidConfig: the settings contradict each other.
    """
    if settings.respool_elastic_min_partitions > settings.respool_elastic_max_partitions:
        raise InvalidConfig(
            f"respool.elastic.min.partitions = {settings.respool_elastic_min_partitions} is above "
            f"respool.elastic.max.partitions = {settings.respool_elastic_max_partitions}"
        )
    if settings.respool_elastic is not ElasticMode.OFF and is_compacted:
        raise InvalidConfig(
            f"respool.elastic = {settings.respool_elastic}: a compacted topic cannot be shrunk"
        )
