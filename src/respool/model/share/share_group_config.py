"""A share group's own configuration: Kafka's `share.*` and `errors.*`, and Respool's `respool.share.*`.

`GroupConfig` has these fields, too; `share_group_settings` puts them together with the broker's settings.
"""

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum

from respool.model.config_rules import (
    INT_MAX,
    ConfigKind,
    ConfigRule,
    int_between,
    one_of,
    yes_or_no,
)
from respool.model.errors import InvalidConfig, InvalidTopic
from respool.model.ids import check_topic_name
from respool.model.share.share_broker_settings import ShareBrokerSettings
from respool.model.share.share_settings import ShareGroupSettings, ShareOffsetReset

RETRY_DELAYS_MAX = 16
RETRY_DELAY_MS_MAX = 86_400_000
KEY_INFLIGHT_MAX = 100
_DURATION_DIGITS_MAX = 12
_DURATION_MS_MAX = 100 * 365 * 86_400_000

BY_DURATION = "by_duration"


class IsolationLevel(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class DeliveryOrder(StrEnum):
    """In which order a share group's members get records."""

    NONE = "none"
    # The next record of a key only when the one before is finished.
    KEY = "key"


class RetryDelays(tuple[int, ...]):
    """The pauses before redeliveries, in ms; as text they are separated by commas."""

    __slots__ = ()

    def __str__(self) -> str:
        return ",".join(map(str, self))


class OffsetReset(str):
    """Where the group begins: latest, earliest, or by_duration with an ISO 8601 duration; the text as it was given."""

    __slots__ = ()

    @property
    def parsed(self) -> ShareOffsetReset:
        kind, _, duration = self.partition(":")
        if kind == BY_DURATION:
            return ShareOffsetReset(kind=kind, duration_ms=_duration_ms(duration))
        return ShareOffsetReset(kind=kind)


# Java's Duration.parse: days, hours, minutes and seconds, upper or lower case.
_DURATION = re.compile(
    r"P(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text) if len(text) <= 100 else None
    if found is None or text[-1:] in "PpTt":
        raise InvalidConfig(f"{text[:40]!r} is not a duration such as P7D, PT12H or PT1H30M")
    days, hours, minutes, seconds, fraction = found.groups()
    parts = [days, hours, minutes, seconds]
    if any(len(part or "") > _DURATION_DIGITS_MAX for part in parts):
        raise InvalidConfig(f"{text[:40]!r} is longer than a century")
    units = (86_400_000, 3_600_000, 60_000, 1_000)
    total = sum(int(part or 0) * unit for part, unit in zip(parts, units, strict=True))
    total += int((fraction or "")[:3].ljust(3, "0"))
    if total > _DURATION_MS_MAX:
        raise InvalidConfig(f"{text[:40]!r} is longer than a century")
    return total


def _offset_reset(doc: str) -> dict[str, ConfigRule]:
    def parse(text: str) -> OffsetReset:
        kind, colon, duration = text.strip().partition(":")
        kind = kind.lower()
        if kind in ("latest", "earliest") and not colon:
            return OffsetReset(kind)
        if kind == BY_DURATION:
            _duration_ms(duration)
            return OffsetReset(f"{kind}:{duration}")
        raise InvalidConfig(
            f"{text[:40]!r} is not one of: latest, earliest, by_duration:PnDTnHnMnS"
        )

    return {"rule": ConfigRule(kind=ConfigKind.STRING, doc=doc, parse=parse)}


def _retry_delays(doc: str) -> dict[str, ConfigRule]:
    whole = int_between(0, RETRY_DELAY_MS_MAX, doc)["rule"]

    def parse(text: str) -> RetryDelays:
        words = [word.strip() for word in text.split(",")] if text.strip() else []
        if len(words) > RETRY_DELAYS_MAX:
            raise InvalidConfig(f"{len(words)} delays, at most {RETRY_DELAYS_MAX} are allowed")
        return RetryDelays(map(whole.parse, words))

    return {"rule": ConfigRule(kind=ConfigKind.LIST, doc=doc, parse=parse)}


def _topic_or_none(doc: str) -> dict[str, ConfigRule]:
    def parse(text: str) -> str:
        name = text.strip()
        if name:
            try:
                check_topic_name(name)
            except InvalidTopic as error:
                raise InvalidConfig(str(error)) from None
        return name

    return {"rule": ConfigRule(kind=ConfigKind.STRING, doc=doc, parse=parse)}


def _only(default: object, rule: dict[str, ConfigRule], *, why: str) -> dict[str, ConfigRule]:
    """A setting of Kafka's whose other values would be without effect."""
    usual = rule["rule"]

    def parse(text: str) -> object:
        value = usual.parse(text)
        if value != default:
            raise InvalidConfig(f"{text.strip()[:40]} would be without effect: {why}")
        return value

    return {"rule": replace(usual, parse=parse)}


@dataclass(frozen=True, kw_only=True)
class ShareGroupConfig:
    """None: the broker's setting for all groups applies."""

    share_session_timeout_ms: int | None = field(
        default=None,
        metadata=int_between(1, INT_MAX, "Session timeout of the members of this share group."),
    )
    share_heartbeat_interval_ms: int | None = field(
        default=None,
        metadata=int_between(1, INT_MAX, "Heartbeat interval of the members of this share group."),
    )
    share_record_lock_duration_ms: int | None = field(
        default=None,
        metadata=int_between(
            1_000, INT_MAX, "How long a record that was handed out belongs to its member."
        ),
    )
    share_delivery_count_limit: int | None = field(
        default=None,
        metadata=int_between(
            1,
            2**15 - 2,
            "A record that comes back after as many deliveries is not delivered again: it ends, or becomes a dead "
            "letter.",
        ),
    )
    share_partition_max_record_locks: int | None = field(
        default=None,
        metadata=int_between(
            1, INT_MAX, "Unfinished records that this group may have in a partition."
        ),
    )
    share_auto_offset_reset: OffsetReset = field(
        default=OffsetReset("latest"),
        metadata=_offset_reset(
            "Where the group begins in a partition: 'latest', 'earliest', or 'by_duration:PnDTnHnMnS' before now."
        ),
    )
    share_isolation_level: IsolationLevel = field(
        default=IsolationLevel.READ_UNCOMMITTED,
        metadata=one_of(
            ConfigKind.STRING,
            IsolationLevel,
            "'read_committed' delivers only records of committed transactions, and waits for open ones.",
        ),
    )
    share_renew_acknowledge_enable: bool = field(
        default=True, metadata=yes_or_no("Members may extend the locks of their records.")
    )
    share_assignment_interval_ms: int = field(
        default=1_000,
        metadata=_only(
            1_000,
            int_between(0, INT_MAX, "Only the default: an assignment is computed at once."),
            why="an assignment is computed with the request that causes it",
        ),
    )
    share_assignor_offload_enable: bool = field(
        default=False,
        metadata=_only(
            False,
            yes_or_no("Only the default: there are no threads that could compute assignments."),
            why="there are no threads that could compute assignments",
        ),
    )
    errors_deadletterqueue_topic_name: str = field(
        default="",
        metadata=_topic_or_none(
            "The topic that gets records that members reject or that come back too often; empty: none."
        ),
    )
    errors_deadletterqueue_copy_record_enable: bool = field(
        default=True,
        metadata=yes_or_no(
            "Dead letters have the record's key, value and headers; false: only where the record is."
        ),
    )
    respool_share_retry_delays_ms: RetryDelays = field(
        default=RetryDelays(),
        metadata=_retry_delays(
            "The pauses before a record that came back is delivered again, for its first return, its second and so "
            "on; the last one repeats. Empty: no pause."
        ),
    )
    respool_share_order: DeliveryOrder = field(
        default=DeliveryOrder.NONE,
        metadata=one_of(
            ConfigKind.STRING,
            DeliveryOrder,
            "'key' delivers the next record of a key only when the one before is finished.",
        ),
    )
    respool_share_key_inflight_max: int = field(
        default=1,
        metadata=int_between(
            1,
            KEY_INFLIGHT_MAX,
            "With respool.share.order=key: how many unfinished records of one key a member may hold.",
        ),
    )


def share_group_settings(
    config: ShareGroupConfig | None, settings: ShareBrokerSettings
) -> ShareGroupSettings:
    """What applies to a group: its own values within the broker's limits, which may have changed since."""
    config = config or _NOTHING
    own = {name: _within_limits(config, settings, name) for name in OF_ALL_SHARE_GROUPS}
    return ShareGroupSettings(
        session_timeout_ms=own["session_timeout_ms"],
        heartbeat_interval_ms=own["heartbeat_interval_ms"],
        lock_duration_ms=own["record_lock_duration_ms"],
        delivery_count_limit=own["delivery_count_limit"],
        record_locks_max=own["partition_max_record_locks"],
        offset_reset=config.share_auto_offset_reset.parsed,
        read_committed=config.share_isolation_level is IsolationLevel.READ_COMMITTED,
        renew_enabled=config.share_renew_acknowledge_enable,
        retry_delays_ms=tuple(config.respool_share_retry_delays_ms),
        dead_letter_topic=config.errors_deadletterqueue_topic_name or None,
        dead_letter_copies_record=config.errors_deadletterqueue_copy_record_enable,
        order_by_key=config.respool_share_order is DeliveryOrder.KEY,
        key_inflight_max=config.respool_share_key_inflight_max,
    )


def check_share_group_config(config: ShareGroupConfig, settings: ShareBrokerSettings) -> None:
    """Check a group's configuration against the limits of the broker.

    Raises:
        InvalidConfig: a value is outside of the limits, or the values contradict each other.
    """
    for name in OF_ALL_SHARE_GROUPS:
        value = getattr(config, f"share_{name}")
        low, high = settings.limits_of(name)
        if value is not None and not low <= value <= high:
            shown = name.replace("_", ".")
            raise InvalidConfig(
                f"share.{shown} = {value} is outside {low} to {high}: see group.share.min.{shown} and "
                f"group.share.max.{shown} of the broker"
            )
    resolved = share_group_settings(config, settings)
    has_own = (config.share_session_timeout_ms, config.share_heartbeat_interval_ms) != (None, None)
    if has_own and resolved.session_timeout_ms <= resolved.heartbeat_interval_ms:
        raise InvalidConfig(
            f"share.session.timeout.ms = {resolved.session_timeout_ms} must be greater than "
            f"share.heartbeat.interval.ms = {resolved.heartbeat_interval_ms}"
        )
    letters = config.errors_deadletterqueue_topic_name
    if letters and not letters.startswith(settings.errors_deadletterqueue_topic_name_prefix):
        raise InvalidConfig(
            f"errors.deadletterqueue.topic.name = {letters} does not begin with "
            f"{settings.errors_deadletterqueue_topic_name_prefix!r}: see errors.deadletterqueue.topic.name.prefix of "
            "the broker"
        )


# The settings that the broker has for all groups, and limits: `share.x` of a group is `group.share.x` of a broker.
OF_ALL_SHARE_GROUPS = (
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "record_lock_duration_ms",
    "delivery_count_limit",
    "partition_max_record_locks",
)
_NOTHING = ShareGroupConfig()


def _within_limits(config: ShareGroupConfig, settings: ShareBrokerSettings, name: str) -> int:
    value: int | None = getattr(config, f"share_{name}")
    low, high = settings.limits_of(name)
    of_all: int = getattr(settings, f"group_share_{name}")
    return of_all if value is None else min(max(value, low), high)
