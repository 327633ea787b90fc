"""A group's settings as the config APIs show them: its own, within the broker's limits, else those of all groups."""

from collections.abc import Iterator, Mapping

from respool.broker.handlers.support.config_entries import (
    TYPE_OF_KIND,
    BrokerLayers,
    ConfigEntry,
    Source,
    Synonym,
)
from respool.model.config_rules import texts_of
from respool.model.group_config import GROUP_RULES, GroupConfig, group_times
from respool.model.settings import SETTINGS

# The broker's setting for all groups.
_OF_ALL_GROUPS: Mapping[str, str] = {
    "consumer.heartbeat.interval.ms": "group_consumer_heartbeat_interval_ms",
    "consumer.session.timeout.ms": "group_consumer_session_timeout_ms",
}


def group_entries(config: GroupConfig | None, layers: BrokerLayers) -> Iterator[ConfigEntry]:
    """Every setting of a group; also of one that has none of its own, or does not exist."""
    own = texts_of(config or GroupConfig(), GROUP_RULES)
    times = group_times(config, layers.settings.groups)
    values = {
        "consumer.heartbeat.interval.ms": str(times.heartbeat_interval_ms),
        "consumer.session.timeout.ms": str(times.session_timeout_ms),
    }
    flat = layers.settings.flat()
    for name, rule in GROUP_RULES.items():
        item = SETTINGS[_OF_ALL_GROUPS[name]]
        synonyms = layers.of_setting(item, flat[item.name])
        if own[name] != str(None):
            synonyms = (
                Synonym(name=name, value=values[name], source=Source.GROUP),
                *synonyms,
            )
        yield ConfigEntry(
            name=name,
            value=values[name],
            read_only=False,
            synonyms=synonyms,
            type=TYPE_OF_KIND[rule.kind],
            doc=rule.doc,
        )
