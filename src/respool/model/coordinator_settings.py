"""Settings of topics and of the group and transaction coordinators. Names are Kafka's, with underscores for dots."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from respool.model.archiving.archive_topic_settings import ARCHIVE_SETTINGS
from respool.model.config_rules import INT_MAX
from respool.model.errors import InvalidConfig, SettingsError
from respool.model.setting_fields import check_choice, check_lows, setting
from respool.model.topic_config import AT_CREATION_ONLY, DAY_MS, MINUTE_MS, TopicConfig

# Kafka's limits of what groups of the next generation (KIP-848) may set for themselves.
MIN_SESSION_MS, MAX_SESSION_MS = 45_000, 60_000
MIN_HEARTBEAT_MS, MAX_HEARTBEAT_MS = 5_000, 15_000

MIGRATION_POLICIES = ("disabled", "upgrade", "downgrade", "bidirectional")
TOPIC_DOC = "Defaults of topic settings, under Kafka's names: a table of its own in the file."


@dataclass(frozen=True, kw_only=True)
class TopicSettings:
    auto_create_topics: bool = setting(
        True, "Create a missing topic if the client's request allows it."
    )
    num_partitions: int = setting(
        1, "Number of partitions of a topic created without a number.", low=1
    )
    default_replication_factor: int = setting(
        3,
        "Replication factor of a topic created without one; at most the number of brokers.",
        low=1,
    )
    partitions_max: int = setting(10_000, "Maximum number of partitions on this broker.", low=1)
    offsets_topic_partitions: int = setting(
        50,
        "Number of partitions of __consumer_offsets; has no effect once the topic exists.",
        low=1,
    )
    transactions_topic_partitions: int = setting(
        8,
        "Number of partitions of __transaction_state; has no effect once the topic exists.",
        low=1,
    )
    # Defaults under Kafka's names: the table `topic` in the settings file.
    overrides: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_lows(self)
        _ = self.defaults

    @cached_property
    def defaults(self) -> TopicConfig:
        try:
            return parse_defaults(self.overrides)
        except InvalidConfig as error:
            raise SettingsError(f"[topic] {error}") from None


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    group_min_session_timeout_ms: int = setting(
        6_000, "Minimum session timeout of a group member.", low=1
    )
    group_max_session_timeout_ms: int = setting(
        30 * MINUTE_MS, "Maximum session timeout of a group member.", low=1
    )
    group_initial_rebalance_delay_ms: int = setting(
        3_000, "How long an empty group waits for more members after the first has joined.", low=0
    )
    group_max_size: int = setting(INT_MAX, "Maximum number of members of a group.", low=1)
    group_consumer_session_timeout_ms: int = setting(
        45_000, "Session timeout of members of next-generation groups (KIP-848).", low=1
    )
    group_consumer_min_session_timeout_ms: int = setting(
        MIN_SESSION_MS, "Lowest session timeout that a group's own configuration may have.", low=1
    )
    group_consumer_max_session_timeout_ms: int = setting(
        MAX_SESSION_MS, "Highest session timeout that a group's own configuration may have.", low=1
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        5_000, "Heartbeat interval of members of next-generation groups.", low=1
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        MIN_HEARTBEAT_MS,
        "Lowest heartbeat interval that a group's own configuration may have.",
        low=1,
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        MAX_HEARTBEAT_MS,
        "Highest heartbeat interval that a group's own configuration may have.",
        low=1,
    )
    group_consumer_max_size: int = setting(
        INT_MAX, "Maximum number of members of a next-generation group.", low=1
    )
    group_consumer_migration_policy: str = setting(
        "bidirectional",
        "Which protocol changes a group with members may make: disabled, upgrade, downgrade, bidirectional.",
    )
    # In characters, as in Kafka.
    offset_metadata_max_bytes: int = setting(
        4_096, "Maximum length of the metadata string committed with an offset.", low=0
    )
    offsets_retention_minutes: int = setting(
        7 * 24 * 60, "How long the offsets of an empty group are kept.", low=1
    )
    offsets_retention_check_interval_ms: int = setting(
        10 * MINUTE_MS, "Interval between checks for expired offsets.", low=1
    )

    def __post_init__(self) -> None:
        check_lows(self)
        check_choice(
            "group_consumer_migration_policy",
            self.group_consumer_migration_policy,
            MIGRATION_POLICIES,
        )
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise SettingsError(
                f"group_min_session_timeout_ms = {self.group_min_session_timeout_ms} exceeds "
                f"group_max_session_timeout_ms = {self.group_max_session_timeout_ms}"
            )

        self._check_limits("session_timeout_ms", MIN_SESSION_MS, MAX_SESSION_MS)
        self._check_limits("heartbeat_interval_ms", MIN_HEARTBEAT_MS, MAX_HEARTBEAT_MS)

    def _check_limits(self, name: str, usual_low: int, usual_high: int) -> None:
        """A limit that was set must fit the value for all groups; one that was not set gives way to it."""
        low_name, high_name = f"group_consumer_min_{name}", f"group_consumer_max_{name}"
        value, low, high = (
            getattr(self, one) for one in (f"group_consumer_{name}", low_name, high_name)
        )
        if low != usual_low and value < low:
            raise SettingsError(f"group_consumer_{name} = {value} is below {low_name} = {low}")
        if high != usual_high and value > high:
            raise SettingsError(f"group_consumer_{name} = {value} exceeds {high_name} = {high}")
        if low > high:
            raise SettingsError(f"{low_name} = {low} exceeds {high_name} = {high}")

    @property
    def session_timeout_limits(self) -> tuple[int, int]:
        """The lowest and the highest value in a group's own configuration."""
        value = self.group_consumer_session_timeout_ms
        return (
            min(self.group_consumer_min_session_timeout_ms, value),
            max(self.group_consumer_max_session_timeout_ms, value),
        )

    @property
    def heartbeat_interval_limits(self) -> tuple[int, int]:
        """The lowest and the highest value in a group's own configuration."""
        value = self.group_consumer_heartbeat_interval_ms
        return (
            min(self.group_consumer_min_heartbeat_interval_ms, value),
            max(self.group_consumer_max_heartbeat_interval_ms, value),
        )

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * MINUTE_MS


@dataclass(frozen=True, kw_only=True)
class TransactionSettings:
    transaction_max_timeout_ms: int = setting(
        15 * MINUTE_MS, "Maximum transaction timeout a producer may request.", low=1
    )
    transactional_id_expiration_ms: int = setting(
        7 * DAY_MS, "Forget a transactional id after this long without use.", low=1
    )
    transactional_id_expiration_check_interval_ms: int = setting(
        60 * MINUTE_MS, "Interval between checks for expired transactional ids.", low=1
    )
    # How long a request waits for the markers of the previous transaction. Kafka has no such setting: there, clients
    # retry at once.
    hold_ms_max: int = 1_000

    def __post_init__(self) -> None:
        check_lows(self)
        if self.hold_ms_max < 1:
            raise SettingsError(f"hold_ms_max = {self.hold_ms_max} is below 1")


def parse_defaults(overrides: Mapping[str, str]) -> TopicConfig:
    """Parse the defaults of topic settings that a broker is given.

    Raises:
        InvalidConfig: as `TopicConfig.parse`; or a topic has one of them from its creation on, whatever the defaults.
    """
    config, usual = TopicConfig.parse(overrides), TopicConfig()
    for name in sorted(AT_CREATION_ONLY | ARCHIVE_SETTINGS):
        if config.as_text[name] != usual.as_text[name]:
            raise InvalidConfig(
                f"{name} has no default: it is set for a topic when that is created"
            )
    return config
