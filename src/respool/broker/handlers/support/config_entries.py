"""Settings as the config APIs show them: the value, its source, and its synonyms.

A topic's setting comes from the topic itself, else from the `topic` table of the broker's settings, else it is Kafka's
default. Kafka's tools know the table's entries by the broker's names for them: `retention.ms` of a topic is
`log.retention.ms` of a broker. A few broker settings are dynamic: they can be changed for one broker or for all.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from respool.model.broker_config import ALL_BROKERS, BROKER_RULES, BrokerConfig
from respool.model.cluster import TopicImage
from respool.model.config_rules import ConfigKind
from respool.model.setting_fields import KAFKA_NAMES, TOPIC_DEFAULT_NAMES
from respool.model.settings import SETTINGS, Settings
from respool.model.topic_config import CONFIG_RULES, TopicConfig


class Source(IntEnum):
    """The source of a value, in Kafka's numbers."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class ValueType(IntEnum):
    """The type of a value, in Kafka's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """A possible source of the value; the first one in the list is the one in effect."""

    name: str
    # None for a secret.
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    # None for a secret.
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
        elif synonyms[0].value != values[name]:
            # It follows from the topic's other settings: respool.flush from flush.ms.
            synonyms = (Synonym(name=name, value=values[name], source=Source.DEFAULT),)
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
    """Yield every setting of the broker. All except those of `BrokerConfig` are read only at startup."""
    yield from _changeable_entries(settings, overrides)
    values = settings.flat()
    for field in SETTINGS.values():
        value = values[field.name]
        name = KAFKA_NAMES.get(field.name) or "respool." + field.name.replace("_", ".")
        if name in BROKER_RULES:
            continue
        is_default = value == field.default
        synonym = Synonym(
            name=name,
            value=None if field.is_secret else _text(field.name, value),
            source=Source.DEFAULT if is_default else Source.STATIC_BROKER,
        )
        yield ConfigEntry(
            name=name,
            value=synonym.value,
            read_only=True,
            synonyms=(synonym,),
            type=ValueType.PASSWORD if field.is_secret else _type_of(field.name, value),
            doc=field.doc,
        )
    texts = settings.topic_defaults.as_text
    for name, rule in CONFIG_RULES.items():
        yield ConfigEntry(
            name=TOPIC_DEFAULT_NAMES.get(name, name),
            value=texts[name],
            read_only=True,
            synonyms=_broker_synonyms(name, settings),
            type=_TYPE_OF_KIND[rule.kind],
            doc=rule.doc,
        )


def _changeable_entries(
    settings: Settings, overrides: Mapping[str, Mapping[str, str]]
) -> Iterator[ConfigEntry]:
    in_file, defaults = settings.broker_defaults.as_text, BrokerConfig().as_text
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
    value = settings.topic_defaults.as_text[topic_setting]
    if topic_setting not in settings.topics.overrides:
        # Kafka's default, or what follows from another setting.
        return (Synonym(name=name, value=value, source=Source.DEFAULT),)
    default = Synonym(
        name=name, value=_KAFKA_DEFAULTS.as_text[topic_setting], source=Source.DEFAULT
    )
    return Synonym(name=name, value=value, source=Source.STATIC_BROKER), default


def _text(field_name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if field_name in {"listen", "advertised"} and value:
        # Kafka's tools expect a protocol in front of an address.
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
