"""A broker's configuration about replication that can be changed at run time, under Kafka's names; it is persisted.

Defaults of topic settings can be changed, too: see `topic_defaults.py`, and `dynamic_config.py` for both together. All
other settings are read when the broker starts; see `settings.py`.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from respool.model.config_rules import (
    LONG_MAX,
    ConfigKind,
    ConfigRule,
    long_between,
    one_of,
    parse_each,
    rules_of,
    texts_of,
)
from respool.model.ids import BrokerId
from respool.model.security.acl import AccessMode

# The name under which the configuration of all brokers is stored.
ALL_BROKERS = ""
AUTHORIZATION = "respool.authorization"


@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    follower_replication_throttled_rate: int = field(
        default=LONG_MAX,
        metadata=long_between(
            0,
            LONG_MAX,
            "Bytes per second that throttled replicas on this broker may take while they catch up: those of "
            "follower.replication.throttled.replicas.",
        ),
    )
    leader_replication_throttled_rate: int = field(
        default=LONG_MAX,
        metadata=long_between(
            0,
            LONG_MAX,
            "Bytes per second that throttled replicas led by this broker may give to those who catch up: those of "
            "leader.replication.throttled.replicas.",
        ),
    )
    respool_copy_bytes_per_s_max: int = field(
        default=0,
        metadata=long_between(
            0,
            LONG_MAX,
            "Bytes per second taken by copies of partitions that are moved to this broker; 0 for no limit.",
        ),
    )

    respool_authorization: AccessMode = field(
        default=AccessMode.OFF,
        metadata=one_of(
            ConfigKind.STRING,
            AccessMode,
            "What all brokers do with ACLs: off, observe (decide and log, serve everything), or enforce.",
        ),
    )

    @classmethod
    def parse(cls, overrides: Mapping[str, str], *, base: Self | None = None) -> Self:
        """
        Raises:
            InvalidConfig: a name is unknown or a value is invalid; the message names it.
        """
        values = parse_each(overrides, BROKER_RULES, of="broker")
        return dataclasses.replace(base or cls(), **values)

    @classmethod
    def of(
        cls,
        broker: BrokerId,
        overrides: Mapping[str, Mapping[str, str]],
        *,
        base: Self | None = None,
    ) -> Self:
        """The configuration of this broker, given the overrides of all; other changed settings do not matter here."""
        changed = overrides_for(broker, overrides)
        return cls.parse(
            {name: text for name, text in changed.items() if name in BROKER_RULES}, base=base
        )

    @property
    def as_text(self) -> Mapping[str, str]:
        return texts_of(self, BROKER_RULES)


BROKER_RULES: Mapping[str, ConfigRule] = rules_of(BrokerConfig)


def overrides_for(
    broker: BrokerId, overrides: Mapping[str, Mapping[str, str]]
) -> Mapping[str, str]:
    """The configuration of this broker: its own takes precedence over that of all brokers."""
    return {**overrides.get(ALL_BROKERS, {}), **overrides.get(str(broker), {})}
