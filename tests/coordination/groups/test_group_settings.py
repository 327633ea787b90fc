import pytest

from respool.coordination.groups.group_settings import GroupSettings
from respool.model.errors import SettingsError


def test_defaults_are_kafkas() -> None:
    settings = GroupSettings()
    assert settings.group_min_session_timeout_ms == 6_000
    assert settings.group_max_session_timeout_ms == 1_800_000
    assert settings.group_initial_rebalance_delay_ms == 3_000
    assert settings.offset_metadata_max_bytes == 4_096
    assert settings.offsets_retention_minutes == 10_080
    assert settings.offsets_retention_ms == 7 * 24 * 3_600_000
    assert settings.offsets_retention_check_interval_ms == 600_000


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"group_max_size": 0}, "group_max_size = 0 is below 1"),
        ({"offsets_retention_minutes": 0}, "offsets_retention_minutes = 0 is below 1"),
        ({"group_initial_rebalance_delay_ms": -1}, "is below 0"),
        (
            {"group_min_session_timeout_ms": 11, "group_max_session_timeout_ms": 10},
            "group_min_session_timeout_ms = 11 exceeds group_max_session_timeout_ms = 10",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(fields: dict[str, int], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        GroupSettings(**fields)  # type: ignore[arg-type]
