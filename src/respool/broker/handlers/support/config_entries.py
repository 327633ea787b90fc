"""Settings as the config APIs show them: the value, its source, and its synonyms.

A topic's setting comes from the topic itself, else from this broker's defaults, which have other names there:
`retention.ms` of a topic is `log.retention.ms` of a broker. A default comes from what was changed for this broker while
it runs, else from what was changed for all, else from the settings it was started with, else it is Kafka's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from respool.model.broker_config import ALL_BROKERS, BROKER_RULES, BrokerConfig
from respool.model.cluster import TopicImage
from respool.model.config_rules import ConfigKind
from respool.model.dynamic_config import DYNAMIC_RULES, shown_name
from respool.model.setting_fields import KAFKA_NAMES, TOPIC_DEFAULTS_IN_UNITS, SettingField
from respool.model.settings import SETTINGS, Settings
from respool.model.topic_config import CONFIG_RULES, TopicConfig
from respool.model.topic_defaults import in_topic_unit, names_of_default
from respool.model.view_config import FIXED, VIEW_RULES, config_of, settings_of


class Source(IntEnum):
    """The source of a value, in Kafka's numbers."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    GROUP = 8


class ValueType(IntEnum):
    """The type of a value, in Kafka's numbers."""

    UNKNOWN = 0
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
    # None for a secret, and for a default that is given in another unit.
    value: str | None
    read_only: bool
    synonyms: tuple[Synonym, ...]
    type: ValueType
    doc: str | None
    is_sensitive: bool = False
    # If it is not that of the first synonym.
    own_source: Source | None = None

    @property
    def source(self) -> Source:
        if self.own_source is not None:
            return self.own_source
        return self.synonyms[0].source if self.synonyms else Source.DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLayers:
    """Where a broker's settings come from, highest precedence first."""

    settings: Settings
    # Changed while the broker runs: for itself, and for all brokers.
    own: Mapping[str, str]
    of_all: Mapping[str, str]
    # The defaults of topics in force, which follow from all of these.
    defaults: TopicConfig
    # How many brokers can have a replica.
    broker_count: int = 1
    # Filled as it is asked: a request may be about thousands of topics.
    _of_default: dict[str, tuple[Synonym, ...]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        settings: Settings,
        overrides: Mapping[str, Mapping[str, str]],
        *,
        defaults: TopicConfig,
        broker_count: int = 1,
    ) -> "BrokerLayers":
        return cls(
            settings=settings,
            own=overrides.get(str(settings.broker_id), {}),
            of_all=overrides.get(ALL_BROKERS, {}),
            defaults=defaults,
            broker_count=broker_count,
        )

    def of_default(self, setting: str) -> tuple[Synonym, ...]:
        """The sources of the default of a topic setting; in each, the finer unit comes first."""
        found = self._of_default.get(setting)
        if found is None:
            found = self._of_default[setting] = self._sources_of(setting)
        return found

    def _sources_of(self, setting: str) -> tuple[Synonym, ...]:
        names = names_of_default(setting)
        coarsest, default = names[-1], _KAFKA_DEFAULTS.as_text[setting]
        if coarsest in TOPIC_DEFAULTS_IN_UNITS:
            default = str(int(default) // TOPIC_DEFAULTS_IN_UNITS[coarsest][1])
        static = {}
        if setting in self.settings.topics.overrides:
            static[names[0]] = self.settings.topic_defaults.as_text[setting]
        synonyms = (
            *_changed(names, self.own, Source.BROKER),
            *_changed(names, self.of_all, Source.ALL_BROKERS),
            *_changed(names, static, Source.STATIC_BROKER),
            Synonym(name=coarsest, value=default, source=Source.DEFAULT),
        )
        in_force = self.defaults.as_text[setting]
        if _in_topic_unit(synonyms[0]) == in_force:
            return synonyms
        # It follows from other defaults: respool.flush from log.flush.interval.ms.
        return (Synonym(name=names[0], value=in_force, source=Source.DEFAULT),)

    def of_throttle(self, name: str) -> tuple[Synonym, ...]:
        default, in_file = BrokerConfig().as_text[name], self.settings.broker_defaults.as_text[name]
        return (
            *_changed((name,), self.own, Source.BROKER),
            *_changed((name,), self.of_all, Source.ALL_BROKERS),
            *_changed((name,), {name: in_file} if in_file != default else {}, Source.STATIC_BROKER),
            Synonym(name=name, value=default, source=Source.DEFAULT),
        )

    def of_setting(self, item: SettingField, value: object) -> tuple[Synonym, ...]:
        """`value` is the one in force."""
        name = shown_name(item.name)
        default = Synonym(name=name, value=self._text(item, item.default), source=Source.DEFAULT)
        if value == item.default and item.name not in self.settings.given:
            return (default,)
        return Synonym(
            name=name, value=self._text(item, value), source=Source.STATIC_BROKER
        ), default

    def _text(self, item: SettingField, value: object) -> str | None:
        if item.is_secret:
            return None
        if isinstance(value, bool):
            return str(value).lower()
        if item.name in {"listen", "advertised"} and value:
            # Kafka's tools expect a protocol in front of an address.
            return f"PLAINTEXT://{value}"
        if item.name == "default_replication_factor" and isinstance(value, int):
            # What a topic would get: with fewer brokers there are fewer replicas.
            value = min(value, self.broker_count)
        return str(value)


def topic_entries(topic: TopicImage, layers: BrokerLayers) -> Iterator[ConfigEntry]:
    """Every setting of a topic."""
    values = topic.config.as_text
    for name, rule in CONFIG_RULES.items():
        synonyms = layers.of_default(name)
        if name in topic.overrides:
            own = Synonym(name=name, value=values[name], source=Source.TOPIC)
            synonyms = (own, *synonyms)
        elif _in_topic_unit(synonyms[0]) != values[name]:
            # It follows from the topic's other settings: respool.flush from flush.ms.
            synonyms = (Synonym(name=name, value=values[name], source=Source.DEFAULT),)
        yield ConfigEntry(
            name=name,
            value=values[name],
            read_only=False,
            synonyms=synonyms,
            type=TYPE_OF_KIND[rule.kind],
            doc=rule.doc,
        )


def view_entries(view: TopicImage) -> Iterator[ConfigEntry]:
    """Every setting of a view. It has none of a topic: what is stored is its parent's."""
    given, values = settings_of(view), config_of(view).as_text
    for name, rule in VIEW_RULES.items():
        own = Synonym(name=name, value=values[name], source=Source.TOPIC)
        default = Synonym(name=name, value=values[name], source=Source.DEFAULT)
        yield ConfigEntry(
            name=name,
            value=values[name],
            read_only=name in FIXED,
            synonyms=(own,) if name in given else (default,),
            type=TYPE_OF_KIND[rule.kind],
            doc=rule.doc,
        )


def broker_entries(layers: BrokerLayers) -> Iterator[ConfigEntry]:
    """Every setting of the broker; most are read only when it starts."""
    for name, rule in BROKER_RULES.items():
        yield _changeable(name, layers.of_throttle(name), TYPE_OF_KIND[rule.kind], rule.doc)
    values = layers.settings.flat()
    for item in SETTINGS.values():
        name = shown_name(item.name)
        if name in BROKER_RULES:
            continue
        synonyms = layers.of_setting(item, values[item.name])
        yield ConfigEntry(
            name=name,
            value=synonyms[0].value,
            read_only=True,
            synonyms=synonyms,
            type=_type_of(item),
            doc=item.doc,
            is_sensitive=item.is_secret,
        )
    for setting, rule in CONFIG_RULES.items():
        synonyms = layers.of_default(setting)
        for name in names_of_default(setting):
            # As in Kafka: a value that is given in one unit is not shown under the name of another one.
            first = next((at for at, one in enumerate(synonyms) if one.name == name), None)
            shown = () if first is None else synonyms[first:]
            known = DYNAMIC_RULES.get(name, rule)
            yield _changeable(name, shown, TYPE_OF_KIND[known.kind], known.doc)


def all_brokers_entries(layers: BrokerLayers) -> Iterator[ConfigEntry]:
    """What was changed for all brokers while they run."""
    for name, value in layers.of_all.items():
        rule = DYNAMIC_RULES[name]
        synonym = Synonym(name=name, value=value, source=Source.ALL_BROKERS)
        yield _changeable(name, (synonym,), TYPE_OF_KIND[rule.kind], rule.doc)


def _changeable(name: str, synonyms: tuple[Synonym, ...], kind: ValueType, doc: str) -> ConfigEntry:
    return ConfigEntry(
        name=name,
        value=synonyms[0].value if synonyms else None,
        read_only=name not in DYNAMIC_RULES,
        synonyms=synonyms,
        type=kind,
        doc=doc,
    )


def _in_topic_unit(synonym: Synonym) -> str:
    assert synonym.value is not None, "settings of topics are not secret"
    return in_topic_unit(synonym.name, synonym.value)


def _changed(
    names: tuple[str, ...], changed: Mapping[str, str], source: Source
) -> Iterator[Synonym]:
    for name in names:
        if name in changed:
            yield Synonym(name=name, value=changed[name], source=source)


def _type_of(item: SettingField) -> ValueType:
    if item.is_secret:
        return ValueType.PASSWORD
    if item.name in {"data", "listen", "advertised"}:
        return ValueType.LIST
    if item.kind is bool:
        return ValueType.BOOLEAN
    if item.kind is not int:
        return ValueType.STRING
    if item.name in KAFKA_NAMES:
        return ValueType.LONG if item.name in _LONG_IN_KAFKA else ValueType.INT
    return ValueType.LONG if item.name.endswith(("_ms", "_bytes_max")) else ValueType.INT


_KAFKA_DEFAULTS = TopicConfig()
_LONG_IN_KAFKA = frozenset(
    {
        "compaction_check_ms",
        "compaction_memory_bytes_max",
        "connection_idle_ms",
        "offsets_retention_check_interval_ms",
        "replica_lag_max_ms",
        "retention_check_ms",
    }
)

TYPE_OF_KIND: Mapping[ConfigKind, ValueType] = {
    ConfigKind.INT: ValueType.INT,
    ConfigKind.LONG: ValueType.LONG,
    ConfigKind.BOOLEAN: ValueType.BOOLEAN,
    ConfigKind.DOUBLE: ValueType.DOUBLE,
    ConfigKind.STRING: ValueType.STRING,
    ConfigKind.LIST: ValueType.LIST,
}
