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
from respool.model.settings import SETTINGS, Settings
from respool.model.share.share_group_config import (
    OF_ALL_SHARE_GROUPS,
    share_group_settings,
)

# The broker's setting for all groups, of the settings that it has one for.
_OF_ALL_GROUPS: Mapping[str, str] = {
    "consumer.heartbeat.interval.ms": "group_consumer_heartbeat_interval_ms",
    "consumer.session.timeout.ms": "group_consumer_session_timeout_ms",
    **{f"share.{name.replace('_', '.')}": f"group_share_{name}" for name in OF_ALL_SHARE_GROUPS},
}


def group_entries(
    config: GroupConfig | None, own: Mapping[str, str], layers: BrokerLayers
) -> Iterator[ConfigEntry]:
    """Every setting of a group; also of one that has none of its own, or does not exist.

    `own` are the settings that were set for the group.
    """
    config = config or GroupConfig()
    flat = layers.settings.flat()
    values = {**texts_of(config, GROUP_RULES), **_values_in_force(config, layers.settings)}
    for name, rule in GROUP_RULES.items():
        of_all = _OF_ALL_GROUPS.get(name)
        if of_all is not None:
            synonyms = layers.of_setting(SETTINGS[of_all], flat[of_all])
        else:
            synonyms = (Synonym(name=name, value=_DEFAULTS[name], source=Source.DEFAULT),)
        if name in own:
            synonyms = (Synonym(name=name, value=values[name], source=Source.GROUP), *synonyms)
        yield ConfigEntry(
            name=name,
            value=values[name],
            read_only=False,
            synonyms=synonyms,
            type=TYPE_OF_KIND[rule.kind],
            doc=rule.doc,
        )


def _values_in_force(config: GroupConfig, settings: Settings) -> Mapping[str, str]:
    """The values that have a default for all groups, within the broker's limits."""
    times = group_times(config, settings.groups)
    shares = share_group_settings(config, settings.shares)
    return {
        "consumer.heartbeat.interval.ms": str(times.heartbeat_interval_ms),
        "consumer.session.timeout.ms": str(times.session_timeout_ms),
        "share.session.timeout.ms": str(shares.session_timeout_ms),
        "share.heartbeat.interval.ms": str(shares.heartbeat_interval_ms),
        "share.record.lock.duration.ms": str(shares.lock_duration_ms),
        "share.delivery.count.limit": str(shares.delivery_count_limit),
        "share.partition.max.record.locks": str(shares.record_locks_max),
    }


_DEFAULTS: Mapping[str, str] = texts_of(GroupConfig(), GROUP_RULES)
