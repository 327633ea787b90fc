"""Settings as the config APIs show them: value, where it comes from, what else it could have come from.

A topic's setting comes from the topic itself, else from the `topic` table of the broker's settings, else it is Kafka's
default. The table's entries are known to Kafka's tools under the broker's names for them: `retention.ms` of a topic is
`log.retention.ms` of a broker. A few of a broker's settings are changed while it runs: for itself, or for all brokers.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from respool.broker.room_settings import broker_config_of
from respool.model.broker_config import ALL_BROKERS, BROKER_RULES, BrokerConfig
from respool.model.cluster import TopicImage
from respool.model.config_rules import ConfigKind
from respool.model.settings import Settings
from respool.model.topic_config import CONFIG_RULES, TopicConfig


class Source(IntEnum):
    """Where a value comes from, in Kafka's numbers."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class ValueType(IntEnum):
    """What a value is, in Kafka's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """A place the value could come from; the first of them is where it does come from."""

    name: str
    # None: it is a secret.
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    # None: it is a secret.
    value: str | None
    read_only: bool
    synonyms: tuple[Synonym, ...]
    type: ValueType
    doc: str

    @property
    def source(self) -> Source:
        return self.synonyms[0].source


def topic_entries(topic: TopicImage, settings: Settings) -> Iterator[ConfigEntry]:
    """Every setting of a topic."""
    values = topic.config.as_text
    for name, rule in CONFIG_RULES.items():
        synonyms = _broker_synonyms(name, settings)
        if name in topic.overrides:
            own = Synonym(name=name, value=values[name], source=Source.TOPIC)
            synonyms = (own, *synonyms)
        yield ConfigEntry(
            name=name,
            value=values[name],
            read_only=False,
            synonyms=synonyms,
            type=_TYPE_OF_KIND[rule.kind],
            doc=rule.doc,
        )


def broker_entries(
    settings: Settings, overrides: Mapping[str, Mapping[str, str]]
) -> Iterator[ConfigEntry]:
    """Every setting of the broker. But for those of `BrokerConfig` they are read when it starts."""
    yield from _changeable_entries(settings, overrides)
    for field in dataclasses.fields(Settings):
        value = getattr(settings, field.name)
        name = BROKER_NAMES.get(field.name) or "respool." + field.name.replace("_", ".")
        if field.name == "topic" or name in BROKER_RULES:
            continue
        is_default = value == field.default
        is_secret = "is_secret" in field.metadata
        synonym = Synonym(
            name=name,
            value=None if is_secret else _text(field.name, value),
            source=Source.DEFAULT if is_default else Source.STATIC_BROKER,
        )
        yield ConfigEntry(
            name=name,
            value=synonym.value,
            read_only=True,
            synonyms=(synonym,),
            type=ValueType.PASSWORD if is_secret else _type_of(field.name, value),
            doc=field.metadata["doc"],
        )
    values = settings.topic_defaults.as_text
    for name, rule in CONFIG_RULES.items():
        yield ConfigEntry(
            name=TOPIC_DEFAULT_NAMES.get(name, name),
            value=values[name],
            read_only=True,
            synonyms=_broker_synonyms(name, settings),
            type=_TYPE_OF_KIND[rule.kind],
            doc=rule.doc,
        )


def _changeable_entries(
    settings: Settings, overrides: Mapping[str, Mapping[str, str]]
) -> Iterator[ConfigEntry]:
    in_file, defaults = broker_config_of(settings).as_text, BrokerConfig().as_text
    for name, rule in BROKER_RULES.items():
        places = [
            (overrides.get(str(settings.broker_id), {}).get(name), Source.BROKER),
            (overrides.get(ALL_BROKERS, {}).get(name), Source.ALL_BROKERS),
            (in_file[name] if in_file[name] != defaults[name] else None, Source.STATIC_BROKER),
            (defaults[name], Source.DEFAULT),
        ]
        synonyms = tuple(
            Synonym(name=name, value=value, source=source)
            for value, source in places
            if value is not None
        )
        yield ConfigEntry(
            name=name,
            value=synonyms[0].value,
            read_only=False,
            synonyms=synonyms,
            type=_TYPE_OF_KIND[rule.kind],
            doc=rule.doc,
        )


def _broker_synonyms(topic_setting: str, settings: Settings) -> tuple[Synonym, ...]:
    name = TOPIC_DEFAULT_NAMES.get(topic_setting, topic_setting)
    default = Synonym(
        name=name, value=_KAFKA_DEFAULTS.as_text[topic_setting], source=Source.DEFAULT
    )
    if topic_setting not in settings.topic:
        return (default,)
    value = settings.topic_defaults.as_text[topic_setting]
    return Synonym(name=name, value=value, source=Source.STATIC_BROKER), default


def _text(field_name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if field_name in {"listen", "advertised"} and value:
        # Kafka's tools expect to find a protocol in front of an address.
        return f"PLAINTEXT://{value}"
    return str(value)


def _type_of(name: str, value: object) -> ValueType:
    if isinstance(value, bool):
        return ValueType.BOOLEAN
    if isinstance(value, int):
        return ValueType.LONG if name.endswith(("_ms", "_bytes_max")) else ValueType.INT
    return ValueType.STRING


_KAFKA_DEFAULTS = TopicConfig()

_TYPE_OF_KIND = {
    ConfigKind.INT: ValueType.INT,
    ConfigKind.LONG: ValueType.LONG,
    ConfigKind.BOOLEAN: ValueType.BOOLEAN,
    ConfigKind.DOUBLE: ValueType.DOUBLE,
    ConfigKind.STRING: ValueType.STRING,
    ConfigKind.LIST: ValueType.LIST,
}

# What Kafka calls a broker's default for a topic setting, where the names differ.
TOPIC_DEFAULT_NAMES: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
}

# Settings that mean what one of Kafka's means, and its name. The others are shown as `respool.<name>`.
BROKER_NAMES: Mapping[str, str] = {
    "data": "log.dirs",
    "listen": "listeners",
    "advertised": "advertised.listeners",
    "broker_id": "node.id",
    "rack": "broker.rack",
    "auto_create_topics": "auto.create.topics.enable",
    "num_partitions": "num.partitions",
    "default_replication_factor": "default.replication.factor",
    "connections_max": "max.connections",
    "connections_per_address_max": "max.connections.per.ip",
    "connection_idle_ms": "connections.max.idle.ms",
    "frame_bytes_max": "socket.request.max.bytes",
    "fetch_bytes_max": "fetch.max.bytes",
    "fetch_sessions_max": "max.incremental.fetch.session.cache.slots",
    "retention_check_ms": "log.retention.check.interval.ms",
    "checkpoint_ms": "log.flush.offset.checkpoint.interval.ms",
    "compaction_check_ms": "log.cleaner.backoff.ms",
    "compaction_memory_bytes_max": "log.cleaner.dedupe.buffer.size",
    "producer_id_expiration_ms": "producer.id.expiration.ms",
    "offsets_topic_partitions": "offsets.topic.num.partitions",
    "offsets_topic_replication_factor": "offsets.topic.replication.factor",
    "transaction_state_topic_replication_factor": "transaction.state.log.replication.factor",
    "group_min_session_timeout_ms": "group.min.session.timeout.ms",
    "group_max_session_timeout_ms": "group.max.session.timeout.ms",
    "group_initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms",
    "group_max_size": "group.max.size",
    "group_consumer_session_timeout_ms": "group.consumer.session.timeout.ms",
    "group_consumer_heartbeat_interval_ms": "group.consumer.heartbeat.interval.ms",
    "group_consumer_max_size": "group.consumer.max.size",
    "group_consumer_migration_policy": "group.consumer.migration.policy",
    "offset_metadata_max_bytes": "offset.metadata.max.bytes",
    "offsets_retention_minutes": "offsets.retention.minutes",
    "offsets_retention_check_interval_ms": "offsets.retention.check.interval.ms",
}
