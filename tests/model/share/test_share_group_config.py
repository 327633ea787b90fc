"""A share group's own configuration, and the broker's limits for it."""

import pytest

from respool.model.errors import InvalidConfig
from respool.model.group_config import GroupConfig
from respool.model.share.share_broker_settings import ShareBrokerSettings
from respool.model.share.share_group_config import (
    check_share_group_config,
    share_group_settings,
)
from respool.model.share.share_settings import ShareGroupSettings, ShareOffsetReset

LOCK = "share.record.lock.duration.ms"
LETTERS = "errors.deadletterqueue.topic.name"


def test_a_group_without_settings_has_kafkas_defaults() -> None:
    assert share_group_settings(None, ShareBrokerSettings()) == ShareGroupSettings()
    assert share_group_settings(GroupConfig(), ShareBrokerSettings()) == ShareGroupSettings()


def test_every_setting_has_its_effect() -> None:
    config = GroupConfig.parse(
        {
            "share.session.timeout.ms": "50000",
            "share.heartbeat.interval.ms": "6000",
            LOCK: "20000",
            "share.delivery.count.limit": "3",
            "share.partition.max.record.locks": "150",
            "share.auto.offset.reset": "by_duration:P1DT2H3M4.5S",
            "share.isolation.level": "read_committed",
            "share.renew.acknowledge.enable": "false",
            LETTERS: "dlq.billing",
            "errors.deadletterqueue.copy.record.enable": "false",
            "respool.share.retry.delays.ms": "1000, 10000,60000",
            "respool.share.order": "key",
            "respool.share.key.inflight.max": "2",
        }
    )
    check_share_group_config(config, ShareBrokerSettings())
    assert share_group_settings(config, ShareBrokerSettings()) == ShareGroupSettings(
        session_timeout_ms=50_000,
        heartbeat_interval_ms=6_000,
        lock_duration_ms=20_000,
        delivery_count_limit=3,
        record_locks_max=150,
        offset_reset=ShareOffsetReset(
            kind="by_duration", duration_ms=((26 * 60 + 3) * 60 + 4) * 1_000 + 500
        ),
        read_committed=True,
        renew_enabled=False,
        retry_delays_ms=(1_000, 10_000, 60_000),
        dead_letter_topic="dlq.billing",
        dead_letter_copies_record=False,
        order_by_key=True,
        key_inflight_max=2,
    )


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (LOCK, "14999", "outside 15000 to 60000: see group.share.min.record.lock.duration.ms"),
        (LOCK, "60001", "group.share.max.record.lock.duration.ms"),
        (LOCK, "999", LOCK),
        (LOCK, "long", "whole number"),
        ("share.delivery.count.limit", "1", "group.share.min.delivery.count.limit"),
        ("share.delivery.count.limit", "11", "group.share.max.delivery.count.limit"),
        ("share.partition.max.record.locks", "99", "min.partition.max.record.locks"),
        ("share.session.timeout.ms", "44999", "group.share.min.session.timeout.ms"),
        ("share.heartbeat.interval.ms", "15001", "group.share.max.heartbeat.interval.ms"),
        ("share.auto.offset.reset", "none", "latest, earliest, by_duration"),
        ("share.auto.offset.reset", "latest:", "latest, earliest, by_duration"),
        ("share.auto.offset.reset", "by_duration", "is not a duration"),
        ("share.auto.offset.reset", "by_duration:P", "is not a duration"),
        ("share.auto.offset.reset", "by_duration:PT", "is not a duration"),
        ("share.auto.offset.reset", "by_duration:-P1D", "is not a duration"),
        ("share.auto.offset.reset", "by_duration:P999999D", "longer than a century"),
        ("share.auto.offset.reset", "by_duration:P9999999999999D", "longer than a century"),
        ("share.isolation.level", "serializable", "read_uncommitted, read_committed"),
        ("share.renew.acknowledge.enable", "yes", "true, false"),
        ("respool.share.retry.delays.ms", "1000,x", "whole number"),
        ("respool.share.retry.delays.ms", "86400001", "outside 0 to 86400000"),
        ("respool.share.retry.delays.ms", ",".join(["1"] * 17), "at most 16"),
        ("respool.share.order", "partition", "none, key"),
        ("respool.share.key.inflight.max", "0", "outside 1 to 100"),
        (LETTERS, "a b", "a b"),
        (LETTERS, "letters", "does not begin with 'dlq.'"),
        ("share.no.such", "1", "Unknown group config name: share.no.such"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_the_reason(name: str, text: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        check_share_group_config(GroupConfig.parse({name: text}), ShareBrokerSettings())


def test_a_session_must_be_longer_than_the_interval_of_heartbeats() -> None:
    settings = ShareBrokerSettings(group_share_min_session_timeout_ms=10_000)
    config = GroupConfig.parse(
        {"share.session.timeout.ms": "10000", "share.heartbeat.interval.ms": "10000"}
    )
    with pytest.raises(InvalidConfig, match="must be greater"):
        check_share_group_config(config, settings)


def test_a_stored_value_gives_way_to_limits_that_have_changed() -> None:
    config = GroupConfig.parse({LOCK: "60000"})
    settings = ShareBrokerSettings(group_share_max_record_lock_duration_ms=40_000)
    assert share_group_settings(config, settings).lock_duration_ms == 40_000
    # What the operator gives all groups is within the limits.
    settings = ShareBrokerSettings(group_share_record_lock_duration_ms=2_000)
    assert share_group_settings(None, settings).lock_duration_ms == 2_000


@pytest.mark.parametrize(
    ("name", "default", "other", "why"),
    [
        ("share.assignment.interval.ms", "1000", "500", "with the request that causes it"),
        ("share.assignor.offload.enable", "False", "true", "no threads"),
    ],
)
def test_settings_without_effect_have_only_their_defaults(
    name: str, default: str, other: str, why: str
) -> None:
    GroupConfig.parse({name: default})
    with pytest.raises(InvalidConfig, match=why):
        GroupConfig.parse({name: other})
