"""A group's own configuration, and the broker's limits for it."""

import pytest

from respool.model.coordinator_settings import GroupSettings
from respool.model.errors import InvalidConfig
from respool.model.group_config import GroupConfig, check_group_config, group_times
from respool.model.share.share_broker_settings import ShareBrokerSettings

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def check(settings: GroupSettings, **overrides: str) -> None:
    names = {"session": SESSION, "interval": INTERVAL}
    config = GroupConfig.parse({names[name]: text for name, text in overrides.items()})
    check_group_config(config, settings, ShareBrokerSettings())


def test_a_group_without_a_value_has_that_of_all_groups() -> None:
    settings = GroupSettings(group_consumer_session_timeout_ms=50_000)
    assert group_times(None, settings).session_timeout_ms == 50_000
    config = GroupConfig.parse({SESSION: "55000"})
    assert group_times(config, settings).session_timeout_ms == 55_000
    assert group_times(config, settings).heartbeat_interval_ms == 5_000


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ({"session": "44999"}, "outside 45000 to 60000: see group.consumer.min.session.timeout.ms"),
        ({"session": "60001"}, "group.consumer.max.session.timeout.ms"),
        ({"interval": "4999"}, "outside 5000 to 15000"),
        ({"interval": "15001"}, "group.consumer.max.heartbeat.interval.ms"),
        ({"interval": "0"}, INTERVAL),
        ({"interval": "often"}, INTERVAL),
    ],
)
def test_a_value_outside_of_the_limits_is_refused(overrides: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        check(GroupSettings(), **overrides)


def test_a_session_must_be_longer_than_the_interval_of_heartbeats() -> None:
    settings = GroupSettings(group_consumer_min_session_timeout_ms=10_000)
    check(settings, session="10001", interval="10000")
    with pytest.raises(InvalidConfig, match="must be greater"):
        check(settings, session="10000", interval="10000")


def test_what_the_operator_gives_all_groups_is_within_the_limits() -> None:
    settings = GroupSettings(
        group_consumer_session_timeout_ms=1_000, group_consumer_heartbeat_interval_ms=200
    )
    check(settings, session="1000", interval="200")
    with pytest.raises(InvalidConfig, match="outside 200 to 15000"):
        check(settings, interval="199")


def test_a_stored_value_gives_way_to_limits_that_have_changed() -> None:
    settings = GroupSettings(group_consumer_max_session_timeout_ms=50_000)
    config = GroupConfig.parse({SESSION: "60000"})
    assert group_times(config, settings).session_timeout_ms == 50_000


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("streams.num.standby.replicas", "streams groups"),
        ("consumer.assignment.interval.ms", "at once"),
        ("no.such", "Unknown group config name: no.such"),
    ],
)
def test_settings_that_would_have_no_effect_are_refused_with_the_reason(
    name: str, why: str
) -> None:
    with pytest.raises(InvalidConfig, match=why):
        GroupConfig.parse({name: "1"})
