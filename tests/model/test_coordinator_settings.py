import pytest

from respool.model.coordinator_settings import GroupSettings, TransactionSettings
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


def test_defaults_of_transactions_are_kafkas() -> None:
    settings = TransactionSettings()
    assert settings.transaction_max_timeout_ms == 900_000
    assert settings.transactional_id_expiration_ms == 604_800_000
    assert settings.transactional_id_expiration_check_interval_ms == 3_600_000


@pytest.mark.parametrize(
    "name",
    [
        "transaction_max_timeout_ms",
        "transactional_id_expiration_ms",
        "transactional_id_expiration_check_interval_ms",
        "hold_ms_max",
    ],
)
def test_transaction_settings_that_cannot_be_are_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} = 0 is below 1"):
        TransactionSettings(**{name: 0})
