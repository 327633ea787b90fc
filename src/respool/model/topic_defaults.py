"""A broker's defaults of topic settings, under Kafka's names for them, and those that were changed while it runs.

`retention.ms` of a topic is `log.retention.ms` of a broker, or `log.retention.minutes` or `log.retention.hours`. Within
one place (this broker, all brokers) the finer unit takes precedence; the place matters more than the unit.
"""

from collections.abc import Mapping
from dataclasses import replace

from respool.model.broker_config import ALL_BROKERS
from respool.model.config_rules import INT_MAX, LONG_MAX, ConfigKind, ConfigRule
from respool.model.errors import InvalidConfig
from respool.model.ids import BrokerId
from respool.model.setting_fields import TOPIC_DEFAULT_NAMES, TOPIC_DEFAULTS_IN_UNITS
from respool.model.stored_topic_config import StoredTopicConfig
from respool.model.topic_config import CONFIG_RULES, WITHOUT_DEFAULT, TopicConfig

# Leader elections rely on them: the controller must assume of a leader what that leader does.
SAME_IN_CLUSTER = frozenset(
    {
        "flush.messages",
        "flush.ms",
        "min.insync.replicas",
        "respool.flush",
        "respool.flush.interval.ms",
        "unclean.leader.election.enable",
    }
)


_FLUSH = ("flush.messages", "flush.ms", "respool.flush")


def names_of_default(setting: str) -> tuple[str, ...]:
    """A broker's names for the default of a topic setting, in order of precedence."""
    coarser = (name for name, (of, _) in TOPIC_DEFAULTS_IN_UNITS.items() if of == setting)
    return (TOPIC_DEFAULT_NAMES.get(setting, setting), *coarser)


def _in_unit(setting: str, unit_ms: int, rule: ConfigRule) -> ConfigRule:
    def parse(text: str) -> int:
        try:
            count = int(text)
        except ValueError:
            raise InvalidConfig(f"{text!r} is not a whole number") from None
        if count > INT_MAX:
            raise InvalidConfig(f"{count} is above {INT_MAX}")
        if count < 0 and (setting, count) != ("retention.ms", -1):
            # Said as it was given, and not in milliseconds.
            for_ever = "; -1 is for ever" if setting == "retention.ms" else ""
            raise InvalidConfig(f"{count} is below 0{for_ever}")
        rule.parse(_in_ms(setting, count, unit_ms))
        return count

    unit = "hours" if unit_ms == 3_600_000 else "minutes"
    return ConfigRule(kind=ConfigKind.INT, doc=f"In {unit}: {rule.doc}", parse=parse)


def _retention(rule: ConfigRule) -> ConfigRule:
    """The rule without 0, which Kafka's brokers refuse too: one topic may keep nothing, but not all by default."""

    def parse(text: str) -> object:
        found = rule.parse(text)
        if found == 0:
            raise InvalidConfig(
                "0 would delete the messages of every topic without a retention of its own; -1 keeps them for ever"
            )
        return found

    return replace(rule, parse=parse)


def _in_ms(setting: str, count: int, unit_ms: int) -> str:
    # -1 is for ever, in every unit.
    is_for_ever = count == -1 and setting == "retention.ms"
    return "-1" if is_for_ever else str(min(count * unit_ms, LONG_MAX))


def in_topic_unit(name: str, text: str) -> str:
    """The value of a broker's default, in the unit of the topic setting; unchanged if it is not a number.

    `name` is one of the broker's names.
    """
    if name not in TOPIC_DEFAULTS_IN_UNITS:
        return text
    setting, unit_ms = TOPIC_DEFAULTS_IN_UNITS[name]
    try:
        return _in_ms(setting, int(text), unit_ms)
    except ValueError:
        return text


# The topic setting of each of a broker's names for a default that can be changed while it runs.
SETTING_OF_DEFAULT: Mapping[str, str] = {
    name: setting
    for setting in CONFIG_RULES
    if setting not in WITHOUT_DEFAULT
    for name in names_of_default(setting)
}


def _rule(name: str, setting: str) -> ConfigRule:
    rule = CONFIG_RULES[setting]
    if name in TOPIC_DEFAULTS_IN_UNITS:
        rule = _in_unit(setting, TOPIC_DEFAULTS_IN_UNITS[name][1], rule)
    return _retention(rule) if setting == "retention.ms" else rule


TOPIC_DEFAULT_RULES: Mapping[str, ConfigRule] = {
    name: _rule(name, setting) for name, setting in SETTING_OF_DEFAULT.items()
}


def changed_defaults(changed: Mapping[str, str]) -> dict[str, str]:
    """The topic settings in one place's changed broker settings."""
    defaults: dict[str, str] = {}
    for name, setting in SETTING_OF_DEFAULT.items():
        if name in changed:
            defaults.setdefault(setting, in_topic_unit(name, changed[name]))
    return defaults


def defaults_for(
    broker: BrokerId | None, changed: Mapping[str, Mapping[str, str]], *, static: TopicConfig
) -> StoredTopicConfig:
    """The defaults on this broker: its own changed ones, then those of all brokers, then those of its settings file.

    `changed` is by broker id as text, as stored: what a newer version wrote is read with care. `broker` None: for an
    operator, who knows no broker's own settings and so not which flush is certain.
    """
    of_all = changed_defaults(changed.get(ALL_BROKERS, {}))
    if broker is None:
        of_all = {name: text for name, text in of_all.items() if name not in _FLUSH}
        return _changed(StoredTopicConfig(config=static), of_all)
    own = changed_defaults(changed.get(str(broker), {}))
    return _changed(_changed(StoredTopicConfig(config=static), of_all), own)


def _changed(base: StoredTopicConfig, overrides: Mapping[str, str]) -> StoredTopicConfig:
    if not overrides:
        return base
    read = StoredTopicConfig.read(overrides, base=base.config)
    return replace(read, complaints=(*base.complaints, *read.complaints))
