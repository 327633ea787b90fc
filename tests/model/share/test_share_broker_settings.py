"""A broker's settings for share groups."""

import pytest

from respool.model.errors import SettingsError
from respool.model.share.share_broker_settings import (
    ShareBrokerSettings,
    ShareCoordinatorSettings,
)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"group_share_max_size": 0}, "group_share_max_size = 0 is below 1"),
        ({"group_share_record_lock_duration_ms": 999}, "is below 1000"),
        (
            {
                "group_share_record_lock_duration_ms": 20_000,
                "group_share_min_record_lock_duration_ms": 30_000,
            },
            "is below group_share_min_record_lock_duration_ms = 30000",
        ),
        (
            {"group_share_delivery_count_limit": 9, "group_share_max_delivery_count_limit": 8},
            "exceeds group_share_max_delivery_count_limit = 8",
        ),
        (
            {
                "group_share_min_delivery_count_limit": 5,
                "group_share_max_delivery_count_limit": 4,
            },
            "group_share_max_delivery_count_limit = 4",
        ),
        ({"group_share_delivery_count_limit": 32_767}, "exceeds 32766"),
        (
            {
                "group_share_session_timeout_ms": 5_000,
                "group_share_heartbeat_interval_ms": 5_000,
            },
            "must be greater than",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(fields: dict[str, int], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        ShareBrokerSettings(**fields)  # type: ignore[arg-type]


def test_a_limit_that_was_not_set_gives_way_to_the_value_of_all_groups() -> None:
    settings = ShareBrokerSettings(group_share_record_lock_duration_ms=1_000)
    assert settings.limits_of("record_lock_duration_ms") == (1_000, 60_000)


def test_settings_of_the_share_coordinator_that_cannot_be_are_refused() -> None:
    with pytest.raises(SettingsError, match="is below 1"):
        ShareCoordinatorSettings(share_coordinator_state_topic_partitions=0)
    with pytest.raises(SettingsError, match="exceeds"):
        ShareCoordinatorSettings(share_coordinator_snapshot_update_records_per_snapshot=2**31)
