"""Settings of the group coordinator. Names and defaults are Kafka's, with the dots made underscores."""

from dataclasses import dataclass

from respool.model.errors import SettingsError
from respool.model.topic_config import MINUTE_MS

_INT32_MAX = 2**31 - 1

MIGRATION_POLICIES = ("disabled", "upgrade", "downgrade", "bidirectional")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 30 * MINUTE_MS
    # A group without members waits this long for more of them before it shares out partitions.
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = _INT32_MAX
    # Of the next-generation protocol, where members do not choose these themselves.
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = _INT32_MAX
    # Which way groups may change protocol while they have members: disabled, upgrade, downgrade, bidirectional.
    group_consumer_migration_policy: str = "bidirectional"
    # Of the string committed with an offset; in characters, as Kafka counts.
    offset_metadata_max_bytes: int = 4_096
    # How long the offsets of a group without members are kept.
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 10 * MINUTE_MS

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * MINUTE_MS

    def __post_init__(self) -> None:
        for name, low in _LOWEST.items():
            value = getattr(self, name)
            if value < low:
                raise SettingsError(f"{name} = {value} is below {low}")
        if self.group_consumer_migration_policy not in MIGRATION_POLICIES:
            raise SettingsError(
                f"group_consumer_migration_policy = {self.group_consumer_migration_policy!r} is not one of "
                f"{', '.join(MIGRATION_POLICIES)}"
            )
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise SettingsError(
                f"group_min_session_timeout_ms = {self.group_min_session_timeout_ms} exceeds "
                f"group_max_session_timeout_ms = {self.group_max_session_timeout_ms}"
            )


_LOWEST = {
    "group_min_session_timeout_ms": 1,
    "group_max_session_timeout_ms": 1,
    "group_initial_rebalance_delay_ms": 0,
    "group_max_size": 1,
    "group_consumer_session_timeout_ms": 1,
    "group_consumer_heartbeat_interval_ms": 1,
    "group_consumer_max_size": 1,
    "offset_metadata_max_bytes": 0,
    "offsets_retention_minutes": 1,
    "offsets_retention_check_interval_ms": 1,
}
