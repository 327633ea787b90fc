import pytest

from respool.coordination.transactions.transaction_settings import TransactionSettings
from respool.model.errors import SettingsError


def test_defaults_are_kafkas() -> None:
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
def test_settings_that_cannot_be_are_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} = 0 is below 1"):
        TransactionSettings(**{name: 0})
