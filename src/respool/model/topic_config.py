"""A topic's settings under Kafka's names, with their meaning, defaults and limits.

Each field of `TopicConfig` is one setting: `retention_ms` is `retention.ms`. A setting is listed here only if the
broker acts on it; Kafka's others are in `kafka_settings/inert_topic_settings.py`.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Self

from respool.model.archiving.archive_topic_settings import (
    ARCHIVE_SETTINGS,
    AS_RETENTION,
    ArchiveTopicSettings,
    check_archive_settings,
)
from respool.model.conditions.tag_names import TagNames
from respool.model.config_rules import (
    INT_MAX,
    LONG_MAX,
    LONG_MIN,
    ConfigKind,
    ConfigRule,
    fraction,
    int_between,
    long_between,
    one_of,
    parse_each,
    rules_of,
    texts_of,
    yes_or_no,
)
from respool.model.delays.delay_levels import DEFAULT_LEVELS, DelayLevels, delay_levels_rule
from respool.model.errors import InvalidConfig
from respool.model.kafka_settings.compression_levels import CompressionLevels
from respool.model.kafka_settings.inert_topic_settings import REFUSED, InertTopicSettings
from respool.model.kafka_settings.kafka_flush import (
    OFF,
    flush_messages_rule,
    flush_ms_rule,
    resolve_flush,
)
from respool.model.layouts.layout_settings import LayoutSettings, check_layout_settings
from respool.model.share.queue_topic_settings import QUEUE_TOPIC_SETTINGS, QueueTopicSettings
from respool.model.tables.table_settings import (
    TABLE_SETTING_NAMES,
    TableSettings,
    check_table_settings,
)
from respool.model.throttled_replicas import ThrottledReplicas

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
MIB = 1024 * 1024
# A century.
DELAY_MS_MAX = 36_500 * DAY_MS


class Flush(StrEnum):
    """When a batch counts as written; see docs/durability.md."""

    ALWAYS = "always"
    INTERVAL = "interval"
    OS = "os"


class CompressionType(StrEnum):
    PRODUCER = "producer"
    UNCOMPRESSED = "uncompressed"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class TimestampType(StrEnum):
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class CleanupPolicy(StrEnum):
    """What happens to old records. With both, the newest record per key is kept until the retention time is over.

    Without any, all records are kept.
    """

    DELETE = "delete"
    COMPACT = "compact"


class CleanupPolicies(tuple[CleanupPolicy, ...]):
    """The policies of one topic, in the given order; as text they are separated by commas."""

    __slots__ = ()

    def __str__(self) -> str:
        return ",".join(self)


def _policies(doc: str) -> dict[str, ConfigRule]:
    def parse(text: str) -> CleanupPolicies:
        if not text.strip():
            return CleanupPolicies()
        # Repeated words have no meaning.
        words = dict.fromkeys(word.strip() for word in text.split(","))
        try:
            return CleanupPolicies(map(CleanupPolicy, words))
        except ValueError:
            known = ", ".join(CleanupPolicy)
            raise InvalidConfig(
                f"{text!r} is not one of: {known}; or both with a comma; or nothing, to keep all"
            ) from None

    return {"rule": ConfigRule(kind=ConfigKind.LIST, doc=doc, parse=parse)}


def _throttled(doc: str) -> dict[str, ConfigRule]:
    return {"rule": ConfigRule(kind=ConfigKind.LIST, doc=doc, parse=ThrottledReplicas.parse)}


@dataclass(frozen=True, kw_only=True)
class TopicConfig(
    TableSettings,
    LayoutSettings,
    QueueTopicSettings,
    InertTopicSettings,
    ArchiveTopicSettings,
    CompressionLevels,
):
    """All settings of one topic, parsed and within their limits."""

    cleanup_policy: CleanupPolicies = field(
        default=CleanupPolicies((CleanupPolicy.DELETE,)),
        metadata=_policies(
            "What happens to what is old: 'delete' removes segments by age and size, 'compact' keeps the newest "
            "record of every key, 'compact,delete' does both, and nothing keeps all."
        ),
    )
    compression_type: CompressionType = field(
        default=CompressionType.PRODUCER,
        metadata=one_of(
            ConfigKind.STRING,
            CompressionType,
            "The codec batches are stored in; 'producer' keeps what the producer chose.",
        ),
    )
    delete_retention_ms: int = field(
        default=DAY_MS,
        metadata=long_between(
            0,
            LONG_MAX,
            "With 'compact': how long a deletion (a key with no value) is still shown to readers once it is the only "
            "record of its key.",
        ),
    )
    file_delete_delay_ms: int = field(
        default=MINUTE_MS,
        metadata=long_between(0, LONG_MAX, "How long a removed file stays before it is deleted."),
    )
    flush_messages: int = field(default=OFF, metadata=flush_messages_rule())
    flush_ms: int = field(default=OFF, metadata=flush_ms_rule())
    follower_replication_throttled_replicas: ThrottledReplicas = field(
        default=ThrottledReplicas(),
        metadata=_throttled(
            "Replicas that catch up no faster than follower.replication.throttled.rate of their broker: "
            "'partition:broker' with commas, '*' for all."
        ),
    )
    index_interval_bytes: int = field(
        default=4096,
        metadata=int_between(0, INT_MAX, "How many bytes of log lie between two index entries."),
    )
    leader_replication_throttled_replicas: ThrottledReplicas = field(
        default=ThrottledReplicas(),
        metadata=_throttled(
            "Replicas that give those who catch up no more than leader.replication.throttled.rate of their broker: "
            "'partition:broker' with commas, '*' for all."
        ),
    )
    max_compaction_lag_ms: int = field(
        default=LONG_MAX,
        metadata=long_between(
            1,
            LONG_MAX,
            "With 'compact': a record older than this is compacted, however few there are.",
        ),
    )
    max_message_bytes: int = field(
        default=1_048_588,
        metadata=int_between(
            0, INT_MAX, "The largest record batch a producer may send, compressed."
        ),
    )
    message_timestamp_after_max_ms: int = field(
        default=60 * MINUTE_MS,
        metadata=long_between(
            0, LONG_MAX, "How far a record's timestamp may lie after the broker's clock."
        ),
    )
    message_timestamp_before_max_ms: int = field(
        default=LONG_MAX,
        metadata=long_between(
            0, LONG_MAX, "How far a record's timestamp may lie before the broker's clock."
        ),
    )
    message_timestamp_type: TimestampType = field(
        default=TimestampType.CREATE_TIME,
        metadata=one_of(
            ConfigKind.STRING,
            TimestampType,
            "Whose time a record carries: the producer's, or the broker's at the append.",
        ),
    )
    min_cleanable_dirty_ratio: float = field(
        default=0.5,
        metadata=fraction(
            "With 'compact': how much of a log must be new since the last compaction for the next one."
        ),
    )
    min_compaction_lag_ms: int = field(
        default=0,
        metadata=long_between(
            0, LONG_MAX, "With 'compact': a record younger than this is not compacted away."
        ),
    )
    min_insync_replicas: int = field(
        default=1,
        metadata=int_between(
            1, INT_MAX, "How many replicas must be in sync for acks=all to succeed."
        ),
    )
    respool_delay: bool = field(
        default=False,
        metadata=yes_or_no(
            "Whether records with a delay header, such as respool-delay or respool-deliver-at, are hidden from "
            "consumers until a copy of them is delivered at that time. Set at creation only."
        ),
    )
    respool_delay_levels: DelayLevels = field(
        default=DEFAULT_LEVELS,
        metadata=delay_levels_rule(
            "With respool.delay: the delays of the header respool-delay-level, from level 1 on. Set at creation only."
        ),
    )
    respool_delay_max_ms: int = field(
        default=3650 * DAY_MS,
        metadata=long_between(
            1,
            DELAY_MS_MAX,
            "With respool.delay: how long after its timestamp a record may be due. Set at creation only.",
        ),
    )
    respool_delay_pending_max: int = field(
        default=100_000_000,
        metadata=long_between(
            1,
            LONG_MAX,
            "With respool.delay: how many records may wait in a partition; more are refused. Set at creation only.",
        ),
    )
    respool_flush: Flush = field(
        default=Flush.ALWAYS,
        metadata=one_of(
            ConfigKind.STRING,
            Flush,
            "When a replica has a batch, and acks=1 (the leader) or acks=all is answered: 'always' once it is synced "
            "to disk; 'interval' and 'os' from the page cache, synced every respool.flush.interval.ms or when the "
            "system likes.",
        ),
    )
    respool_flush_interval_ms: int = field(
        default=1000,
        metadata=long_between(
            1, LONG_MAX, "With respool.flush=interval: how often the log is synced to disk."
        ),
    )
    respool_mirror: bool = field(
        default=False,
        metadata=yes_or_no(
            "Whether the topic is a copy of another cluster's, which 'respool mirror' alone writes, with the offsets "
            "it has there. Set to false, it takes ordinary producers: respool mirror promote does that well."
        ),
    )
    respool_tags: TagNames = field(
        default=TagNames(),
        metadata={
            "rule": ConfigRule(
                kind=ConfigKind.LIST,
                doc="Headers whose values are indexed for readers that filter by them, besides those that views of "
                "the topic name; 'key' is the record's key.",
                parse=TagNames.parse,
            )
        },
    )
    retention_bytes: int = field(
        default=-1,
        metadata=long_between(
            LONG_MIN, LONG_MAX, "How large a partition may grow; -1 for no limit."
        ),
    )
    retention_ms: int = field(
        default=7 * DAY_MS,
        metadata=long_between(-1, LONG_MAX, "How long records are kept; -1 for ever."),
    )
    segment_bytes: int = field(
        default=1024 * MIB,
        metadata=int_between(1024, INT_MAX, "The size at which a new segment is started."),
    )
    segment_index_bytes: int = field(
        default=10 * MIB,
        metadata=int_between(
            96, INT_MAX, "The largest size of a segment's index; when full, it rolls."
        ),
    )
    segment_jitter_ms: int = field(
        default=0,
        metadata=long_between(
            0, LONG_MAX, "At most this much is taken off segment.ms, so that not all roll at once."
        ),
    )
    segment_ms: int = field(
        default=7 * DAY_MS,
        metadata=long_between(1, LONG_MAX, "The age at which a new segment is started."),
    )
    unclean_leader_election_enable: bool = field(
        default=False,
        metadata=yes_or_no(
            "Whether a replica may lead that does not have everything, when all that have it are gone: messages "
            "that were acknowledged are lost then."
        ),
    )

    @classmethod
    def parse(cls, overrides: Mapping[str, str], *, base: Self | None = None) -> Self:
        """Parse settings given as text, on top of `base` (or of Kafka's defaults).

        Raises:
            InvalidConfig: a name is unknown or a value is invalid; the message names it.
        """
        base = base or cls()
        values = parse_each(overrides, CONFIG_RULES, of="topic", refused=REFUSED)
        values |= resolve_flush(values, messages=base.flush_messages, ms=base.flush_ms)
        if "respool_flush" in values:
            values["respool_flush"] = Flush(values["respool_flush"])
        if values.get("respool_delay", base.respool_delay):
            # A delay counts from the record's timestamp: the broker's clock delivers, so it should be the broker's.
            values.setdefault("message_timestamp_type", TimestampType.LOG_APPEND_TIME)
        config = dataclasses.replace(base, **values)
        if config.respool_delay and config.is_compacted:
            raise InvalidConfig(
                "respool.delay = true does not go with cleanup.policy = compact: a delayed record would replace one "
                "that consumers still see"
            )
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise InvalidConfig(
                f"min.compaction.lag.ms = {config.min_compaction_lag_ms} is above "
                f"max.compaction.lag.ms = {config.max_compaction_lag_ms}"
            )
        check_table_settings(config)
        if config.respool_share_delete_finished and config.is_compacted:
            raise InvalidConfig(
                "respool.share.delete.finished = true does not go with cleanup.policy = compact: the newest record of "
                "a key would be deleted with the others"
            )
        check_archive_settings(config)
        check_layout_settings(config, is_compacted=config.is_compacted)
        return config

    @property
    def is_compacted(self) -> bool:
        """True if only the newest record of each key is kept."""
        return CleanupPolicy.COMPACT in self.cleanup_policy

    @property
    def has_retention(self) -> bool:
        """True if segments are deleted by age and size."""
        return CleanupPolicy.DELETE in self.cleanup_policy

    @property
    def segment_age_ms_max(self) -> int:
        """The maximum age of the active segment. Only finished segments are compacted, so that lag counts too."""
        if self.is_compacted:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @cached_property
    def of_local_part(self) -> "TopicConfig":
        """With the retention of what is on the brokers' disks; the same if the topic is not archived."""
        if not self.remote_storage_enable:
            return self
        has_limits, local_ms, local_bytes = (
            self.has_retention,
            self.local_retention_ms,
            self.local_retention_bytes,
        )
        whole_ms, whole_bytes = (
            (self.retention_ms, self.retention_bytes) if has_limits else (-1, -1)
        )
        return dataclasses.replace(
            self,
            cleanup_policy=CleanupPolicies((CleanupPolicy.DELETE,)),
            retention_ms=whole_ms if local_ms == AS_RETENTION else local_ms,
            retention_bytes=whole_bytes if local_bytes == AS_RETENTION else local_bytes,
        )

    @cached_property
    def as_text(self) -> Mapping[str, str]:
        """Every setting by its Kafka name, as text."""
        return texts_of(self, CONFIG_RULES)


CONFIG_RULES: Mapping[str, ConfigRule] = dict(sorted(rules_of(TopicConfig).items()))

# Records that readers were shown, and due times, must not change afterwards.
AT_CREATION_ONLY = frozenset(
    {
        "respool.delay",
        "respool.delay.levels",
        "respool.delay.max.ms",
        "respool.delay.pending.max",
    }
)

# Settings about a topic's own replicas or identity, which do not apply to another topic with the same settings.
OF_ITSELF = TABLE_SETTING_NAMES | {
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "respool.mirror",
}

# A broker's defaults do not have them: what is set once for a topic must not follow from what may change.
WITHOUT_DEFAULT = OF_ITSELF | AT_CREATION_ONLY | ARCHIVE_SETTINGS | QUEUE_TOPIC_SETTINGS
