"""A group's own configuration, under Kafka's names. It can be changed at any time and survives restarts.

Settings of share groups are in `share/share_group_config.py`. Those of streams groups are known by name, and
refused until such groups are served.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from respool.model.config_rules import INT_MAX, ConfigRule, int_between, parse_each, rules_of
from respool.model.coordinator_settings import GroupSettings
from respool.model.errors import InvalidConfig
from respool.model.share.share_broker_settings import ShareBrokerSettings
from respool.model.share.share_group_config import (
    ShareGroupConfig,
    check_share_group_config,
)

# Prefixes of settings that have no effect here, with the reasons.
_NOT_SERVED = {
    "consumer.assign": "an assignment is computed at once, with the request that causes it",
    "streams.": "streams groups (KIP-1071) are not served",
}


@dataclass(frozen=True, kw_only=True)
class GroupConfig(ShareGroupConfig):
    """None: the broker's setting for all groups applies."""

    consumer_heartbeat_interval_ms: int | None = field(
        default=None,
        metadata=int_between(
            1, INT_MAX, "Heartbeat interval of the members of this next-generation group."
        ),
    )
    consumer_session_timeout_ms: int | None = field(
        default=None,
        metadata=int_between(
            1, INT_MAX, "Session timeout of the members of this next-generation group."
        ),
    )

    @classmethod
    def parse(cls, overrides: Mapping[str, str]) -> Self:
        """
        Raises:
            InvalidConfig: a name is unknown, a value is invalid, or the setting is of a kind of group not served.
        """
        for name in overrides:
            for prefix, why in _NOT_SERVED.items():
                if name.startswith(prefix):
                    raise InvalidConfig(f"{name} would have no effect: {why}")
            if name not in GROUP_RULES:
                known = ", ".join(GROUP_RULES)
                raise InvalidConfig(f"Unknown group config name: {name}; there are {known}")
        return cls(**parse_each(overrides, GROUP_RULES, of="group"))


GROUP_RULES: Mapping[str, ConfigRule] = rules_of(GroupConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTimes:
    """The settings that apply to the members of one group."""

    heartbeat_interval_ms: int
    session_timeout_ms: int


def group_times(config: GroupConfig | None, settings: GroupSettings) -> GroupTimes:
    """The group's own values within the broker's limits, which may have changed since; else those of all groups."""
    config = config or _NOTHING
    return GroupTimes(
        heartbeat_interval_ms=_within(
            config.consumer_heartbeat_interval_ms,
            settings.group_consumer_heartbeat_interval_ms,
            settings.heartbeat_interval_limits,
        ),
        session_timeout_ms=_within(
            config.consumer_session_timeout_ms,
            settings.group_consumer_session_timeout_ms,
            settings.session_timeout_limits,
        ),
    )


def check_group_config(
    config: GroupConfig, settings: GroupSettings, shares: ShareBrokerSettings
) -> None:
    """Check a group's configuration against the limits of the broker.

    Raises:
        InvalidConfig: a value is outside of the limits, or the values contradict each other.
    """
    for name, value, (low, high) in (
        (
            "heartbeat.interval.ms",
            config.consumer_heartbeat_interval_ms,
            settings.heartbeat_interval_limits,
        ),
        (
            "session.timeout.ms",
            config.consumer_session_timeout_ms,
            settings.session_timeout_limits,
        ),
    ):
        if value is not None and not low <= value <= high:
            raise InvalidConfig(
                f"consumer.{name} = {value} is outside {low} to {high}: see group.consumer.min.{name} and "
                f"group.consumer.max.{name} of the broker"
            )
    check_share_group_config(config, shares)
    times = group_times(config, settings)
    has_own = (config.consumer_session_timeout_ms, config.consumer_heartbeat_interval_ms) != (
        None,
        None,
    )
    if has_own and times.session_timeout_ms <= times.heartbeat_interval_ms:
        raise InvalidConfig(
            f"consumer.session.timeout.ms = {times.session_timeout_ms} must be greater than "
            f"consumer.heartbeat.interval.ms = {times.heartbeat_interval_ms}"
        )


_NOTHING = GroupConfig()


def _within(own: int | None, of_all: int, limits: tuple[int, int]) -> int:
    low, high = limits
    return of_all if own is None else min(max(own, low), high)
