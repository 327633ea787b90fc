"""A broker's settings for share groups and for the share coordinator. Names are Kafka's, with underscores for dots."""

from dataclasses import dataclass

from respool.model.config_rules import INT_MAX
from respool.model.errors import SettingsError
from respool.model.setting_fields import check_lows, setting

# Kafka's limits of what share groups may set for themselves: the lowest and the highest value.
_USUAL_LIMITS = {
    "session_timeout_ms": (45_000, 60_000),
    "heartbeat_interval_ms": (5_000, 15_000),
    "record_lock_duration_ms": (15_000, 60_000),
    "delivery_count_limit": (2, 10),
    "partition_max_record_locks": (100, 4_000),
}


@dataclass(frozen=True, kw_only=True)
class ShareBrokerSettings:
    group_share_session_timeout_ms: int = setting(
        45_000, "Session timeout of members of share groups (KIP-932).", low=1
    )
    group_share_min_session_timeout_ms: int = setting(
        45_000, "Lowest session timeout that a share group's own configuration may have.", low=1
    )
    group_share_max_session_timeout_ms: int = setting(
        60_000, "Highest session timeout that a share group's own configuration may have.", low=1
    )
    group_share_heartbeat_interval_ms: int = setting(
        5_000, "Heartbeat interval of members of share groups.", low=1
    )
    group_share_min_heartbeat_interval_ms: int = setting(
        5_000, "Lowest heartbeat interval that a share group's own configuration may have.", low=1
    )
    group_share_max_heartbeat_interval_ms: int = setting(
        15_000, "Highest heartbeat interval that a share group's own configuration may have.", low=1
    )
    group_share_record_lock_duration_ms: int = setting(
        30_000, "How long a record that was handed out belongs to its member.", low=1_000
    )
    group_share_min_record_lock_duration_ms: int = setting(
        15_000, "Lowest lock duration that a share group's own configuration may have.", low=1_000
    )
    group_share_max_record_lock_duration_ms: int = setting(
        60_000, "Highest lock duration that a share group's own configuration may have.", low=1_000
    )
    group_share_delivery_count_limit: int = setting(
        5,
        "A record that comes back after as many deliveries is not delivered again: it ends, or becomes a dead letter.",
        low=1,
    )
    group_share_min_delivery_count_limit: int = setting(
        2,
        "Lowest delivery count limit that a share group's own configuration may have.",
        low=1,
    )
    group_share_max_delivery_count_limit: int = setting(
        10,
        "Highest delivery count limit that a share group's own configuration may have.",
        low=1,
    )
    group_share_partition_max_record_locks: int = setting(
        2_000, "Unfinished records that a share group may have in a partition.", low=1
    )
    group_share_min_partition_max_record_locks: int = setting(
        100,
        "Lowest number of unfinished records that a share group's own configuration may have.",
        low=1,
    )
    group_share_max_partition_max_record_locks: int = setting(
        4_000,
        "Highest number of unfinished records that a share group's own configuration may have.",
        low=1,
    )
    group_share_max_size: int = setting(200, "Maximum number of members of a share group.", low=1)
    group_share_max_share_sessions: int = setting(
        2_000, "Maximum number of share sessions of this broker.", low=1
    )
    errors_deadletterqueue_topic_name_prefix: str = setting(
        "dlq.", "What the names of topics for dead letters of share groups begin with."
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = setting(
        False, "Create a share group's missing topic for dead letters when a letter is due."
    )

    def __post_init__(self) -> None:
        check_lows(self)
        for name, usual in _USUAL_LIMITS.items():
            self._check_limits(name, usual)
        for of_all, name in (
            (self.group_share_delivery_count_limit, "group_share_delivery_count_limit"),
            (self.group_share_max_delivery_count_limit, "group_share_max_delivery_count_limit"),
        ):
            # Delivery counts have 16 bits on the wire.
            if of_all >= 2**15 - 1:
                raise SettingsError(f"{name} = {of_all} exceeds {2**15 - 2}")
        if self.group_share_session_timeout_ms <= self.group_share_heartbeat_interval_ms:
            raise SettingsError(
                f"group_share_session_timeout_ms = {self.group_share_session_timeout_ms} must be greater than "
                f"group_share_heartbeat_interval_ms = {self.group_share_heartbeat_interval_ms}"
            )

    def _check_limits(self, name: str, usual: tuple[int, int]) -> None:
        """A limit that was set must fit the value for all groups; one that was not set gives way to it."""
        low_name, high_name = f"group_share_min_{name}", f"group_share_max_{name}"
        value, low, high = (
            getattr(self, one) for one in (f"group_share_{name}", low_name, high_name)
        )
        if low != usual[0] and value < low:
            raise SettingsError(f"group_share_{name} = {value} is below {low_name} = {low}")
        if high != usual[1] and value > high:
            raise SettingsError(f"group_share_{name} = {value} exceeds {high_name} = {high}")
        if low > high:
            raise SettingsError(f"{low_name} = {low} exceeds {high_name} = {high}")

    def limits_of(self, name: str) -> tuple[int, int]:
        """The lowest and the highest value that a group may give itself: `name` as in `record_lock_duration_ms`."""
        value = getattr(self, f"group_share_{name}")
        low = getattr(self, f"group_share_min_{name}")
        high = getattr(self, f"group_share_max_{name}")
        return min(low, value), max(high, value)


@dataclass(frozen=True, kw_only=True)
class ShareCoordinatorSettings:
    share_coordinator_state_topic_partitions: int = setting(
        8,
        "Number of partitions of __share_group_state; has no effect once the topic exists.",
        low=1,
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(
        500,
        "Updates of a share partition's state after which the whole state is written again.",
        low=0,
    )
    share_coordinator_write_timeout_ms: int = setting(
        5_000,
        "How long a partition's leader tries to write the state of a share partition before it reads it again.",
        low=1,
    )
    share_coordinator_prune_interval_ms: int = setting(
        300_000,
        "Interval between deletions of records that are not needed any more from __share_group_state.",
        low=1,
    )
    share_coordinator_cold_snapshot_interval_ms: int = setting(
        300_000,
        "A share partition without changes for this long is written again, so that older records can be deleted.",
        low=1,
    )

    def __post_init__(self) -> None:
        check_lows(self)
        number = self.share_coordinator_snapshot_update_records_per_snapshot
        if number > INT_MAX:
            raise SettingsError(
                f"share_coordinator_snapshot_update_records_per_snapshot = {number} exceeds {INT_MAX}"
            )
